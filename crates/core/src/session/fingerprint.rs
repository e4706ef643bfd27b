//! The fingerprint of a statement: the statement without its values, as operators see it.

use std::fmt;

use super::scan::{Kind, Lexer};

/// The bytes of the text that are kept.
const TEXT_MAX: usize = 160;

/// A statement, identified by a hash of its text without literals and comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// FNV-1a of the whole text.
    pub hash: u64,
    /// The beginning of the text, with `?` for literals.
    pub text: Box<str>,
}

impl Fingerprint {
    /// Makes the fingerprint of a text that may contain several statements. The end of a literal may depend on
    /// settings, or be unknown: the text behind such a literal is neither shown nor hashed.
    #[must_use]
    pub fn of(sql: &[u8]) -> Self {
        let mut normal = Normal::default();
        let mut lexer = Lexer::new(sql);
        let mut end = 0;
        loop {
            let token = lexer.next();
            if token.kind == Kind::End {
                break;
            }
            if token.start > end {
                normal.blank();
            }
            end = token.end;
            let bytes = lexer.bytes(token);
            match token.kind {
                Kind::Text | Kind::OtherText | Kind::Number | Kind::Broken => normal.push(b"?"),
                _ => normal.push(bytes),
            }
            if token.kind == Kind::Broken || may_escape(token.kind, bytes) {
                break;
            }
        }
        Self {
            hash: normal.hash,
            text: String::from_utf8_lossy(&normal.text).into(),
        }
    }
}

/// Returns whether a backslash may be an escape in this string, so that the string ends elsewhere. That depends on
/// `standard_conforming_strings`.
fn may_escape(kind: Kind, bytes: &[u8]) -> bool {
    let is_plain =
        kind == Kind::Text || kind == Kind::OtherText && matches!(bytes.first(), Some(b'n' | b'N'));
    is_plain
        && bytes
            .windows(2)
            .any(|pair| matches!(pair, b"\\'" | b"\\\\"))
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}

/// The normalized text so far.
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
    /// Notes white space or comments.
    fn blank(&mut self) {
        self.space = true;
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
        // A setting decides what follows.
        check("SELECT 'a\\', 'secret'", "SELECT ?");
        check("SELECT U&'\\0061'", "SELECT ?");
        check("SELECT /* open", "SELECT ?");
        check("SELECT 1_000, 0x1F, 0b01", "SELECT ?, ?, ?");
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
            // The pieces are separated, so that PostgreSQL sees the same strings.
            let pieces: Vec<_> = (0..below(8)).map(|_| pieces[below(pieces.len())]).collect();
            let sql = pieces.join(" ");
            let shown = text(&sql);
            assert!(!shown.contains("SECRET"), "{sql} is shown as {shown}");
        }
    }
}
