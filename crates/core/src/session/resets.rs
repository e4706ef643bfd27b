//! The queries by which drivers reset a session before they reuse it: `DISCARD ALL` (Npgsql), four statements at once
//! (asyncpg), and the like. If the client has no session state to reset, pgweir answers these queries without a server,
//! since the answers are always the same.

use pgweir_wire::MessageWriter;

use Answer::Tag;

use super::sql::{Kind, Lexer};

/// The OID of the type `void`.
const VOID: u32 = 2278;
/// The longest text that is examined, in bytes.
const TEXT_MAX: usize = 256;

/// The parts of a session that a text resets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resets(u8);

/// PostgreSQL's answer to a statement.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// CommandComplete with this tag.
    Tag(&'static str),
    /// A row with the result of this function, which returns void.
    Void(&'static str),
}

/// A statement that PostgreSQL refuses in a text of several statements.
const ONLY_ALONE: &str = "DISCARD ALL";

/// The known statements, with one space between their words.
const KNOWN: [(&str, Answer, Resets); 14] = [
    (ONLY_ALONE, Tag("DISCARD ALL"), Resets::ALL),
    ("RESET ALL", Tag("RESET"), Resets::SETTINGS),
    ("RESET ROLE", Tag("RESET"), Resets::SETTINGS),
    (
        "RESET SESSION AUTHORIZATION",
        Tag("RESET"),
        Resets::SETTINGS,
    ),
    (
        "SET SESSION AUTHORIZATION DEFAULT",
        Tag("SET"),
        Resets::SETTINGS,
    ),
    ("SET ROLE NONE", Tag("SET"), Resets::SETTINGS),
    ("DEALLOCATE ALL", Tag("DEALLOCATE ALL"), Resets::STATEMENTS),
    ("CLOSE ALL", Tag("CLOSE CURSOR ALL"), Resets::PINS),
    ("UNLISTEN *", Tag("UNLISTEN"), Resets::PINS),
    ("DISCARD TEMP", Tag("DISCARD TEMP"), Resets::PINS),
    (
        "DISCARD SEQUENCES",
        Tag("DISCARD SEQUENCES"),
        Resets::SEQUENCES,
    ),
    ("DISCARD PLANS", Tag("DISCARD PLANS"), Resets::NONE),
    ("SELECT pg_advisory_unlock_all()", UNLOCK_ALL, Resets::PINS),
    (
        "SELECT pg_catalog.pg_advisory_unlock_all()",
        UNLOCK_ALL,
        Resets::PINS,
    ),
];

const UNLOCK_ALL: Answer = Answer::Void("pg_advisory_unlock_all");

impl Resets {
    const NONE: Self = Self(0);
    /// Parameters, `role` and `session_authorization` among them.
    pub const SETTINGS: Self = Self(1);
    /// Prepared statements.
    pub const STATEMENTS: Self = Self(1 << 1);
    /// State that pins a client to its server: temporary objects, locks, cursors, channels, ...
    pub const PINS: Self = Self(1 << 2);
    /// Sequence values.
    pub const SEQUENCES: Self = Self(1 << 3);
    const ALL: Self = Self(0xf);

    /// Returns whether the text resets this part.
    #[must_use]
    pub fn contains(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }

    /// Returns what this text resets, or `None` if the text does anything else.
    #[must_use]
    #[inline]
    pub fn read(text: &[u8]) -> Option<Self> {
        let is_likely = match text.first()? | 0x20 {
            // This comparison excludes most texts.
            b's' => text.get(2)? | 0x20 == b't' || text.get(7)? | 0x20 == b'p',
            b'd' | b'r' | b'u' | b'c' => true,
            _ => false,
        };
        if !is_likely || text.len() > TEXT_MAX {
            return None;
        }
        Self::read_all(text)
    }

    fn read_all(text: &[u8]) -> Option<Self> {
        let mut resets = Self::NONE;
        let mut count = 0;
        let mut is_alone = false;
        for (statement, _, more) in statements(text) {
            let more = more?;
            is_alone |= statement == ONLY_ALONE;
            count += 1;
            resets.0 |= more.0;
        }
        (count > 0 && !(is_alone && count > 1)).then_some(resets)
    }

    /// Appends PostgreSQL's answers to the statements of such a text, without ReadyForQuery.
    pub fn answer(text: &[u8], out: &mut Vec<u8>) {
        for (_, answer, _) in statements(text) {
            match answer {
                Some(Tag(tag)) => {
                    MessageWriter::new(out).command_complete(tag);
                }
                Some(Answer::Void(name)) => {
                    MessageWriter::new(out)
                        .row_description([(name, VOID, 4)].into_iter())
                        .data_row([Some(&b""[..])].into_iter())
                        .command_complete("SELECT 1");
                }
                None => {}
            }
        }
    }
}

/// Returns the statements of a text. An unknown statement has neither an answer nor resets.
fn statements(text: &[u8]) -> impl Iterator<Item = (&'static str, Option<Answer>, Option<Resets>)> {
    let mut lexer = Lexer::new(text);
    std::iter::from_fn(move || {
        while lexer.peek().kind == Kind::Semicolon {
            lexer.next();
        }
        if lexer.peek().kind == Kind::End {
            return None;
        }
        let known = KNOWN.iter().find_map(|&(known, answer, resets)| {
            let end = behind(lexer, known)?;
            Some((end, (known, Some(answer), Some(resets))))
        });
        let Some((end, found)) = known else {
            // The rest of the text is not read.
            lexer = Lexer::new(b"");
            return Some(("", None, None));
        };
        lexer = end;
        Some(found)
    })
}

/// Returns the rest of the text after a statement that has the same tokens as `known`, its words in any case.
fn behind<'a>(mut statement: Lexer<'a>, known: &str) -> Option<Lexer<'a>> {
    let mut known = Lexer::new(known.as_bytes());
    loop {
        let expected = known.next();
        if expected.kind == Kind::End {
            let end = statement.peek().kind;
            return matches!(end, Kind::Semicolon | Kind::End).then_some(statement);
        }
        let token = statement.next();
        let is_same = token.kind == expected.kind
            && statement
                .bytes(token)
                .eq_ignore_ascii_case(known.bytes(expected));
        if !is_same {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASYNCPG: &str = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";

    #[test]
    fn texts() {
        let check =
            |text: &str, expect| assert_eq!(Resets::read(text.as_bytes()), expect, "{text}");
        check("DISCARD ALL", Some(Resets::ALL));
        check("discard\n ALL ;; ", Some(Resets::ALL));
        check("deallocate all", Some(Resets::STATEMENTS));
        check("RESET /* it */ ALL -- now", Some(Resets::SETTINGS));
        check(ASYNCPG, Some(Resets(Resets::SETTINGS.0 | Resets::PINS.0)));
        check(
            "SET SESSION AUTHORIZATION DEFAULT;RESET ALL",
            Some(Resets::SETTINGS),
        );
        check(
            "DISCARD SEQUENCES; DISCARD TEMP",
            Some(Resets(Resets::SEQUENCES.0 | Resets::PINS.0)),
        );
        for text in [
            "",
            ";",
            "DISCARD ALL; SELECT 1",
            "DISCARD ALL; RESET ALL",
            "SELECT 1",
            "SELECT pg_advisory_unlock_all (1)",
            "SELECT pg_advisory_unlock_all() FROM t",
            "RESET ALL 'x",
            "RESET ALL /* no",
            "RESET \"all\"",
            "RESETALL",
            "RESET",
            "DISCARD ALLES",
            "UNLISTEN x",
        ] {
            check(text, None);
        }
        check(&format!("{}DISCARD ALL", " ".repeat(300)), None);
    }

    #[test]
    fn answers() {
        let mut out = Vec::new();
        Resets::answer(ASYNCPG.as_bytes(), &mut out);
        let tags: Vec<_> = [
            "T\0",
            "D\0",
            "CSELECT 1",
            "CCLOSE CURSOR ALL",
            "CUNLISTEN",
            "CRESET",
        ]
        .map(|part| part.as_bytes()[0])
        .into();
        let mut found = Vec::new();
        let mut rest = &out[..];
        while let Some(header) = pgweir_wire::Header::parse(rest).unwrap() {
            found.push(header.tag);
            rest = &rest[header.message_len()..];
        }
        assert_eq!(found, tags);
        assert!(rest.is_empty());
    }
}
