//! The connections of one worker, by the slot of their token.

use std::os::fd::OwnedFd;

use pgweir_core::{ReadMode, Token};
use rustix::io::Errno;

use super::{connect::Connecting, send::Unsent};
use crate::tls::TlsSession;

/// An open connection: what the driver knows of it. An idle client costs this and no more.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) fd: OwnedFd,
    pub(crate) mode: ReadMode,
    /// Bytes (or the end) may be waiting in the socket. Edge-triggered: nobody says it twice.
    pub(crate) readable: bool,
    /// The peer will send no more after what is in the socket now.
    pub(crate) hung_up: bool,
    /// The core was told so.
    pub(crate) hung_up_told: bool,
    /// It stands in the run queue.
    pub(crate) queued: bool,
    /// Nothing is read of it, and nothing told.
    pub(crate) frozen: bool,
    /// The core waits for the first byte.
    pub(crate) peek: bool,
    /// We accepted it, as opposed to a connection that we opened.
    pub(crate) client: bool,
    /// The poller tells of room to write.
    pub(crate) outgoing: bool,
    /// We sent after we last received.
    pub(crate) answered: bool,
    /// Reads during turn number `turn`.
    pub(crate) reads: u8,
    pub(crate) turn: u32,
    /// How often the length of its reads was halved, since what they brought took long to handle.
    pub(crate) halvings: u8,
    /// Writing failed with this; what is sent from now on is dropped.
    pub(crate) failed: Option<Errno>,
    /// What the socket did not take.
    pub(crate) unsent: Option<Box<Unsent>>,
    /// It is encrypted.
    pub(crate) tls: Option<Box<TlsSession>>,
}

impl Connection {
    /// A connection that was just opened.
    pub(crate) fn new(fd: OwnedFd, mode: ReadMode, client: bool) -> Self {
        Self {
            fd,
            mode,
            readable: false,
            hung_up: false,
            hung_up_told: false,
            queued: false,
            frozen: false,
            peek: false,
            client,
            outgoing: false,
            answered: false,
            reads: 0,
            turn: 0,
            halvings: 0,
            failed: None,
            unsent: None,
            tls: None,
        }
    }
}

impl Connection {
    /// Is there perhaps something to read: in the socket, or decrypted already?
    pub(crate) fn has_input(&self) -> bool {
        let session = self.tls.as_deref();
        self.readable || session.is_some_and(TlsSession::has_input)
    }
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Vacant,
    Connecting(Box<Connecting>),
    Open(Connection),
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    state: State,
}

/// A connection that left the table.
#[derive(Debug)]
pub(crate) enum Removed {
    /// It was open.
    Open(Connection),
    /// It was still being opened.
    Connecting,
}

/// Connections by slot; a token of an earlier generation finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

impl Table {
    /// Puts an open connection under its token.
    pub(crate) fn open(&mut self, token: Token, connection: Connection) {
        self.put(token, State::Open(connection));
    }

    /// Puts a connection that is being opened under its token.
    pub(crate) fn connecting(&mut self, token: Token, connecting: Box<Connecting>) {
        self.put(token, State::Connecting(connecting));
    }

    /// The open connection of this token.
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut Connection> {
        match self.entry(token)? {
            Entry {
                state: State::Open(connection),
                ..
            } => Some(connection),
            _ => None,
        }
    }

    /// The connection of this token that is still being opened.
    pub(crate) fn get_connecting(&mut self, token: Token) -> Option<&mut Connecting> {
        match self.entry(token)? {
            Entry {
                state: State::Connecting(connecting),
                ..
            } => Some(connecting),
            _ => None,
        }
    }

    /// Those that are still being opened, of this kind.
    pub(crate) fn all_connecting(&self, is_meant: impl Fn(&Connecting) -> bool) -> Vec<Token> {
        let entries = self.entries.iter().zip(0..);
        entries
            .filter_map(|(entry, slot)| match &entry.state {
                State::Connecting(one) if is_meant(one) => Some(Token {
                    slot,
                    generation: entry.generation,
                }),
                _ => None,
            })
            .collect()
    }

    /// Takes the connection out; its token is free again.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Removed> {
        match std::mem::take(&mut self.entry(token)?.state) {
            State::Vacant => None,
            State::Connecting(_) => Some(Removed::Connecting),
            State::Open(connection) => Some(Removed::Open(connection)),
        }
    }

    /// How many connections are open.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| matches!(entry.state, State::Open(_)))
            .count()
    }

    fn entry(&mut self, token: Token) -> Option<&mut Entry> {
        self.entries
            .get_mut(token.slot as usize)
            .filter(|entry| entry.generation == token.generation)
    }

    fn put(&mut self, token: Token, state: State) {
        let slot = token.slot as usize;
        if slot >= self.entries.len() {
            self.entries.resize_with(slot + 1, Entry::default);
        }
        self.entries[slot] = Entry {
            generation: token.generation,
            state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Entry>() <= 56, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_late_token_finds_nothing() {
        let mut table = Table::default();
        let [old, new] = [0, 1].map(|generation| Token {
            slot: 3,
            generation,
        });
        let (fd, _) = std::os::unix::net::UnixStream::pair().expect("socketpair");
        table.open(new, Connection::new(fd.into(), ReadMode::Hold, true));
        assert!(table.get(old).is_none() && table.remove(old).is_none());
        assert!(table.get(new).is_some());
    }
}
