//! Defines the mail between workers about listeners.

use std::sync::Arc;

use super::{Channel, ListenerKey, PendingRequest};
use crate::{SharedPool, WorkerId};

/// A message from a worker whose clients listen to the worker that owns the listener.
#[derive(Debug)]
pub enum ListenerRequest {
    /// Listen to these channels for the client's worker, if there are any, and answer once all earlier notifications
    /// were passed on.
    Ask {
        /// The client's pool.
        shared: Arc<SharedPool>,
        /// The listener.
        key: ListenerKey,
        /// The request.
        request: PendingRequest,
        /// Channels that are new to the client.
        channels: Vec<Channel>,
    },
    /// No client of this worker wants these channels any more.
    Leave {
        /// The listener.
        key: ListenerKey,
        /// The worker.
        from: WorkerId,
        /// The channels.
        channels: Vec<Channel>,
    },
}

/// A message from the worker that owns a listener to a worker whose clients listen.
#[derive(Debug)]
pub enum ListenerEvent {
    /// The request is answered.
    Answer {
        /// The request.
        request: PendingRequest,
        /// Whether the listener listens. If not, nothing has changed.
        granted: bool,
    },
    /// A notification on a channel that the worker wants.
    Notified {
        /// The listener.
        key: ListenerKey,
        /// The whole message.
        message: Arc<[u8]>,
    },
    /// The listener was lost in an outage, and listens again.
    Resumed {
        /// The listener.
        key: ListenerKey,
        /// The notice for its clients, as a whole message.
        message: Arc<[u8]>,
    },
    /// The listener is lost, and its later notifications too.
    Lost {
        /// The listener.
        key: ListenerKey,
        /// The reason.
        why: Arc<str>,
    },
}
