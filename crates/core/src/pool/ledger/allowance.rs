//! The limits of a pool at present: those of the configuration, or lower ones during an online restart.

use super::{Ledger, Notes, exclusive::ELSEWHERE};
use crate::{
    Time, WorkerId,
    pool::{CapLimits, Limits, Waiter},
};

impl Ledger {
    /// Sets new limits. `caps`: the group of hosts whose cap holds for the pool, and the limits of the pool's caps.
    /// Servers above a smaller size are closed when they become free.
    pub fn set_limits(&mut self, limits: Limits, caps: (&str, CapLimits), now: Time) -> Notes {
        self.limits.configured = limits;
        self.limits.in_force = self.limits_in_force();
        let mut notes = Notes {
            room: self.caps.set_limits(caps.0, caps.1),
            ..Notes::default()
        };
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Limits the pool to at most `size` servers while clients are handed over to another process, whatever the
    /// configuration says.
    pub fn restrict(&mut self, size: u32) {
        self.limits.restriction = Some(size);
        self.limits.in_force = self.limits_in_force();
    }

    /// Ends the restriction. A caller whose clients wait then calls [`set_limits`](Self::set_limits).
    pub fn unrestrict(&mut self) {
        self.limits.restriction = None;
        self.limits.in_force = self.limits_in_force();
    }

    fn limits_in_force(&self) -> Limits {
        let Some(most) = self.limits.restriction else {
            return self.limits.configured;
        };
        Limits {
            size: self.limits.configured.size.min(most),
            reserve: 0,
            overflow: 0,
            min: 0,
            pinned_overflow: 0,
            ..self.limits.configured
        }
    }

    /// Returns whether clients wait while only the restriction prevents one more server.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        let is_full =
            self.limits.restriction.is_some() && self.servers.all >= self.limits.in_force.size;
        is_full && self.is_short() && !self.paused && self.open
    }

