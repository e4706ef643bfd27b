//! The state of a login that races with a login to another host of the list (`host_race_after`).

use crate::{Time, Token};

/// How many times longer than `host_race_after` a login may take before a race begins, if its connection is open: the
/// host can be reached, and may only be slow.
const PATIENCE_WITH_CONNECTION: u64 = 4;

/// The part of a login to a server in a race between two hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostRace {
    /// There is no race.
    #[default]
    None,
    /// A race begins unless the host answers before.
    Planned {
        /// When the race begins.
        at: Time,
        /// The number of hosts that may be tried beside the login, one after the other. At least 1.
        hosts_left: usize,
    },
    /// Another login is under way.
    Running(RunningRace),
}

/// A race that is under way, as one of its two logins sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningRace {
    /// The other login.
    pub other: Token,
    /// Whether this login was begun first.
    pub is_first: bool,
    /// Whether the host of this login has sent anything.
    pub has_answered: bool,
    /// The number of hosts that may be tried after these two, one after the other.
    pub hosts_left: usize,
}

impl HostRace {
    /// Returns the time at which a race begins.
    #[must_use]
    pub fn planned_at(self) -> Option<Time> {
        match self {
            Self::Planned { at, .. } => Some(at),
            Self::None | Self::Running(_) => None,
        }
    }

    /// Returns when a race for a login begins, if the host sends nothing. `since`: when the login began, or its
    /// connection was opened; `after`: the value of `host_race_after`, in microseconds.
    #[must_use]
    pub fn time_of(since: Time, after: u64, is_open: bool) -> Time {
        match is_open {
            true => since.after(after.saturating_mul(PATIENCE_WITH_CONNECTION)),
            false => since.after(after),
        }
    }

    /// Notes that the connection is open, at `now`: a race that has not begun is put off.
    pub fn note_connected(&mut self, now: Time, after: u64) {
        if let Self::Planned { at, .. } = self {
            *at = Self::time_of(now, after, true);
        }
    }

    /// Ends the race, and returns it if it was under way.
    pub fn end(&mut self) -> Option<RunningRace> {
        match std::mem::take(self) {
            Self::Running(race) => Some(race),
            Self::None | Self::Planned { .. } => None,
        }
    }

    /// Notes that the host has sent something.
    pub fn note_answer(&mut self) {
        match self {
            Self::Planned { .. } => *self = Self::None,
            Self::Running(race) => race.has_answered = true,
            Self::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_can_be_reached_has_more_time() {
        let planned = HostRace::Planned {
            at: Time(250),
            hosts_left: 1,
        };
        let mut race = planned;
        race.note_connected(Time(10), 250);
        assert_eq!(race.planned_at(), Some(Time(1_010)));
        race.note_answer();
        race.note_connected(Time(20), 250);
        assert_eq!(race, HostRace::None);
        assert_eq!(HostRace::time_of(Time(7), 250, false), Time(257));
    }
}
