//! The notifications that a server itself receives for its client.

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
