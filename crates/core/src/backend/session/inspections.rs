//! When a server's session was inspected, and when it has to be inspected next.

use crate::Time;

/// The inspections of a server's session, and the time for which the server stays with its client without one.
#[derive(Debug, Default)]
pub struct Inspections {
    /// When the server was inspected last.
    pub(crate) last_at: Option<Time>,
    /// The inspections since then that have failed, and that are to be repeated.
    pub(crate) failed: FailedInspections,
    /// The end of the client's turn: until this time other clients wait, although the client has no open transaction.
    pub(crate) turn_until: Option<Time>,
    /// Whether a request that may have changed the session was answered while more requests were outstanding.
    pub(crate) is_missing: bool,
    /// Whether a text may have changed state that only a full inspection shows: startup parameters whose value equals
    /// the default, or SQL-prepared statements.
    pub(crate) must_be_exact: bool,
    /// Whether the pool lists the server among those that stay with their clients without an inspection.
    pub(crate) is_listed: bool,
    /// Whether the pool counts the server among those that clients keep.
    pub(crate) is_counted: bool,
}

/// The consecutive failed inspections of one server.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailedInspections {
    count: u8,
    /// When the next one may begin.
    again_at: Option<Time>,
}

impl FailedInspections {
    /// The pause after the first failure, in microseconds. Each further failure doubles the pause.
    const PAUSE: u64 = 200_000;
    /// How often the pause is doubled at most: up to 51 seconds.
    const DOUBLED_MAX: u8 = 8;

    /// Notes that an inspection has failed.
    pub fn failed(&mut self, now: Time) {
        self.again_at = Some(now.after(Self::PAUSE << self.count));
        self.count = (self.count + 1).min(Self::DOUBLED_MAX);
    }

    /// Returns when the next inspection may begin, if the last one has failed.
    #[must_use]
    pub fn again_at(&self) -> Option<Time> {
        self.again_at
    }
}
