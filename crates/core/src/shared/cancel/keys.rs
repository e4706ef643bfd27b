//! The cancel keys of a worker's clients.

use std::collections::BTreeMap;

use super::CancelKey;
use crate::Token;

/// A worker's clients by their cancel keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The clients by [`CancelKey::place`], whose highest bits are the pid.
    by_place: BTreeMap<u64, Token>,
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

    /// Adds the key of a client.
    pub(crate) fn insert(&mut self, key: &CancelKey, client: Token) {
        self.by_place.insert(key.place(), client);
    }

    /// Returns the client that may have this key. The caller compares the keys as a whole.
    pub(crate) fn find(&self, key: &CancelKey) -> Option<Token> {
        self.by_place.get(&key.place()).copied()
    }

    /// Returns the client with this pid, if exactly one client has it.
    pub(crate) fn only_one(&self, pid: u32) -> Option<Token> {
        let mut found = self.of_pid(pid);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Removes the key of a client that has disconnected.
    pub(crate) fn remove(&mut self, key: &CancelKey, client: Token) {
        if self.find(key) == Some(client) {
            self.by_place.remove(&key.place());
        }
    }

    fn of_pid(&self, pid: u32) -> impl Iterator<Item = Token> {
        let from = u64::from(pid) << 32;
        let found = self.by_place.range(from..=from | u64::from(u32::MAX));
        found.map(|(_, client)| *client)
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
        assert_eq!(keys.only_one(0), Some(client(2)));
        assert_eq!(keys.only_one(1), None);
        assert_eq!(keys.find(&key(1, 3)), Some(client(3)));
        // A key that was made anew has taken the place of another one.
        keys.remove(&key(1, 3), client(9));
        assert_eq!(keys.find(&key(1, 3)), Some(client(3)));
        keys.remove(&key(1, 3), client(3));
        assert_eq!(keys.only_one(1), Some(client(1)));
        assert_eq!(keys.only_one(7), None);
    }
}
