//! Texts that may change the parameters or result columns of prepared statements.

use super::{
    Effects,
    sql::{Kind, Lexer, is_of_word},
    word_list::{begins, is_any, words},
};

/// Returns whether a text with these effects may change the result columns of statements that were prepared before.
/// Texts with the beginnings listed below do not: a dropped object has no result columns, and a temporary object
/// belongs to its session.
#[must_use]
pub fn changes_schema(text: &[u8], effects: Effects) -> bool {
    const HARMLESS: [&str; 8] =
        words("vacuum analyze reindex grant revoke comment cluster refresh");
    const DROPPED: [&str; 8] = words("table view index sequence trigger role user database");
    const CREATED: [&str; 5] = words("temp temporary index unique database");
    let text = text.trim_ascii();
    if !effects.contains(Effects::TEMP) {
        // The text runs unknown code. Of such texts, only DO, which contains its code, is likely to change the schema.
        return begins(text, "do ") || begins(text, "do$");
    }
    let text = text.strip_suffix(b";").unwrap_or(text);
    let mut words = text.split(u8::is_ascii_whitespace);
    let (first, second) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let is_harmless = is_any(first, &HARMLESS)
        || is_any(first, &["drop"]) && is_any(second, &DROPPED)
        || is_any(first, &["create"]) && is_any(second, &CREATED);
    !is_harmless || text.contains(&b';')
}

/// Returns the database that a text drops, renames or copies, and which must have no connections meanwhile.
#[must_use]
pub fn left_database(text: &[u8]) -> Option<String> {
    const WORDS_MAX: usize = 32;
    let words = words_of(text, WORDS_MAX);
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found == word);
    if !is(1, "database") {
        return None;
    }
    let at = if is(0, "drop") {
        2 + 2 * usize::from(is(2, "if") && is(3, "exists"))
    } else if is(0, "alter") && is(3, "rename") {
        2
    } else if is(0, "create") {
        1 + words.iter().rposition(|word| word == "template")?
    } else {
        return None;
    };
    words.get(at).cloned()
}

/// Returns the words of a text in lower case, and quoted identifiers as they are written. Words in strings are
/// included, since settings decide where a string ends, and so are all words after a place that can't be cut into
/// tokens. Ends after the string or word with which the list has at least `most` words.
pub(super) fn words_of(text: &[u8], most: usize) -> Vec<String> {
    let mut lexer = Lexer::new(text);
    let mut found = Vec::new();
    let mut end = 0;
    while found.len() < most {
        let token = lexer.next();
        let bytes = lexer.bytes(token);
        let before = std::mem::replace(&mut end, token.end);
        let within = match token.kind {
            Kind::End => break,
            Kind::Quoted => {
                found.push(text_of(&bytes[1..bytes.len() - 1]));
                continue;
            }
            Kind::Word | Kind::Text | Kind::OtherText => bytes,
            Kind::Broken => &text[before..],
            _ => b"",
        };
        let words = within.split(|&byte| !is_of_word(byte));
        let words = words.filter(|word| !word.is_empty());
        found.extend(words.map(|word| text_of(&word.to_ascii_lowercase())));
    }
    found
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Effects = Effects::OPAQUE.and(Effects::TEMP);

    #[test]
    fn changes() {
        for text in [
            "ALTER TABLE t ADD b int",
            "create table t (a int)",
            "DROP TYPE t CASCADE",
            "drop table t; create table t (a int);",
            "SELECT 1 AS a INTO t",
            "",
        ] {
            assert!(changes_schema(text.as_bytes(), CHANGE), "{text}");
        }
        for text in ["DO $$BEGIN END$$", "do$$begin end$$"] {
            assert!(changes_schema(text.as_bytes(), Effects::OPAQUE), "{text}");
        }
    }

    #[test]
    fn databases() {
        for (text, name) in [
            ("DROP DATABASE x", Some("x")),
            ("drop database if exists \"X y\" with (force);", Some("X y")),
            ("alter database X rename to y", Some("x")),
            ("create database y with template=x owner z", Some("x")),
            ("create database y template \"X\"", Some("X")),
            ("create database y", None),
            ("alter database x set a = b", None),
            ("drop table database", None),
            ("drop/**/database x", Some("x")),
            ("drop database \"x", Some("x")),
            ("", None),
        ] {
            assert_eq!(left_database(text.as_bytes()).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn words_of_texts() {
        let of = |text: &str| words_of(text.as_bytes(), usize::MAX).join(" ");
        assert_eq!(
            of("ALTER/**/Role \"A b\" SET x='it''s', y=1"),
            "alter role A b set x it s y"
        );
        assert_eq!(
            of("select U&'\\' ; drop/**/ROLE a'"),
            "select u drop role a"
        );
        assert_eq!(of("it's open"), "it s open");
        assert_eq!(of("'"), "");
    }

    #[test]
    fn does_not() {
        for text in [
            "DROP TABLE t;",
            " create TEMP table t (a int)",
            "create unique index on t (a)",
            "VACUUM",
        ] {
            assert!(!changes_schema(text.as_bytes(), CHANGE), "{text}");
        }
        assert!(!changes_schema(b"SELECT f()", Effects::OPAQUE));
    }
}
