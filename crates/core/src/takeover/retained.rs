//! The number of servers that the old process keeps while it hands its clients over.

use std::{collections::HashMap, sync::Arc};

use super::PoolNote;
use crate::{SharedPool, Time, pool::PoolId};

/// Microseconds for which the old process keeps a lent place while others wait for it. After that, the place goes back
/// when its server becomes free.
const SLICE: u64 = 1_000_000;

/// The servers that the old process keeps, by pool.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    is_wanted: bool,
    pools: HashMap<PoolId, RetainedServers>,
}

#[derive(Debug)]
struct RetainedServers {
    pool: Arc<SharedPool>,
    first: u32,
    keeps: u32,
    /// The number of places that the other process has lent and that were not given back.
    borrowed: u32,
    /// The time at which the last of these was lent.
    borrowed_at: Time,
    /// The number of places lent since the handover began.
    lent: u32,
    /// The last report to the other process.
    reported: Option<(u32, u32)>,
}

impl Retained {
    /// Lowers the number of servers that the old process keeps to what the remaining clients need, and returns it.
    pub(crate) fn shrink(&mut self, pool: &Arc<SharedPool>, held: u32, now: Time) -> Option<u32> {
        self.shrunk(pool, held, now).map(|kept| kept.most())
    }

    fn shrunk(
        &mut self,
        pool: &Arc<SharedPool>,
        held: u32,
        now: Time,
    ) -> Option<&mut RetainedServers> {
        if !self.is_wanted {
            return None;
        }
        let kept = self
            .pools
            .entry(pool.id)
            .or_insert_with(|| RetainedServers {
                pool: Arc::clone(pool),
                first: held,
                keeps: u32::MAX,
                borrowed: 0,
                borrowed_at: now,
                lent: 0,
                reported: None,
            });
        let clients = u32::try_from(pool.client_count()).unwrap_or(u32::MAX);
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

    /// Returns the note about a pool that was sent to the other process last.
    pub(crate) fn note(&self, pool: &SharedPool) -> Option<PoolNote> {
        let kept = self.pools.get(&pool.id)?;
        Some(kept.note(kept.most()))
    }

    /// Returns the pools that were reported to the other process. The handover keeps them alive until its end.
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

    /// Begins the handover.
    pub(crate) fn begin(&mut self) {
        self.is_wanted = true;
    }

    /// Ends a handover that has failed. Workers that do not know this yet find no pool here, and keep all servers.
    pub(crate) fn forget(&mut self) {
        self.is_wanted = false;
        self.pools.clear();
    }

    /// Returns the number of this pool's servers in this process, to be reported to the other one; `None` if the number
    /// has not changed.
    pub(crate) fn report(
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

impl RetainedServers {
    /// Returns the largest number of servers that the pool may have in this process.
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
