//! Finds names of custom parameters, in texts that arrive in pieces.
//!
//! This reader does not use the lexer: names also occur in strings, which may be bodies of functions, and a text that
//! is longer than a buffer is forwarded without being held as a whole.

use std::collections::BTreeSet;

use crate::session::{
    CustomParameters,
    scan::lexer::{is_of_word, starts_word},
};

/// The length of the longest word that a name can follow.
const WORD_MAX: usize = b"current_setting".len();

/// Collects names of custom parameters (`app.tenant`) that a text mentions, in lower case: as the argument of
/// `set_config` or `current_setting`, or after SET, SHOW, RESET; in strings too, which may be bodies of functions.
/// There may be more names than the text means.
///
/// Nothing in SQL lists such parameters; a server can only be asked for those with a known name. So texts that arrive
/// in pieces are read as well.
#[derive(Debug, Default)]
pub struct CustomNames {
    found: BTreeSet<Vec<u8>>,
    /// The word that is being read; of a longer one, the beginning.
    word: Vec<u8>,
    is_word: bool,
    /// See [`CustomNames::may_reset`].
    may_reset: bool,
    /// Possible names. Only a few at a time, since one character ends most of them.
    readers: Vec<Reader>,
}

/// The expected input behind a word that a name can follow.
#[derive(Debug, PartialEq, Eq)]
enum Reader {
    /// An opening parenthesis, perhaps after the closing quote of the function's name.
    Open,
    /// The quotes of the argument, which may itself stand in a string.
    Quote,
    /// White space.
    Blank,
    /// The name, of which this part has been read.
    Name {
        name: Vec<u8>,
        dots: bool,
        /// Whether a part of the name is about to begin.
        fresh: bool,
        /// Whether the name is an argument.
        quoted: bool,
    },
    /// This is not a name.
    Dead,
}

/// Returns all names that a text mentions.
#[must_use]
pub fn custom_names(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = CustomNames::default();
    names.read(text);
    names.finish()
}

impl CustomNames {
    /// Longer names are cut to one byte more than this.
    pub const NAME_MAX: usize = 255;

    /// Reads the next bytes of the text.
    pub fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.next(byte);
        }
    }

    /// Notes the end of the text, and returns the names.
    #[must_use]
    pub fn finish(mut self) -> BTreeSet<Vec<u8>> {
        // A zero byte continues neither a name nor a word.
        self.next(0);
        self.found
    }

    #[inline]
    fn next(&mut self, byte: u8) {
        if self.is_word && !is_of_word(byte) {
            self.word_ended();
        }
        if !self.readers.is_empty() {
            self.readers_next(byte);
        }
        if self.is_word || starts_word(byte) {
            if !self.is_word {
                self.is_word = true;
                self.word.clear();
            }
            if self.word.len() <= WORD_MAX {
                self.word.push(byte.to_ascii_lowercase());
            }
        }
    }

    /// Returns whether the text so far contains a word by which parameters return to their startup values.
    #[must_use]
    pub fn may_reset(&self) -> bool {
        self.may_reset
    }

    fn word_ended(&mut self) {
        self.is_word = false;
        self.may_reset |= matches!(self.word.as_slice(), b"reset" | b"discard" | b"default");
        match self.word.as_slice() {
            b"set_config" | b"current_setting" => self.readers.push(Reader::Open),
            b"set" | b"show" | b"reset" | b"local" | b"session" => {
                self.readers.push(Reader::Blank);
            }
            _ => {}
        }
    }

    fn readers_next(&mut self, byte: u8) {
        for reader in &mut self.readers {
            if let Some(name) = reader.next(byte) {
                if self.found.len() > CustomParameters::MAX {
                    // The number of names is above the limit already.
                    continue;
                }
                // The name may stand between dollar signs.
                let parts = name.split(|&byte| byte == b'$');
                let parts = parts.filter(|part| part.contains(&b'.') && !part.ends_with(b"."));
                self.found.extend(parts.map(<[u8]>::to_vec));
                self.found.insert(name);
            }
        }
        self.readers.retain(|reader| *reader != Reader::Dead);
    }
}

impl Reader {
    /// Returns the name, if one ends before this byte.
    fn next(&mut self, byte: u8) -> Option<Vec<u8>> {
        match self {
            Self::Open => match byte {
                b'(' => *self = Self::Quote,
                b'"' => {}
                _ if is_blank(byte) => {}
                _ => *self = Self::Dead,
            },
            Self::Quote if is_quote(byte) => {}
            Self::Blank if is_blank(byte) => {}
            Self::Quote | Self::Blank => {
                let quoted = *self == Self::Quote;
                *self = Self::Name {
                    name: Vec::new(),
                    dots: false,
                    fresh: true,
                    quoted,
                };
                return self.next(byte);
            }
            Self::Name {
                name,
                dots,
                fresh,
                quoted,
            } => {
                match byte {
                    b'"' => return None,
                    b'.' if !*fresh => {
                        *dots = true;
                        *fresh = true;
                    }
                    _ if *fresh && starts_word(byte) => *fresh = false,
                    _ if !*fresh && is_of_word(byte) => {}
                    _ => {
                        let is_name = *dots && !*fresh;
                        let found = is_name.then(|| std::mem::take(name));
                        // The letters that seemed to begin the name may be the prefix of `E'..'`.
                        let is_prefix =
                            *quoted && !is_name && name.iter().all(|byte| *byte == b'e');
                        *self = match is_prefix && is_quote(byte) {
                            true => Self::Quote,
                            false => Self::Dead,
                        };
                        return found;
                    }
                }
                if name.len() <= CustomNames::NAME_MAX {
                    name.push(byte.to_ascii_lowercase());
                }
            }
            Self::Dead => {}
        }
        None
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

fn is_quote(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'\'' | b'\\' | b'$')
}
