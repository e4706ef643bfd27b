//! Finds names of custom parameters, in texts that arrive in pieces.
//!
//! This reader does not use the lexer, for two reasons: names also occur in strings, which may be bodies of functions;
//! and a text that is longer than a buffer is forwarded in pieces.

use std::{borrow::Cow, collections::BTreeSet};

use super::name::cut;
use crate::session::{
    sql::{
        blocks,
        byte_classes::{is_of_word, starts_word},
    },
    word_list::is_any,
};

/// The length of the longest word that a name can follow.
const WORD_MAX: usize = b"current_setting".len();
/// The largest number of bytes in which a word and the name after it are found if the text arrives in pieces.
const REST_MAX: usize = 1024;

/// Collects names of custom parameters (`app.tenant`) that a text mentions, in lower case: as the argument of
/// `set_config` or `current_setting`, or after SET, SHOW, RESET; in strings too, which may be bodies of functions. The
/// result may have names that are not parameters.
///
/// SQL has no list of such parameters, so a server can only be queried for known names. Therefore texts that arrive in
/// pieces are read, too.
#[derive(Debug, Default)]
pub struct CustomNames {
    found: BTreeSet<Vec<u8>>,
    /// See [`CustomNames::may_reset`].
    may_reset: bool,
    /// Whether the text calls `set_config` with a name that is not a plain string.
    computes_name: bool,
    /// The end of the text so far: a word and what follows it, if the next piece may continue it.
    rest: Vec<u8>,
}

/// Returns all names that a text mentions.
#[must_use]
pub fn custom_names(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = CustomNames::default();
    names.read_words(text, true);
    if names.computes_name {
        names.read_strings(text);
    }
    names.found
}

/// Returns the names in strings of the text, whatever stands before the strings.
#[must_use]
pub(crate) fn names_in_strings(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = CustomNames::default();
    names.read_strings(text);
    names.found
}

/// Returns the value of a parameter in a message, in lower case, if it looks like the name of a custom
/// parameter (`app.tenant`).
pub(crate) fn custom_name_of_value(value: &[u8]) -> Option<Vec<u8>> {
    let is_of_name = |byte: &u8| byte.is_ascii() && is_of_word(*byte) && *byte != b'$';
    let is_part = |part: &[u8]| {
        part.first().is_some_and(|&byte| starts_word(byte)) && part.iter().all(is_of_name)
    };
    let mut parts = value.split(|&byte| byte == b'.');
    let is_name = parts.clone().count() == 2 && parts.all(is_part);
    is_name.then(|| value.to_ascii_lowercase())
}

impl CustomNames {
    /// The largest number of names of a text. Further names are ignored.
    pub const MAX: usize = 1000;
    /// The longest name that is kept. A longer name is cut, and no parameter has the cut name.
    pub const NAME_MAX: usize = 255;

    /// Reads the next piece of the text.
    pub fn read(&mut self, bytes: &[u8]) {
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(bytes);
        text.drain(..self.read_words(&text, false));
        self.rest = match text.len() > WORD_MAX && text.iter().all(|&byte| is_of_word(byte)) {
            // The replacement is a word that no name can follow.
            true => vec![b'_'; WORD_MAX + 1],
            false => text,
        };
    }

    /// Returns the names that were found.
    #[must_use]
    pub fn finish(mut self) -> BTreeSet<Vec<u8>> {
        let rest = std::mem::take(&mut self.rest);
        self.read_words(&rest, true);
        self.found
    }

    /// Returns whether the text so far contains a word that may bring back a startup value: RESET, DISCARD or DEFAULT.
    #[must_use]
    pub fn may_reset(&self) -> bool {
        self.may_reset
    }

