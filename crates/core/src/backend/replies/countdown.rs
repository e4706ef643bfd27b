//! A condition that ends when a certain request has been answered, stored as the number of requests
//! until then.

/// The number of requests to be answered until a condition ends; 0 if the condition does not hold. A single integer,
/// since the condition is checked for every message, and is nearly always 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Countdown(u32);

/// The bit that is set while the request that ends the condition is still being sent.
const BEGUN: u32 = 1 << 31;

impl Countdown {
    /// Returns whether none of these conditions holds.
    #[inline]
    pub(super) fn are_over(all: [Self; 2]) -> bool {
        all[0].0 | all[1].0 == 0
    }

    /// Makes the condition hold until the request that is being sent has been answered.
    pub(super) fn begin(&mut self) {
        self.0 |= BEGUN;
    }

    /// Returns whether the request that ends the condition is still being sent.
    pub(super) fn has_begun(self) -> bool {
        self.0 & BEGUN != 0
    }

    /// Undoes [`begin`](Self::begin): the request that is being sent does not count.
    pub(super) fn forget_begun(&mut self) {
        self.0 &= !BEGUN;
    }

    /// Returns whether the condition waits for answers to requests that were sent completely.
    #[inline]
    pub(super) fn is_pending(self) -> bool {
        self.0 & !BEGUN != 0
    }

    /// Makes the condition hold until this number of requests has been answered.
    pub(super) fn set(&mut self, requests: usize) {
        self.0 = self.0 & BEGUN | requests as u32 & !BEGUN;
    }

    /// Notes that the request that was being sent is complete, and is the last of this number of outstanding requests.
    pub(super) fn request_sent(&mut self, requests: usize) {
        if self.has_begun() {
            self.0 = requests as u32 & !BEGUN;
        }
    }

    /// Notes that this number of requests was answered.
    pub(super) fn requests_gone(&mut self, count: usize) {
        let left = (self.0 & !BEGUN) as usize;
        self.set(left.saturating_sub(count));
    }

    /// Notes that the server ignores this number of requests after the first one.
    pub(super) fn next_ignored(&mut self, count: u32) {
        if self.is_pending() {
            let left = (self.0 & !BEGUN).saturating_sub(count).max(1);
            self.set(left as usize);
        }
    }

    /// Notes that this number of Syncs has ended no request, since the server ignores them.
    pub(super) fn ends_ignored(&mut self, count: usize) {
        let goes_on = self.is_pending() && (self.0 & !BEGUN) as usize <= count;
        self.requests_gone(count);
        if goes_on {
            self.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let mut count = Countdown::default();
        count.request_sent(3);
        assert!(Countdown::are_over([count; 2]));
        count.begin();
        assert!(count.has_begun() && !count.is_pending() && !Countdown::are_over([count; 2]));
        count.request_sent(3);
        assert!(!count.has_begun() && count.is_pending());
        count.requests_gone(2);
        count.begin();
        count.forget_begun();
        assert!(count.is_pending() && !count.has_begun());
        count.ends_ignored(1);
        assert!(count.has_begun() && !count.is_pending());
        count.set(1);
        count.requests_gone(5);
        assert!(count.has_begun() && !count.is_pending());
        assert!(!Countdown::are_over([count, Countdown::default()]));
    }
}
