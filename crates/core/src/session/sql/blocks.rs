//! Finds the bytes of a text that matter to the scanner, sixteen at a time.

use memchr::memchr;
use wide::{i8x16, u8x16};

use super::byte_classes::is_of_word;

/// Returns a bit for each byte at which a plain literal or a comment may begin: digits, quotes and slashes.
#[inline]
pub(in crate::session) fn openings(bytes: &[u8; 16]) -> u32 {
    let bytes = u8x16::from(*bytes).cast_signed();
    // The characters between the slash and the nine are the digits.
    (between(bytes, b'/', b'9') | is(bytes, b'\'')).to_bitmask()
}

/// Returns the number of digits with which a text begins.
#[inline]
pub(in crate::session) fn digits(text: &[u8]) -> usize {
    if let Some(eight) = text.first_chunk::<8>() {
        // The upper bit of a byte is set if the byte is not a digit.
        let eight = u64::from_le_bytes(*eight);
        let low = (eight ^ 0x3030_3030_3030_3030) & 0x7f7f_7f7f_7f7f_7f7f;
        let others = ((low + 0x7676_7676_7676_7676) | eight) & 0x8080_8080_8080_8080;
        if others != 0 {
            return others.trailing_zeros() as usize / 8;
        }
    }
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns up to sixteen bytes as a number, the first byte lowest, padded with zeros.
#[inline]
pub(in crate::session) fn padded(text: &[u8]) -> u128 {
    let len = text.len();
    if let Some(all) = text.first_chunk::<16>() {
        return u128::from_le_bytes(*all);
    }
    // Where both chunks overlap, they have the same bytes.
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        return u128::from(first) | u128::from(last) << (8 * (len - 8));
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return (u64::from(first) | u64::from(last) << (8 * (len - 4))).into();
    }
    match *text {
        [] => 0,
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, ..] => u32::from_le_bytes([a, b, c, 0]).into(),
    }
}

/// The number of bytes that are searched for the end of a name at once.
const NAME: usize = 16;

/// Returns how many bytes from `at` on may be part of a word.
#[inline]
pub(in crate::session) fn word_len(text: &[u8], at: usize) -> usize {
    let mut from = at;
    while let Some(chunk) = text.get(from..).and_then(<[u8]>::first_chunk::<NAME>) {
        let len = of_words(chunk).trailing_ones() as usize;
        from += len;
        if len < NAME {
            return from - at;
        }
    }
    let rest = text.get(from..).unwrap_or_default();
    let len = rest.iter().take_while(|&&byte| is_of_word(byte)).count();
    from + len - at
}

/// Returns a bit for each byte that may be part of a word.
#[inline]
fn of_words(name: &[u8; NAME]) -> u32 {
    let bytes = u8x16::from(*name).cast_signed();
    let of_words = between(bytes | i8x16::splat(0x20), b'a', b'z')
        | between(bytes, b'0', b'9')
        | is(bytes, b'_')
        | is(bytes, b'$')
        // Bytes beyond ASCII have the sign bit set, and the bit mask takes only that bit.
        | bytes;
    of_words.to_bitmask()
}

#[inline]
fn is(bytes: i8x16, byte: u8) -> i8x16 {
    bytes.simd_eq(i8x16::splat(byte.cast_signed()))
}

/// Returns which bytes lie between two characters. Bytes are compared as signed, so the range is first moved to the
/// lowest values.
#[inline]
fn between(bytes: i8x16, first: u8, last: u8) -> i8x16 {
    let moved = bytes + i8x16::splat(0x80_u8.wrapping_sub(first).cast_signed());
    moved.simd_lt(i8x16::splat((0x81 + (last - first)).cast_signed()))
}

/// Returns the end of the comment that begins at `at`.
pub(in crate::session) fn comment_end(text: &[u8], at: usize) -> Option<usize> {
    let mut depth = 1_u32;
    let mut from = at + 2;
    loop {
        let slash = from + memchr(b'/', text.get(from..)?)?;
        let inside = slash > from && text[slash - 1] == b'*';
        if inside {
            depth -= 1;
        } else if text.get(slash + 1) == Some(&b'*') {
            depth += 1;
        }
        let opened = !inside && text.get(slash + 1) == Some(&b'*');
        from = slash + 1 + usize::from(opened);
        if depth == 0 {
            return Some(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end() {
        let mut text = b"; ".to_vec();
        for len in 0..40 {
            text.extend(std::iter::repeat_n(b"aZ_09$\xe9z"[len % 8], len));
            text.extend_from_slice([&b" "[..], b"(", b"/*", b"@", b"`", b"{"][len % 6]);
        }
        for at in 0..=text.len() {
            let after = text[at..].iter().take_while(|&&byte| is_of_word(byte));
            assert_eq!(word_len(&text, at), after.count(), "at {at}");
        }
        for byte in 0..=255 {
            let text = [byte; 16 + 1];
            let len = if is_of_word(byte) { 17 } else { 0 };
            assert_eq!(word_len(&text, 0), len, "{byte}");
        }
    }

    #[test]
    fn digits_end() {
        for other in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            for len in 0..20 {
                let mut text: Vec<u8> = b"90".iter().copied().cycle().take(len).collect();
                text.push(other);
                assert_eq!(digits(&text), len, "{other}");
                text.extend(b"0123456789");
                assert_eq!(digits(&text), len, "{other}");
            }
        }
        assert_eq!((digits(b""), digits(b"0123456789")), (0, 10));
    }

    #[test]
    fn zeros_behind() {
        let text: [u8; 20] = std::array::from_fn(|at| (at as u8).wrapping_add(0xf0));
        for len in 0..=16 {
            let mut all = [0; 16];
            all[..len].copy_from_slice(&text[..len]);
            assert_eq!(padded(&text[..len]), u128::from_le_bytes(all), "{len}");
        }
    }
}
