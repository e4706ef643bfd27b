//! How many servers a process keeps while its clients leave for the next one.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use super::PoolNote;
use crate::{SharedPool, Time, pool::PoolId};

/// For so many microseconds a place is kept that was lent, whoever else waits for it; then it goes back when
/// its server comes free.
const SLICE: u64 = 1_000_000;

/// What the process keeps of its pools while its clients leave.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    is_wanted: bool,
    pools: HashMap<PoolId, Kept>,
}

#[derive(Debug)]
struct Kept {
    pool: Arc<SharedPool>,
    first: u32,
    keeps: u32,
    /// So many more, lent by the other process,
    borrowed: u32,
    /// since this time,
    borrowed_at: Time,
    /// and so many in all since it began.
    lent: u32,
    /// What the other process was told.
    told: Option<(u32, u32)>,
}

impl Retained {
    /// Fewer clients are left, or as many: how many servers are kept for them?
    pub(crate) fn shrink(&mut self, pool: &Arc<SharedPool>, held: u32, now: Time) -> Option<u32> {
        self.shrunk(pool, held, now).map(|kept| kept.most())
    }

    fn shrunk(&mut self, pool: &Arc<SharedPool>, held: u32, now: Time) -> Option<&mut Kept> {
        if !self.is_wanted {
            return None;
        }
        let kept = self.pools.entry(pool.id).or_insert_with(|| Kept {
            pool: Arc::clone(pool),
            first: held,
            keeps: u32::MAX,
            borrowed: 0,
            borrowed_at: now,
            lent: 0,
            told: None,
        });
        let clients = u32::try_from(pool.clients.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        kept.keeps = kept.keeps.min(kept.first / 2).min(clients);
        if clients == 0 || now.since(kept.borrowed_at) >= SLICE {
            kept.borrowed = 0;
        }
        Some(kept)
    }

    /// One more is lent: how many may there be?
    pub(crate) fn borrow(&mut self, pool: &Arc<SharedPool>, held: u32, now: Time) -> Option<u32> {
        let kept = self.shrunk(pool, held, now)?;
        kept.lent += 1;
        kept.borrowed += 1;
        kept.borrowed_at = now;
        Some(kept.most())
    }

    /// What is known of a pool.
    pub(crate) fn note(&self, pool: &SharedPool) -> Option<PoolNote> {
        let kept = self.pools.get(&pool.id)?;
        Some(kept.note(kept.most()))
    }

    /// Pools of which the other process was told: they live until the end.
    pub(crate) fn known(&self) -> Vec<Arc<SharedPool>> {
        self.pools
            .values()
            .map(|kept| Arc::clone(&kept.pool))
            .collect()
    }

    pub(crate) fn say_again(&mut self) {
        for kept in self.pools.values_mut() {
            kept.told = None;
        }
    }

    /// Clients leave from here on.
    pub(crate) fn begin(&mut self) {
        self.is_wanted = true;
    }

    /// All is as it was. Workers that have not heard of it yet find nothing to do.
    pub(crate) fn forget(&mut self) {
        self.is_wanted = false;
        self.pools.clear();
    }

    /// The message for the other process: how many servers of this pool are left here; `None` if it knows.
    pub(crate) fn look(
        &mut self,
        pool: &Arc<SharedPool>,
        held: u32,
        now: Time,
    ) -> Option<PoolNote> {
        let kept = self.shrunk(pool, held, now)?;
        let held = held.max(kept.most());
        let is_news = kept.told.replace((held, kept.lent)) != Some((held, kept.lent));
        is_news.then(|| kept.note(held))
    }
}

impl Kept {
    /// The most servers that the pool may have here.
    fn most(&self) -> u32 {
        self.keeps.saturating_add(self.borrowed)
    }

    fn note(&self, held: u32) -> PoolNote {
        PoolNote {
            database: self.pool.key.database.to_string(),
            user: self.pool.key.user.to_string(),
            held,
            lent: self.lent,
            keys: None,
        }
    }
}
