//! What workers write to each other about listeners.

use std::sync::Arc;

use super::{Channel, ListenerKey, Question};
use crate::{SharedPool, WorkerId};

/// From a client's worker to the owner of its listener, or the other way round.
#[derive(Debug)]
pub enum Message {
    /// To the owner: listen to these channels for the worker, if there are any, and answer once all
    /// that was notified before has been passed on.
    Ask {
        /// The client's pool.
        shared: Arc<SharedPool>,
        /// Which listener.
        key: ListenerKey,
        /// Who asks.
        question: Question,
        /// Channels that are new to the client.
        channels: Vec<Channel>,
    },
    /// To the owner: nobody on the worker wants these any more.
    Leave {
        /// Which listener.
        key: ListenerKey,
        /// The worker.
        from: WorkerId,
        /// The channels.
        channels: Vec<Channel>,
    },
    /// To the client's worker: the question has been dealt with.
    Answer {
        /// Which question.
        question: Question,
        /// The listener listens. If not, nothing has changed.
        granted: bool,
    },
    /// To a worker that wants the channel: a notification, whole.
    Notified {
        /// Which listener.
        key: ListenerKey,
        /// The message.
        message: Arc<[u8]>,
    },
    /// To every worker that wants a channel of it: it is gone, and with it what it would have heard.
    Lost {
        /// Which listener.
        key: ListenerKey,
        /// Why.
        why: Arc<str>,
    },
}
