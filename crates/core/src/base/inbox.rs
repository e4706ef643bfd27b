//! A buffer that collects the bytes of a client or server until they are whole messages.

use pgweir_wire::{BadLength, Header};

/// The smallest number of bytes by which a buffer grows.
const GROWTH_MIN: usize = 512;

/// The buffer for a peer whose messages are few and small enough to be assembled: at login and in the console.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// The position in `bytes` of the first message that was not taken.
    at: usize,
}

/// The reason why the bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadMessage {
    /// The length field is below its minimum.
    Length(BadLength),
    /// The message is longer than allowed; the value is its tag.
    TooLong(u8),
}

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Taken messages are dropped once per batch of bytes: once per message would take quadratic time.
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            // Memory is scarce while many clients log in: the buffer does not double.
            let more = (self.bytes.len() / 8).max(GROWTH_MIN);
            self.bytes.reserve_exact(bytes.len().max(more));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next message, header included, if all of it has arrived. `max` is the largest length allowed.
    pub(crate) fn take(&mut self, max: usize) -> Result<Option<(Header, &[u8])>, BadMessage> {
        let rest = &self.bytes[self.at..];
        let Some(header) = Header::parse(rest).map_err(BadMessage::Length)? else {
            return Ok(None);
        };
        if header.message_len() > max {
            return Err(BadMessage::TooLong(header.tag));
        }
        let Some(message) = rest.get(..header.message_len()) else {
            return Ok(None);
        };
        self.at += header.message_len();
        Ok(Some((header, message)))
    }

    /// Returns the bytes of memory that the buffer takes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the bytes that were not taken.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Drops this number of bytes.
    pub(crate) fn skip(&mut self, len: usize) {
        self.at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_pieces() {
        let mut inbox = Inbox::default();
        inbox.push(b"Z\0\0\0");
        assert_eq!(inbox.take(100), Ok(None));
        inbox.push(b"\x05IS\0\0\0\x04Q");
        assert_eq!(inbox.take(100).unwrap().unwrap().1, b"Z\0\0\0\x05I");
        assert_eq!(inbox.take(100).unwrap().unwrap().1, b"S\0\0\0\x04");
        assert_eq!(inbox.take(100), Ok(None));
        assert_eq!(inbox.rest(), b"Q");
        inbox.push(b"\0\0\x01\0");
        assert_eq!(inbox.take(100), Err(BadMessage::TooLong(b'Q')));
    }
}
