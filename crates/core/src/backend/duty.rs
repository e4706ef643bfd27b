//! What a server connection is used for at present, and which use may follow which.

use super::{Phase, ServerLogin};
use crate::{Time, Token};

/// The use of a server connection: login, idle, lent to a client, listening, checking its host, or being cleaned.
///
/// ```text
/// Login -> Idle -> Lent -> [Cleaning] -> Idle
///      \-> Listening
///      \-> CheckingHost
/// ```
#[derive(Debug)]
pub enum Duty {
    /// The server connection is opened or logs in.
    Login(Box<ServerLogin>),
    /// No client uses it.
    Idle,
    /// The server is lent to a client.
    Lent {
        /// The client.
        client: Token,
        /// The present phase of the loan.
        phase: Phase,
    },
    /// The server listens for all clients of its pool that listen; it is never lent.
    Listening {
        /// Whether pgweir's present query on the server has failed.
        query_failed: bool,
    },
    /// The connection checks the state of its host at intervals; it is never lent.
    CheckingHost {
        /// When the present check was sent; `None` if no check is outstanding.
        asked_at: Option<Time>,
    },
    /// No client uses it, but replies are outstanding: those of a client that left, or those of pgweir's cleaning
    /// queries.
    Cleaning {
        /// The time at which the connection is closed if it is not clean.
        until: Time,
        /// Whether ROLLBACK was sent, since one is enough.
        rolled_back: bool,
    },
}

impl Duty {
    /// Returns whether this duty has a time limit.
    pub(crate) fn has_deadline(&self) -> bool {
        match self {
            Self::Login(_) | Self::Cleaning { .. } => true,
            Self::Lent { phase, .. } => matches!(phase, Phase::Checking { .. }),
            Self::CheckingHost { asked_at } => asked_at.is_some(),
            Self::Idle | Self::Listening { .. } => false,
        }
    }

    /// Returns the phase of the loan, if there is one.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Option<&Phase> {
        match self {
            Self::Lent { phase, .. } => Some(phase),
            _ => None,
        }
    }

    /// Returns whether the server connection may enter this phase of a loan.
    #[must_use]
    pub fn may_become(&self, next: &Phase) -> bool {
        let phase = match self {
            Self::Lent { phase, .. } => phase,
            Self::Idle => {
                return matches!(
                    next,
                    Phase::Checking { .. } | Phase::Equipping | Phase::Relaying
                );
            }
            // An exclusive server of the client.
            Self::Login(_) => return matches!(next, Phase::Relaying),
            Self::Listening { .. } | Self::CheckingHost { .. } | Self::Cleaning { .. } => {
                return false;
            }
        };
        match phase {
            Phase::Checking { .. } => false,
            Phase::Equipping => matches!(next, Phase::Equipping | Phase::Relaying),
            Phase::Relaying | Phase::Kept { .. } | Phase::Dedicated { .. } | Phase::Settled => {
                !matches!(next, Phase::Checking { .. } | Phase::Equipping)
            }
            Phase::Settling(_) => matches!(next, Phase::Settled | Phase::Relaying),
            Phase::AskingPrivilege => matches!(next, Phase::Relaying),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Settling;

    const CLIENT: Token = Token {
        slot: 0,
        generation: 0,
    };
    const NOW: Time = Time(1);

    fn phases() -> [Phase; 8] {
        [
            Phase::Checking { until: NOW },
            Phase::Equipping,
            Phase::Relaying,
            Phase::Kept { since: NOW },
            Phase::Dedicated {
                unsettled_since: None,
            },
            Phase::Settling(Settling::default()),
            Phase::Settled,
            Phase::AskingPrivilege,
        ]
    }

    #[track_caller]
    fn check(before: &Duty, expect: &[usize]) {
        let all = phases();
        let found: Vec<_> = (0..all.len())
            .filter(|&at| before.may_become(&all[at]))
            .collect();
        assert_eq!(found, expect, "after {before:?}");
    }

    #[test]
    fn transitions() {
        check(&Duty::Idle, &[0, 1, 2]);
        check(
            &Duty::Listening {
                query_failed: false,
            },
            &[],
        );
        let from_quiet = [2, 3, 4, 5, 6, 7];
        let expect: [&[usize]; 8] = [
            &[],
            &[1, 2],
            &from_quiet,
            &from_quiet,
            &from_quiet,
            &[2, 6],
            &from_quiet,
            &[2],
        ];
        for (phase, expect) in phases().into_iter().zip(expect) {
            let client = CLIENT;
            check(&Duty::Lent { client, phase }, expect);
        }
    }
}
