//! The times of a server connection and its loans.

use crate::Time;

/// The times of a server connection and its loans.
#[derive(Debug)]
pub struct ServerTimes {
    /// When the connection was opened.
    connected_at: Time,
    /// When the client last sent something to the server.
    client_sent_at: Time,
    /// When the server was lent last.
    lent_at: Time,
    /// When the server was released last.
    freed_at: Time,
}

impl ServerTimes {
    /// Returns the times of a connection that is being opened.
    pub(super) fn new(now: Time) -> Self {
        Self {
            connected_at: now,
            client_sent_at: now,
            lent_at: now,
            freed_at: now,
        }
    }

    /// Returns when the connection was opened.
    #[must_use]
    #[inline]
    pub fn connected_at(&self) -> Time {
        self.connected_at
    }

    /// Returns when the client last sent something to the server.
    #[must_use]
    pub fn client_sent_at(&self) -> Time {
        self.client_sent_at
    }

    /// Returns when the server was lent last.
    #[must_use]
    #[inline]
    pub fn lent_at(&self) -> Time {
        self.lent_at
    }

    /// Returns when the server was released last.
    #[must_use]
    #[inline]
    pub fn freed_at(&self) -> Time {
        self.freed_at
    }

    /// Returns whether the server was lent since it was opened.
    #[must_use]
    #[inline]
    pub fn was_lent(&self) -> bool {
        self.lent_at > self.connected_at
    }

    /// Notes when the connection was opened.
    pub fn note_connected(&mut self, at: Time) {
        self.connected_at = at;
    }

    /// Notes that the client sends something to the server.
    #[inline]
    pub fn note_client_sent(&mut self, now: Time) {
        self.client_sent_at = now;
    }

    /// Notes that the server is lent.
    #[inline]
    pub fn note_lent(&mut self, now: Time) {
        self.lent_at = now;
    }

    /// Notes that the server is released.
    #[inline]
    pub fn note_freed(&mut self, now: Time) {
        self.freed_at = now;
    }
}
