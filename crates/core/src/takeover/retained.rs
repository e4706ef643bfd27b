//! How many servers the old process keeps while it hands its clients over.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use super::PoolNote;
use crate::{SharedPool, Time, pool::PoolId};

/// Microseconds for which the old process keeps a lent place, whoever else waits for it. After that, the place goes
/// back when its server becomes free.
const SLICE: u64 = 1_000_000;

/// The servers that the old process keeps, by pool.
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
    /// How many places the other process has lent,
    borrowed: u32,
    /// since when,
    borrowed_at: Time,
    /// and how many in all since the handover began.
    lent: u32,
    /// The last report to the other process.
    reported: Option<(u32, u32)>,
}

impl Retained {
    /// Returns how many servers are kept for the clients that are left.
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
            reported: None,
        });
        let clients = u32::try_from(pool.clients.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        kept.keeps = kept.keeps.min(kept.first / 2).min(clients);
        if clients == 0 || now.since(kept.borrowed_at) >= SLICE {
            kept.borrowed = 0;
        }
        Some(kept)
    }

    /// Adds a lent place, and returns how many servers there may be.
    pub(crate) fn take_lent_place(
        &mut self,
        pool: &Arc<SharedPool>,
        held: u32,
        now: Time,
    ) -> Option<u32> {
        let kept = self.shrunk(pool, held, now)?;
        kept.lent += 1;
        kept.borrowed += 1;
        kept.borrowed_at = now;
        Some(kept.most())
    }

    /// The last note about a pool.
    pub(crate) fn note(&self, pool: &SharedPool) -> Option<PoolNote> {
        let kept = self.pools.get(&pool.id)?;
        Some(kept.note(kept.most()))
    }

    /// The pools that were reported to the other process. They are kept alive until the end of the handover.
    pub(crate) fn known(&self) -> Vec<Arc<SharedPool>> {
        self.pools
            .values()
            .map(|kept| Arc::clone(&kept.pool))
            .collect()
    }

    pub(crate) fn report_again(&mut self) {
        for kept in self.pools.values_mut() {
            kept.reported = None;
        }
    }

    /// The handover begins.
    pub(crate) fn begin(&mut self) {
        self.is_wanted = true;
    }

    /// The handover has failed. Workers that do not know this yet find nothing to keep here.
    pub(crate) fn forget(&mut self) {
        self.is_wanted = false;
        self.pools.clear();
    }

    /// The report to the other process of how many servers of this pool are left here; `None` if nothing has changed.
    pub(crate) fn look(
        &mut self,
        pool: &Arc<SharedPool>,
        held: u32,
        now: Time,
    ) -> Option<PoolNote> {
        let kept = self.shrunk(pool, held, now)?;
        let held = held.max(kept.most());
        let is_news = kept.reported.replace((held, kept.lent)) != Some((held, kept.lent));
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
