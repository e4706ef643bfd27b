//! Texts that may change the parameters or result columns of prepared statements.

use super::{
    Effects,
    scan::{Kind, Lexer, is_of_word},
};

/// Returns whether a text with these effects may change the result columns of statements that were prepared before. The
/// listed beginnings certainly don't: a dropped object returns nothing more, and a temporary object belongs to its
/// session.
#[must_use]
pub fn changes_schema(text: &[u8], effects: Effects) -> bool {
    const HARMLESS: [&[u8]; 20] = [
        b"drop table",
        b"drop view",
        b"drop index",
        b"drop sequence",
        b"drop trigger",
        b"drop role",
        b"drop user ",
        b"drop database",
        b"vacuum",
        b"analyze",
        b"reindex",
        b"grant ",
        b"revoke ",
        b"comment ",
        b"cluster",
        b"refresh ",
        b"create temp",
        b"create index ",
        b"create unique ",
        b"create database",
    ];
    if !effects.contains(Effects::TEMP) {
        // A function or procedure of unknown content runs. Only DO, whose code is in the text, is likely to change the
        // schema.
        let text = text.trim_ascii();
        return begins(text, b"do ") || begins(text, b"do$");
    }
    !is_one_of(text, &HARMLESS)
}

/// Returns whether the text is a single statement that begins in one of these ways.
pub(super) fn is_one_of(text: &[u8], beginnings: &[&[u8]]) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    !text.contains(&b';') && beginnings.iter().any(|beginning| begins(text, beginning))
}

/// Returns the database that a text drops, renames or copies, and which must have no connections meanwhile.
#[must_use]
pub fn left_database(text: &[u8]) -> Option<String> {
    const WORDS_MAX: usize = 32;
    let words: Vec<_> = words(text).take(WORDS_MAX).collect();
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
/// included, since settings decide where a string ends, and so are all words behind a place that can't be cut into
/// tokens.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = String> {
    let mut lexer = Lexer::new(text);
    let mut end = 0;
    let mut rest: &[u8] = b"";
    std::iter::from_fn(move || {
        loop {
            while !rest.is_empty() {
                let len = rest.iter().position(|&byte| !is_of_word(byte));
                let (word, others) = rest.split_at(len.unwrap_or(rest.len()));
                rest = others.get(1..).unwrap_or_default();
                if !word.is_empty() {
                    return Some(lower(word));
                }
            }
            let token = lexer.next();
            let bytes = lexer.bytes(token);
            let before = std::mem::replace(&mut end, token.end);
            match token.kind {
                Kind::Word => return Some(lower(bytes)),
                Kind::Quoted => return Some(text_of(&bytes[1..bytes.len() - 1])),
                Kind::Text | Kind::OtherText => rest = bytes,
                Kind::Broken => rest = &text[before..],
                Kind::End => return None,
                _ => {}
            }
        }
    })
}

fn lower(word: &[u8]) -> String {
    text_of(&word.to_ascii_lowercase())
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn begins(text: &[u8], with: &[u8]) -> bool {
    text.get(..with.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(with))
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
        let of = |text: &str| words(text.as_bytes()).collect::<Vec<_>>().join(" ");
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
