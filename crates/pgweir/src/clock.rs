//! The only module that reads a clock. All other modules receive the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pgweir_core::Time;

/// Wall-clock time at the start of the process, advanced by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    /// Microseconds since the Unix epoch at `start`.
    epoch_us: u64,
}

impl Clock {
    /// Starts the clock. One clock serves the whole process, so that all threads agree.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock module that the ban names"
    )]
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            epoch_us: u64::try_from(since_epoch.as_micros()).unwrap_or_default(),
        }
    }

    /// Returns the present time.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock module that the ban names"
    )]
    pub(crate) fn now(&self) -> Time {
        let elapsed_us =
            u64::try_from((Instant::now() - self.start).as_micros()).unwrap_or(u64::MAX);
        Time(self.epoch_us.saturating_add(elapsed_us))
    }
}
