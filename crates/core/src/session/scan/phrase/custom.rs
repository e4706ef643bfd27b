//! Names of custom parameters.

use std::collections::BTreeSet;

use crate::session::scan::lexer::{is_of_word, starts_word};

/// Longer names are no parameters' names.
const LEN_MAX: usize = 127;

/// Names of custom parameters (`app.tenant`) that a text mentions, in lower case: as the argument of
/// `set_config` or `current_setting`, or after SET, SHOW, RESET; in strings too, which may be bodies
/// of functions. There may be more than the text means.
///
/// Nothing in SQL lists such parameters; only those can be asked for whose names are known.
#[must_use]
pub fn custom_names(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut at = 0;
    while at < text.len() {
        if !starts_word(text[at]) {
            at += 1;
            continue;
        }
        let word = word_at(text, at);
        let after = at + word.len();
        let name = match word.to_ascii_lowercase().as_slice() {
            b"set_config" | b"current_setting" => argument(text, after),
            b"set" | b"show" | b"reset" | b"local" | b"session" => {
                dotted(&text[skip(text, after, is_blank)..])
            }
            _ => None,
        };
        names.extend(name);
        at = after;
    }
    names
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

fn skip(text: &[u8], from: usize, which: impl Fn(u8) -> bool) -> usize {
    let rest = &text[from..];
    from + rest.iter().take_while(|&&byte| which(byte)).count()
}

fn word_at(text: &[u8], at: usize) -> &[u8] {
    &text[at..skip(text, at, is_of_word)]
}

/// `('app.tenant'`, with any number of quotes, since it may stand in a string itself.
fn argument(text: &[u8], at: usize) -> Option<Vec<u8>> {
    let at = skip(text, at, |byte| is_blank(byte) || byte == b'"');
    if text.get(at) != Some(&b'(') {
        return None;
    }
    let quote = skip(text, at + 1, |byte| {
        is_blank(byte) || matches!(byte, b'\'' | b'\\' | b'$' | b'e' | b'E')
    });
    // The letter may belong to the name.
    (at + 1..=quote).find_map(|from| dotted(&text[from..]))
}

/// A name with a dot in it, quotes around its parts or not.
fn dotted(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut dots = 0;
    let mut fresh = true;
    for &byte in text {
        match byte {
            b'"' => continue,
            b'.' if !fresh => {
                dots += 1;
                fresh = true;
            }
            _ if fresh && starts_word(byte) => fresh = false,
            _ if !fresh && is_of_word(byte) => {}
            _ => break,
        }
        name.push(byte.to_ascii_lowercase());
        if name.len() > LEN_MAX {
            return None;
        }
    }
    (dots > 0 && !fresh).then_some(name)
}