    /// Notes that the old process has `count` servers of the pool, which count like this process's own. `lent` is the
    /// number of lent places that the old process knows of. It will also use those that it does not know of yet.
    pub fn set_old_process_servers(&mut self, count: u32, lent: u32, now: Time) -> Notes {
        self.elsewhere.servers = count.saturating_add(self.elsewhere.lends.saturating_sub(lent));
        let mut notes = Notes::default();
        while self.elsewhere.slots < self.elsewhere.servers && self.caps.take_without_login() {
            self.elsewhere.slots += 1;
        }
        while self.elsewhere.slots > self.elsewhere.servers {
            self.elsewhere.slots -= 1;
            notes.room.extend(self.caps.give_back());
        }
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Notes that clients of the old process wait. The old process gets a place in the queue, like a client that waits
    /// for an exclusive server. `lent` is the number of lent places that it knows of.
    pub fn add_old_process_to_queue(&mut self, lent: u32, now: Time) -> Notes {
        let mut notes = Notes::default();
        // The last lent place is on its way.
        if lent < self.elsewhere.lends {
            return notes;
        }
        if self.exclusive.elsewhere().is_none() {
            let ticket = self.ticket();
            let waiter = Waiter {
                ticket,
                client: ELSEWHERE,
                since: now,
            };
            self.exclusive.push(WorkerId(0), waiter);
        }
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Returns whether the old process has servers, or waits for a place.
    #[must_use]
    pub fn involves_old_process(&self) -> bool {
        self.elsewhere.servers > 0
            || self.elsewhere.lends > 0
            || self.exclusive.elsewhere().is_some()
    }

    /// Notes that the old process has ended.
    pub fn end_old_process(&mut self, now: Time) -> Notes {
        if let Some(ticket) = self.exclusive.elsewhere() {
            self.exclusive.remove(ticket);
            self.note_wait_ended();
        }
        self.elsewhere.lends = 0;
        self.set_old_process_servers(0, 0, now)
    }

    /// Lends the old process the place that was just taken for it.
    pub(super) fn lend(&mut self, notes: &mut Notes) {
        self.elsewhere.servers += 1;
        self.elsewhere.slots += 1;
        self.elsewhere.lends += 1;
        // The old process logs in.
        notes.room.extend(self.caps.end_login());
        notes.lend = true;
    }

    /// Notes that `worker` has taken over a server of another process, which is in use. For a moment both processes may
    /// count the server. This is safe, while a server that no process counts could exceed the limit. The worker may not
    /// know yet that clients wait.
    pub fn adopted(&mut self, worker: WorkerId) -> Notes {
        self.servers.all += 1;
        self.servers.owned[worker.index()] += 1;
        let mut notes = Notes {
            search: self.caps.take_anyway().into_iter().collect(),
            ..Notes::default()
        };
        if self.waits.count() > 0 || self.has_exclusive_waits() {
            self.ask_owners_to_offer(&mut notes);
        }
        notes
    }

    /// Returns the number of servers of this process and of the old one.
    pub(super) fn all(&self) -> u32 {
        self.servers.all.saturating_add(self.elsewhere.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Token,
        pool::{CapMembership, Grant, LoginOutcome, Opening, PoolId, Scope, SharedCaps, WaitOrder},
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
            order: WaitOrder::Auto,
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
        let mut ledger = Ledger::new(1, limits(2), CapMembership::unlimited());
        ledger.restrict(0);
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let (_, notes) = ledger.wait(A, client, NOW);
        assert_eq!(notes.open, None);
        let notes = ledger.set_limits(limits(5), ("", CAPS), NOW.after(10));
        assert_eq!((notes.open, ledger.limits().size), (None, 0));
        ledger.unrestrict();
        assert_eq!(ledger.limits(), &limits(5));
        let notes = ledger.set_limits(limits(5), ("", CAPS), NOW.after(10));
        assert_eq!(notes.open, Some(A));
    }

    #[test]
    fn a_place_is_lent_in_turn_and_counted_until_it_is_given_back() {
        let mut ledger = Ledger::new(
            1,
            Limits {
                reserve: 0,
                ..limits(1)
            },
            CapMembership::unlimited(),
        );
        let client = |slot| Token {
            slot,
            generation: 0,
        };
        let (_, notes) = ledger.wait(A, client(1), NOW);
        assert_eq!(notes.open, Some(A));
        assert!(
            !ledger.add_old_process_to_queue(0, NOW).lend,
            "there is one, and it is not idle"
        );
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        let _ = ledger.wait(A, client(2), NOW);
        let _ = ledger.connected(A, LoginOutcome::Done, NOW);
        assert!(
            matches!(ledger.offer(A, NOW), Grant::OwnWaiter(waiter) if waiter.client == client(1))
        );
        assert_eq!(ledger.offer(A, NOW), Grant::Evict, "its turn has come");
        let notes = ledger.closed(A, NOW);
        assert!(notes.lend && notes.open.is_none());
        assert!(
            !ledger.add_old_process_to_queue(0, NOW).lend,
            "one is on its way"
        );
        // This report was sent before the old process knew of the lent place.
        assert_eq!(ledger.set_old_process_servers(0, 0, NOW).open, None);
        assert_eq!(ledger.set_old_process_servers(1, 1, NOW).open, None);
        assert_eq!(ledger.set_old_process_servers(0, 1, NOW).open, Some(A));
        let _ = ledger.add_old_process_to_queue(1, NOW);
        assert!(ledger.involves_old_process());
        assert!(!ledger.end_old_process(NOW).lend);
        assert!(!ledger.involves_old_process());
    }

    #[test]
    fn a_worker_that_offers_a_server_learns_of_waiting_clients() {
        const B: WorkerId = WorkerId(1);
        let none_open = Limits {
            size: 1,
            reserve: 0,
            ..limits(1)
        };
        let mut ledger = Ledger::new(2, none_open, CapMembership::unlimited());
        assert!(!ledger.adopted(A).wanted.has(A), "nobody waits");
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let (_, notes) = ledger.wait(B, client, NOW);
        assert!(notes.wanted.has(A) && !notes.wanted.has(B));
        let _ = ledger.answered(A, NOW);
        let mut ledger = Ledger::new(2, none_open, CapMembership::unlimited());
        ledger.restrict(0);
        let _ = ledger.wait(B, client, NOW);
        let notes = ledger.adopted(A);
        assert!(notes.wanted.has(A) && notes.open.is_none());
        let _ = ledger.answered(A, NOW);
        assert!(matches!(ledger.offer(A, NOW), Grant::OtherWaiter(to, _) if to == B));
    }

    #[test]
    fn a_search_is_not_forgotten_when_a_place_is_lent() {
        let caps = CapLimits {
            database: 1,
            ..CAPS
        };
        let shared = std::sync::Arc::<SharedCaps>::default();
        let [mut ann, mut bob] = ["ann", "bob"].map(|user| {
            let id = PoolId(u32::from(user == "bob"));
            let seat = CapMembership::new(&shared, id, ["d", user, ""], caps);
            Ledger::new(1, limits(2), seat)
        });
        assert_eq!(ann.fill(A, NOW).open, Some(A));
        assert!(matches!(ann.opening(A, NOW), Opening::Go { .. }));
        let _ = ann.connected(A, LoginOutcome::Done, NOW);
        assert_eq!(
            bob.add_old_process_to_queue(0, NOW).search,
            [Scope::Database]
        );
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let _ = bob.wait(A, client, NOW);
        let _ = shared.with(|shared| shared.searched(PoolId(1), Scope::Database, false));
        assert_eq!(ann.closed(A, NOW).room, [PoolId(1)]);
        let notes = bob.room(NOW);
        assert!(notes.lend && notes.open.is_none());
        assert_eq!(notes.search, [Scope::Database], "for the client");
    }

    #[test]
    fn an_idle_server_goes_for_a_client_that_wants_its_own_under_a_full_cap() {
        let caps = CapLimits {
            database: 1,
            ..CAPS
        };
        let seat = CapMembership::new(&Default::default(), PoolId(0), ["d", "u", ""], caps);
        let mut ledger = Ledger::new(2, limits(2), seat);
        assert_eq!(ledger.fill(A, NOW).open, Some(A));
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        let _ = ledger.connected(A, LoginOutcome::Done, NOW);
        assert_eq!(ledger.offer_fresh(A, NOW), Grant::Keep);
        let client = Token {
            slot: 1,
            generation: 0,
        };
        let (_, notes) = ledger.wait_exclusive(WorkerId(1), client, NOW);
        assert_eq!(notes.exclusive, None, "the cap is full");
        assert!(notes.wanted.has(A));
        assert_eq!(ledger.offer(A, NOW), Grant::Evict);
        let notes = ledger.closed(A, NOW);
        assert_eq!(notes.room, [PoolId(0)]);
        let exclusive = ledger.room(NOW).exclusive;
        assert_eq!(exclusive.map(|(worker, _)| worker), Some(WorkerId(1)));
    }
}
