//! Defines the mail between workers about listeners.

use std::sync::Arc;

use super::{Channel, ListenerKey, Question};
use crate::{SharedPool, WorkerId};

/// A message from a client's worker to the listener's worker, or the other way round.
#[derive(Debug)]
pub enum Message {
    /// To the listener's worker: listen to these channels for the client's worker, if there are any, and answer once
    /// all earlier notifications were passed on.
    Ask {
        /// The client's pool.
        shared: Arc<SharedPool>,
        /// The listener.
        key: ListenerKey,
        /// The question.
        question: Question,
        /// Channels that are new to the client.
        channels: Vec<Channel>,
    },
    /// To the listener's worker: no client of this worker wants these channels any more.
    Leave {
        /// The listener.
        key: ListenerKey,
        /// The worker.
        from: WorkerId,
        /// The channels.
        channels: Vec<Channel>,
    },
    /// To the client's worker: the question is answered.
    Answer {
        /// The question.
        question: Question,
        /// Whether the listener listens. If not, nothing has changed.
        granted: bool,
    },
    /// To a worker that wants the channel: a whole notification.
    Notified {
        /// The listener.
        key: ListenerKey,
        /// The message.
        message: Arc<[u8]>,
    },
    /// To each worker that wants a channel of the listener: the listener is lost, and its later notifications too.
    Lost {
        /// The listener.
        key: ListenerKey,
        /// The reason.
        why: Arc<str>,
    },
}
