//! The clients of a worker that wait until a standby has replayed earlier writes (`read_after_write`).

use std::ops::RangeInclusive;

use crate::{Time, Token, pool::PoolId};

/// The limits of the pause between two checks of a standby, in microseconds. The pause is a quarter of the time for which a client has
/// waited.
const PAUSE: RangeInclusive<u64> = 300..=10_000;

/// A client that waits until a host has replayed earlier writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplayWait {
    pub(crate) client: Token,
    pub(crate) pool: PoolId,
    /// When the wait ends.
    pub(crate) until: Time,
}

/// The clients that wait, and the time of the next check.
#[derive(Debug, Default)]
pub(crate) struct ReplayWaits {
    waits: Vec<ReplayWait>,
    check_at: Option<Time>,
}

impl ReplayWaits {
    /// Adds a client.
    pub(crate) fn add(&mut self, wait: ReplayWait) {
        self.waits.push(wait);
    }

    /// Takes all clients: each one is served, or added again.
    pub(crate) fn take(&mut self) -> Vec<ReplayWait> {
        std::mem::take(&mut self.waits)
    }

    /// Plans the next check of the standbys for a client that waits since this time.
    pub(crate) fn plan_check(&mut self, since: Time, now: Time) {
        let pause = (now.since(since) / 4).clamp(*PAUSE.start(), *PAUSE.end());
        let at = now.after(pause);
        self.check_at = Some(self.check_at.map_or(at, |planned| planned.min(at)));
    }

    /// Returns whether the wait of a client is over.
    pub(crate) fn are_any_over(&self, now: Time) -> bool {
        self.waits.iter().any(|wait| wait.until <= now)
    }

    /// Returns whether the planned check is due. It is not planned any more then.
    pub(crate) fn take_due_check(&mut self, now: Time) -> bool {
        self.check_at.take_if(|at| *at <= now).is_some()
    }

    /// Returns the pools of the clients that wait, each once.
    pub(crate) fn pools(&self) -> Vec<PoolId> {
        let mut pools: Vec<PoolId> = self.waits.iter().map(|wait| wait.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// Returns the clients that wait for servers of this pool.
    pub(crate) fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = Token> {
        let waits = self.waits.iter().filter(move |wait| wait.pool == pool);
        waits.map(|wait| wait.client)
    }

    /// Returns when the next check is due, or the time of a client is over.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Time> {
        if self.waits.is_empty() {
            return self.check_at;
        }
        let ends = self.waits.iter().map(|wait| wait.until);
        ends.chain(self.check_at).min()
    }
}
