//! Parses SCRAM messages: attributes of the form `x=value`, separated by commas.

use base64::{
    Engine as _, alphabet,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig},
};

use super::{KEY_BYTES, ScramError};

/// Base64 with padding. Like PostgreSQL, the decoder ignores the bits that padding leaves over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A cursor over the attributes of a message.
pub(super) struct Attributes<'a> {
    message: &'a [u8],
    /// The position of the next attribute; beyond the end of the message after the last one.
    at: usize,
}

impl<'a> Attributes<'a> {
    /// Creates a cursor at the first attribute of `message`, which may have at most `bytes_max` bytes.
    pub(super) fn new(message: &'a [u8], bytes_max: usize) -> Result<Self, ScramError> {
        if message.is_empty() {
            return Err(ScramError::Malformed("The message is empty."));
        }
        if message.len() > bytes_max {
            return Err(ScramError::Malformed("The message is too long."));
        }
        if message.contains(&0) {
            return Err(ScramError::Malformed("The message holds a NUL byte."));
        }
        Ok(Self { message, at: 0 })
    }

    /// Returns the position of the next attribute.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns the first byte of the next attribute.
    pub(super) fn peek(&self) -> Option<u8> {
        self.message.get(self.at).copied()
    }

    /// Reads all bytes up to the next comma.
    pub(super) fn field(&mut self) -> Option<&'a [u8]> {
        let rest = self.message.get(self.at..)?;
        let field = rest.split(|&b| b == b',').next().unwrap_or(rest);
        self.at += field.len() + 1;
        Some(field)
    }

    /// Reads the next attribute, which must be the one named.
    pub(super) fn expect(
        &mut self,
        name: u8,
        missing: &'static str,
    ) -> Result<&'a [u8], ScramError> {
        match self.attribute()? {
            Some((found, value)) if found == name => Ok(value),
            _ => Err(ScramError::Malformed(missing)),
        }
    }

    /// Reads the next attribute; `None` at the end of the message.
    pub(super) fn attribute(&mut self) -> Result<Option<(u8, &'a [u8])>, ScramError> {
        match self.field() {
            None => Ok(None),
            Some([name, b'=', value @ ..]) if name.is_ascii_alphabetic() => {
                Ok(Some((*name, value)))
            }
            Some(_) => Err(ScramError::Malformed("Attribute expected.")),
        }
    }

    /// Skips the optional extensions at the end of a message, which pgweir does not use.
    pub(super) fn skip_extensions(&mut self) -> Result<(), ScramError> {
        while self.attribute()?.is_some() {}
        Ok(())
    }
}

/// Checks that a nonce is not empty and consists of printable ASCII (RFC 5802, 7: `printable`).
pub(super) fn check_nonce(nonce: &[u8]) -> Result<(), ScramError> {
    if nonce.is_empty() {
        return Err(ScramError::Malformed("The nonce is empty."));
    }
    // The nonce contains no comma, since a comma ends the attribute.
    if !nonce.iter().all(u8::is_ascii_graphic) {
        return Err(ScramError::Malformed(
            "The nonce holds non-printable characters.",
        ));
    }
    Ok(())
}

/// Encodes to Base64.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes Base64 of any length.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Decodes the Base64 of a key, proof or signature.
pub(super) fn decode_key(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    decode(text)?.try_into().ok()
}

/// Parses an iteration count: decimal digits without a sign, not zero. A larger number becomes the maximum.
pub(super) fn parse_iterations(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = text.iter().fold(0_u32, |count, digit| {
        count
            .saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    });
    (count > 0).then_some(count)
}
