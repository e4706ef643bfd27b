//! The connection to PostgreSQL: its ends, its encryption, its cancel key, and the state of its socket.

use std::sync::Arc;

use super::super::{BackendKey, HostRace, RepeatableRequest};
use crate::{
    Address, Endpoint, TlsFacts,
    base::{fault::ServerError, progress::Progress},
    shared::hosts::{Host, HostConnection},
};

/// The connection to PostgreSQL.
#[derive(Debug)]
pub struct ServerLink {
    /// The endpoint of the server, for cancel requests.
    endpoint: Arc<Endpoint>,
    /// Counts this connection among those of its host; `None` in tests.
    host_connection: Option<HostConnection>,
    /// The two ends of the connection, once it is open.
    addresses: Option<(Address, Address)>,
    /// The encryption of the connection, if there is one.
    tls: Option<Box<TlsFacts>>,
    /// The server's cancel key.
    key: Option<BackendKey>,
    /// Whether the socket accepts no more bytes at present.
    is_blocked: bool,
    /// The error by which the server has announced the end of the connection.
    final_error: Option<ServerError>,
    /// The position of the server within a message at the last check.
    progress: Option<Progress>,
    /// The part of the login in a race between two hosts.
    race: HostRace,
    /// The client's request, if it can be repeated on another host; `None` in pools that repeat no requests.
    repeatable: Option<Box<RepeatableRequest>>,
}

impl ServerLink {
    /// Returns a connection that is not open yet.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            host_connection: None,
            addresses: None,
            tls: None,
            key: None,
            is_blocked: false,
            final_error: None,
            progress: None,
            race: HostRace::None,
            repeatable: None,
        }
    }

    /// Returns the part of the login in a race between two hosts.
    #[must_use]
    pub fn race(&self) -> HostRace {
        self.race
    }

    /// Returns the same, mutable.
    pub fn race_mut(&mut self) -> &mut HostRace {
        &mut self.race
    }

    /// Counts this connection among those of its host.
    pub fn count_at_host(&mut self, connection: HostConnection) {
        self.host_connection = Some(connection);
    }

    /// Notes that the connection is open.
    pub fn note_open(&mut self, addresses: (Address, Address)) {
        self.addresses = Some(addresses);
    }

    /// Notes that the connection is encrypted.
    pub fn note_encrypted(&mut self, facts: TlsFacts) {
        self.race.note_answer();
        self.tls = Some(Box::new(facts));
    }

    /// Notes the server's cancel key, if the server has sent one.
    pub fn set_key(&mut self, key: Option<BackendKey>) {
        self.key = key;
    }

    /// Notes whether the socket accepts no more bytes at present.
    #[inline]
    pub fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Notes the error by which the server announces the end of the connection.
    pub fn note_final_error(&mut self, error: ServerError) {
        self.final_error = Some(error);
    }

    /// Returns the endpoint of the server.
    #[must_use]
    #[inline]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the two ends of the connection, once it is open.
    #[must_use]
    pub fn addresses(&self) -> Option<(Address, Address)> {
        self.addresses
    }

    /// Returns whether the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.addresses.is_some()
    }

    /// Returns the encryption of the connection, if there is one.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// Returns the server's cancel key.
    #[must_use]
    pub fn key(&self) -> Option<&BackendKey> {
        self.key.as_ref()
    }

    /// Returns the pid of the server process; 0 if it is not known.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.key.as_ref().map_or(0, |key| key.pid)
    }

    /// Returns whether the socket accepts no more bytes at present.
    #[must_use]
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns whether the server has announced the end of the connection.
    #[must_use]
    #[inline]
    pub fn has_announced_end(&self) -> bool {
        self.final_error.is_some()
    }

    /// Takes the error by which the server has announced the end of the connection.
    pub fn take_final_error(&mut self) -> Option<ServerError> {
        self.final_error.take()
    }

    /// Returns whether the server was within a message at the last check.
    #[must_use]
    pub fn was_within_message(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the position of the server within a message at the last check.
    pub(crate) fn progress_mut(&mut self) -> &mut Option<Progress> {
        &mut self.progress
    }

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

    /// Returns the client's request, if it may be repeated on another host.
    #[must_use]
    pub fn repeatable(&self) -> Option<&RepeatableRequest> {
        self.repeatable.as_deref()
    }

    /// Returns the same, mutable.
    #[inline]
    pub fn repeatable_mut(&mut self) -> Option<&mut RepeatableRequest> {
        self.repeatable.as_deref_mut()
    }

    /// Returns the place for a request that may be repeated.
    pub fn make_repeatable(&mut self) -> &mut RepeatableRequest {
        self.repeatable.get_or_insert_default()
    }

    /// Takes the client's request, to repeat it on another host.
    pub fn take_repeatable(&mut self) -> Option<Box<RepeatableRequest>> {
        self.repeatable.take()
    }

    /// Notes that the client gets a part of the reply, so that its request can't be repeated.
    #[inline]
    pub(crate) fn close_repeatable(&mut self) {
        if let Some(request) = &mut self.repeatable {
            request.close();
        }
    }
}
