//! A pool's place in the book of caps.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use super::{CapLimits, Caps, Denied, PoolId, Scope};
use crate::Time;

/// The book of caps, shared by all pools of a process.
///
/// Its lock is taken when a server is opened, closed, or refused for want of room, and when one comes
/// free while some pool is denied. Order of locks: a ledger's, then this one; never two ledgers'.
#[derive(Debug, Default)]
pub struct SharedCaps {
    book: Mutex<Caps>,
    /// How many pools are denied, to be read without the lock.
    short: AtomicUsize,
}

/// One pool's place in it.
#[derive(Debug)]
pub struct Seat {
    caps: Arc<SharedCaps>,
    pool: PoolId,
}

impl SharedCaps {
    /// Reads or changes the book.
    pub fn with<R>(&self, act: impl FnOnce(&mut Caps) -> R) -> R {
        let mut book = self.book.lock();
        let result = act(&mut book);
        self.short.store(book.short(), Ordering::Relaxed);
        result
    }
}

impl Seat {
    /// A place for a pool of this database and user.
    #[must_use]
    pub fn new(caps: &Arc<SharedCaps>, pool: PoolId, names: [&str; 2], limits: CapLimits) -> Self {
        caps.with(|book| book.join(pool, names[0], names[1], limits));
        Self {
            caps: Arc::clone(caps),
            pool,
        }
    }

    /// A place under caps of its own that limit nothing.
    #[must_use]
    pub fn unlimited() -> Self {
        let limits = CapLimits {
            database: 0,
            user: 0,
            process: 0,
            weight: 1,
        };
        Self::new(&Arc::default(), PoolId(0), ["", ""], limits)
    }

    /// Gives the place up.
    pub fn part(&mut self) {
        self.caps.with(|book| book.part(self.pool));
    }

    pub(super) fn set_limits(&self, limits: CapLimits) -> Vec<PoolId> {
        self.caps.with(|book| book.set_limits(self.pool, limits))
    }

    pub(super) fn take(&self, now: Time) -> Result<(), Denied> {
        self.caps.with(|book| book.take(self.pool, now))
    }

    pub(super) fn take_spare(&self) -> bool {
        self.caps.with(|book| book.take_spare(self.pool))
    }

    pub(super) fn take_anyway(&self) -> Option<Scope> {
        self.caps.with(|book| book.take_anyway(self.pool))
    }

    pub(super) fn claim(&self) -> bool {
        self.caps.with(|book| book.claim(self.pool))
    }

    pub(super) fn search_again(&self) -> Vec<Scope> {
        self.caps.with(|book| book.search_again(self.pool))
    }

    pub(super) fn give_back(&self) -> Vec<PoolId> {
        self.caps.with(|book| book.give_back(self.pool))
    }

    pub(super) fn withdraw(&self) {
        self.caps.with(|book| book.withdraw(self.pool));
    }

    /// Takes no lock while nobody is denied. Whoever is denied later mails every worker, and so comes
    /// to see a server that was kept for want of a fresh look.
    pub(super) fn must_go(&self, wanted: bool, now: Time) -> bool {
        self.caps.short.load(Ordering::Relaxed) > 0
            && self.caps.with(|book| book.must_go(self.pool, wanted, now))
    }

    pub(super) fn usage(&self, scope: Scope) -> (u32, u32) {
        self.caps.with(|book| book.usage(self.pool, scope))
    }
}
