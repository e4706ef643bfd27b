//! Time as an argument: the core reads no clock.

/// Microseconds since the Unix epoch. The process reads the system's time once, at its start, and adds the time that a
/// monotonic clock has measured since. So this time never goes backwards, and can still be shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// Returns the microseconds from `earlier` to `self`; 0 if `earlier` is later.
    #[must_use]
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the earlier one of two times, if there is any.
    #[must_use]
    #[inline]
    pub fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            _ => one.or(other),
        }
    }

    /// Returns `self` plus `micros` microseconds.
    #[must_use]
    #[inline]
    pub fn after(self, micros: u64) -> Time {
        Time(self.0.saturating_add(micros))
    }
}
