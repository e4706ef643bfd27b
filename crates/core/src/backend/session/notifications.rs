//! The notifications that a server itself receives for its client.

use crate::base::conditions::first_of;

/// The notifications that a server itself receives for its client.
#[derive(Debug, Default)]
pub struct ServerNotifications {
    /// Whether the client listens: pgweir sends it the pending notifications before ReadyForQuery.
    has_listening_client: bool,
    /// The notifications, as whole messages, for the end of the client's request.
    pending: Vec<u8>,
    /// The channels that the server itself listens to, if they have just been read.
    channels: Option<Vec<Vec<u8>>>,
    /// Whether the next LISTEN is sent to this server, since no listener takes the channel.
    listens_itself: bool,
}

impl ServerNotifications {
    /// Returns whether the server's client listens.
    #[must_use]
    #[inline]
    pub fn has_listening_client(&self) -> bool {
        self.has_listening_client
    }

    /// Notes whether the server's client listens.
    #[inline]
    pub fn set_listening_client(&mut self, listens: bool) {
        self.has_listening_client = listens;
    }

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

    /// Returns the bytes of the notifications that wait for the end of the client's request.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Keeps a notification, as a whole message, for the end of the client's request.
    pub fn keep(&mut self, message: &[u8]) {
        self.pending.extend_from_slice(message);
    }

    /// Takes the notifications, as whole messages, at the end of the client's request.
    pub fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Returns whether the channels that the server itself listens to have just been read.
    #[must_use]
    pub fn has_channels(&self) -> bool {
        self.channels.is_some()
    }

    /// Takes the channels that the server itself listens to, if they have just been read.
    pub fn take_channels(&mut self) -> Option<Vec<Vec<u8>>> {
        self.channels.take()
    }

    /// Makes the next LISTEN go to this server, since no listener takes the channel.
    pub fn send_next_listen(&mut self) {
        self.listens_itself = true;
    }

    /// Returns whether a LISTEN that the client sends now goes to this server.
    pub fn takes_listen(&mut self) -> bool {
        std::mem::take(&mut self.listens_itself)
    }

    /// Notes that an inspection has read the channels, or has not.
    pub(super) fn note_inspected(&mut self, channels: Option<Vec<Vec<u8>>>) {
        self.channels = channels;
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
