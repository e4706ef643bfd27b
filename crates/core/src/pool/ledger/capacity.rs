//! The number of servers that a pool may have: its size, and the servers allowed above the size while clients wait.

use super::{Ledger, Notes};
use crate::{Time, WorkerId, pool::Waiter};

/// The rule by which a pool may open one more server connection than its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AboveSize {
    /// The reserve, since a client has waited for long.
    Reserve,
    /// The overflow, since many clients wait.
    Overflow,
    /// Pinned servers, since clients keep more of them than `max_pinned`.
    Pinned,
}

/// Whether other clients need a server that its client would keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerDemand {
    /// No other client needs the server.
    None,
    /// Clients wait, and the pool may open no more servers: clients with servers take turns with them.
    InTurn,
    /// A client waits and must get the server at once.
    Now,
}

impl Ledger {
    /// Notes that an idle server of a worker moves to another one. Its new worker offers it when it arrives there, if any
    /// client waits: as the owner, that worker is asked to offer its servers.
    pub fn move_idle(&mut self, from: WorkerId, to: WorkerId) {
        self.servers.owned[from.index()] -= 1;
        self.servers.owned[to.index()] += 1;
    }

    /// Returns whether the pool may have one more server.
    pub(super) fn has_room(&self, now: Time) -> bool {
        self.all() < self.limits.in_force.size || self.all() < self.max_servers_now(now)
    }

    /// Returns whether other clients need a server that `worker` would keep for its client. `worker` offers its free
    /// servers to the ledger at present; if no client needs one, the ledger stops asking for them.
    pub fn demand(&mut self, worker: WorkerId, now: Time) -> ServerDemand {
        if self.caps.must_give_up_server(false, now) || self.is_exclusive_turn(now) {
            return ServerDemand::Now;
        }
        if self.waits.count() == 0 {
            self.offers.workers.remove(worker);
            self.offers.pending.remove(worker);
            return ServerDemand::None;
        }
        match self.all() >= self.limits.in_force.size {
            true => ServerDemand::InTurn,
            false => ServerDemand::Now,
        }
    }

    /// Returns how many of the servers that clients keep after their transactions are needed: one for each waiter for
    /// whom no other server is about to come free.
    #[must_use]
    pub fn kept_needed(&self, now: Time) -> usize {
        if self.caps.must_give_up_server(false, now) || self.is_exclusive_turn(now) {
            return usize::MAX;
        }
        self.waits
            .count()
            .saturating_sub(self.servers.reading as usize)
    }

    /// Notes that `worker` has kept servers that are not needed now: it is asked again when the next client waits.
    pub fn withholds(&mut self, worker: WorkerId) {
        self.offers.workers.remove(worker);
    }

    /// Notes that a kept server that was to serve a waiting client stays with its client. Workers may have other
    /// servers to offer.
    pub fn kept_was_pinned(&mut self, now: Time) -> Notes {
        let mut notes = Notes::default();
        if self.kept_needed(now) > 0 {
            self.ask_owners_to_offer(&mut notes);
        }
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Notes that a client keeps its server from now on.
    pub fn pin(&mut self, now: Time) -> Notes {
        self.servers.pinned += 1;
        let mut notes = Notes::default();
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Notes that a client no longer keeps its server.
    pub fn unpin(&mut self) {
        self.servers.pinned -= 1;
    }

    /// Returns the number of servers that clients keep.
    #[must_use]
    pub fn pinned(&self) -> u32 {
        self.servers.pinned
    }

    /// Returns whether the pool has more servers than the limits allow at any time.
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

    /// Returns the largest number of servers that the pool may have at this time.
    fn max_servers_now(&self, now: Time) -> u32 {
        let waiting = self.reserve_now(now).saturating_add(self.overflow_now());
        let above = waiting.saturating_add(self.pinned_above());
        self.limits.in_force.size.saturating_add(above)
    }

    /// Returns the rule that allows a server above the size at this time.
    pub(super) fn above(&self, now: Time) -> AboveSize {
        match self.reserve_now(now) {
            0 if self.pinned_above() > 0 => AboveSize::Pinned,
            0 => AboveSize::Overflow,
            _ => AboveSize::Reserve,
        }
    }

    /// Returns how many servers the pool may have above its size because clients keep servers, so that other clients
    /// still find servers.
    fn pinned_above(&self) -> u32 {
        let above = self
            .servers
            .pinned
            .saturating_sub(self.limits.in_force.pinned);
        above.min(self.limits.in_force.pinned_overflow)
    }

    /// Returns the size of the reserve, if a client has waited for long enough.
    fn reserve_now(&self, now: Time) -> u32 {
        let after = self.limits.in_force.reserve_after;
        let is_due = |(_, oldest): (WorkerId, Waiter)| now.since(oldest.since) >= after;
        let is_used = self.limits.in_force.reserve > 0
            && after > 0
            && self.waits.oldest().is_some_and(is_due);
        if is_used {
            self.limits.in_force.reserve
        } else {
            0
        }
    }

    /// Returns the size of the overflow, if enough clients wait.
    fn overflow_now(&self) -> u32 {
        let is_used = self.waits.count() > self.limits.in_force.overflow_waiting as usize;
        if is_used {
            self.limits.in_force.overflow
        } else {
            0
        }
    }
}
