//! LISTEN without a server of one's own: clients of a pool that listen share a **listener**, one
//! connection per pool and `client_encoding`, which serves no queries.
//!
//! A LISTEN that is a request of its own is the listener's alone: its answer is the client's. Any other
//! LISTEN of a client runs on the server that it has, in its own transaction. Once that is committed,
//! the listener is made to listen too; only then does the pooled server tell all that was notified so
//! far ([`READ_ALL`]) and forget the channel, and the client hear that its transaction is over. So from
//! the commit on there is always one of them that listens, and what both have heard is told once
//! ([`Listening::settle`]).
//!
//! Each worker has a [`ChannelClients`]: which of its clients listen to what. One worker, always the same for a
//! pool, owns its listeners, and for each a [`ListenerChannels`]: which workers want which channels. The two
//! speak by mail, and as every mailbox is first in, first out, an answer to a question comes after
//! all notifications that PostgreSQL had sent before it: a question without channels is a **fence**.

mod channel_clients;
mod holders;
mod listener_channels;
mod listening;
mod message;
mod notification;
mod pending_unlisten;

use std::sync::Arc;

pub use self::{
    channel_clients::ChannelClients,
    holders::{Holder, Holders},
    listener_channels::{Full, ListenerChannels, READ_ALL},
    listening::{Listening, Overflow, Stage, TakenOverListener},
    message::Message,
    notification::Notification,
    pending_unlisten::PendingUnlisten,
};
use crate::{Token, WorkerId, pool::PoolId};

/// A channel's name, in the client's encoding.
pub type Channel = Arc<[u8]>;

/// Names a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerKey {
    /// Its pool.
    pub pool: PoolId,
    /// The `client_encoding` in which it speaks.
    pub encoding: Arc<[u8]>,
}

/// A question of a client to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The client's worker.
    pub worker: WorkerId,
    /// The client.
    pub client: Token,
    /// Which of its questions this is.
    pub number: u32,
    /// The listener is to read all that is in PostgreSQL's queue. Without that it may not have been
    /// woken yet for what another session has heard already; only who has notified itself can rely on
    /// having woken all.
    pub reads_all: bool,
}
