//! Searches for words of statements that may change the catalog, in a text that can't be read as tokens, that has code
//! in a string, or that arrives in pieces. EXECUTE is one of these words: its statement is made at run time.
//!
//! A key word is written in ASCII, in every encoding, with no escape, and touches no other byte of a word. So a text
//! without these words contains no such statement, wherever its quotes are.

use crate::session::{
    certificates::{Certificates, may_do_ddl},
    sql::{NAME_MAX, is_of_word},
    word_list::{is_any, words},
};

/// Words that create, alter or drop something that other sessions see.
const WORDS: [&str; 6] = words("create alter drop import prepared execute");
/// Words that run code, or change the catalog in other ways.
const OTHERS: [&str; 7] = words("do call security reassign refresh reindex vacuum");

/// Returns whether this text itself may create or drop something. Words within its strings and comments count, too.
pub(in crate::session) fn may_change_catalog(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| !is_of_word(byte));
    parts.any(|word| is_any(word, &WORDS))
}

/// Searches for these words, and for names of code that does DDL, in a text that arrives in pieces or can't be read.
/// The text contains a plain name as it is, unless the name is written as `U&"..."`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DdlWords {
    /// The beginning of a word that may continue.
    word: [u8; NAME_MAX],
    len: usize,
    /// Whether the byte before is a `&`.
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
    /// Reads the next bytes, and returns whether they contain such a word.
    #[must_use]
    pub fn read(&mut self, bytes: &[u8], certificates: &Certificates) -> bool {
        let mut found = certificates.has_odd_ddl_name();
        for &byte in bytes {
            found |= byte == b'"' && self.is_behind_and;
            self.is_behind_and = byte == b'&';
            // Any other byte of a word ends the word here, so that more is found.
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

    /// Notes the end of the text, and returns whether its last word is such a word.
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
