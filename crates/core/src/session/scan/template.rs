//! Templates: texts that differ only in their numbers and strings.
//!
//! A text that fits a template is not scanned again. By `scan_cost`, that takes 214 instead of 1,651 instructions for
//! pgbench's SELECT, and 944 instead of 23,118 for a report of four joins.

use memchr::memchr;

use crate::session::sql::{
    blocks, is_of_word,
    lexer::{Kind as TokenKind, Literals, Token},
};

/// The largest number of holes of a template. The text after the last hole is compared as it is.
const HOLES_MAX: usize = 256;

/// The bytes that all texts of the template have in common, and the holes between them, where the texts may differ.
///
/// A text that fits is cut into the same tokens as the text from which the template was made: the same words, names and
/// signs, and literals of the same kinds. There are three kinds of holes: the text between the quotes of a plain
/// string, the text of a comment that contains no other comment, and a plain decimal number that touches no letter,
/// quote or dot. So the content of a hole neither begins nor ends a token. Strings of other kinds, numbers in other
/// spellings, comments of other kinds, and quoted names have to be the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    /// The text without the content of the holes.
    fixed: Box<[u8]>,
    holes: Box<[Hole]>,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The number of bytes between the previous hole and this one.
    after: u16,
    kind: Kind,
}

/// The content of a hole.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Number,
    String,
    Comment,
}

impl Template {
    /// Makes a template that only this text fits.
    pub(super) fn exact(text: &[u8]) -> Self {
        Self {
            fixed: text.into(),
            holes: Box::default(),
        }
    }

    /// Makes a template that also fits texts with other literals and comments.
    #[cfg(test)]
    pub(super) fn of(text: &[u8]) -> Self {
        let mut maker = Maker::default();
        let mut lexer = crate::session::sql::Lexer::new(text);
        while !matches!(
            lexer.next_name(&mut maker).0.kind,
            TokenKind::Broken | TokenKind::End
        ) {}
        maker.finish(text)
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.fixed.len() + size_of_val(&*self.holes)
    }

    /// Returns whether this text fits.
    #[inline]
    pub(super) fn fits(&self, text: &[u8]) -> bool {
        let (mut fixed, mut rest) = (&*self.fixed, text);
        for hole in &self.holes {
            let after = usize::from(hole.after);
            let (Some((same, others)), Some((found, behind))) =
                (fixed.split_at_checked(after), rest.split_at_checked(after))
            else {
                return false;
            };
            if same != found {
                return false;
            }
            let len = match hole.kind {
                Kind::Number => number_len(behind),
                Kind::String => string_len(behind),
                Kind::Comment => comment_len(behind),
            };
            let Some(behind) = len.and_then(|len| behind.get(len..)) else {
                return false;
            };
            (fixed, rest) = (others, behind);
        }
        fixed == rest
    }
}

/// Builds a template that also fits texts with other literals and comments, while the text is read.
#[derive(Debug, Default)]
pub(super) struct Maker {
    fixed: Vec<u8>,
    holes: Vec<Hole>,
    /// The end of the part of the text that has been handled.
    from: usize,
}

impl Literals for Maker {
    fn number(&mut self, text: &[u8], start: usize, end: usize) {
        self.hole(text, start, end, Kind::Number);
    }

    fn skipped(&mut self, text: &[u8], from: usize, token: Token) {
        let Token { kind, start, end } = token;
        self.comments(text, from, start);
        match kind {
            TokenKind::Text => self.hole(text, start + 1, end - 1, Kind::String),
            TokenKind::Number if is_plain(text, start, end) => self.number(text, start, end),
            _ => {}
        }
    }
}

impl Maker {
    /// Returns the template of the text, whose rest has no hole.
    pub(super) fn finish(mut self, text: &[u8]) -> Template {
        self.fixed.extend_from_slice(&text[self.from..]);
        Template {
            fixed: self.fixed.into(),
            holes: self.holes.into(),
        }
    }

    fn hole(&mut self, text: &[u8], start: usize, end: usize, kind: Kind) {
        let (Ok(after), true) = (
            u16::try_from(start - self.from),
            self.holes.len() < HOLES_MAX,
        ) else {
            return;
        };
        self.fixed.extend_from_slice(&text[self.from..start]);
        self.holes.push(Hole { after, kind });
        self.from = end;
    }

    /// Handles white space and comments between two tokens.
    fn comments(&mut self, text: &[u8], mut at: usize, end: usize) {
        while at < end {
            let rest = &text[at..end];
            at += match rest {
                [b'/', b'*', content @ ..] => match comment_len(content) {
                    Some(len) => {
                        self.hole(text, at + 2, at + 2 + len, Kind::Comment);
                        len + 4
                    }
                    // The comment contains another one.
                    None => match blocks::comment_end(text, at) {
                        Some(end) => end - at,
                        None => return,
                    },
                },
                [b'-', ..] => {
                    let line = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                    line.unwrap_or(rest.len())
                }
                _ => 1,
            };
        }
    }
}

