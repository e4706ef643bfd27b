//! Words of statements that may change the catalog, looked for in a text that can't be read as tokens, that holds code
//! in a string, or that comes in pieces. EXECUTE is one of them: what it runs is made at run time.
//!
//! A key word is written in ASCII, in every encoding, with no escape, and touches no other byte of a
//! word: so a text without these words holds no such statement, wherever its quotes are.

use super::lexer::is_of_word;
use crate::session::certificates::{Certificates, may_do_ddl};

/// What makes, changes or drops something that others see.
const WORDS: [&[u8]; 6] = [
    b"create",
    b"alter",
    b"drop",
    b"import",
    b"prepared",
    b"execute",
];
/// What runs code, or changes the catalog in other ways.
const OTHERS: [&[u8]; 7] = [
    b"do",
    b"call",
    b"security",
    b"reassign",
    b"refresh",
    b"reindex",
    b"vacuum",
];

fn is_any(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// May this text itself make or drop something? Words within its strings and comments count, too.
pub(super) fn may_change_catalog(text: &[u8]) -> bool {
    let mut words = text.split(|&byte| !is_of_word(byte));
    words.any(|word| is_any(word, &WORDS))
}

/// The longest name, in bytes; PostgreSQL cuts longer ones.
pub(in crate::session) const NAME_MAX: usize = 63;

/// Looks for these words, and for names of code that does DDL, in a text that comes in pieces or can't be read: a plain
/// name stands there as it is, unless it is written as `U&"..."`.
#[derive(Clone, Copy, Debug)]
pub struct DdlWords {
    /// The beginning of a word that may go on.
    word: [u8; NAME_MAX],
    len: usize,
    /// The byte before is a `&`.
    is_behind_and: bool,
}

impl Default for DdlWords {
    fn default() -> Self {
        Self {
            word: [0; NAME_MAX],
            len: 0,
            is_behind_and: false,
        }
    }
}

impl DdlWords {
    /// Is this name found wherever it stands? One of [`NAME_MAX`] bytes may be cut from a longer one.
    #[must_use]
    pub fn finds(name: &[u8]) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        name.len() < NAME_MAX && name.iter().all(is_plain)
    }

    /// Reads on. Is there such a word?
    #[must_use]
    pub fn read(&mut self, bytes: &[u8], certificates: &Certificates) -> bool {
        let mut found = certificates.has_odd_ddl_name();
        for &byte in bytes {
            found |= byte == b'"' && self.is_behind_and;
            self.is_behind_and = byte == b'&';
            // Other bytes of words end one here: that finds more.
            if byte.is_ascii_alphanumeric() || byte == b'_' {
                if let Some(place) = self.word.get_mut(self.len) {
                    *place = byte;
                }
                self.len += 1;
            } else {
                found |= self.end(certificates);
            }
        }
        found
    }

    /// The text ends. Is its last word such a one?
    #[must_use]
    pub fn end(&mut self, certificates: &Certificates) -> bool {
        let len = std::mem::take(&mut self.len);
        self.word.get(..len).is_some_and(|word| {
            let traces = certificates.any_word(word);
            is_any(word, &WORDS) || is_any(word, &OTHERS) || may_do_ddl(traces.read | traces.write)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DdlWords, may_change_catalog};
    use crate::session::certificates::Certificates;

    #[test]
    fn words() {
        for text in [
            "CREATE VIEW a",
            "'a\\';drop/**/table b",
            "x'; commit Prepared 'a'",
        ] {
            assert!(may_change_catalog(text.as_bytes()), "{text}");
        }
        for text in ["select created from t", "update a set drops = 1", ""] {
            assert!(!may_change_catalog(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn in_pieces() {
        let row = ["f", "dynamic", "OPAQUE TEMP", ""].map(str::as_bytes);
        let database = Certificates::from_rows(1, [row]);
        let mut words = DdlWords::default();
        let mut read = |bytes: &[u8]| words.read(bytes, &database);
        assert!(!read(b"select 1; Dr") && read(b"op table a; select dr"));
        assert!(!read(b"'") && !read(b"CAL") && read(b"L a"));
        assert!(!read(b"aaaaaaaaaaaaaaaaaaaaado dyn") && read(b"amic()"));
        assert!(!words.end(&database));
    }
}
