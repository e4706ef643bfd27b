//! The header of every message after the startup packet: five bytes.

use std::fmt;

/// The number of bytes in a message header: the tag and the length.
pub const HEADER_LEN: usize = 5;

/// The tag and the length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of message; see [`crate::tag`].
    pub tag: u8,
    /// The number of bytes that follow the header.
    pub body_len: u32,
}

/// An invalid length field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLength {
    /// The message's tag.
    pub tag: u8,
    /// The length field as read.
    pub length: i32,
}

impl Header {
    /// Reads the header at the start of `bytes`. Returns `None` while fewer than five bytes are there.
    ///
    /// # Errors
    /// When the length is below 4 (the length counts itself), which includes negative ones.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, BadLength> {
        let &[tag, a, b, c, d, ..] = bytes else {
            return Ok(None);
        };
        let length = i32::from_be_bytes([a, b, c, d]);
        if length < 4 {
            return Err(BadLength { tag, length });
        }
        Ok(Some(Self {
            tag,
            body_len: length as u32 - 4,
        }))
    }

    /// Returns the number of bytes of the whole message, header included.
    #[must_use]
    #[inline]
    pub fn message_len(self) -> usize {
        HEADER_LEN + self.body_len as usize
    }
}

impl fmt::Display for BadLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid message length {} (type 0x{:02x})",
            self.length, self.tag
        )
    }
}

impl std::error::Error for BadLength {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!(Header::parse(b"Z\0\0\0"), Ok(None));
        assert_eq!(
            Header::parse(b"Z\0\0\0\x05I"),
            Ok(Some(Header {
                tag: b'Z',
                body_len: 1
            }))
        );
        assert_eq!(
            Header::parse(b"Q\0\0\0\x03"),
            Err(BadLength {
                tag: b'Q',
                length: 3
            })
        );
        assert_eq!(
            Header::parse(b"Q\xff\xff\xff\xff"),
            Err(BadLength {
                tag: b'Q',
                length: -1
            })
        );
        assert_eq!(
            Header::parse(b"d\x7f\xff\xff\xff")
                .unwrap()
                .unwrap()
                .message_len(),
            0x8000_0000
        );
    }
}
