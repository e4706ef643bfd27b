//! A worker: the clients and servers of one thread, as a value.

use std::sync::Arc;

use pgweir_auth::scram::DerivedKeys;

use crate::{
    Actions, Address, Closed, ConnectError, Directory, Peer, Time, Token, WorkerId, backend::Server, mail::Mail,
};

/// Owns clients and servers and their protocol state. Each method is one event; what is to be
/// done about it is appended to the [`Actions`].
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    directory: Arc<Directory>,
}

impl Worker {
    /// A worker without connections.
    #[must_use]
    pub fn new(id: WorkerId, directory: Arc<Directory>) -> Self {
        Self { id, directory }
    }

    /// A client connected. Its read mode is `Deliver` to begin with.
    pub fn accepted(&mut self, peer: &Peer, now: Time, out: &mut Actions) -> Token {
        let _ = (peer, now, out, self.id, &self.directory);
        Token { slot: 0, generation: 0 }
    }

    /// A connection in mode `Notify` has bytes to read (its mode is `Hold` from here on).
    pub fn readable(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let _ = (conn, now, out);
    }

    /// Bytes arrived on a connection in mode `Deliver`.
    pub fn received(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let _ = (conn, bytes, now, out);
    }

    /// The answer to [`Action::Peek`](crate::Action::Peek): the first unread byte, or `None` at
    /// the end of the stream.
    pub fn peeked(&mut self, conn: Token, first: Option<u8>, now: Time, out: &mut Actions) {
        let _ = (conn, first, now, out);
    }

    /// The peer of a connection in mode `Notify` or `Hold` will send no more; unread bytes may be
    /// left. Said once per connection; in mode `Deliver` the end comes through `closed` instead.
    pub fn hung_up(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let _ = (conn, now, out);
    }

    /// The connection is gone (end of stream while in mode `Deliver`, or an error in any mode). The
    /// driver has closed it and forgotten the token.
    pub fn closed(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        let _ = (conn, why, now, out);
    }

    /// The socket did not take all that was sent; the driver keeps the rest.
    pub fn blocked(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let _ = (conn, now, out);
    }

    /// All that was sent is written again.
    pub fn drained(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let _ = (conn, now, out);
    }

    /// A connection asked for by [`Action::Connect`](crate::Action::Connect) is open; its read mode
    /// is `Hold` until set.
    pub fn connected(&mut self, conn: Token, local: Address, remote: Address, now: Time, out: &mut Actions) {
        let _ = (conn, local, remote, now, out);
    }

    /// It could not be opened. The driver has forgotten the token.
    pub fn connect_failed(&mut self, conn: Token, why: &ConnectError, now: Time, out: &mut Actions) {
        let _ = (conn, why, now, out);
    }

    /// The keys that [`Action::Derive`](crate::Action::Derive) asked for. Ignored if the
    /// connection is gone by now.
    pub fn derived(&mut self, conn: Token, keys: DerivedKeys, now: Time, out: &mut Actions) {
        let _ = (conn, keys, now, out);
    }

    /// Mail from another worker or the control thread.
    pub fn mail(&mut self, mail: Mail, now: Time, out: &mut Actions) {
        let _ = (mail, now, out);
    }

    /// A server handed over by another worker; the driver registers its socket under the token
    /// that comes back, **before** it executes the actions.
    pub fn adopt(&mut self, server: Box<Server>, now: Time, out: &mut Actions) -> Token {
        let _ = (server, now, out);
        Token { slot: 0, generation: 0 }
    }

    /// Time has come as far as [`Worker::next_tick`].
    pub fn tick(&mut self, now: Time, out: &mut Actions) {
        let _ = (now, out);
    }

    /// When [`Worker::tick`] wants to be called next; `None` while nothing is timed.
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        None
    }
}
