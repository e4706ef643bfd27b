//! The only module that reads a clock. All other modules receive the time.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use pgweir_core::Time;

/// The smallest difference between the process's time and the system's clock by which times in the log are corrected,
/// in microseconds. A smaller difference is the time that has passed since the event.
const NOTICED: u64 = 100_000;

/// Wall-clock time at the start of the process, advanced by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The difference between microseconds since the Unix epoch and those of the monotonic clock.
    offset_us: u64,
}

impl Clock {
    /// Starts the clock. One clock serves the whole process, so that all threads agree.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock module that the ban names"
    )]
    pub(crate) fn start() -> Self {
        Self {
            offset_us: since_epoch(SystemTime::now()).wrapping_sub(monotonic_us()),
        }
    }

    /// Returns the present time.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time(self.offset_us.wrapping_add(monotonic_us()))
    }
}

/// Reads the monotonic clock. `Instant` would take three times as many instructions for a difference in microseconds,
/// and the event loop reads the clock for each wait.
#[inline]
fn monotonic_us() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        unreachable!("Linux has always had a monotonic clock");
    };
    (time.tv_sec() as u64) * 1_000_000 + (time.tv_nsec() as u64) / 1_000
}

/// Returns the CPU time of this thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) else {
        unreachable!("Linux has had this clock since version 2.6.12");
    };
    (time.tv_sec() as u64) * 1_000_000_000 + time.tv_nsec() as u64
}

/// Returns the microseconds since the machine was started. This clock also counts while the machine is suspended.
pub(crate) fn since_boot_us() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_BOOTTIME) else {
        unreachable!("Linux has had this clock since version 2.6.39");
    };
    (time.tv_sec() as u64) * 1_000_000 + (time.tv_nsec() as u64) / 1_000
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
