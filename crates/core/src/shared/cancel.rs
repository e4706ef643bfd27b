//! Cancel requests: clients' cancel keys, and the connections that carry requests.

mod key;
mod keys;

use std::sync::Arc;

pub use self::key::CancelKey;
pub(crate) use self::{
    key::{place, worker_of_pid},
    keys::{Keys, Whereabouts},
};
use crate::{Endpoint, Time, Token, WorkerId};

/// The token that stands for the connection of a request that the other process of an online restart has received.
pub const ELSEWHERE: Token = Token {
    slot: u32::MAX,
    generation: u32::MAX,
};

/// The destination of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelTarget {
    /// The query of this server.
    Server(Token),
    /// The peer with this number, which has the client.
    Peer(u32),
}

/// The state of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelState {
    /// The request waits, since as many requests as allowed are under way to the same peer.
    Queued,
    /// The connection that carries the request is being opened.
    Opening,
    /// The server was asked for TLS.
    Asked,
    /// The TLS handshake is under way.
    Handshake,
    /// The request was sent.
    Sent,
}

/// A connection to PostgreSQL, or to a peer, that carries one cancel request.
#[derive(Debug)]
pub struct CancelConnection {
    /// The destination.
    pub(crate) goal: CancelTarget,
    /// The key in the request.
    pub(crate) key: CancelKey,
    /// The worker and the connection by which the request came in; `None` if it is pgweir's own.
    pub(crate) from: Option<(WorkerId, Token)>,
    /// The request's state.
    pub(crate) state: CancelState,
    /// The server's name, if the request is to be encrypted as the server's connection is.
    pub(crate) tls: Option<Arc<Endpoint>>,
    /// The time at which the request times out (`cancel_wait_timeout`).
    pub(crate) until: Time,
}
