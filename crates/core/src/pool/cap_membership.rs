//! A pool's entry in the caps that pools share.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use super::{CapLimits, Caps, Denied, PoolId, Scope};
use crate::Time;

/// The caps of a process, shared by all of its pools.
///
/// The lock is taken when a server is opened, closed or denied, and when a server becomes free while a pool is denied.
/// Order of locks: a ledger's lock first, then this one; never the locks of two ledgers.
#[derive(Debug, Default)]
pub struct SharedCaps {
    caps: Mutex<Caps>,
    /// The number of denied pools, which can be read without the lock.
    short: AtomicUsize,
}

/// One pool's entry in the caps.
#[derive(Debug)]
pub struct CapMembership {
    caps: Arc<SharedCaps>,
    pool: PoolId,
}

impl SharedCaps {
    /// Reads or changes the caps.
    pub fn with<R>(&self, act: impl FnOnce(&mut Caps) -> R) -> R {
        let mut caps = self.caps.lock();
        let result = act(&mut caps);
        self.short.store(caps.short(), Ordering::Relaxed);
        result
    }
}

impl CapMembership {
    /// Creates an entry for a pool of this database, user and group of hosts.
    #[must_use]
    pub fn new(caps: &Arc<SharedCaps>, pool: PoolId, names: [&str; 3], limits: CapLimits) -> Self {
        caps.with(|caps| caps.join(pool, names, limits));
        Self {
            caps: Arc::clone(caps),
            pool,
        }
    }

    /// Creates an entry in separate caps without limits.
    #[must_use]
    pub fn unlimited() -> Self {
        let limits = CapLimits {
            database: 0,
            user: 0,
            process: 0,
            weight: 1,
        };
        Self::new(&Arc::default(), PoolId(0), ["", "", ""], limits)
    }

    /// Removes the entry.
    pub fn part(&mut self) {
        self.caps.with(|caps| caps.part(self.pool));
    }

    pub(super) fn set_limits(&self, group: &str, limits: CapLimits) -> Vec<PoolId> {
        (self.caps).with(|caps| caps.set_limits(self.pool, group, limits))
    }

    pub(super) fn take(&self, now: Time) -> Result<(), Denied> {
        self.caps.with(|caps| caps.take(self.pool, now))
    }

    pub(super) fn take_spare(&self) -> bool {
        self.caps.with(|caps| caps.take_spare(self.pool))
    }

    /// Like [`take_spare`](Self::take_spare), for a connection that is not counted as a login under way.
    pub(super) fn take_without_login(&self) -> bool {
        self.caps.with(|caps| {
            let is_taken = caps.take_spare(self.pool);
            if is_taken {
                caps.forget_login();
            }
            is_taken
        })
    }

    pub(super) fn take_anyway(&self) -> Option<Scope> {
        self.caps.with(|caps| caps.take_anyway(self.pool))
    }

    pub(super) fn claim(&self) -> bool {
        self.caps.with(|caps| caps.claim(self.pool))
    }

    pub(super) fn search_again(&self) -> Vec<Scope> {
        self.caps.with(|caps| caps.search_again(self.pool))
    }

    pub(super) fn give_back(&self) -> Vec<PoolId> {
        self.caps.with(|caps| caps.give_back(self.pool))
    }

    pub(super) fn end_login(&self) -> Vec<PoolId> {
        self.caps.with(Caps::end_login)
    }

    pub(super) fn begin_closing(&self) {
        self.caps.with(|caps| caps.begin_closing(self.pool));
    }

    pub(super) fn end_closing(&self) -> Vec<PoolId> {
        self.caps.with(|caps| caps.end_closing(self.pool))
    }

    pub(super) fn withdraw(&self) {
        self.caps.with(|caps| caps.withdraw(self.pool));
    }

    /// Returns whether a server of this pool has to be closed for another pool. Takes no lock while no pool is denied.
    /// The number of denied pools may be outdated, which is safe: a pool that is denied later begins a search through
    /// all workers, and this search finds the server.
    pub(super) fn must_give_up_server(&self, wanted: bool, now: Time) -> bool {
        self.caps.short.load(Ordering::Relaxed) > 0
            && self
                .caps
                .with(|caps| caps.must_give_up_server(self.pool, wanted, now))
    }

    pub(super) fn usage(&self, scope: Scope) -> (u32, u32) {
        self.caps.with(|caps| caps.usage(self.pool, scope))
    }
}
