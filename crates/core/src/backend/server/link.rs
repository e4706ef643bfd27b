//! The connection to PostgreSQL: its ends, its encryption, its cancel key, and the state of its socket.

use std::sync::Arc;

use super::super::{BackendKey, RepeatableRequest};
use crate::{
    Address, Endpoint, TlsFacts,
    base::{fault::ServerError, progress::Progress},
    shared::hosts::{Host, HostConnection},
};

/// The connection to PostgreSQL.
#[derive(Debug)]
pub struct ServerLink {
    /// The endpoint of the server, for cancel requests.
    pub(crate) endpoint: Arc<Endpoint>,
    /// Counts this connection among those of its host; `None` in tests.
    pub(crate) host_connection: Option<HostConnection>,
    /// The two ends of the connection, once it is open.
    pub(crate) addresses: Option<(Address, Address)>,
    /// The encryption of the connection, if there is one.
    pub(crate) tls: Option<Box<TlsFacts>>,
    /// The server's cancel key.
    pub(crate) key: Option<BackendKey>,
    /// Whether the socket accepts no more bytes at present.
    pub(crate) blocked: bool,
    /// The server's last error before it closed the connection.
    pub(crate) last_words: Option<ServerError>,
    /// The position of the server within a message at the last check.
    pub(crate) progress: Option<Progress>,
    /// The client's request, if it can be repeated on another host; `None` in pools that repeat no requests.
    pub(crate) repeatable: Option<Box<RepeatableRequest>>,
}

impl ServerLink {
    /// Returns whether the server may be a primary, whose replies may tell a client of a commit.
    #[inline]
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.host().is_none_or(|host| host.replay.may_write())
    }

    /// Returns the host that this connection is counted at; `None` in tests.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.host_connection.as_ref().map(HostConnection::host)
    }
}

impl ServerLink {
    /// Notes that the client gets a part of the reply, so that its request can't be repeated.
    #[inline]
    pub(crate) fn close_repeatable(&mut self) {
        if let Some(request) = &mut self.repeatable {
            request.close();
        }
    }
}
