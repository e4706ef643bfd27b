//! The cancel key that pgweir gave a client.

use crate::shared::cancel::{self, CancelKey};

/// A client's cancel key. The secret is random from the connection's start, and is sent at the end of the login.
#[derive(Debug)]
pub struct ClientKey {
    /// The pid that the client was given; 0 before its login.
    pid: u32,
    secret: [u8; 32],
    /// The number of bytes of the secret that the client was given: 4 in protocol 3.0.
    secret_len: u8,
    /// The number of times that the client has moved to another worker.
    moves: u32,
}

impl ClientKey {
    /// Creates a key with this random secret, which no client was given yet.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self {
            pid: 0,
            secret,
            secret_len: 4,
            moves: 0,
        }
    }

    /// Creates the key that another process has given the client.
    #[must_use]
    pub fn resumed(pid: u32, given: &[u8]) -> Self {
        let mut secret = [0; 32];
        for (to, from) in secret.iter_mut().zip(given) {
            *to = *from;
        }
        Self {
            pid,
            secret,
            secret_len: given.len().min(secret.len()) as u8,
            moves: 0,
        }
    }

    /// Sets the length of the secret that the client gets, in bytes.
    pub(crate) fn set_secret_len(&mut self, len: u8) {
        debug_assert!(usize::from(len) <= self.secret.len(), "a secret of {len}");
        self.secret_len = len;
    }

    /// Sets the pid that the client gets.
    pub(crate) fn set_pid(&mut self, pid: u32) {
        self.pid = pid;
    }

    /// Counts one more move of the client to another worker, or its end.
    pub(crate) fn count_move(&mut self) -> u32 {
        self.moves += 1;
        self.moves
    }

    /// Returns the number of moves so far.
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    /// Goes on counting after this number of moves, for a client that comes back from another process.
    pub(crate) fn resume_moves(&mut self, moves: u32) {
        self.moves = moves;
    }

    /// Marks the key as one that peers may pass on.
    pub(crate) fn allow_hops(&mut self) {
        self.secret[3] |= CancelKey::HOPS;
    }

    /// Returns the pid that the client was given; 0 before its login.
    #[must_use]
    #[inline]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the secret that the client is given.
    #[must_use]
    #[inline]
    pub fn secret(&self) -> &[u8] {
        &self.secret[..usize::from(self.secret_len)]
    }

    /// Returns the number under which a worker stores the key ([`CancelKey::place`]).
    #[must_use]
    pub(crate) fn place(&self) -> u64 {
        cancel::place(self.pid, self.secret())
    }

    /// Returns the key as cancel requests name it.
    #[must_use]
    pub fn cancel_key(&self) -> CancelKey {
        CancelKey {
            pid: self.pid,
            secret: self.secret().into(),
        }
    }
}
