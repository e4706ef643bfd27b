//! Startup values come back within a text: what each RESET takes away is set again behind it. The client
//! sees neither these statements' answers, nor in an error's position that they were there.

use std::ops::Range;

use pgweir_wire::tag::backend;

use super::TakenBack;
use crate::session::{
    Dialect, Resets, Settings,
    scan::{Phrase, phrases, statements},
};

/// Statements that were put into a client's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insertions {
    places: Vec<Place>,
    /// So many of them have been answered,
    answered: usize,
    /// and so many of the client's.
    commands: usize,
}

/// Where one was put.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// Behind so many of the client's statements.
    behind: usize,
    /// Where it begins in the text that is sent, in characters.
    start: usize,
    /// How many characters it has.
    len: usize,
}

impl Insertions {
    /// A text of a client with these startup values, as it is to be sent. `None` if it may go as it is:
    /// nothing of it reads what it has taken away; or if its parts are not known for sure.
    #[must_use]
    pub fn make(text: &[u8], base: &Settings, dialect: Dialect) -> Option<(Vec<u8>, Self)> {
        if dialect == Dialect::Unreadable || Resets::read(text).is_some() {
            return None;
        }
        let ranges = statements(text)?;
        let last = ranges
            .iter()
            .rposition(|range| phrases(&text[range.clone()]).any(|phrase| reads(&phrase)))?;
        let mut places = Vec::new();
        let (mut made, mut sent, mut chars) = (Vec::with_capacity(text.len() * 2), 0, 0);
        let mut is_read = false;
        for (at, range) in ranges.iter().enumerate() {
            let inserted = restoring(&text[range.clone()], base);
            if inserted.is_empty() {
                continue;
            }
            if !inserted.is_ascii() {
                return None;
            }
            is_read |= at < last;
            let part = &text[sent..range.end];
            chars += dialect.chars(part);
            made.extend_from_slice(part);
            sent = range.end;
            for statement in inserted.split_inclusive(|&byte| byte == 0) {
                // Each was ended by a zero, which none can have in it.
                let statement = &statement[..statement.len() - 1];
                places.push(Place {
                    behind: at + 1,
                    start: chars,
                    len: statement.len() + 1,
                });
                made.push(b';');
                made.extend_from_slice(statement);
                chars += statement.len() + 1;
            }
        }
        made.extend_from_slice(&text[sent..]);
        let insertions = Self {
            places,
            answered: 0,
            commands: 0,
        };
        is_read.then_some((made, insertions))
    }

    /// A message of the server with this tag: `true` if it answers one of these.
    pub fn take(&mut self, tag: u8) -> bool {
        let place = self.places.get(self.answered);
        let is_ours = place.is_some_and(|place| place.behind == self.commands);
        match tag {
            backend::COMMAND_COMPLETE if is_ours => self.answered += 1,
            backend::COMMAND_COMPLETE => self.commands += 1,
            backend::ROW_DESCRIPTION | backend::DATA_ROW => {}
            _ => return false,
        }
        is_ours
    }

    /// The body of an error or a notice, with its position in the client's text.
    #[must_use]
    pub fn moved(&self, body: &[u8]) -> Option<Vec<u8>> {
        let field = position_in(body)?;
        let told = std::str::from_utf8(&body[field.clone()]).ok()?;
        let told: usize = told.parse().ok()?;
        // The first character is number 1.
        let before = self.places.iter().filter(|place| place.start + 1 < told);
        let meant = told.saturating_sub(before.map(|place| place.len).sum());
        let mut moved = body[..field.start].to_vec();
        moved.extend_from_slice(meant.to_string().as_bytes());
        moved.extend_from_slice(&body[field.end..]);
        (meant != told).then_some(moved)
    }
}

/// Where the position stands in the body of an error.
fn position_in(body: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let end = at + body.get(at..)?.iter().position(|&byte| byte == 0)?;
        match body[at] {
            0 => return None,
            b'P' => return Some(at + 1..end),
            _ => at = end + 1,
        }
    }
}

