//! When a server's session was inspected, and when it has to be inspected next.

use crate::{Time, base::conditions::first_of};

/// The inspections of a server's session, and the time for which the server stays with its client without one.
#[derive(Debug, Default)]
pub struct Inspections {
    /// When the last inspection began.
    last_at: Option<Time>,
    /// The inspections since then that have failed, and that are to be repeated.
    failed: FailedInspections,
    /// The end of the client's turn: until this time other clients wait, although the client has no open transaction.
    turn_until: Option<Time>,
    /// Whether a request that may have changed the session was answered while more requests were outstanding.
    is_missing: bool,
    /// Whether a text may have changed state that only a full inspection shows: startup parameters whose value equals
    /// the default, or SQL-prepared statements.
    must_be_exact: bool,
    /// Whether the pool lists the server among those that stay with their clients without an inspection.
    is_listed: bool,
    /// Whether the pool counts the server among those that clients keep.
    is_counted: bool,
}

impl Inspections {
    /// Returns when the last inspection began.
    #[must_use]
    pub fn last_at(&self) -> Option<Time> {
        self.last_at
    }

    /// Notes that an inspection begins.
    pub fn note_begun(&mut self, now: Time) {
        self.last_at = Some(now);
    }

    /// Notes that an inspection has failed.
    pub fn note_failed(&mut self, now: Time) {
        self.failed.note_failed(now);
    }

    /// Notes that an inspection has succeeded.
    pub fn note_succeeded(&mut self) {
        self.failed = FailedInspections::default();
    }

    /// Returns when the next inspection may begin, if the last one has failed.
    #[must_use]
    pub fn again_at(&self) -> Option<Time> {
        self.failed.again_at
    }

    /// Returns the end of the client's turn, if it has one.
    #[must_use]
    #[inline]
    pub fn turn_until(&self) -> Option<Time> {
        self.turn_until
    }

    /// Gives the client a turn until this time, or none.
    #[inline]
    pub fn set_turn(&mut self, until: Option<Time>) {
        self.turn_until = until;
    }

    /// Ends the client's turn. Returns when it would have ended, if there was one.
    pub fn end_turn(&mut self) -> Option<Time> {
        self.turn_until.take()
    }

    /// Returns whether a request that may have changed the session was answered while more requests were outstanding.
    #[must_use]
    #[inline]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Notes whether such a request was answered now.
    #[inline]
    pub fn note_missing(&mut self, is_missing: bool) {
        self.is_missing |= is_missing;
    }

    /// Notes that the missing inspection begins.
    pub fn begin_missing(&mut self) {
        self.is_missing = false;
    }

    /// Returns whether the next inspection must read the whole session.
    #[must_use]
    #[inline]
    pub fn must_be_exact(&self) -> bool {
        self.must_be_exact
    }

    /// Demands that the next inspection reads the whole session, if `is_exact`.
    pub fn demand_exact(&mut self, is_exact: bool) {
        self.must_be_exact |= is_exact;
    }

    /// Notes that the pool lists the server. Returns whether it has listed the server before.
    pub fn list(&mut self) -> bool {
        std::mem::replace(&mut self.is_listed, true)
    }

    /// Notes that the pool does not list the server.
    pub fn unlist(&mut self) {
        self.is_listed = false;
    }

    /// Returns whether the pool counts the server among those that clients keep.
    #[must_use]
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Notes that the pool counts the server. Returns whether it has counted the server before.
    pub fn count(&mut self) -> bool {
        std::mem::replace(&mut self.is_counted, true)
    }

    /// Notes that the pool does not count the server. Returns whether it has counted the server before.
    #[inline]
    pub fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.is_counted)
    }

    /// Notes that the session state was read or removed: nothing is left to be inspected.
    pub(super) fn note_known(&mut self) {
        self.is_missing = false;
        self.must_be_exact = false;
        self.failed = FailedInspections::default();
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (self.failed.again_at.is_some(), "a failed inspection"),
            (self.turn_until.is_some(), "a client's turn"),
            (self.is_missing, "an inspection that is missing"),
            (self.must_be_exact, "the demand for a full inspection"),
            (self.is_counted, "the count of a pinned client"),
        ])
    }

    /// Notes that the session was cleaned.
    pub(super) fn note_cleaned(&mut self) {
        self.last_at = None;
        self.turn_until = None;
    }
}

/// The consecutive failed inspections of one server.
#[derive(Debug, Clone, Copy, Default)]
struct FailedInspections {
    count: u8,
    /// When the next one may begin.
    again_at: Option<Time>,
}

impl FailedInspections {
    /// The pause after the first failure, in microseconds. Each further failure doubles the pause.
    const PAUSE: u64 = 200_000;
    /// How often the pause is doubled at most: up to 51 seconds.
    const DOUBLED_MAX: u8 = 8;

    fn note_failed(&mut self, now: Time) {
        self.again_at = Some(now.after(Self::PAUSE << self.count));
        self.count = (self.count + 1).min(Self::DOUBLED_MAX);
    }
}
