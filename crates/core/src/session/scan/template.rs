//! Texts that differ in their numbers and strings alone.

use super::{
    blocks,
    lexer::{Kind, Lexer, is_of_word},
};

/// So many literals of a text may differ; what follows them is compared as it is.
const HOLES_MAX: usize = 64;
/// The bit of a hole for a string; the others say how many bytes stand before it, since the last.
const STRING: u16 = 1 << 15;

/// What is common to such texts, byte for byte, and where a number or a string stands in it.
///
/// A text that fits is cut into the same tokens as the one that the template was made of: the same
/// words, names, signs and blanks, and literals of the same kinds. For a hole stands for nothing but
/// what lies between the quotes of a plain string, or for a plain decimal number that touches no
/// letter, quote or dot: neither begins or ends anything, whatever is in it. Strings of other kinds,
/// numbers in other spellings, and what lies in comments and quoted names has to be the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    /// All but what is in the holes.
    fixed: Box<[u8]>,
    holes: Box<[u16]>,
}

impl Template {
    /// Of one text, literally.
    pub(super) fn exact(text: &[u8]) -> Self {
        Self {
            fixed: text.into(),
            holes: Box::default(),
        }
    }

    /// Of all texts with other literals.
    pub(super) fn of(text: &[u8]) -> Self {
        let (mut fixed, mut holes) = (Vec::with_capacity(text.len()), Vec::new());
        let mut lexer = Lexer::new(text);
        let mut from = 0;
        while holes.len() < HOLES_MAX {
            let token = lexer.next();
            let (start, end, kind) = match token.kind {
                Kind::End | Kind::Broken => break,
                Kind::Text => (token.start + 1, token.end - 1, STRING),
                Kind::Number if is_plain(text, token.start, token.end) => {
                    (token.start, token.end, 0)
                }
                _ => continue,
            };
            let before = start - from;
            if before >= usize::from(STRING) {
                break;
            }
            fixed.extend_from_slice(&text[from..start]);
            holes.push(before as u16 | kind);
            from = end;
        }
        fixed.extend_from_slice(&text[from..]);
        Self {
            fixed: fixed.into(),
            holes: holes.into(),
        }
    }

    /// What it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.fixed.len() + size_of_val(&*self.holes)
    }

    /// Is this text one of them?
    #[inline]
    pub(super) fn fits(&self, text: &[u8]) -> bool {
        let (mut fixed, mut rest) = (&*self.fixed, text);
        for hole in &self.holes {
            let Some((same, after)) = fixed.split_at_checked(usize::from(hole & !STRING)) else {
                return false;
            };
            let Some(found) = rest.strip_prefix(same) else {
                return false;
            };
            let len = match hole & STRING {
                0 => number_len(found),
                _ => string_len(found),
            };
            let Some(behind) = len.and_then(|len| found.get(len..)) else {
                return false;
            };
            (fixed, rest) = (after, behind);
        }
        fixed == rest
    }
}

/// Digits, perhaps with a dot among them.
#[inline]
fn number_len(text: &[u8]) -> Option<usize> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(text);
    if len == 0 {
        return None;
    }
    if text.get(len) == Some(&b'.') {
        let after = digits(&text[len + 1..]);
        if after > 0 {
            len += 1 + after;
        }
    }
    Some(len)
}

/// Up to the quote that closes the string.
#[inline]
fn string_len(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let quote = blocks::find(text, from, b'\'')?;
        if text.get(quote + 1) != Some(&b'\'') {
            return Some(quote);
        }
        from = quote + 2;
    }
}

/// Would any other number in its place be a token of its own too?
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
            "select 'a'1",
            &["select 'b'2"],
            &["select 'b''2'", "select 'b'''"],
        );
    }

    #[test]
    fn what_is_no_plain_literal_has_to_be_the_same() {
        for (text, other) in [
            ("select e'a'", "select e'b'"),
            ("select $$1$$", "select $$2$$"),
            ("select $t$it's 1$t$ , 1", "select $t$it's 2$t$ , 1"),
            ("select $1", "select $2"),
            ("select t1", "select t2"),
            ("select \"1\"", "select \"2\""),
            ("select /* 1 */ 1", "select /* 2 */ 1"),
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
    fn so_many_literals() {
        let text = |number: usize| format!("select {}", vec![number.to_string(); 100].join(", "));
        check(&text(1), &[], &[&text(2)]);
        let few = |number: usize| format!("select {}", vec![number.to_string(); 64].join(", "));
        check(&few(1), &[&few(2)], &[]);
    }
}