/// What sets again what a statement takes away, each ended by a zero.
fn restoring(statement: &[u8], base: &Settings) -> Vec<u8> {
    let mut taken = TakenBack::default();
    if !taken.note(statement, base, 0) {
        return Vec::new();
    }
    taken.completed(b"RESET");
    let mut made = Vec::new();
    for statement in taken.statements(base, false) {
        made.extend_from_slice(statement.strip_suffix(b";").unwrap_or(&statement));
        made.push(0);
    }
    made
}

/// May it matter to what a statement says which values parameters have?
fn reads(phrase: &Phrase<'_>) -> bool {
    !matches!(
        phrase,
        Phrase::Set { .. }
            | Phrase::Reset(_)
            | Phrase::ResetAll
            | Phrase::Listen(_)
            | Phrase::Unlisten(_)
            | Phrase::Deallocate(_)
            | Phrase::Discard(_)
            | Phrase::Begin
            | Phrase::Commit
            | Phrase::Rollback
            | Phrase::Savepoint
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::SettingsTable;
    use super::*;

    fn made(text: &str) -> Option<(String, Insertions)> {
        let base = SettingsTable::default().intern([("app.a", "x"), ("datestyle", "German, DMY")]);
        let made = Insertions::make(text.as_bytes(), &base, Dialect::Utf8);
        made.map(|(text, insertions)| (String::from_utf8(text).unwrap(), insertions))
    }

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let found = made(text);
        assert_eq!(found.as_ref().map(|(text, _)| &**text), expect, "{text}");
    }

    #[test]
    fn texts() {
        check("RESET app.a", None);
        check("SELECT 1; RESET app.a", None);
        check("RESET work_mem; SELECT 1", None);
        check("RESET ALL; SET x = 1; RESET app.a; COMMIT", None);
        check("RESET ALL;SELECT pg_advisory_unlock_all()", None);
        check(
            "RESET app.a ;; SELECT ';' -- done",
            Some(r#"RESET app.a;SET "app"."a" TO 'x' ;; SELECT ';' -- done"#),
        );
        check(
            "SELECT 1; /* ; */ SET LOCAL datestyle TO DEFAULT; TABLE t; RESET App.A -- ;",
            Some(
                "SELECT 1; /* ; */ SET LOCAL datestyle TO DEFAULT;SET LOCAL \"datestyle\" TO \
                 'German, DMY'; TABLE t; RESET App.A;SET \"app\".\"a\" TO 'x' -- ;",
            ),
        );
        for unclear in [
            "RESET ALL; SELECT 'open",
            "RESET ALL; SELECT (1; SELECT 2)",
            "RESET ALL; CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
            "RESET ALL; CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END",
        ] {
            check(unclear, None);
        }
    }

    #[test]
    fn answers_and_positions() {
        let (text, mut insertions) = made("SELECT 'ü'; RESET ALL; SELECT x").unwrap();
        assert_eq!(
            text,
            r#"SELECT 'ü'; RESET ALL;SET "app"."a" TO 'x';SET "datestyle" TO 'German, DMY'; SELECT x"#
        );
        let error = |at: usize| format!("SERROR\0P{at}\0Mwords\0\0").into_bytes();
        let at = text.chars().count();
        assert_eq!(insertions.moved(&error(at)), Some(error(31)));
        assert_eq!(insertions.moved(&error(9)), None);
        assert_eq!(insertions.moved(b"SERROR\0\0"), None);
        assert_eq!(insertions.moved(b"Px\0\0"), None);
        assert_eq!(insertions.moved(b"M"), None);
        let answers: Vec<_> = b"TDCCCCTDC"
            .iter()
            .map(|&tag| insertions.take(tag))
            .collect();
        let ours: Vec<_> = answers.iter().map(|&is_ours| u8::from(is_ours)).collect();
        assert_eq!(ours, [0, 0, 0, 0, 1, 1, 0, 0, 0]);
    }
}
