//! The literals of a statement, and the settings on which their meaning depends.
//!
//! PostgreSQL turns a literal into a value of its type when it analyses a statement, not when it runs the statement:
//! `timestamptz '2020-06-01 00:00'` is a point in time of the time zone of that moment, and stays so. A server that
//! keeps a prepared statement for many clients therefore remembers the settings under which the statement was analysed.

use super::{
    Settings,
    sql::{
        Kind, Lexer,
        literal_parameters::{OF_VALUES, OF_WORDS},
    },
    word_list::words,
};

/// The literals of a statement, by the settings on which their meaning depends. Each kind depends on the settings of
/// the kinds before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Literals {
    /// No literal that depends on settings.
    None,
    /// Strings of letters, which only `xmloption` can affect, and NULL, which `transform_null_equals` affects.
    Words,
    /// Strings that may be dates, times, intervals, amounts of money or arrays.
    Values,
    /// Bytes that the lexer reads according to `standard_conforming_strings`, `backslash_quote` or `client_encoding`.
    Bytes,
}

/// Words that the input functions of dates and times accept.
const TIMES: [&str; 4] = words("now today tomorrow yesterday");

impl Literals {
    /// Returns the kind of literals in a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        if text.iter().any(|&byte| byte == b'\\' || byte >= 0x80) {
            return Self::Bytes;
        }
        let mut lexer = Lexer::new(text);
        let mut found = Self::None;
        loop {
            let token = lexer.next();
            let bytes = lexer.bytes(token);
            let here = match token.kind {
                Kind::End => return found,
                Kind::Broken => return Self::Bytes,
                Kind::Text if is_words(&bytes[1..bytes.len() - 1]) => Self::Words,
                Kind::Text | Kind::OtherText => Self::Values,
                Kind::Word if bytes.eq_ignore_ascii_case(b"null") => Self::Words,
                _ => Self::None,
            };
            found = found.max(here);
        }
    }

    /// Returns whether PostgreSQL analyses a text with these literals in the same way under both settings.
    #[must_use]
    pub fn mean_the_same(self, one: &Settings, other: &Settings) -> bool {
        let is_equal = |name: &&str| one.get(name.as_bytes()) == other.get(name.as_bytes());
        self == Self::None
            || one.is_same(other)
            || OF_WORDS.iter().all(is_equal)
                && (self == Self::Words || OF_VALUES.iter().all(is_equal))
    }
}

/// Returns whether a string can't be a date, a time, an interval, an amount or an array.
fn is_words(string: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphabetic() || b" _-.,:;/%#@!?|".contains(&byte);
    let has = |word: &&str| {
        let mut windows = string.windows(word.len());
        windows.any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    };
    string.iter().all(is_plain) && !TIMES.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SettingsTable;

    #[test]
    fn texts() {
        let check =
            |text: &str, expect| assert_eq!(Literals::of(text.as_bytes()), expect, "{text}");
        check("SELECT * FROM t WHERE id = $1 AND n = 2", Literals::None);
        check("SELECT 'active' -- 2020", Literals::Words);
        check("SELECT a = null", Literals::Words);
        for values in [
            "SELECT timestamptz '2020-06-01'",
            "SELECT 'TODAY'::date",
            "SELECT '{a,NULL}'::text[]",
            "SELECT $$P1Y$$::interval",
            "SELECT $x$P1Y$x$::interval",
            "SELECT 'a', '$1.00'::money",
            "SELECT 'it''s 5 o''clock', 'x'",
            "SELECT '<a/>'::xml",
        ] {
            check(values, Literals::Values);
        }
        for bytes in [
            "SELECT 'a\\b'",
            "SELECT 'ä'",
            "SELECT U&'d!0061' UESCAPE '!'",
            "SELECT 'open",
        ] {
            check(bytes, Literals::Bytes);
        }
    }

    #[test]
    fn settings() {
        let table = SettingsTable::default();
        let usual = table.intern([("app.tenant", "1"), ("timezone", "UTC")]);
        let check = |pairs: &[(&str, &str)], expect: Literals| {
            let other = table.intern(pairs.iter().copied());
            for literals in [
                Literals::None,
                Literals::Words,
                Literals::Values,
                Literals::Bytes,
            ] {
                let is_same = literals.mean_the_same(&usual, &other);
                assert_eq!(is_same, literals < expect, "{pairs:?} {literals:?}");
            }
        };
        check(&[("timezone", "Asia/Tokyo")], Literals::Values);
        check(&[], Literals::Values);
        check(
            &[("timezone", "UTC"), ("xmloption", "document")],
            Literals::Words,
        );
        let tenant = table.intern([("app.tenant", "2"), ("timezone", "UTC")]);
        assert!(Literals::Bytes.mean_the_same(&usual, &tenant));
    }
}
