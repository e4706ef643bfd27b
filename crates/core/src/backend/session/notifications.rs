//! The notifications that a server itself receives for its client.

use crate::base::conditions::first_of;

/// The notifications that a server itself receives for its client.
#[derive(Debug, Default)]
pub struct ServerNotifications {
    /// Whether the client listens: pgweir sends it the pending notifications before ReadyForQuery.
    pub(crate) has_listening_client: bool,
    /// The notifications, as whole messages, for the end of the client's request.
    pub(crate) pending: Vec<u8>,
    /// The channels that the server itself listens to, if they have just been read.
    pub(crate) channels: Option<Vec<Vec<u8>>>,
    /// Whether the next LISTEN is sent to this server, since no listener takes the channel.
    pub(crate) listens_itself: bool,
}

impl ServerNotifications {
    /// Notes that the server is lent to a client, which listens or not.
    #[inline]
    pub fn begin_loan(&mut self, listens: bool) {
        self.has_listening_client = listens;
        self.pending.clear();
    }

    /// Returns whether notifications wait for the end of the client's request.
    #[must_use]
    #[inline]
    pub fn is_any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Notes that the client has left: forgets its notifications and its channels.
    pub(super) fn client_left(&mut self) {
        *self = Self::default();
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (
                self.channels.is_some(),
                "channels that an inspection has read",
            ),
            (self.listens_itself, "a LISTEN for this server"),
        ])
    }

    /// Notes that the session was cleaned.
    pub(super) fn note_cleaned(&mut self) {
        self.pending = Vec::new();
    }
}
