//! Online restart: the messages from the control thread to workers, and between workers.

use std::sync::Arc;

use super::{ListenNote, PoolNote};
use crate::{
    WorkerId,
    shared::{cancel::CancelKey, pool::SharedPool},
};

/// A message to a worker about an online restart.
#[derive(Debug)]
pub enum TakeoverMail {
    /// The new process is up: hand clients over to it.
    BeginHandover,
    /// The new process has failed: stop handing clients over.
    CancelHandover,
    /// `takeover_timeout` has passed: disconnect the clients that are left.
    HandoverTimeout,
    /// The old process has this number of servers in a pool.
    OldProcessServers(PoolNote),
    /// The old process asks for a place for one more server of a pool.
    PlaceRequested(PoolNote),
    /// The new process lends a place for one more server of a pool.
    PlaceLent(PoolNote),
    /// The other process has the server that left this process with its client: the worker no longer counts the server.
    /// If the server has come back, the message goes through the worker that has it now.
    Gone {
        /// The server's pool.
        shared: Arc<SharedPool>,
        /// The worker that counts the server.
        worker: WorkerId,
    },
    /// The other process has ended.
    Alone,
    /// The other process has sent a note about a client that uses LISTEN.
    Listening {
        /// The client's cancel key.
        key: CancelKey,
        /// The note.
        note: ListenNote,
    },
    /// The new process has failed, and all clients that it can give back are back.
    AllBack,
}

impl TakeoverMail {
    /// Returns the worker that gets the message after this one; `None` if this one is the last. A note about the
    /// servers of the other process visits all workers in turn, after the clients that came before it. Otherwise
    /// neither process would count a server that came with one of these clients for a moment, and another server would
    /// be opened in its place.
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
