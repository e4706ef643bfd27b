//! Statement statistics: assigns the bytes of a client's messages to the statements that they run.

use crate::{Time, statement_statistics::StatementStatistics};

/// Assigns one client's messages to the statements that they run.
pub(super) struct Counting<'w> {
    pub(super) statistics: &'w mut StatementStatistics,
    /// The fingerprint of the text that was scanned last.
    pub(super) scanned: Option<u64>,
    /// The fingerprint of the text in the message that is being read, if it was scanned.
    pub(super) fingerprint: Option<u64>,
    /// The position up to which the received bytes are counted.
    counted: usize,
    now: Time,
}

impl<'w> Counting<'w> {
    #[inline]
    pub(super) fn new(statistics: &'w mut StatementStatistics, now: Time) -> Self {
        Self {
            statistics,
            scanned: None,
            fingerprint: None,
            counted: 0,
            now,
        }
    }

    /// The time at which the messages were read.
    #[inline]
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Counts the received bytes up to a position, and returns how many these are.
    #[inline]
    pub(super) fn count_to(&mut self, position: usize) -> usize {
        position - std::mem::replace(&mut self.counted, position)
    }
}
