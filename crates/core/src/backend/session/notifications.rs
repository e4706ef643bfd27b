//! The notifications that a server itself receives for its client.

/// The notifications that a server itself receives for its client.
#[derive(Debug, Default, PartialEq)]
pub struct ServerNotifications {
    /// The notifications, as whole messages, for the end of the client's request.
    pending: Vec<u8>,
    /// The channels that the server itself listens to, if they have just been read.
    channels: Option<Vec<Vec<u8>>>,
    /// Whether the next LISTEN is sent to this server, since no listener takes the channel.
    listens_itself: bool,
}

impl ServerNotifications {
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
}
