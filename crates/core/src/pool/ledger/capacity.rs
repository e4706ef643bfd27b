//! How many servers a pool may have: its size, and what is allowed above the size while clients wait.

use super::{Ledger, Notes};
use crate::{Time, WorkerId, pool::Waiter};

/// The rule by which a pool may open one more server connection than its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    /// The reserve, since a client has waited for long.
    Reserve,
    /// The overflow, since many clients wait.
    Overflow,
    /// Pinned servers, since clients keep more of them than planned.
    Pinned,
}

/// Whether a server that its client would keep is wanted by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// By nobody.
    No,
    /// By clients that wait while the pool has all the servers that it may have: each has its turn.
    InTurn,
    /// By somebody who is not to wait for it.
    Now,
}

impl Ledger {
    /// May it have one more?
    pub(super) fn has_room(&self, now: Time) -> bool {
        self.all() < self.limits.in_force.size || self.all() < self.most_now(now)
    }

    /// `worker`, which is told, has a server that it would rather keep for its client: does anybody want it? If not,
    /// the worker is no longer told.
    pub fn wanted(&mut self, worker: WorkerId, now: Time) -> Wanted {
        if self.caps.must_go(false, now) || self.is_exclusive_turn(now) {
            return Wanted::Now;
        }
        if self.oldest().is_none() {
            self.offers.workers.remove(worker);
            self.offers.pending.remove(worker);
            return Wanted::No;
        }
        match self.all() >= self.limits.in_force.size {
            true => Wanted::InTurn,
            false => Wanted::Now,
        }
    }

    /// Returns how many of the servers that clients keep after their transactions are needed: one for each waiter for
    /// whom no other server is about to come free.
    #[must_use]
    pub fn kept_needed(&self, now: Time) -> usize {
        if self.caps.must_go(false, now) || self.is_exclusive_turn(now) {
            return usize::MAX;
        }
        self.waiting.saturating_sub(self.servers.reading as usize)
    }

    /// `worker` has kept servers that are not needed now: it is asked again when the next client waits.
    pub fn withholds(&mut self, worker: WorkerId) {
        self.offers.workers.remove(worker);
    }

    /// A kept server that was to serve a waiter stays with its client: workers may have others.
    pub fn kept_was_pinned(&mut self, now: Time) -> Notes {
        let mut notes = Notes::default();
        if self.kept_needed(now) > 0 {
            self.ask_owners_to_offer(&mut notes);
        }
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// A client keeps its server from here on.
    pub fn pin(&mut self, now: Time) -> Notes {
        self.servers.pinned += 1;
        let mut notes = Notes::default();
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// It does so no more.
    pub fn unpin(&mut self) {
        self.servers.pinned -= 1;
    }

    /// Servers that clients keep.
    #[must_use]
    pub fn pinned(&self) -> u32 {
        self.servers.pinned
    }

    /// More servers than the limits allow at any time?
    #[must_use]
    pub fn is_above_size(&self) -> bool {
        let waiting = self
            .limits
            .in_force
            .reserve
            .saturating_add(self.limits.in_force.overflow);
        let above = waiting.saturating_add(self.pinned_above());
        self.servers.all > self.limits.in_force.size.saturating_add(above)
    }

    /// The most that it may have at this time.
    fn most_now(&self, now: Time) -> u32 {
        let waiting = self.reserve_now(now).saturating_add(self.overflow_now());
        let above = waiting.saturating_add(self.pinned_above());
        self.limits.in_force.size.saturating_add(above)
    }

    /// What allows a server above the size at this time.
    pub(super) fn above(&self, now: Time) -> Above {
        match self.reserve_now(now) {
            0 if self.pinned_above() > 0 => Above::Pinned,
            0 => Above::Overflow,
            _ => Above::Reserve,
        }
    }

    /// Who waits is not to suffer for those who keep servers.
    fn pinned_above(&self) -> u32 {
        let above = self
            .servers
            .pinned
            .saturating_sub(self.limits.in_force.pinned);
        above.min(self.limits.in_force.pinned_overflow)
    }

    /// The reserve is for those who have waited for long.
    fn reserve_now(&self, now: Time) -> u32 {
        let after = self.limits.in_force.reserve_after;
        let is_due = |(_, oldest): (WorkerId, Waiter)| now.since(oldest.since) >= after;
        let is_used =
            self.limits.in_force.reserve > 0 && after > 0 && self.oldest().is_some_and(is_due);
        if is_used {
            self.limits.in_force.reserve
        } else {
            0
        }
    }

    /// The overflow is for many who wait.
    fn overflow_now(&self) -> u32 {
        let is_used = self.waiting > self.limits.in_force.overflow_waiting as usize;
        if is_used {
            self.limits.in_force.overflow
        } else {
            0
        }
    }
}
