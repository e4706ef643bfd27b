//! The progress of a client or server within a message that it sends, for `partial_message_timeout`.

use crate::Time;

/// The bytes that must arrive within the timeout for a message to count as advancing, unless fewer are missing. So a
/// peer that sends a byte now and then does not keep a server.
const ADVANCE_MIN: u32 = 1024;
/// The progress of a connection's peer within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The time at which the peer reached this place.
    since: Time,
    place: Place,
}

/// A place within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// A number that distinguishes the message from the next one.
    pub message: u32,
    /// The number of bytes that are missing, if it is known.
    pub missing: u32,
}

impl Progress {
    /// Returns the progress of a peer that is at this place now, if it was at `before`.
    #[must_use]
    pub(crate) fn next(before: Option<Self>, place: Place, now: Time) -> Self {
        match before {
            Some(before)
                if before.place.message == place.message
                    && before.place.missing.saturating_sub(place.missing) < ADVANCE_MIN =>
            {
                before
            }
            _ => Self { since: now, place },
        }
    }

    /// Returns the time at which the peer reached the place where it still is.
    #[must_use]
    pub(crate) fn since(self) -> Time {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(message: u32, missing: u32) -> Place {
        Place { message, missing }
    }

    #[test]
    fn progress() {
        let at = |before, message, missing, now| {
            Progress::next(before, place(message, missing), Time(now))
        };
        let first = at(None, 1, 5000, 10);
        assert_eq!(first.since, Time(10));
        // Few bytes are no progress, even if they arrive again and again.
        let same = at(Some(first), 1, 4500, 20);
        assert_eq!(same, first);
        let same = at(Some(same), 1, 4000, 30);
        assert_eq!(same, first);
        let further = at(Some(same), 1, 3976, 40);
        assert_eq!(further.since, Time(40));
        // Another message of the same length.
        assert_eq!(at(Some(further), 2, 3976, 50).since, Time(50));
    }
}
