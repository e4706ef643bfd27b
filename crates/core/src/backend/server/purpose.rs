//! The clients that may use a server connection.

use crate::{Replication, Token, listen::ListenerKey};

/// The clients that may use a server connection.
#[derive(Debug)]
pub struct Purpose {
    /// The client that the connection was opened for: no other client uses it, and it is closed with that client.
    pub(crate) owner: Option<Token>,
    /// Whether no limit of the pool counts this connection.
    pub(crate) bypass: bool,
    /// Set if the connection was opened to listen: see [`crate::listen`].
    pub(crate) listens: Option<ListenerKey>,
    /// Whether the connection was opened to check its host.
    pub(crate) checks_host: bool,
    /// The replication mode.
    pub(crate) replication: Replication,
}

impl Purpose {
    /// Returns whether pgweir has opened the connection for itself, to listen or to check the host: no client gets it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.listens.is_some() || self.checks_host
    }
}
