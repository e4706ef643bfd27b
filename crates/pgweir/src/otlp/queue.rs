//! The bounded queue of traces from the workers to the HTTP thread.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use pgweir_core::TransactionTrace;

/// Both ends of the queue. The HTTP thread looks into the queue at intervals, so that a worker never wakes it.
#[derive(Debug, Clone)]
pub(crate) struct TraceQueue {
    sender: Sender<Box<TransactionTrace>>,
    receiver: Receiver<Box<TransactionTrace>>,
    dropped: Arc<AtomicU64>,
}

impl TraceQueue {
    /// Creates a queue of at most `most` traces.
    pub(crate) fn new(most: usize) -> Self {
        let (sender, receiver) = bounded(most);
        Self {
            sender,
            receiver,
            dropped: Arc::default(),
        }
    }

    /// Adds a trace, or drops it if the queue is full.
    pub(crate) fn push(&self, trace: Box<TransactionTrace>) {
        if self.sender.try_send(trace).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the oldest traces, at most this number.
    pub(crate) fn take(&self, most: usize) -> Vec<TransactionTrace> {
        self.receiver
            .try_iter()
            .take(most)
            .map(|trace| *trace)
            .collect()
    }

    /// Returns the number of dropped traces.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
