//! The loan of a server connection to a client: its phases, and which phase may follow which.
//!
//! ```text
//! Checking  -> ended; the next loan of the server begins with Equipping or Relaying
//! Equipping -> Relaying
//! Relaying, Kept, Dedicated, Settled
//!           -> each other | Settling | AskingPrivilege | ended
//! Settling  -> Settled (for other clients) | Relaying | ended
//! AskingPrivilege -> Relaying
//! ```
//!
//! Any phase ends at once when the client leaves (the server connection is cleaned or closed) or when the server
//! connection is lost. `crate::loan` changes the phase of both sides.

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
}
