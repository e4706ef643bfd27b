//! What the pool may have: by the configuration, and beside another process of an online restart.

use super::{Ledger, Notes};
use crate::{
    Time,
    pool::{CapLimits, Limits},
};

impl Ledger {
    /// New limits. Servers above a smaller size are closed when they come free.
    pub fn set_limits(&mut self, limits: Limits, caps: CapLimits, now: Time) -> Notes {
        self.configured = limits;
        self.limits = self.limits_in_force();
        let mut notes = Notes {
            room: self.seat.set_limits(caps),
            ..Notes::default()
        };
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// The clients of the pool leave for another process: not more servers than this are opened, or kept
    /// when they come free, whatever the configuration says.
    pub fn restrict(&mut self, size: u32) {
        self.restriction = Some(size);
        self.limits = self.limits_in_force();
    }

    /// They stay. Whose clients wait is to call [`set_limits`](Self::set_limits).
    pub fn unrestrict(&mut self) {
        self.restriction = None;
        self.limits = self.limits_in_force();
    }

    fn limits_in_force(&self) -> Limits {
        let Some(most) = self.restriction else {
            return self.configured;
        };
        Limits {
            size: self.configured.size.min(most),
            reserve: 0,
            overflow: 0,
            min: 0,
            pinned_overflow: 0,
            ..self.configured
        }
    }

    /// The process that this one takes over from has so many servers of the pool: they count like its own.
    pub fn set_elsewhere(&mut self, count: u32, now: Time) -> Notes {
        self.elsewhere = count;
        let mut notes = Notes::default();
        while self.seats_elsewhere < self.elsewhere && self.seat.take_spare() {
            self.seats_elsewhere += 1;
        }
        while self.seats_elsewhere > self.elsewhere {
            self.seats_elsewhere -= 1;
            notes.room.extend(self.seat.give_back());
        }
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Servers of this process, and of the one that it takes over from.
    pub(super) fn all(&self) -> u32 {
        self.servers.saturating_add(self.elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Token, WorkerId,
        pool::{Connecting, Grant, Opening, Order, PoolId, Seat},
    };

    const A: WorkerId = WorkerId(0);
    const NOW: Time = Time(0);

    fn limits(size: u32) -> Limits {
        Limits {
            size,
            reserve: 3,
            reserve_after: 1,
            overflow: 0,
            overflow_waiting: 0,
            pinned: 1,
            pinned_overflow: 0,
            min: 1,
            connecting: 4,
            order: Order::Auto,
            retry: 1_000,
        }
    }

    const CAPS: CapLimits = CapLimits {
        database: 0,
        user: 0,
        process: 0,
        weight: 1,
    };

    #[test]
    fn a_reload_lifts_no_restriction_and_the_end_of_it_brings_back_the_last_limits() {
        let mut ledger = Ledger::new(1, limits(2), Seat::unlimited());
        ledger.restrict(0);
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let (_, notes) = ledger.wait(A, client, NOW);
        assert_eq!(notes.open, None);
        let notes = ledger.set_limits(limits(5), CAPS, NOW.after(10));
        assert_eq!((notes.open, ledger.limits().size), (None, 0));
        ledger.unrestrict();
        assert_eq!(ledger.limits(), &limits(5));
        let notes = ledger.set_limits(limits(5), CAPS, NOW.after(10));
        assert_eq!(notes.open, Some(A));
    }

    #[test]
    fn an_idle_server_goes_for_a_client_that_wants_its_own_under_a_full_cap() {
        let caps = CapLimits {
            database: 1,
            ..CAPS
        };
        let seat = Seat::new(&Default::default(), PoolId(0), ["d", "u"], caps);
        let mut ledger = Ledger::new(2, limits(2), seat);
        assert_eq!(ledger.fill(A, NOW).open, Some(A));
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        let _ = ledger.connected(A, Connecting::Done, NOW);
        assert_eq!(ledger.offer_fresh(A, NOW), Grant::Keep);
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let (_, notes) = ledger.wait_native(WorkerId(1), client, NOW);
        assert_eq!(notes.native, None, "the cap is full");
        assert!(notes.wanted.has(A));
        assert_eq!(ledger.offer(A, NOW), Grant::Evict);
        let notes = ledger.closed(A, NOW);
        assert_eq!(notes.room, [PoolId(0)]);
        let native = ledger.room(NOW).native;
        assert_eq!(native.map(|(worker, _)| worker), Some(WorkerId(1)));
    }
}
