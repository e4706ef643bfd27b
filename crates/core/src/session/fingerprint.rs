//! A statement without its values: what operators are shown of one.

use std::fmt;

/// So much of the text is kept.
const TEXT_MAX: usize = 160;

/// A statement, known again by a hash of its text without literals and comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// FNV-1a of the whole text.
    pub hash: u64,
    /// The beginning of the text: literals are `?`.
    pub text: Box<str>,
}

impl Fingerprint {
    /// Of a text that may hold several statements.
    #[must_use]
    pub fn of(sql: &[u8]) -> Self {
        let mut normal = Normal::default();
        let mut rest = sql;
        while let Some(len) = normal.token(rest) {
            rest = &rest[len..];
        }
        Self {
            hash: normal.hash,
            text: String::from_utf8_lossy(&normal.text).into(),
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}

/// The text so far.
struct Normal {
    hash: u64,
    text: Vec<u8>,
    space: bool,
}

impl Default for Normal {
    fn default() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            text: Vec::new(),
            space: false,
        }
    }
}

impl Normal {
    /// Takes the first token of `sql`: its length. `None` at the end, and where it can't be told what is
    /// a literal and what is not.
    fn token(&mut self, sql: &[u8]) -> Option<usize> {
        let first = *sql.first()?;
        let len = match first {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => 1,
            b'-' if sql.starts_with(b"--") => position(sql, b'\n').unwrap_or(sql.len()),
            b'/' if sql.starts_with(b"/*") => comment(sql)?,
            b'\'' => return self.literal(string(&sql[1..], false).map(|len| len + 1)),
            b'"' => {
                let len = position(&sql[1..], b'"')? + 2;
                self.push(&sql[..len]);
                return Some(len);
            }
            b'0'..=b'9' => return self.literal(Some(while_in(sql, is_of_number))),
            b'$' => return self.dollar(sql),
            _ if is_of_name(first) => return self.name(sql),
            _ => {
                self.push(&sql[..1]);
                return Some(1);
            }
        };
        self.space = true;
        Some(len)
    }

    /// A name, or the letter before a string.
    fn name(&mut self, sql: &[u8]) -> Option<usize> {
        let len = while_in(sql, |byte| is_of_name(byte) || byte == b'$');
        match (&sql[..len], sql.get(len)) {
            ([b'e' | b'E'], Some(b'\'')) => {
                self.literal(string(&sql[len + 1..], true).map(|rest| len + 1 + rest))
            }
            ([b'b' | b'B' | b'x' | b'X' | b'n' | b'N'], Some(b'\'')) => {
                self.literal(string(&sql[len + 1..], false).map(|rest| len + 1 + rest))
            }
            (name, _) => {
                self.push(name);
                Some(len)
            }
        }
    }

    /// A parameter, or a string between dollars.
    fn dollar(&mut self, sql: &[u8]) -> Option<usize> {
        let len = 1 + while_in(&sql[1..], is_of_name);
        if sql.get(len) != Some(&b'$') || sql[1].is_ascii_digit() {
            self.push(&sql[..len]);
            return Some(len);
        }
        let mark = &sql[..=len];
        let body = &sql[mark.len()..];
        let end = body.windows(mark.len()).position(|window| window == mark);
        self.literal(end.map(|end| end + 2 * mark.len()))
    }

    /// A value takes a question mark's place; nothing follows one whose end is not known.
    fn literal(&mut self, len: Option<usize>) -> Option<usize> {
        self.push(b"?");
        len
    }

    fn push(&mut self, bytes: &[u8]) {
        let is_apart = std::mem::take(&mut self.space) && !self.text.is_empty();
        for &byte in is_apart.then_some(&b' ').into_iter().chain(bytes) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            if self.text.len() < TEXT_MAX {
                self.text.push(byte);
            }
        }
    }
}

/// The length of a string's rest after its first quote, with the last one. Where a backslash may or may
/// not escape, its end is not known.
fn string(sql: &[u8], escapes: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        match *sql.get(at)? {
            b'\\' if escapes => at += 2,
            b'\\' if matches!(sql.get(at + 1), Some(b'\'' | b'\\')) => return None,
            b'\'' if sql.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The length of a comment, with those inside of it.
fn comment(sql: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        match sql.get(at..at + 2)? {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    Some(at)
}

fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|&byte| byte == wanted)
}

fn while_in(bytes: &[u8], is_in: impl Fn(u8) -> bool) -> usize {
    let end = bytes.iter().position(|&byte| !is_in(byte));
    end.unwrap_or(bytes.len())
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Also letters, for `0x1F` and `1e5`: what is too much is a value's neighbour at most.
fn is_of_number(byte: u8) -> bool {
    is_of_name(byte) || byte == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str) -> String {
        Fingerprint::of(sql.as_bytes()).text.into()
    }

    #[test]
    fn texts() {
        let check = |sql: &str, expect: &str| assert_eq!(text(sql), expect, "{sql}");
        check("SELECT 1", "SELECT ?");
        check(
            "  SELECT\n  a1,\t$1 -- why\n FROM t",
            "SELECT a1, $1 FROM t",
        );
        check("SET x = 'it''s', y=1.5e3", "SET x = ?, y=?");
        check(
            "select E'a\\'b', $$x'y$$, $q$ $$ $q$, x'1f'",
            "select ?, ?, ?, ?",
        );
        check("/* a /* b */ c */ SELECT \"A b\"", "SELECT \"A b\"");
        check(
            "CREATE TEMP TABLE t(n int); SELECT $1x",
            "CREATE TEMP TABLE t(n int); SELECT $1x",
        );
        check("SELECT 'open", "SELECT ?");
        check("SELECT $$open", "SELECT ?");
        // It depends on a setting what follows.
        check("SELECT 'a\\', 'secret'", "SELECT ?");
        check("SELECT U&'\\0061'", "SELECT U&?");
        check("SELECT /* open", "SELECT");
        check("", "");
    }

    #[test]
    fn values_and_blanks_make_no_difference() {
        let hash = |sql: &str| Fingerprint::of(sql.as_bytes()).hash;
        assert_eq!(hash("SELECT 1,  'a'"), hash("SELECT 22, /* b */ 'b c'"));
        assert_ne!(hash("SELECT a"), hash("SELECT b"));
        let long = |name: &str| hash(&format!("SELECT {} {name}", "x".repeat(TEXT_MAX)));
        assert_ne!(long("a"), long("b"), "beyond what is kept");
    }

    #[test]
    fn no_value_is_shown() {
        let mut seed = 7_u64;
        let mut below = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % most
        };
        let pieces = [
            "'SECRET'",
            "$$SECRET$$",
            "E'\\'SECRET'",
            "'it''s SECRET'",
            "'\\'",
            "--'\n",
            "/*'*/",
            "\"'\"",
            "a",
            "$q$SECRET$q$",
            "$1",
            "''",
            "n'SECRET'",
        ];
        for _ in 0..20_000 {
            // Apart: PostgreSQL sees the same strings.
            let pieces: Vec<_> = (0..below(8)).map(|_| pieces[below(pieces.len())]).collect();
            let sql = pieces.join(" ");
            let shown = text(&sql);
            assert!(!shown.contains("SECRET"), "{sql} is shown as {shown}");
        }
    }
}
