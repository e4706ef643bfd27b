//! Counts the requests to Patroni's REST API.

use std::sync::atomic::{AtomicU64, Ordering};

/// The requests to Patroni's REST API since the start of the process.
#[derive(Debug, Default)]
pub struct PatroniRequests {
    answered: AtomicU64,
    failed: AtomicU64,
}

impl PatroniRequests {
    /// Counts a request that has ended. `is_answered`: whether a member has sent an answer that can be used.
    pub fn add(&self, is_answered: bool) {
        let counter = match is_answered {
            true => &self.answered,
            false => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests that were answered, and of those that have failed.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.answered), read(&self.failed))
    }
}