/// Returns the length of a number: digits, perhaps with a dot among them.
#[inline]
fn number_len(text: &[u8]) -> Option<usize> {
    let mut len = blocks::digits(text);
    if len == 0 {
        return None;
    }
    if text.get(len) == Some(&b'.') {
        let after = blocks::digits(&text[len + 1..]);
        if after > 0 {
            len += 1 + after;
        }
    }
    Some(len)
}

/// Returns the length up to the quote that closes the string.
#[inline]
fn string_len(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let quote = from + memchr(b'\'', text.get(from..)?)?;
        if text.get(quote + 1) != Some(&b'\'') {
            return Some(quote);
        }
        from = quote + 2;
    }
}

/// Returns the length up to the end of a comment that contains no other.
fn comment_len(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let slash = from + memchr(b'/', text.get(from..)?)?;
        if slash > 0 && text[slash - 1] == b'*' {
            return Some(slash - 1);
        }
        if text.get(slash + 1) == Some(&b'*') {
            return None;
        }
        from = slash + 1;
    }
}

/// Returns whether any other number in the same place would also be a token by itself.
fn is_plain(text: &[u8], start: usize, end: usize) -> bool {
    let touches = match text.get(end) {
        Some(&after) => is_of_word(after) || matches!(after, b'.' | b'\'' | b'"' | b'&'),
        None => false,
    };
    number_len(&text[start..end]) == Some(end - start) && !touches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, fits: &[&str], differs: &[&str]) {
        let template = Template::of(text.as_bytes());
        assert!(template.fits(text.as_bytes()), "{text} and itself");
        for other in fits {
            assert!(template.fits(other.as_bytes()), "{text} and {other}");
        }
        for other in differs {
            assert!(!template.fits(other.as_bytes()), "{text} and {other}");
        }
    }

    #[test]
    fn literals() {
        check(
            "select a from t where id = 1;",
            &[
                "select a from t where id = 1234567;",
                "select a from t where id = 0.5;",
            ],
            &[
                "select a from t where id = ;",
                "select a from t where id = 1",
                "select a from t where id = 1.;",
                "select a from t where id = .5;",
                "select a from t where id = 1e5;",
                "select a from t where id = 1_0;",
                "select a from t where id = -1;",
                "select b from t where id = 1;",
                "select a from t where id = 1;;",
                "select a from t where id = '1';",
            ],
        );
        check(
            "insert into t values ('a', 1, 'b')",
            &[
                "insert into t values ('', 22, 'it''s')",
                "insert into t values ('''', 1.5, '--')",
                "insert into t values ('$$ /*', 1, '\\')",
            ],
            &[
                "insert into t values ('a', 1, 'b'')",
                "insert into t values ('a', 1, 'b')'",
                "insert into t values ('a', 1, 'b', 'c')",
                "insert into t values ('a', 1, E'b')",
                "insert into t values ('a', 1, 'b') ",
            ],
        );
        check(
            "/*a*/select 1/*trace='00-5bd'*/",
            &[
                "/**/select 1/***/",
                "/*/ */select 22/*'*/",
                "/*'$$*/select 22/* -- \n */",
            ],
            &["/*/*/select 1/*/**/", "/*a*/ select 1/*b*/", "select 1"],
        );
        check(
            "select 'a'1",
            &["select 'b'2"],
            &["select 'b''2'", "select 'b'''"],
        );
    }

    #[test]
    fn literals_of_other_kinds_have_to_be_the_same() {
        for (text, other) in [
            ("select e'a'", "select e'b'"),
            ("select $$1$$", "select $$2$$"),
            ("select $t$it's 1$t$ , 1", "select $t$it's 2$t$ , 1"),
            ("select $1", "select $2"),
            ("select t1", "select t2"),
            ("select \"1\"", "select \"2\""),
            ("select /* /* 1 */ */ 1", "select /* /* 2 */ */ 1"),
            ("select 1 /* 1 */", "select 1 /* /* 1 */"),
            ("select 1 /* 1 */ x", "select 1 /* /* 1 */ */ x"),
            ("select 1 /* 1 */", "select 1 /* */ */"),
            ("select '/* 1 */' x", "select '/* 2 */ x"),
            ("select \"/* 1 */\"", "select \"/* 2 */\""),
            ("select 1 -- /* 1 */", "select 1 -- /* 2 */"),
            ("select 1 -- it's 1", "select 1 -- it's 2"),
            ("select 0x1", "select 0x2"),
            ("select 1e5", "select 1e6"),
            ("select 1_0", "select 2_0"),
            ("select .5", "select .6"),
            ("select 1.", "select 2."),
            ("select b'1', u&'1'", "select b'1', u&'2'"),
            ("select 1, 'a", "select 1, 'b"),
            ("select 1 /* 1", "select 1 /* 2"),
            ("select $a$ 1", "select $a$ 2"),
            ("select e'a' '1'", "select e'a' '2'"),
        ] {
            check(text, &[], &[other]);
        }
    }

    #[test]
    fn texts_with_many_literals() {
        let text = |number: usize| format!("select {}", vec![number.to_string(); 300].join(", "));
        check(&text(1), &[], &[&text(2)]);
        let few = |number: usize| format!("select {}", vec![number.to_string(); 256].join(", "));
        check(&few(1), &[&few(2)], &[]);
    }
}
