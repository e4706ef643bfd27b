//! The cancel keys of a worker's clients.
//!
//! A client may be on another worker than the one that its pid names, its *home*. The home then knows where the client
//! is, and its pid is given to no other client. A worker that is asked for a client that it does not have asks the
//! client's home. Each move of a client has a number, so that late news of an earlier move changes nothing.

use std::collections::{BTreeMap, btree_map::Entry};

use super::CancelKey;
use crate::{Token, WorkerId};

/// The place of a client with a cancel key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// This connection of the worker.
    Here(Token),
    /// Another worker, after this number of moves.
    At(WorkerId, u32),
}

/// A worker's clients by their cancel keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The clients by [`CancelKey::place`], whose highest bits are the pid.
    by_place: BTreeMap<u64, Whereabouts>,
    /// The number in the last pid.
    last: u32,
}

impl Keys {
    /// Returns a pid for a new client; `pid` makes one from a number below `count`. The pid of a client that has
    /// disconnected is given again only after all others, since late cancel requests may still name it. If all are
    /// taken, several clients have the same pid, and their keys differ in the secret.
    pub(crate) fn new_pid(&mut self, count: u32, pid: impl Fn(u32) -> u32) -> u32 {
        for _ in 0..count {
            self.last = (self.last + 1) % count;
            let pid = pid(self.last);
            if self.of_pid(pid).next().is_none() {
                return pid;
            }
        }
        self.last = (self.last + 1) % count;
        pid(self.last)
    }

    /// Adds the key of a client of this worker.
    pub(crate) fn insert(&mut self, key: &CancelKey, client: Token) {
        self.insert_at(key.place(), client);
    }

    /// Adds the key of a client of this worker by its [`CancelKey::place`].
    pub(crate) fn insert_at(&mut self, place: u64, client: Token) {
        self.by_place.insert(place, Whereabouts::Here(client));
    }

    /// Returns where the client is that may have this key. The caller compares the keys as a whole.
    pub(crate) fn locate(&self, key: &CancelKey) -> Option<Whereabouts> {
        self.by_place.get(&key.place()).copied()
    }

    /// Returns the client of this worker that may have this key. The caller compares the keys as a whole.
    pub(crate) fn find(&self, key: &CancelKey) -> Option<Token> {
        match self.locate(key)? {
            Whereabouts::Here(client) => Some(client),
            Whereabouts::At(..) => None,
        }
    }

