//! Clients that wait for an exclusive server, and whether the next server is for one of these or for a client that
//! takes any server.

use std::collections::VecDeque;

use super::{Ledger, Notes};
use crate::{
    Time, Token, WorkerId,
    pool::{Ticket, Waiter},
};

/// A queue over all workers: first in, first out.
#[derive(Debug, Default)]
pub(super) struct ExclusiveWaits {
    waiting: VecDeque<(WorkerId, Waiter)>,
    /// Exclusive servers that log in.
    connecting: u32,
}

impl ExclusiveWaits {
    pub(super) fn push(&mut self, worker: WorkerId, waiter: Waiter) {
        self.waiting.push_back((worker, waiter));
    }

    /// Returns the client that has waited longest.
    pub(super) fn front(&self) -> Option<(WorkerId, Waiter)> {
        self.waiting.front().copied()
    }

    /// Removes the client that gets its server.
    pub(super) fn pop(&mut self) -> Option<(WorkerId, Waiter)> {
        let first = self.waiting.pop_front()?;
        self.connecting += 1;
        Some(first)
    }

    /// Removes a client that gave up. Returns `false` if the client does not wait in this queue (any more).
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let at = self
            .waiting
            .binary_search_by_key(&ticket, |(_, waiter)| waiter.ticket);
        at.is_ok_and(|at| self.waiting.remove(at).is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the place of the old process in the queue, if it has one.
    pub(super) fn elsewhere(&self) -> Option<Ticket> {
        let mut waiters = self.waiting.iter();
        let of_it = waiters.find(|(_, waiter)| waiter.client == ELSEWHERE);
        of_it.map(|(_, waiter)| waiter.ticket)
    }
}

/// The token that stands for the clients of the old process.
pub(super) const ELSEWHERE: Token = Token {
    slot: u32::MAX,
    generation: u32::MAX,
};

/// The client that the next server is opened for.
#[derive(Debug, Clone, Copy)]
pub(super) enum OpenFor {
    /// Any client; the longest-waiting one is on this worker.
    AnyClient(WorkerId),
    /// The longest-waiting client that needs an exclusive server.
    ExclusiveClient,
}

impl Ledger {
    /// Notes that a client of `worker` begins to wait for an exclusive server.
    pub fn wait_exclusive(
        &mut self,
        worker: WorkerId,
        client: Token,
        now: Time,
    ) -> (Ticket, Notes) {
        let ticket = self.ticket();
        let waiter = Waiter {
            ticket,
            client,
            since: now,
        };
        self.exclusive.push(worker, waiter);
        let mut notes = Notes::default();
        self.plan(0, false, &mut notes, now);
        (ticket, notes)
    }

