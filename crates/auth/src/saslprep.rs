//! SASLprep (RFC 4013), in the variant that PostgreSQL uses.
//!
//! PostgreSQL checks for prohibited, unassigned and right-to-left characters before the normalization, the RFC after it.
//! The `stringprep` crate follows the RFC, so it would derive other keys from some passwords, such as `U+1F130`
//! (unassigned in Unicode 3.2, but normalized to `A`). This module uses the crate's tables in PostgreSQL's order.

use stringprep::tables;
use unicode_normalization::UnicodeNormalization;
use zeroize::Zeroizing;

/// Returns the bytes of a password that are hashed.
///
/// As in PostgreSQL, a password that is not UTF-8, or that SASLprep refuses, is taken as it is.
pub(crate) fn prepare(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let prepared = match std::str::from_utf8(password) {
        Ok(text) if !text.is_ascii() => saslprep(text),
        _ => None,
    };
    prepared.unwrap_or_else(|| Zeroizing::new(password.to_vec()))
}

/// Returns the normalized text, or `None` if the profile refuses the text.
fn saslprep(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mapped: Zeroizing<Vec<char>> = Zeroizing::new(text.chars().filter_map(map).collect());
    if mapped.is_empty() || mapped.iter().any(|&c| is_prohibited(c)) || !bidi_is_fine(&mapped) {
        return None;
    }
    // NFKC of one character is at most 18 characters of 4 bytes, but rarely grows at all.
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() * 2));
    for c in mapped.iter().copied().nfkc() {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(out)
}

/// Maps characters (RFC 4013, 2.1). `U+200B` is in both tables; PostgreSQL replaces it by a space.
fn map(c: char) -> Option<char> {
    if tables::non_ascii_space_character(c) {
        Some(' ')
    } else if tables::commonly_mapped_to_nothing(c) {
        None
    } else {
        Some(c)
    }
}

/// Returns whether a character is prohibited (RFC 4013, 2.3 and 2.5). A `char` is never a surrogate (C.5).
fn is_prohibited(c: char) -> bool {
    tables::non_ascii_space_character(c)
        || tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
        || tables::unassigned_code_point(c)
}

/// Checks the rule for right-to-left text (RFC 3454, 6): a text with a right-to-left character starts and ends with one,
/// and has no left-to-right character.
fn bidi_is_fine(text: &[char]) -> bool {
    if !text.iter().any(|&c| tables::bidi_r_or_al(c)) {
        return true;
    }
    let ends = [text.first(), text.last()];
    ends.into_iter().flatten().all(|&c| tables::bidi_r_or_al(c))
        && !text.iter().any(|&c| tables::bidi_l(c))
}
