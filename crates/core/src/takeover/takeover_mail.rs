//! Online restart: what the control thread tells workers, and workers each other.

use std::sync::Arc;

use super::{ListenNote, PoolNote};
use crate::{WorkerId, cancel::CancelKey, shared_pool::SharedPool};

/// What workers are told during an online restart.
#[derive(Debug)]
pub enum TakeoverMail {
    /// The next process is up: let clients leave.
    BeginHandover,
    /// It has failed: serve on.
    CancelHandover,
    /// `takeover_timeout` has passed: end the clients that are left.
    HandoverTimeout,
    /// The process before this one has so many servers of a pool.
    OldProcessServers(PoolNote),
    /// It asks for one more.
    PlaceRequested(PoolNote),
    /// The process after this one gives one more.
    PlaceLent(PoolNote),
    /// A server of this pool, which a worker gave along with its client, is no longer its own to count.
    /// If it has come back, this goes by way of the worker that has it now.
    Gone {
        /// Its pool.
        shared: Arc<SharedPool>,
        /// The worker that counts it.
        worker: WorkerId,
    },
    /// It is gone.
    Alone,
    /// The other process says something of a client that listens.
    Listening {
        /// The client's key.
        key: CancelKey,
        /// What.
        note: ListenNote,
    },
    /// The next process has failed, and its clients are back as far as they come.
    AllBack,
}

impl TakeoverMail {
    /// The worker that is to hear it after this one, if that is not the last. What is said of servers
    /// elsewhere goes round, behind the clients that came before it: else a server that has come with
    /// one of them would be counted by neither process for a moment, and another opened in its place.
    pub(crate) fn passes_on(&self, worker: WorkerId, workers: usize) -> Option<WorkerId> {
        match self {
            Self::OldProcessServers(_) | Self::PlaceRequested(_) | Self::Alone => {
                let next = worker.index() + 1;
                (next < workers).then_some(WorkerId(next as u8))
            }
            Self::Gone { worker: last, .. } => (*last != worker).then_some(*last),
            Self::BeginHandover
            | Self::CancelHandover
            | Self::HandoverTimeout
            | Self::PlaceLent(_)
            | Self::Listening { .. }
            | Self::AllBack => None,
        }
    }
}
