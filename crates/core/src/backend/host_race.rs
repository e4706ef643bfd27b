//! The state of a login that races with a login to another host of the list (`host_race_after`).

use crate::{Time, Token};

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
