//! Handles LISTEN without a server connection for each client. The clients of a pool that listen share a **listener**:
//! one connection per pool and `client_encoding`, which serves no queries.
//!
//! If a client's request is nothing but LISTEN, the listener processes it, and the client gets the listener's answer.
//! Any other LISTEN runs on the client's server, in the client's transaction. After the commit the listener listens,
//! too. Then the client's server sends all notifications up to that moment ([`READ_ALL`]) and runs UNLISTEN, and only
//! then the client gets the end of its transaction. So from the commit on, the server or the listener listens at any
//! moment. If both receive a notification, the client gets it once ([`Listening::settle`]).
//!
//! Each worker has a [`ChannelClients`]: its clients and their channels. One worker, always the same for a pool, has
//! the pool's listeners, and for each a [`ListenerChannels`]: the workers and their channels. The workers send each
//! other mail. Each mailbox is first in, first out, so an answer arrives after all notifications that PostgreSQL sent
//! earlier. A request without channels, which only waits for this answer, is a **fence**.

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
    /// The listener's `client_encoding`.
    pub encoding: Arc<[u8]>,
}

/// A request from a client to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingRequest {
    /// The client's worker.
    pub(crate) worker: WorkerId,
    /// The client.
    pub(crate) client: Token,
    /// The number of this request among those of the client.
    pub(crate) number: u32,
    /// Whether the listener must first read all of PostgreSQL's queue of notifications. PostgreSQL wakes listening
    /// sessions one after the other, so another session may have received notifications for which the listener was not
    /// woken yet. Without this flag, the answer covers only notifications of sessions that know that their own NOTIFY
    /// has woken all listeners.
    pub(crate) reads_all: bool,
}
