//! Words of statements that change the catalog, looked for in a text that can't be read as tokens, or that
//! holds code in a string. EXECUTE is one of them: what it runs is made at run time.
//!
//! A key word is written in ASCII, in every encoding, with no escape, and touches no other byte of a
//! word: so a text without these words holds no such statement, wherever its quotes are.

use super::lexer::is_of_word;

/// Longer words are none of them.
pub(super) const WORD_MAX: usize = 8;

/// May this text change the catalog? Words within its strings and comments count, too.
#[must_use]
pub fn may_change_catalog(text: &[u8]) -> bool {
    let mut words = text.split(|&byte| !is_of_word(byte));
    words.any(|word| word.len() <= WORD_MAX && is_word(&word.to_ascii_lowercase()))
}

/// Is it one of the words, in lower case?
pub(super) fn is_word(word: &[u8]) -> bool {
    matches!(
        word,
        b"create" | b"alter" | b"drop" | b"import" | b"prepared" | b"execute"
    )
}

#[cfg(test)]
mod tests {
    use super::may_change_catalog;

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
}
