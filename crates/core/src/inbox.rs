//! Bytes that wait to become whole messages.

use pgweir_wire::{BadLength, Header};

/// Bytes of a peer whose messages are few and small enough to be looked at whole.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// Where the first message begins that was not taken.
    at: usize,
}

/// Why there is no next message, and never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadMessage {
    /// An impossible length.
    Length(BadLength),
    /// Longer than allowed; its tag.
    TooLong(u8),
}

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Once a batch, not once a message: else many small messages would cost their square.
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, header included, if it has come whole.
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

    /// What has not been taken.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes so many bytes off.
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
