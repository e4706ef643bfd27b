//! The times of a server connection and its loans.

use crate::Time;

/// The times of a server connection and its loans.
#[derive(Debug)]
pub struct ServerTimes {
    /// When the connection was opened.
    pub(crate) connected_at: Time,
    /// When the client last sent something to the server.
    pub(crate) client_sent_at: Time,
    /// When the server was lent last.
    pub(crate) lent_at: Time,
    /// When the server was released last.
    pub(crate) freed_at: Time,
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

    /// Returns whether the server was lent since it was opened.
    #[must_use]
    #[inline]
    pub fn was_lent(&self) -> bool {
        self.lent_at > self.connected_at
    }
}
