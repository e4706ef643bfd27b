//! The connections of one worker, by the slot of their token.

use std::{collections::HashMap, os::fd::OwnedFd};

use pgweir_core::{ReadMode, Token, takeover::TlsState};
use rustix::io::Errno;

use super::{connect::Connecting, logins::Postponed, send::Unsent, streaming::StreamState};
use crate::tls::TlsSession;

/// The driver's state of an open connection. An idle client needs this memory and no more.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) fd: OwnedFd,
    pub(crate) mode: ReadMode,
    /// The state of its input.
    pub(crate) input: InputState,
    /// Whether the connection is in the run queue.
    pub(crate) queued: bool,
    /// Whether the connection is frozen: the driver neither reads it nor reports its events.
    pub(crate) frozen: bool,
    /// Whether the connection was accepted, as opposed to opened by pgweir.
    pub(crate) client: bool,
    /// Whether the connection is a client that is logging in.
    pub(crate) logs_in: bool,
    /// The events of a client that are postponed until queries have been served.
    pub(crate) postponed: Postponed,
    /// How far a server is in a large result.
    pub(crate) stream: StreamState,
    /// The state of its output.
    pub(crate) output: OutputState,
    /// The TLS session, if the connection is encrypted.
    pub(crate) tls: Option<Box<TlsSession>>,
}

/// The state of a connection's receives with io_uring.
#[derive(Debug, Default)]
pub(crate) struct ReceiveState {
    /// Whether bytes were received before the core wanted them.
    pub(crate) early: bool,
    /// The number of the last reads in a row that emptied the socket.
    pub(crate) short_reads: u8,
}

/// The state of a connection's input.
#[derive(Debug)]
pub(crate) struct InputState {
    /// Whether bytes (or the end) may be waiting in the socket. Events are edge-triggered: epoll does not repeat them.
    pub(crate) readable: bool,
    /// Whether the peer will send nothing after the bytes that are in the socket now.
    pub(crate) hung_up: bool,
    /// Whether the core knows about the hang-up.
    pub(crate) hang_up_reported: bool,
    /// Whether the core waits for the first byte.
    pub(crate) peek: bool,
    /// The number of reads during turn number `turn`.
    pub(crate) reads: u8,
    pub(crate) turn: u32,
    /// The state of receives with io_uring.
    pub(crate) receive: ReceiveState,
    /// The number of times that the length of the connection's reads was halved, since their bytes took long to
    /// process.
    pub(crate) halvings: u8,
}

/// The state of a connection's output.
#[derive(Debug)]
pub(crate) struct OutputState {
    /// Whether the poller reports room to write.
    pub(crate) has_room: bool,
    /// Whether pgweir has sent something since it last received something.
    pub(crate) answered: bool,
    /// Whether a close sends no reset: the client has hung up, and everything was read that it had sent.
    pub(crate) closes_cleanly: bool,
    /// The error of a failed write. Everything that is sent after it is dropped.
    pub(crate) failed: Option<Errno>,
    /// Bytes that the socket did not accept yet.
    pub(crate) unsent: Option<Box<Unsent>>,
}

impl Connection {
    /// Returns whether a client has hung up that may have sent no more than Terminate.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        self.client && self.input.hung_up && self.mode == ReadMode::Notify
    }

    /// Creates the state of a connection that was just opened.
    pub(crate) fn new(fd: OwnedFd, mode: ReadMode, client: bool) -> Self {
        Self {
            fd,
            mode,
            input: InputState {
                readable: false,
                hung_up: false,
                hang_up_reported: false,
                peek: false,
                reads: 0,
                turn: 0,
                receive: ReceiveState::default(),
                halvings: 0,
            },
            queued: false,
            frozen: false,
            client,
            logs_in: false,
            postponed: Postponed::Nothing,
            stream: StreamState::default(),
            output: OutputState {
                has_room: false,
                answered: false,
                closes_cleanly: false,
                failed: None,
                unsent: None,
            },
            tls: None,
        }
    }
}

impl Connection {
    /// Goes on with the encryption that another process has begun. A connection whose state is missing, or can't be
    /// read, is marked as failed: nothing is ever sent there without encryption.
    pub(crate) fn resume_tls(&mut self, is_encrypted: bool, state: Option<&TlsState>) {
        let session = state.map(TlsSession::resume).transpose();
        match session {
            Ok(session) if session.is_some() == is_encrypted => {
                self.input.hung_up = session.as_ref().is_some_and(TlsSession::has_ended);
                self.tls = session.map(Box::new);
            }
            Ok(_) | Err(_) => self.output.failed = Some(Errno::PROTO),
        }
    }

    /// Returns whether there may be something to read, in the socket, or received or decrypted already.
    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        let session = self.tls.as_deref();
        self.input.readable
            || self.input.receive.early
            || session.is_some_and(TlsSession::has_input)
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

/// A connection that was removed from the table.
#[derive(Debug)]
pub(crate) enum Removed {
    /// The connection was open.
    Open(Connection),
    /// The connection was still being opened.
    Connecting,
}

/// Connections by slot. A token of an earlier generation finds no connection.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// Bytes of servers that were received before the core wanted them.
    pub(crate) early: HashMap<Token, Vec<u8>>,
}

impl Table {
    /// Stores an open connection under its token.
    pub(crate) fn open(&mut self, token: Token, connection: Connection) {
        self.put(token, State::Open(connection));
    }

    /// Stores a connection that is being opened under its token.
    pub(crate) fn connecting(&mut self, token: Token, connecting: Box<Connecting>) {
        self.put(token, State::Connecting(connecting));
    }

    /// Returns the open connection of this token.
    #[inline]
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut Connection> {
        match self.entry(token)? {
            Entry {
                state: State::Open(connection),
                ..
            } => Some(connection),
            _ => None,
        }
    }

    /// Returns the connection of this token if it is still being opened.
    pub(crate) fn get_connecting(&mut self, token: Token) -> Option<&mut Connecting> {
        match self.entry(token)? {
            Entry {
                state: State::Connecting(connecting),
                ..
            } => Some(connecting),
            _ => None,
        }
    }

    /// Returns the tokens of connections that are still being opened and satisfy `is_meant`.
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

    /// Returns the tokens of all connections.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let entries = self.entries.iter().zip(0..);
        entries
            .filter(|(entry, _)| !matches!(entry.state, State::Vacant))
            .map(|(entry, slot)| Token {
                slot,
                generation: entry.generation,
            })
            .collect()
    }

    /// Removes the connection. Its token is free again.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Removed> {
        match std::mem::take(&mut self.entry(token)?.state) {
            State::Vacant => None,
            State::Connecting(_) => Some(Removed::Connecting),
            State::Open(connection) => Some(Removed::Open(connection)),
        }
    }

    /// Returns all open connections.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = &Connection> {
        self.entries.iter().filter_map(|entry| match &entry.state {
            State::Open(connection) => Some(connection),
            _ => None,
        })
    }

    /// Returns the number of open connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| matches!(entry.state, State::Open(_)))
            .count()
    }

    #[inline]
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
