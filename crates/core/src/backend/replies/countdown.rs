//! What is so until a request has been answered.

use std::collections::VecDeque;

use super::Entry;

/// What is so until a request has been answered.
#[derive(Debug, Default)]
pub(super) struct Countdown {
    /// That request is being sent.
    pub(super) begun: bool,
    /// So many requests end before, and with it.
    pub(super) left: usize,
}

impl Countdown {
    /// The request that is being sent ends now, the last of so many.
    #[inline]
    pub(super) fn request_sent(&mut self, queue: &VecDeque<Entry>) {
        if std::mem::take(&mut self.begun) {
            self.left = queue.iter().filter(|entry| entry.is_request()).count();
        }
    }

    /// So many have been answered.
    #[inline]
    pub(super) fn requests_gone(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// So many ends of requests were none: the request goes on.
    pub(super) fn ends_ignored(&mut self, count: usize) {
        self.begun |= self.left > 0 && self.left <= count;
        self.requests_gone(count);
    }
}