    /// Reads words and the names after them. Returns the place of a word that the next piece of the text may continue.
    fn read_words(&mut self, text: &[u8], is_end: bool) -> usize {
        let mut at = 0;
        while let Some(start) = text[at..].iter().position(|&byte| starts_word(byte)) {
            let start = at + start;
            let is_last = is_end || text.len() - start > REST_MAX;
            at = start + blocks::word_len(text, start);
            let word = &text[start..at];
            if at == text.len() && !is_end {
                return start;
            }
            self.may_reset |= is_any(word, &["reset", "discard", "default"]);
            let is_call = is_any(word, &["set_config", "current_setting"]);
            if is_call || is_any(word, &["set", "show", "reset", "local", "session"]) {
                match name_behind(&text[at..], is_call, is_last) {
                    Some(name) => {
                        self.computes_name |= name.is_empty() && is_any(word, &["set_config"]);
                        if name.len() > CustomNames::NAME_MAX {
                            // The words in a name that is too long are not read again: the time would grow with the
                            // square of the length.
                            at += name.len();
                        }
                        if name.contains(&b'.') {
                            self.insert(name);
                        }
                    }
                    None => return start,
                }
            }
        }
        text.len()
    }

    /// Reads the strings of the text that look like names. The expression that computes the name may contain it.
    fn read_strings(&mut self, text: &[u8]) {
        let is_quote = |byte: Option<&u8>| matches!(byte, Some(b'\'' | b'"' | b'$'));
        let is_of_name = |byte: &u8| is_of_word(*byte) && *byte != b'$' || *byte == b'.';
        let mut at = 0;
        for part in text.chunk_by(|a, b| is_of_name(a) == is_of_name(b)) {
            let end = at + part.len();
            if is_quote(at.checked_sub(1).and_then(|before| text.get(before)))
                && is_quote(text.get(end))
                && let Some(name) = custom_name_of_value(part)
            {
                self.insert(name);
            }
            at = end;
        }
    }

    fn insert(&mut self, name: Vec<u8>) {
        if self.found.len() > CustomNames::MAX {
            return;
        }
        // A name in a string that `$$` or `$tag$` encloses.
        let parts = name.split(|&byte| byte == b'$');
        let parts = parts.filter(|part| part.contains(&b'.') && !part.ends_with(b"."));
        self.found.extend(parts.map(<[u8]>::to_vec));
        self.found.extend(truncated(&name));
        self.found.insert(name);
    }
}

/// Returns the name of the parameter that `SET` sets if an identifier in the name is too long: PostgreSQL cuts each
/// identifier. A name in a string (`set_config`) is not cut.
fn truncated(name: &[u8]) -> Option<Vec<u8>> {
    let parts = name.split(|&byte| byte == b'.');
    let cut = parts.map(|part| cut(Cow::Borrowed(part)));
    let cut = cut.collect::<Vec<_>>().join(&b'.');
    (cut != name).then_some(cut)
}

/// Returns the name that follows, or an empty one if none follows; `None` if only the next piece of the text decides.
/// If the name is longer than [`CustomNames::NAME_MAX`] bytes, the function returns only its beginning, which is one byte
/// longer than that.
fn name_behind(text: &[u8], is_call: bool, is_last: bool) -> Option<Vec<u8>> {
    // A byte that no name has stands for the end.
    let mut bytes = text.iter().copied().chain(is_last.then_some(0)).peekable();
    if is_call {
        // The function's name may be in quotes.
        let is_skipped = |byte: &u8| *byte == b'"' || byte.is_ascii_whitespace();
        if bytes.find(|byte| !is_skipped(byte))? != b'(' {
            return Some(Vec::new());
        }
    }
    loop {
        let is_skipped = |byte: &u8| byte.is_ascii_whitespace() || is_call && is_quote(*byte);
        while bytes.next_if(is_skipped).is_some() {}
        let mut name = Vec::new();
        let mut part_begins = true;
        let end = loop {
            let byte = bytes.next()?;
            match byte {
                b'"' => continue,
                b'.' if !part_begins => part_begins = true,
                _ if part_begins && starts_word(byte) => part_begins = false,
                _ if !part_begins && is_of_word(byte) => {}
                _ => break byte,
            }
            name.push(byte.to_ascii_lowercase());
            if name.len() > CustomNames::NAME_MAX {
                return Some(name);
            }
        };
        if name.contains(&b'.') && !part_begins {
            return Some(name);
        }
        // The letters that seemed to begin the name may be the prefix of `E'..'`.
        if !is_call || !is_quote(end) || name.iter().any(|byte| *byte != b'e') {
            return Some(Vec::new());
        }
    }
}

/// Returns whether the byte may stand between the parenthesis and the name: the call may itself be in a string.
fn is_quote(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'\'' | b'\\' | b'$')
}
