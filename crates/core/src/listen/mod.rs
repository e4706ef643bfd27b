//! Handles LISTEN without a server connection for each client. The clients of a pool that listen share a **listener**:
//! one connection per pool and `client_encoding`, which serves no queries.
//!
//! The listener alone processes a LISTEN that is a request by itself, and its answer is the client's. Any other LISTEN
//! of a client runs on the client's server, in the client's transaction. After the commit the listener listens too;
//! only then does the pooled server send all notifications so far ([`READ_ALL`]) and drop the channel, and the client
//! get the end of its transaction. So from the commit on one of them always listens, and the client gets only once what
//! both have received ([`Listening::settle`]).
//!
//! Each worker has a [`ChannelClients`]: its clients and their channels. One worker, always the same for a pool, has
//! the pool's listeners, and for each a [`ListenerChannels`]: the workers and their channels. The workers send each
//! other mail. As each mailbox is first in, first out, an answer comes after all notifications that PostgreSQL had sent
//! before it: a question without channels is a **fence**.

mod channel_clients;
mod holders;
mod listener_channels;
mod listening;
mod message;
mod notification;
mod opening;
mod pending_unlisten;

use std::sync::Arc;

pub(crate) use self::opening::{ListenerOpening, Opened, OpeningPurpose};
pub use self::{
    channel_clients::ChannelClients,
    holders::{Holder, Holders},
    listener_channels::{Full, ListenerChannels, READ_ALL},
    listening::{Listening, Overflow, Stage, TakenOverListener},
    message::{ListenerEvent, ListenerRequest},
    notification::Notification,
    pending_unlisten::PendingUnlisten,
};
use crate::{Token, WorkerId, pool::PoolId};

/// A channel's name, in the client's encoding.
pub type Channel = Arc<[u8]>;

/// The key of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerKey {
    /// The listener's pool.
    pub pool: PoolId,
    /// The `client_encoding` of the listener.
    pub encoding: Arc<[u8]>,
}

/// A question from a client to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The client's worker.
    pub worker: WorkerId,
    /// The client.
    pub client: Token,
    /// The number of this question among those of the client.
    pub number: u32,
    /// Whether the listener must read all that is in PostgreSQL's queue. Otherwise the listener may not have been woken
    /// yet for notifications that another session has received; only a session that has itself notified can rely on
    /// having woken all.
    pub reads_all: bool,
}
