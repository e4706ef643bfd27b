//! The loan of a server connection to a client: its phases, and which phase may follow which.
//!
//! ```text
//! Checking  -> ended, then Equipping or Relaying
//! Equipping -> Relaying
//! Relaying, Kept, Dedicated, Settled
//!           -> each other | Settling | AskingPrivilege | ended
//! Settling  -> Settled (for other clients) | Relaying | ended
//! AskingPrivilege -> Relaying
//! ```
//!
//! Any phase ends at once when the client leaves (the server connection is cleaned or closed) or when the server
//! connection is lost. `crate::loan` changes the phase of both sides.

use super::Duty;
use crate::Time;

/// The phase of a loan, which determines what the client and the server connection do at present.
#[derive(Debug, Clone, Copy)]
pub enum Phase {
    /// `server_check_query` was sent; no byte of the client has been read.
    Checking {
        /// The time at which the server connection is closed if it has not answered.
        until: Time,
    },
    /// pgweir's statements give the server the client's session state; no byte of the client has been read.
    Equipping,
    /// Bytes flow in both directions.
    Relaying,
    /// The transaction is over, and its effect on the session was not inspected: the server stays with its client until
    /// a client waits for a server, or some time has passed.
    Kept {
        /// When the transaction ended.
        since: Time,
    },
    /// The transaction is over, and the session has state that can't be moved.
    Dedicated {
        /// When the first transaction ended whose effect on the session was not inspected.
        unsettled_since: Option<Time>,
    },
    /// pgweir does not read from the client, while it inspects the session or waits for earlier notifications.
    Settling(Settling),
    /// The session was inspected since other clients wait: the server goes back to the pool unless session state pins
    /// it.
    Settled,
    /// ReadyForQuery is held back, while the server is asked for the role under which its client signals other clients.
    AskingPrivilege,
}

/// The way in which a session is inspected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settling {
    /// Whether the client waits for the listener connection, which carries out the client's LISTEN in place of the
    /// server.
    pub(crate) awaits_listener: bool,
    /// Whether the same query also resets the settings: if one part fails, so does the other.
    pub(crate) cleans: bool,
    /// Whether the server goes back to the pool afterwards, unless session state pins it.
    pub(crate) releases: bool,
    /// Whether the client has got its ReadyForQuery already.
    pub(crate) ready_was_sent: bool,
}

impl Phase {
    /// Returns whether the client's bytes are forwarded in this phase.
    #[must_use]
    #[inline]
    pub fn relays(&self) -> bool {
        matches!(
            self,
            Self::Relaying | Self::Kept { .. } | Self::Dedicated { .. } | Self::Settled
        )
    }

    /// Returns whether pgweir holds back the client's ReadyForQuery, or does not read from the client.
    #[must_use]
    #[inline]
    pub fn holds_client(&self) -> bool {
        matches!(self, Self::Settling(_) | Self::AskingPrivilege)
    }

    /// Returns since when the server stays with its client without an inspection of the session.
    #[must_use]
    pub fn unsettled_since(&self) -> Option<Time> {
        match *self {
            Self::Kept { since } => Some(since),
            Self::Dedicated { unsettled_since } => unsettled_since,
            _ => None,
        }
    }

    /// Returns whether a server connection with this duty may enter the phase.
    #[must_use]
    pub fn may_follow(&self, before: &Duty) -> bool {
        let phase = match before {
            Duty::Lent { phase, .. } => phase,
            Duty::Idle => {
                return matches!(
                    self,
                    Self::Checking { .. } | Self::Equipping | Self::Relaying
                );
            }
            // An exclusive server of the client.
            Duty::Login(_) => return matches!(self, Self::Relaying),
            Duty::Listening { .. } | Duty::CheckingHost { .. } | Duty::Cleaning { .. } => {
                return false;
            }
        };
        match phase {
            Self::Checking { .. } => false,
            Self::Equipping => matches!(self, Self::Equipping | Self::Relaying),
            Self::Relaying | Self::Kept { .. } | Self::Dedicated { .. } | Self::Settled => {
                !matches!(self, Self::Checking { .. } | Self::Equipping)
            }
            Self::Settling(_) => matches!(self, Self::Settled | Self::Relaying),
            Self::AskingPrivilege => matches!(self, Self::Relaying),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

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
            .filter(|&at| all[at].may_follow(before))
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
