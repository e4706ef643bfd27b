//! The classes of bytes in an SQL text: which bytes words consist of, and which bytes are space or signs.

/// The classes of each byte value: the tokens that the byte may be part of.
pub(super) static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut number = 0;
    while number < 256 {
        let byte = number as u8;
        if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 {
            classes[number] |= STARTS_WORD | IS_OF_WORD;
        }
        if byte.is_ascii_digit() || byte == b'$' {
            classes[number] |= IS_OF_WORD;
        }
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c) {
            classes[number] |= IS_SPACE;
        }
        if matches!(
            byte,
            b',' | b'=' | b'<' | b'>' | b'+' | b'*' | b':' | b'|' | b'[' | b']' | b'%'
        ) {
            classes[number] |= IS_SIGN;
        }
        number += 1;
    }
    classes
};

pub(in crate::session) const STARTS_WORD: u8 = 1;
const IS_OF_WORD: u8 = 2;
pub(in crate::session) const IS_SPACE: u8 = 4;
/// A byte that is a token by itself, whatever the bytes around it are.
pub(in crate::session) const IS_SIGN: u8 = 8;

/// Returns whether an identifier may begin with this byte.
#[inline]
pub(in crate::session) fn starts_word(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & STARTS_WORD != 0
}

/// Returns whether an identifier may continue with this byte.
#[inline]
pub(in crate::session) fn is_of_word(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & IS_OF_WORD != 0
}

#[inline]
pub(in crate::session) fn is_space(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & IS_SPACE != 0
}
