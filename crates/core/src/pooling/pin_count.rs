//! Counts how often clients of a pool were pinned for one reason, and decides which pins are logged.

use crate::Time;

/// Microseconds between two lines in the log about the same reason in the same pool, at least.
const LOG_INTERVAL: u64 = 10_000_000;

/// A worker's counts for one reason in one pool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PinCount {
    total: u64,
    /// When a line was last logged.
    logged_at: Option<Time>,
    /// The number of pins that were not logged since.
    not_logged: u64,
}

impl PinCount {
    /// Returns how often clients were pinned for this reason.
    pub(crate) fn total(self) -> u64 {
        self.total
    }

    /// Counts a pin that is not logged.
    pub(crate) fn add(&mut self) {
        self.total += 1;
    }

    /// Counts a pin. If a line is due in the log, returns how many pins have had none since the last one.
    pub(crate) fn add_logged(&mut self, now: Time) -> Option<u64> {
        self.total += 1;
        if self
            .logged_at
            .is_some_and(|at| now.since(at) < LOG_INTERVAL)
        {
            self.not_logged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.not_logged))
    }
}
