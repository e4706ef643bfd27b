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

    /// Returns the worker that gets the message if this one has not handed over the client that it is about; `None` if
    /// all workers have had it. Such a message first comes to the worker that the client's pid names, and the client may
    /// have left from any other.
    pub(crate) fn tries_next(&self, worker: WorkerId, workers: usize) -> Option<WorkerId> {
        let Self::Listening {
            key,
            note: ListenNote::Fence | ListenNote::Done,
        } = self
        else {
            return None;
        };
        let next = WorkerId(((worker.index() + 1) % workers) as u8);
        (next != key.worker(workers)).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_to_the_old_process_comes_to_each_worker_once() {
        let word = |note| TakeoverMail::Listening {
            key: CancelKey {
                pid: CancelKey::pid(WorkerId(1), 0, 7),
                secret: [0; 4].into(),
            },
            note,
        };
        let from = |worker, workers| word(ListenNote::Fence).tries_next(WorkerId(worker), workers);
        let visits = [from(1, 3), from(2, 3), from(0, 3)];
        assert_eq!(visits, [Some(WorkerId(2)), Some(WorkerId(0)), None]);
        assert_eq!(from(0, 1), None);
        let done = word(ListenNote::Done).tries_next(WorkerId(1), 2);
        assert_eq!(done, Some(WorkerId(0)));
        let to_new_process = word(ListenNote::Fenced).tries_next(WorkerId(1), 2);
        assert_eq!(to_new_process, None);
    }
}
