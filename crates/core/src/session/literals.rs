//! The literals of a statement, and the settings on which their meaning depends.
//!
//! PostgreSQL turns a literal into a value of its type when it analyses a statement, not when it runs the statement:
//! `timestamptz '2020-06-01 00:00'` is a point in time of the time zone of that moment, and stays so. A server that
//! keeps a prepared statement for many clients therefore remembers the settings under which the statement was analysed.

use super::{
    Settings,
    plan::{AUTHORIZATION, ROLE, is_identity},
    sql::{
        Kind, Lexer,
        literal_parameters::{OF_VALUES, OF_WORDS},
    },
    word_list::{is_any, words},
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
    /// Strings that may be a point in time that PostgreSQL computes when it analyses the statement: `'today'::date`. The
    /// server's statement is neither shared with another client nor used for a later Parse of the same client.
    Moment,
}

/// The setting that decides which object a name without a schema means.
const SEARCH_PATH: &[u8] = b"search_path";
/// Words that the input functions of dates and times replace by the present time or date.
const TIMES: [&str; 4] = words("now today tomorrow yesterday");

impl Literals {
    /// Returns the kind of literals in a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let mut lexer = Lexer::new(text);
        let mut found = match text.iter().any(|&byte| byte == b'\\' || byte >= 0x80) {
            true => Self::Bytes,
            false => Self::None,
        };
        loop {
            let token = lexer.next();
            let bytes = lexer.bytes(token);
            let here = match token.kind {
                Kind::End => return found,
                // No token follows. `U&'..'` spells letters by codes.
                Kind::Broken if may_be_moment(text) || text.contains(&b'&') => return Self::Moment,
                Kind::Broken => return found.max(Self::Bytes),
                Kind::Text | Kind::OtherText if may_be_moment(bytes) => return Self::Moment,
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
        match self {
            Self::None => true,
            Self::Moment => false,
            _ if one.is_same(other) => true,
            Self::Words => OF_WORDS.iter().all(is_equal),
            Self::Values | Self::Bytes => OF_WORDS.iter().chain(&OF_VALUES).all(is_equal),
        }
    }
}

/// Returns whether this parameter, in lower case, decides which object a name means.
#[must_use]
pub(super) fn decides_names(parameter: &[u8]) -> bool {
    parameter == SEARCH_PATH || is_identity(parameter)
}

/// Returns whether names in a statement mean the same objects under both settings. PostgreSQL looks names up anew when
/// `search_path` or the role changes, and reports an error if a prepared statement would then have other columns. A role
/// that only one of both has does not count: a client may have prepared the statement before it set the role, and the
/// role may lack the privilege to prepare it again.
#[must_use]
#[inline]
pub fn names_mean_the_same(one: &Settings, other: &Settings) -> bool {
    one.is_same(other) || names_mean_the_same_under(one, other)
}

#[inline(never)]
fn names_mean_the_same_under(one: &Settings, other: &Settings) -> bool {
    let may_be_equal = |name: &[u8]| match (one.get(name), other.get(name)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    one.get(SEARCH_PATH) == other.get(SEARCH_PATH)
        && ([ROLE, AUTHORIZATION].into_iter().all(may_be_equal) || !role_decides_names(one))
}

/// Returns whether the role may decide which object a name means: `"$user"` in `search_path` stands for the role, and
/// PostgreSQL skips the schemas in `search_path` that the role may not use.
fn role_decides_names(settings: &Settings) -> bool {
    let is_one_schema = |path: &[u8]| !path.iter().any(|byte| b"$,".contains(byte));
    !settings.get(SEARCH_PATH).is_some_and(is_one_schema)
}

/// Returns whether a string can't be a date, a time, an interval, an amount or an array.
fn is_words(string: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphabetic() || b" _-.,:;/%#@!?|".contains(&byte);
    string.iter().all(is_plain)
}

/// Returns whether a string may contain one of [`TIMES`] as a word of its own. In a string with escapes, a code may
/// stand for any letter, and a backslash before another letter stands for nothing.
pub(super) fn may_be_moment(string: &[u8]) -> bool {
    let mut rest = string;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        match rest.get(at + 1) {
            Some(b'x' | b'u' | b'U' | b'0'..=b'7') => return true,
            _ => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
    let letters: Vec<u8> = string
        .iter()
        .copied()
        .filter(|&byte| byte != b'\\')
        .collect();
    let mut words = letters.split(|&byte| !byte.is_ascii_alphabetic() && byte != b'_');
    words.any(|word| is_any(word, &TIMES))
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
        check("SELECT 'unknown', 'buy_now', now()", Literals::Words);
        for moment in [
            "SELECT 'TODAY'::date",
            "SELECT 'active', $1 < 'tomorrow 10:00 PST'",
            "SELECT '[yesterday,today10:00)'::tsrange",
            "SELECT E'n\\ow'::timestamp",
            "SELECT E'\\156ow'::timestamp",
            "SELECT E'\\\\\\156ow'::timestamp",
            "SELECT 'ä', $x$now$x$::time",
            "SELECT U&'!006eow' UESCAPE '!'",
            "SELECT e'now'\n' UTC'",
        ] {
            check(moment, Literals::Moment);
        }
        for values in [
            "SELECT timestamptz '2020-06-01'",
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
            "SELECT E'\\\\156ow'",
            "SELECT 'a\\b'",
            "SELECT 'ä'",
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
        let of = |name| table.intern([(name, "a"), ("timezone", "UTC")]);
        assert!(names_mean_the_same(&usual, &of("datestyle")));
        assert!(!names_mean_the_same(&usual, &of("search_path")));
        for identity in ["role", "session_authorization"] {
            assert!(names_mean_the_same(&usual, &of(identity)));
            for (path, is_same) in [("a", true), ("\"$user\"", false), ("a, b", false)] {
                let [one, other] =
                    ["r", "q"].map(|role| table.intern([("search_path", path), (identity, role)]));
                assert_eq!(names_mean_the_same(&one, &other), is_same, "{path}");
            }
        }
        let tenant = table.intern([("app.tenant", "2"), ("timezone", "UTC")]);
        assert!(Literals::Bytes.mean_the_same(&usual, &tenant));
        assert!(!Literals::Moment.mean_the_same(&usual, &usual));
    }
}
