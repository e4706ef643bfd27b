//! Where in 64 bytes of text something stands that matters, one bit for each byte.

use wide::{i8x16, u8x16};

/// So many bytes are looked at together.
pub(super) const LEN: usize = 64;

/// What stands where in a block; the lowest bit is the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Masks {
    /// ASCII letters and `_`.
    pub(super) letters: u64,
    /// `"#$%&'()` and `-`, `/`, `;`.
    pub(super) special: u64,
}

/// The block of `text` that begins at `base`; beyond its end there are blanks.
#[inline]
pub(super) fn masks(text: &[u8], base: usize) -> Masks {
    let rest = &text[base.min(text.len())..];
    match rest.first_chunk::<LEN>() {
        Some(block) => of(block),
        None => {
            let mut block = [b' '; LEN];
            block[..rest.len()].copy_from_slice(rest);
            of(&block)
        }
    }
}

#[inline]
fn of(block: &[u8; LEN]) -> Masks {
    let mut masks = Masks {
        letters: 0,
        special: 0,
    };
    let (quarters, _) = block.as_chunks::<16>();
    for (number, quarter) in quarters.iter().enumerate() {
        let (letters, special) = of_quarter(u8x16::from(*quarter).cast_signed());
        masks.letters |= u64::from(letters) << (16 * number);
        masks.special |= u64::from(special) << (16 * number);
    }
    masks
}

/// Bytes are compared as signed: what lies between two characters is moved to the lowest values
/// first.
#[inline]
fn of_quarter(bytes: i8x16) -> (u32, u32) {
    let is = |bytes: i8x16, byte: u8| bytes.simd_eq(i8x16::splat(byte.cast_signed()));
    let between = |bytes: i8x16, first: u8, last: u8| {
        let moved = bytes + i8x16::splat(0x80_u8.wrapping_sub(first).cast_signed());
        moved.simd_lt(i8x16::splat((0x81 + (last - first)).cast_signed()))
    };
    let letters = between(bytes | i8x16::splat(0x20), b'a', b'z') | is(bytes, b'_');
    let dashes = is(bytes | i8x16::splat(2), b'/');
    let special = between(bytes, b'"', b')') | dashes | is(bytes, b';');
    (letters.to_bitmask(), special.to_bitmask())
}

/// Where `wanted` stands next, from `from` on.
pub(super) fn find(text: &[u8], from: usize, wanted: u8) -> Option<usize> {
    let rest = text.get(from..)?;
    let (words, tail) = rest.as_chunks::<8>();
    let ones = 0x0101_0101_0101_0101_u64;
    let pattern = ones * u64::from(wanted);
    for (number, word) in words.iter().enumerate() {
        let zero_where_equal = u64::from_le_bytes(*word) ^ pattern;
        let found = zero_where_equal.wrapping_sub(ones) & !zero_where_equal & (ones << 7);
        if found != 0 {
            return Some(from + 8 * number + found.trailing_zeros() as usize / 8);
        }
    }
    let at = tail.iter().position(|&byte| byte == wanted)?;
    Some(from + 8 * words.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte.
    fn plainly(block: &[u8; LEN]) -> Masks {
        let mask = |which: fn(u8) -> bool| {
            let bits = block.iter().enumerate();
            bits.fold(0, |mask, (at, &byte)| mask | u64::from(which(byte)) << at)
        };
        Masks {
            letters: mask(|byte| byte.is_ascii_alphabetic() || byte == b'_'),
            special: mask(|byte| matches!(byte, b'"'..=b')' | b'-' | b'/' | b';')),
        }
    }

    #[test]
    fn every_byte_is_told_apart() {
        for start in (0..=255_u8).step_by(LEN) {
            let block: [u8; LEN] = std::array::from_fn(|at| start + at as u8);
            assert_eq!(of(&block), plainly(&block), "from {start}");
        }
        assert_eq!(masks(b"ab;", 0), masks(b"ab;   ", 0));
        assert_eq!(masks(b"ab;", 64).letters, 0);
    }

    #[test]
    fn finds() {
        let text: Vec<_> = (0..200).collect();
        for from in 0..text.len() {
            for wanted in [0, 7, 63, 64, 127, 128, 199, 250] {
                let plain = (from..text.len()).find(|&at| text[at] == wanted);
                assert_eq!(find(&text, from, wanted), plain, "{wanted} from {from}");
            }
        }
    }
}