    /// Returns where the client with this pid is, if exactly one client has the pid.
    pub(crate) fn only_one(&self, pid: u32) -> Option<Whereabouts> {
        let mut found = self.of_pid(pid);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Removes the key of a client that has disconnected, or left for another worker.
    pub(crate) fn remove(&mut self, key: &CancelKey, client: Token) {
        self.remove_at(key.place(), client);
    }

    /// Does the same for a key of this [`CancelKey::place`].
    pub(crate) fn remove_at(&mut self, place: u64, client: Token) {
        if let Entry::Occupied(entry) = self.by_place.entry(place)
            && *entry.get() == Whereabouts::Here(client)
        {
            entry.remove();
        }
    }

    /// Notes at the home of a client of this worker that the client leaves for another worker, by this move.
    pub(crate) fn leave(&mut self, key: &CancelKey, client: Token, to: WorkerId, moves: u32) {
        if let Some(place) = self.by_place.get_mut(&key.place())
            && *place == Whereabouts::Here(client)
        {
            *place = Whereabouts::At(to, moves);
        }
    }

    /// Notes at a client's home that the client has moved from one other worker to another by this move, or has
    /// disconnected there (`None`).
    pub(crate) fn note_move(&mut self, key: &CancelKey, to: Option<WorkerId>, moves: u32) {
        let place = key.place();
        let is_news =
            matches!(self.by_place.get(&place), Some(Whereabouts::At(_, known)) if *known < moves);
        match to {
            _ if !is_news => {}
            Some(to) => _ = self.by_place.insert(place, Whereabouts::At(to, moves)),
            None => _ = self.by_place.remove(&place),
        }
    }

    /// Notes at a client's home that the client has come back from another process to the worker that it had left. The
    /// news of its departure has come before.
    pub(crate) fn note_back(&mut self, key: &CancelKey, to: WorkerId, moves: u32) {
        let place = self.by_place.entry(key.place());
        place.or_insert(Whereabouts::At(to, moves));
    }

    fn of_pid(&self, pid: u32) -> impl Iterator<Item = Whereabouts> {
        let from = u64::from(pid) << 32;
        let found = self.by_place.range(from..=from | u64::from(u32::MAX));
        found.map(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32, secret: u8) -> CancelKey {
        CancelKey {
            pid,
            secret: [secret; 4].into(),
        }
    }

    fn client(slot: u32) -> Token {
        Token {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn a_pid_that_was_given_back_is_the_last_to_be_given_again() {
        let mut keys = Keys::default();
        let mut given = Vec::new();
        for slot in 0..4 {
            let pid = keys.new_pid(4, |number| 100 + number);
            keys.insert(&key(pid, 1), client(slot));
            given.push(pid);
        }
        assert_eq!(given, [101, 102, 103, 100]);
        keys.remove(&key(103, 1), client(2));
        keys.remove(&key(102, 1), client(1));
        assert_eq!(keys.new_pid(4, |number| 100 + number), 102);
        keys.insert(&key(102, 1), client(1));
        assert_eq!(keys.new_pid(4, |number| 100 + number), 103);
    }

    #[test]
    fn several_clients_share_a_pid_if_there_are_too_few() {
        let mut keys = Keys::default();
        for secret in 1..=3 {
            let pid = keys.new_pid(2, |number| number);
            keys.insert(&key(pid, secret), client(secret.into()));
        }
        assert_eq!(keys.only_one(0), Some(Whereabouts::Here(client(2))));
        assert_eq!(keys.only_one(1), None);
        assert_eq!(keys.find(&key(1, 3)), Some(client(3)));
        // A key that was made anew has taken the place of another one.
        keys.remove(&key(1, 3), client(9));
        assert_eq!(keys.find(&key(1, 3)), Some(client(3)));
        keys.remove(&key(1, 3), client(3));
        assert_eq!(keys.only_one(1), Some(Whereabouts::Here(client(1))));
        assert_eq!(keys.only_one(7), None);
    }

    #[test]
    fn the_home_knows_where_a_client_is() {
        let (mut home, own) = (Keys::default(), key(1, 1));
        home.insert(&own, client(4));
        home.leave(&own, client(9), WorkerId(1), 1);
        assert_eq!(home.find(&own), Some(client(4)), "another client's move");
        home.leave(&own, client(4), WorkerId(1), 1);
        assert_eq!(home.find(&own), None);
        assert_eq!(home.only_one(1), Some(Whereabouts::At(WorkerId(1), 1)));
        let pid = home.new_pid(2, |number| number);
        assert_eq!(pid, 0, "pid 1 is not free");
        home.note_move(&own, Some(WorkerId(3)), 3);
        home.note_move(&own, Some(WorkerId(2)), 2);
        assert_eq!(home.locate(&own), Some(Whereabouts::At(WorkerId(3), 3)));
        home.insert(&own, client(5));
        home.note_move(&own, None, 9);
        assert_eq!(home.find(&own), Some(client(5)), "the client is back");
        home.leave(&own, client(5), WorkerId(1), 5);
        home.note_move(&own, None, 5);
        assert!(home.locate(&own).is_some(), "news of an earlier move");
        home.note_move(&own, None, 6);
        assert_eq!(home.locate(&own), None);
        home.note_move(&own, Some(WorkerId(3)), 5);
        assert_eq!(home.locate(&own), None, "news of an earlier move");
        home.note_back(&own, WorkerId(2), 6);
        home.note_move(&own, Some(WorkerId(3)), 5);
        assert_eq!(home.locate(&own), Some(Whereabouts::At(WorkerId(2), 6)));
        home.insert(&own, client(5));
        home.note_back(&own, WorkerId(2), 6);
        assert_eq!(home.find(&own), Some(client(5)));
    }
}
