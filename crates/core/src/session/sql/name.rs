//! Hashes of names, by which texts are compared with lists and with the catalog.

use super::{Effects, NAME_MAX};

/// The hash of a name. ASCII letters of both cases have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sets the bit by which lower-case letters differ from upper-case letters. This also makes some other bytes equal, but
/// no two bytes that an unquoted name can have; the worst result is that two names share the effects of both.
const FOLD: u64 = 0x2020_2020_2020_2020;

impl Name {
    /// Returns the hash of an identifier, without its quotes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut hash = len as u64;
        let mut from = 0;
        while from + 8 < len {
            hash = Self::step(hash, eight(bytes, from) | FOLD);
            from += 8;
        }
        // The last eight bytes may have been hashed in part already.
        let last = if len < 8 {
            short(bytes)
        } else {
            eight(bytes, len - 8)
        };
        Self(Self::step(hash, last | FOLD))
    }

    /// Returns the hash of `text` from `start` to `end`, which is faster if more text follows.
    #[must_use]
    #[inline(always)]
    pub fn at(text: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        match text.get(start..).and_then(<[u8]>::first_chunk::<8>) {
            Some(first) if (1..=8).contains(&len) => {
                let first = u64::from_le_bytes(*first) & u64::MAX >> (64 - 8 * len);
                Self(Self::step(len as u64, first | FOLD))
            }
            _ => Self::of(&text[start..end]),
        }
    }

    /// Returns the index of the name in a table of 2^`bits` slots.
    #[inline]
    pub(crate) const fn place(self, bits: u32) -> usize {
        (self.0 >> (64 - bits)) as usize
    }

    /// Returns a key for a table in which zero marks a free slot.
    #[inline]
    pub(in crate::session) fn key(self) -> u64 {
        self.0.max(1)
    }

    /// Returns a hash of the name and of `bits`.
    pub(in crate::session) fn mixed_with(self, bits: u64) -> u64 {
        Self::step(self.0, bits)
    }

    /// Hashes one more chunk of up to eight bytes.
    #[inline]
    const fn step(hash: u64, chunk: u64) -> u64 {
        let product = (hash ^ chunk ^ MULTIPLIER) as u128 * MULTIPLIER as u128;
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Returns eight bytes from `at` on.
const fn eight(bytes: &[u8], at: usize) -> u64 {
    let (_, rest) = bytes.split_at(at);
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => 0,
    }
}

/// Returns fewer than eight bytes, padded with zeros.
const fn short(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return first as u64 | (last as u64) << (8 * (len - 4));
    }
    match *bytes {
        [] => 0,
        [a] => a as u64,
        [a, b] => a as u64 | (b as u64) << 8,
        [a, b, c, ..] => a as u64 | (b as u64) << 8 | (c as u64) << 16,
    }
}

/// Returns whether a text that contains this name contains it as a whole word, unless the name is written as
/// `U&"..."`. A name of [`NAME_MAX`] bytes may be a longer one, truncated.
pub(in crate::session) fn is_found_as_word(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.len() < NAME_MAX && name.iter().all(is_plain)
}

/// The effects of functions or relations of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameEffects {
    /// The effects of calling the function, or of reading the relation.
    pub(crate) read: Effects,
    /// The effects of writing the relation.
    pub(crate) write: Effects,
}

impl NameEffects {
    /// The effects of something that can only be called or read.
    pub(in crate::session) fn of_use(read: Effects) -> Self {
        let write = Effects::NONE;
        Self { read, write }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_text() {
        let text = b"select abcdefgh, ABCDEFGHIJKLMNOPQ from a";
        for start in 0..text.len() {
            for end in start..text.len() {
                assert_eq!(Name::at(text, start, end), Name::of(&text[start..end]));
            }
        }
    }

    #[test]
    fn case_is_folded_and_length_counts() {
        assert_eq!(Name::of(b"Set_Config"), Name::of(b"set_config"));
        assert_ne!(Name::of(b"set_config"), Name::of(b"set_confi"));
        assert_ne!(Name::of(b"a"), Name::of(b"a\0"));
        assert_ne!(Name::of(b""), Name::of(b"\0"));
        assert_ne!(Name::of(b"abcdefgh"), Name::of(b"abcdefghabcdefgh"));
    }
}
