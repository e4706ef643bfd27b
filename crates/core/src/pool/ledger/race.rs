//! Races between two hosts (`host_race_after`): two servers log in for one client, and the pool keeps one of them.

use super::Ledger;
use crate::WorkerId;

impl Ledger {
    /// Counts a second server that `worker` opens beside one that logs in. Returns `false` if the size of the pool or a cap
    /// leaves no room.
    #[must_use]
    pub fn begin_race(&mut self, worker: WorkerId) -> bool {
        let has_room = self.all() < self.limits.in_force.size;
        let begins = self.open && !self.paused && has_room && self.caps.take_spare();
        if begins {
            self.count(worker);
            self.servers.rivals += 1;
        }
        begins
    }

    /// Notes that one of the two logins has ended or is about to be given up. From now on, each of them counts for itself.
    pub fn end_race(&mut self) {
        self.servers.rivals -= 1;
    }

    /// Returns the number of servers that log in, where two that race count as one.
    pub(super) fn openings(&self) -> u32 {
        self.servers.connecting - self.servers.rivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Time,
        pool::{
            CapLimits, CapMembership, Limits, LoginOutcome, Opening, PoolId, Scope,
            ledger::tests::{client, limits},
        },
    };

    const A: WorkerId = WorkerId(0);
    const NOW: Time = Time(0);

    /// Creates a ledger with this pool size and `max_db_connections`, and one server that logs in for a client.
    fn with_login(size: u32, database: u32) -> Ledger {
        let limits = Limits {
            overflow: 3,
            connecting: 2,
            ..limits(size)
        };
        let caps = CapLimits {
            database,
            user: 0,
            process: 0,
            weight: 1,
        };
        let seat = CapMembership::new(&Default::default(), PoolId(0), ["d", "u", ""], caps);
        let mut ledger = Ledger::new(1, limits, seat);
        assert_eq!(begin_to_wait(&mut ledger, 1), Some(A));
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        ledger
    }

    fn begin_to_wait(ledger: &mut Ledger, slot: u32) -> Option<WorkerId> {
        ledger.wait(A, client(slot), NOW).1.open
    }

    #[test]
    fn the_place_of_the_slower_server_is_given_back() {
        let mut ledger = with_login(2, 2);
        assert!(ledger.begin_race(A));
        assert_eq!((ledger.servers(), ledger.connecting()), (2, 2));
        assert_eq!(ledger.caps.usage(Scope::Database), (2, 2));
        ledger.end_race();
        let _ = ledger.connected(A, LoginOutcome::Dropped, NOW);
        let _ = ledger.connected(A, LoginOutcome::Done, NOW);
        assert_eq!((ledger.servers(), ledger.connecting()), (1, 0));
        assert_eq!(ledger.caps.usage(Scope::Database), (1, 2));
        assert_eq!(ledger.owned(A), 1);
    }

    #[test]
    fn without_room_there_is_no_race() {
        for (size, database) in [(1, 0), (2, 1)] {
            let mut ledger = with_login(size, database);
            assert!(!ledger.begin_race(A));
            assert_eq!((ledger.servers(), ledger.connecting()), (1, 1));
        }
        let mut ledger = with_login(2, 2);
        let _ = ledger.set_paused(true, NOW);
        assert!(!ledger.begin_race(A));
        let mut ledger = with_login(2, 2);
        ledger.open_no_more();
        assert!(!ledger.begin_race(A));
    }

    #[test]
    fn two_servers_that_race_count_as_one_for_the_clients_that_wait() {
        let mut ledger = with_login(5, 0);
        assert!(ledger.begin_race(A));
        // Before the first successful login, there is one opening at a time.
        assert_eq!(begin_to_wait(&mut ledger, 2), None);
        // The first host fails: the login to the second one goes on for the client.
        ledger.end_race();
        assert_eq!(ledger.connected(A, LoginOutcome::Dropped, NOW).open, None);
        let notes = ledger.connected(A, LoginOutcome::Done, NOW);
        assert_eq!(notes.open, Some(A), "for the second client");
        let _ = ledger.offer_fresh(A, NOW);
        assert!(matches!(ledger.opening(A, NOW), Opening::Go { .. }));
        assert!(ledger.begin_race(A));
        assert_eq!(begin_to_wait(&mut ledger, 3), Some(A));
        assert_eq!(begin_to_wait(&mut ledger, 4), None, "server_connect_limit");
        assert_eq!((ledger.servers(), ledger.connecting()), (4, 3));
    }
}
