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
