//! Cancel requests: the keys that name clients, and the connections that carry requests.

mod key;
mod keys;

use std::sync::Arc;

pub use self::key::CancelKey;
pub(crate) use self::keys::Keys;
use crate::{Endpoint, Time, Token, WorkerId};

/// Stands for the connection of a request that has come in at another process of an online restart.
pub const ELSEWHERE: Token = Token {
    slot: u32::MAX,
    generation: u32::MAX,
};

/// Where a cancel request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// To the query of this server.
    Server(Token),
    /// To the peer of this number, whose client is meant.
    Peer(u32),
}

/// How far a cancel request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// As many as may be are on their way to the same peer.
    Queued,
    /// Its connection is being opened.
    Opening,
    /// The server was asked for TLS.
    Asked,
    /// TLS is being agreed on.
    Handshake,
    /// It is on its way.
    Sent,
}

/// A connection to PostgreSQL, or to a peer, that carries one cancel request.
#[derive(Debug)]
pub struct CancelConnection {
    /// Where it goes.
    pub goal: Goal,
    /// The key that it carries.
    pub key: CancelKey,
    /// Who asked: worker and connection there; `None` if it was ourselves.
    pub from: Option<(WorkerId, Token)>,
    /// How far it has come.
    pub passage: Passage,
    /// It is to be encrypted, as its server's connection is; the server's name.
    pub tls: Option<Arc<Endpoint>>,
    /// When patience ends (`cancel_wait_timeout`).
    pub until: Time,
}
