//! The clients that may use a server connection.

use crate::{Replication, Token, listen::ListenerKey, shared::departures::Stream};

/// The clients that may use a server connection.
#[derive(Debug)]
pub enum Purpose {
    /// Each client of the pool may use the connection.
    Pool,
    /// The connection was opened for one client: no other client uses it, and it is closed with that client.
    Client {
        /// The client.
        owner: Token,
        /// Whether no limit of the pool counts the connection (`bypass_users`).
        bypass: bool,
        /// The replication mode.
        replication: Replication,
        /// Counts the connection if it has begun to stream WAL or changes.
        stream: Option<Stream>,
    },
    /// The connection was opened to listen for this: see [`crate::listen`].
    Listen(ListenerKey),
    /// The connection was opened to check its host.
    CheckHost,
}

impl Purpose {
    /// Returns the client that the connection was opened for, if it was opened for one client.
    #[must_use]
    #[inline]
    pub fn owner(&self) -> Option<Token> {
        match self {
            Self::Client { owner, .. } => Some(*owner),
            _ => None,
        }
    }

    /// Returns whether no limit of the pool counts this connection.
    #[must_use]
    pub fn bypasses_limits(&self) -> bool {
        matches!(self, Self::Client { bypass: true, .. })
    }

    /// Returns the replication mode.
    #[must_use]
    pub fn replication(&self) -> Replication {
        match self {
            Self::Client { replication, .. } => *replication,
            _ => Replication::None,
        }
    }

    /// Returns whether the connection has begun to stream WAL or changes to its client.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        matches!(
            self,
            Self::Client {
                stream: Some(_),
                ..
            }
        )
    }

    /// Returns the key of the listener, if the connection was opened to listen.
    #[must_use]
    pub fn listener_key(&self) -> Option<&ListenerKey> {
        match self {
            Self::Listen(key) => Some(key),
            _ => None,
        }
    }

    /// Returns whether the connection was opened to check its host.
    #[must_use]
    pub fn checks_host(&self) -> bool {
        matches!(self, Self::CheckHost)
    }

    /// Returns whether pgweir has opened the connection for itself, to listen or to check the host: no client gets it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Listen(_) | Self::CheckHost)
    }
}
