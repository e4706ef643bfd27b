//! Cancel requests: clients' cancel keys, and the connections that carry requests.

mod key;
mod keys;

use std::sync::Arc;

pub use self::key::CancelKey;
pub(crate) use self::keys::Keys;
use crate::{Endpoint, Time, Token, WorkerId};

/// Stands for the connection of a request that the other process of an online restart has received.
pub const ELSEWHERE: Token = Token {
    slot: u32::MAX,
    generation: u32::MAX,
};

/// The destination of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The query of this server.
    Server(Token),
    /// The peer with this number, which has the client.
    Peer(u32),
}

/// The state of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// The request waits: as many as allowed are under way to the same peer.
    Queued,
    /// Its connection is being opened.
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
    pub goal: Goal,
    /// The key in the request.
    pub key: CancelKey,
    /// The worker and the connection by which the request came in; `None` if it is pgweir's own.
    pub from: Option<(WorkerId, Token)>,
    /// The request's state.
    pub passage: Passage,
    /// The server's name, if the request is to be encrypted as the server's connection is.
    pub tls: Option<Arc<Endpoint>>,
    /// When the request times out (`cancel_wait_timeout`).
    pub until: Time,
}
