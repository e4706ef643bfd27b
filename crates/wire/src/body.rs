//! A cursor over the body of one message.

use std::{ffi::CStr, fmt};

/// The length up to which a string's end is sought byte by byte: names are short.
const SHORT: usize = 16;

/// Reads the fields of a message's body in order.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    rest: &'a [u8],
}

/// A field does not fit into the rest of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Body<'a> {
    /// Creates a cursor at the start of `bytes`.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that were not read yet.
    #[must_use]
    #[inline]
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next `n` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// When none is left.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    /// Reads four bytes as a big-endian integer.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads the columns of a DataRow, up to the end of the body. `None` stands for NULL.
    ///
    /// # Errors
    /// When the columns are not as long as the body.
    pub fn columns(mut self) -> Result<Vec<Option<&'a [u8]>>, Malformed> {
        let count = self.bytes(2)?;
        let count = u16::from_be_bytes([count[0], count[1]]);
        let mut column = || match usize::try_from(self.i32()?) {
            Ok(len) => self.bytes(len).map(Some),
            Err(_) => Ok(None),
        };
        let columns = (0..count).map(|_| column()).collect::<Result<_, _>>()?;
        self.end()?;
        Ok(columns)
    }

    /// Reads a string that ends with a zero byte. The zero byte is consumed, but is not part of the result.
    ///
    /// # Errors
    /// When there is no zero byte.
    #[inline]
    pub fn cstr(&mut self) -> Result<&'a [u8], Malformed> {
        // Most names of statements and portals are empty.
        match self.rest {
            [0, rest @ ..] => {
                self.rest = rest;
                Ok(&[])
            }
            _ => self.filled_cstr(),
        }
    }

    fn filled_cstr(&mut self) -> Result<&'a [u8], Malformed> {
        let (start, _) = self.rest.split_at(self.rest.len().min(SHORT));
        let end = match start.iter().position(|&byte| byte == 0) {
            Some(end) => end,
            None => CStr::from_bytes_until_nul(self.rest)
                .map_err(|_| Malformed)?
                .count_bytes(),
        };
        let string = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(string)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// When something is left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed message")
    }
}

impl std::error::Error for Malformed {}
