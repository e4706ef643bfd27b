//! Describes a listener connection that is to be opened.

use std::sync::Arc;

use super::{Channel, ListenerKey, PendingRequest};
use crate::{Endpoint, SharedPool, Token};

/// A listener connection that is to be opened.
#[derive(Debug)]
pub(crate) struct ListenerOpening {
    /// The pool.
    pub(crate) shared: Arc<SharedPool>,
    /// The key of the listener.
    pub(crate) key: ListenerKey,
    /// The purpose of the connection.
    pub(crate) purpose: OpeningPurpose,
}

/// The purpose of a listener connection that is to be opened.
#[derive(Debug)]
pub(crate) enum OpeningPurpose {
    /// The first client asks for channels of this key.
    First {
        /// The request of the client that listens.
        request: PendingRequest,
        /// The client's channels.
        channels: Vec<Channel>,
    },
    /// A listener was lost in an outage: the connection listens to its channels again.
    Resumption,
    /// An outdated listener is replaced.
    Replacement {
        /// The endpoint of the outdated listener.
        endpoint: Arc<Endpoint>,
    },
}

/// The outcome of an attempt to open a listener connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// This connection is being opened.
    Connecting(Token),
    /// The caps allow no more connections at present.
    CapReached,
    /// No connection can be opened: the process shuts down, or the pool's database or its endpoint was removed.
    Impossible,
}
