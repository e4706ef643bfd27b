//! The only module that reads a clock. All other modules receive the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pgweir_core::Time;

/// The smallest difference between the process's time and the system's clock by which times in the log are corrected,
/// in microseconds. A smaller difference is the time that has passed since the event.
const NOTICED: u64 = 100_000;

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
        Self {
            start: Instant::now(),
            epoch_us: since_epoch(SystemTime::now()),
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

/// Returns the time of the system's clock at `now`. The two differ if the clock was set since the process began.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the clock module that the ban names"
)]
pub(crate) fn by_system_clock(now: Time) -> Time {
    let said = since_epoch(SystemTime::now());
    match said.abs_diff(now.0) < NOTICED {
        true => now,
        false => Time(said),
    }
}

fn since_epoch(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}
