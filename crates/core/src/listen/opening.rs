//! Defines what is known about a listener connection that is to be opened.

use std::sync::Arc;

use super::{Channel, ListenerKey, Question};
use crate::{Endpoint, SharedPool, Token};

/// A listener connection that is to be opened.
#[derive(Debug)]
pub(crate) struct ListenerOpening {
    /// The pool.
    pub(crate) shared: Arc<SharedPool>,
    /// The key of the listener.
    pub(crate) key: ListenerKey,
    /// What the connection is for.
    pub(crate) purpose: OpeningPurpose,
}

/// What a listener connection is opened for.
#[derive(Debug)]
pub(crate) enum OpeningPurpose {
    /// To listen to the first channels of this key.
    First {
        /// The question of the client that listens.
        question: Question,
        /// The client's channels.
        channels: Vec<Channel>,
    },
    /// To replace an outdated listener.
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