    /// Returns a ticket for a client that is in no queue of this ledger.
    pub fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// Returns whether clients wait for exclusive servers.
    #[must_use]
    pub fn has_exclusive_waits(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// Notes that the exclusive server of a client of `worker` has logged in, or that its login has failed. A failure
    /// does not affect other logins, since the client may have caused it.
    pub fn exclusive_connected(&mut self, worker: WorkerId, is_ready: bool, now: Time) -> Notes {
        self.exclusive.connecting -= 1;
        let mut notes = Notes::default();
        self.end_login(&mut notes);
        if !is_ready {
            self.forget(worker, &mut notes);
        }
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Returns the client that one more server is opened for, if one is needed and the caps allow it.
    pub(super) fn open_for(&self, ready: usize, now: Time) -> Option<OpenFor> {
        if !self.may_connect(now) || !self.has_room(now) {
            return None;
        }
        let ready = match now < self.servers.reading_until {
            true => ready + self.servers.reading as usize,
            false => ready,
        };
        let is_short =
            self.waits.count() > self.shared_logins() + ready && self.offers.pending.is_empty();
        let shared = self.waits.oldest().filter(|_| is_short);
        let has_own_room = self.all() < self.limits.in_force.size;
        let exclusive = self.exclusive.front().filter(|_| has_own_room);
        match (exclusive, shared) {
            (Some((_, exclusive)), Some((worker, shared))) if shared.ticket < exclusive.ticket => {
                Some(OpenFor::AnyClient(worker))
            }
            (Some(_), _) => Some(OpenFor::ExclusiveClient),
            (None, Some((worker, _))) => Some(OpenFor::AnyClient(worker)),
            (None, None) => None,
        }
    }

    pub(super) fn count_opening_for(&mut self, client: OpenFor, notes: &mut Notes, now: Time) {
        match client {
            OpenFor::AnyClient(worker) => {
                self.count(worker);
                notes.open = Some(worker);
            }
            OpenFor::ExclusiveClient => {
                let first = self.exclusive.pop();
                match first {
                    Some((_, waiter)) if waiter.client == ELSEWHERE => {
                        self.exclusive.connecting -= 1;
                        self.lend(notes);
                        self.plan(0, true, notes, now);
                    }
                    Some((worker, _)) => {
                        notes.exclusive = first;
                        self.count(worker);
                    }
                    None => {}
                }
            }
        }
    }

    /// Returns whether more clients wait than servers log in.
    pub(super) fn is_short(&self) -> bool {
        self.waits.count() > self.shared_logins() || !self.exclusive.is_empty()
    }

    fn shared_logins(&self) -> usize {
        (self.openings() - self.exclusive.connecting) as usize
    }

    /// Returns whether a client waits for an exclusive server that only the pool's size or a cap prevents.
    pub(super) fn must_make_room(&self, now: Time) -> bool {
        let is_full = self.all() >= self.limits.in_force.size || self.denied.is_some();
        !self.exclusive.is_empty() && is_full && self.may_connect(now)
    }

    /// Returns whether the workers have to offer servers, so that one can be closed for a client that waits for an
    /// exclusive server. While servers that are about to come free suffice for all clients that have waited longer, the
    /// workers offer none: a worker that was asked meanwhile would be asked again by its answer, without end.
    pub(super) fn needs_room(&self, now: Time) -> bool {
        self.must_make_room(now) && self.kept_needed(now) > 0
    }

    /// Returns whether a client that needs an exclusive server has waited longer than all others.
    pub(super) fn is_exclusive_turn(&self, now: Time) -> bool {
        let exclusive = self.exclusive.front().filter(|_| self.must_make_room(now));
        exclusive.is_some_and(|(_, exclusive)| {
            self.waits
                .oldest()
                .is_none_or(|(_, oldest)| exclusive.ticket < oldest.ticket)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{
        CapMembership, Grant, Limits, LoginOutcome, Opening,
        ledger::tests::{client, limits},
    };

    const A: WorkerId = WorkerId(0);
    const B: WorkerId = WorkerId(1);
    const NOW: Time = Time(0);

    /// Creates a ledger with this number of servers of worker A, all idle.
    fn with_idle(size: u32, idle: u32) -> Ledger {
        let limits = Limits {
            connecting: 2,
            ..limits(size)
        };
        let mut ledger = Ledger::new(2, limits, CapMembership::unlimited());
        for n in 0..idle {
            let (_, notes) = ledger.wait(A, client(n), NOW);
            assert_eq!(notes.open, Some(A));
            assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
            let _ = ledger.connected(A, LoginOutcome::Done, NOW);
            assert!(matches!(ledger.offer(A, NOW), Grant::OwnWaiter(_)));
        }
        for _ in 0..idle {
            assert_eq!(ledger.offer(A, NOW), Grant::Keep);
        }
        ledger
    }

    fn opened_for(notes: Notes) -> Option<(WorkerId, Token)> {
        assert_eq!(notes.open, None);
        notes
            .exclusive
            .map(|(worker, waiter)| (worker, waiter.client))
    }

    #[test]
    fn a_server_is_opened_beside_the_idle_ones_while_there_is_room() {
        let mut ledger = with_idle(2, 1);
        let (_, notes) = ledger.wait_exclusive(B, client(9), NOW);
        assert!(notes.wanted.is_empty(), "nobody has to show anything");
        assert_eq!(opened_for(notes), Some((B, client(9))));
        assert_eq!((ledger.servers(), ledger.owned(B)), (2, 1));
        let notes = ledger.exclusive_connected(B, true, NOW);
        assert_eq!(opened_for(notes), None);
        assert_eq!((ledger.servers(), ledger.connecting()), (2, 0));
    }

    #[test]
    fn an_idle_server_goes_when_there_is_no_room() {
        let mut ledger = with_idle(1, 1);
        let (_, notes) = ledger.wait_exclusive(B, client(9), NOW);
        assert!(notes.wanted.has(A));
        assert_eq!(opened_for(notes), None);
        assert_eq!(ledger.offer(A, NOW), Grant::Evict);
        assert_eq!(opened_for(ledger.closed(A, NOW)), Some((B, client(9))));
        assert!(!ledger.has_exclusive_waits());
        // Other clients need not wait after the failure.
        let (_, notes) = ledger.wait(A, client(1), NOW);
        assert_eq!(notes.open, None, "no room");
        assert_eq!(
            ledger.exclusive_connected(B, false, NOW).open,
            None,
            "B is asked"
        );
        assert_eq!(ledger.answered(B, NOW).open, Some(A));
    }

    #[test]
    fn in_turn() {
        let mut ledger = with_idle(1, 0);
        let (_, notes) = ledger.wait(A, client(0), NOW);
        assert_eq!(notes.open, Some(A));
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        let _ = ledger.wait(A, client(1), NOW);
        let _ = ledger.wait_exclusive(B, client(2), NOW);
        let _ = ledger.wait(A, client(3), NOW);
        let _ = ledger.connected(A, LoginOutcome::Done, NOW);
        for n in [0, 1] {
            let grant = ledger.offer(A, NOW);
            assert!(matches!(grant, Grant::OwnWaiter(waiter) if waiter.client == client(n)));
        }
        assert_eq!(ledger.offer(A, NOW), Grant::Evict);
        assert_eq!(opened_for(ledger.closed(A, NOW)), Some((B, client(2))));
        let _ = ledger.exclusive_connected(B, true, NOW);
        assert_eq!(ledger.closed(B, NOW).open, Some(A), "the last one's turn");
    }

    #[test]
    fn a_worker_that_withholds_a_kept_server_is_not_asked_by_its_own_answer() {
        let mut ledger = with_idle(2, 2);
        let _ = ledger.wait(A, client(5), NOW);
        // One of the two servers is about to come free for this client, which has waited longer.
        ledger.began_reading(NOW);
        let _ = ledger.wait_exclusive(B, client(9), NOW);
        assert_eq!(ledger.kept_needed(NOW), 0);
        ledger.withholds(A);
        assert!(ledger.answered(A, NOW).wanted.is_empty());
        ledger.ended_reading();
        assert!(
            matches!(ledger.offer(A, NOW), Grant::OwnWaiter(waiter) if waiter.client == client(5))
        );
        // Now it is the turn of the client that needs an exclusive server.
        assert!(ledger.tick(NOW).wanted.has(A));
        assert_eq!(ledger.offer(A, NOW), Grant::Evict);
    }

    #[test]
    fn a_client_that_gives_up_takes_no_server_from_others() {
        let mut ledger = with_idle(1, 1);
        let (ticket, _) = ledger.wait_exclusive(B, client(9), NOW);
        assert!(ledger.leave(B, ticket));
        assert!(!ledger.leave(B, ticket), "once");
        assert_eq!(ledger.offer(A, NOW), Grant::Keep);
    }
}
