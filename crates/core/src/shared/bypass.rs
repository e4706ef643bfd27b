//! Counts the clients of `bypass_users` that have a server outside of all pools, in the whole process.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of clients that have a server outside of all pools, or are about to get one.
#[derive(Debug, Default)]
pub struct Bypass {
    taken: AtomicU32,
}

impl Bypass {
    /// Adds one client, if there are fewer than `most`. Returns whether the client was added.
    pub fn take(&self, most: u32) -> bool {
        let order = Ordering::Relaxed;
        let more = |taken: u32| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(order, order, more).is_ok()
    }

    /// Removes one client.
    pub fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the present number.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_may_be() {
        let bypass = Bypass::default();
        assert!(!bypass.take(0));
        assert!(bypass.take(2) && bypass.take(2));
        assert!(!bypass.take(2), "there are two");
        assert!(
            !bypass.take(1),
            "a lower limit ends nobody, and lets nobody in"
        );
        bypass.give_back();
        assert!(bypass.take(2));
        assert_eq!(bypass.taken(), 2);
    }
}
