//! SQL text as tokens, as PostgreSQL's lexer cuts it (`standard_conforming_strings` on). All other readers of SQL use
//! this lexer.
//!
//! The token is `Broken` (not understood) where versions of PostgreSQL differ, or where a mistake of this lexer could
//! hide a name: `1e''`, an escape string that may be continued, `U&`.

use memchr::{memchr, memmem};

use super::{
    blocks,
    byte_classes::{CLASSES, IS_SIGN, IS_SPACE, STARTS_WORD, is_of_word, is_space, starts_word},
};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Kind {
    /// An identifier or key word.
    Word,
    /// An identifier in quotes.
    Quoted,
    /// A plain string in quotes. Quotes within it may be doubled.
    Text,
    /// Another string: with escapes, of bits, or in dollar quotes.
    OtherText,
    Number,
    /// `$1`
    Parameter,
    Open,
    Close,
    Comma,
    Semicolon,
    Dot,
    /// One character of an operator, or anything else.
    Other(u8),
    /// Not understood. No token follows.
    Broken,
    End,
}

impl Kind {
    /// Returns whether the token is a name, opens or closes a parenthesis, or ends a statement or the text.
    #[inline]
    pub(in crate::session) fn is_name_or_bound(self) -> bool {
        matches!(
            self,
            Self::Word
                | Self::Quoted
                | Self::Open
                | Self::Close
                | Self::Semicolon
                | Self::Broken
                | Self::End
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Token {
    pub(in crate::session) kind: Kind,
    pub(in crate::session) start: usize,
    pub(in crate::session) end: usize,
}

/// Receives the literals and comments that [`Lexer::next_name`] skips.
pub(in crate::session) trait Literals {
    /// A number of digits alone.
    fn number(&mut self, text: &[u8], start: usize, end: usize);
    /// Any other token, and the comments in front of it: from `from` on.
    fn skipped(&mut self, text: &[u8], from: usize, token: Token);
}

/// Receives nothing.
impl Literals for () {
    #[inline]
    fn number(&mut self, _: &[u8], _: usize, _: usize) {}

    #[inline]
    fn skipped(&mut self, _: &[u8], _: usize, _: Token) {}
}

/// Cuts a text into tokens. To look ahead, copy the lexer.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(in crate::session) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Starts at `at`, where a token or white space must begin.
    pub(in crate::session) fn at(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    pub(in crate::session) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the end of the last token that was read.
    pub(in crate::session) fn position(&self) -> usize {
        self.at
    }

    /// Returns the bytes of a token.
    #[inline]
    pub(in crate::session) fn bytes(&self, token: Token) -> &'a [u8] {
        &self.text[token.start..token.end]
    }

    /// Returns the next token without consuming it.
    pub(in crate::session) fn peek(&self) -> Token {
        let mut ahead = *self;
        ahead.next()
    }

    /// Returns the next word, quoted identifier, parenthesis, semicolon or end, and whether other tokens were skipped.
    /// The result is the same as with [`next`](Self::next), in fewer steps. `literals` receives what was skipped.
    #[inline]
    pub(in crate::session) fn next_name(&mut self, literals: &mut impl Literals) -> (Token, bool) {
        let mut passed = false;
        while let Some(byte) = self.byte(0) {
            let class = CLASSES[usize::from(byte)];
            if class & (IS_SPACE | IS_SIGN) != 0 {
                passed |= class & IS_SIGN != 0;
                self.at += 1;
                continue;
            }
            if class & STARTS_WORD != 0 {
                let start = self.at;
                let end = start + blocks::word_len(self.text, start);
                let is_prefix = matches!(self.text.get(end), Some(b'\'' | b'&'));
                if end - start > 1 || !is_prefix {
                    self.at = end;
                    let kind = Kind::Word;
                    return (Token { kind, start, end }, passed);
                }
            }
            let kind = match byte {
                b'(' => Kind::Open,
                b')' => Kind::Close,
                b';' => Kind::Semicolon,
                b'.' if !self.byte(1).is_some_and(|next| next.is_ascii_digit()) => Kind::Dot,
                b'0'..=b'9' if self.skip_plain_number(literals) => {
                    passed = true;
                    continue;
                }
                _ => {
                    let token = self.next_and_report(literals);
                    match token.kind {
                        // A comment may have stood in front of any of them.
                        kind if kind.is_name_or_bound() => return (token, passed),
                        _ => passed = true,
                    }
                    continue;
                }
            };
            let start = self.at;
            self.at += 1;
            if kind != Kind::Dot {
                let end = self.at;
                return (Token { kind, start, end }, passed);
            }
            passed = true;
        }
        (self.next(), passed)
    }

    fn next_and_report(&mut self, literals: &mut impl Literals) -> Token {
        let from = self.at;
        let token = self.next();
        if token.kind != Kind::Broken {
            literals.skipped(self.text, from, token);
        }
        token
    }

    /// Skips digits if they are a number that touches no other part of a number, word or string.
    #[inline]
    fn skip_plain_number(&mut self, literals: &mut impl Literals) -> bool {
        let end = self.at + blocks::digits(&self.text[self.at..]);
        let touches = self
            .text
            .get(end)
            .is_some_and(|&byte| is_of_word(byte) || matches!(byte, b'.' | b'\'' | b'"' | b'&'));
        if !touches {
            literals.number(self.text, self.at, end);
            self.at = end;
        }
        !touches
    }

    pub(in crate::session) fn next(&mut self) -> Token {
        if !self.skip_blank() {
            return self.broken();
        }
        let start = self.at;
        let Some(byte) = self.byte(0) else {
            return Token {
                kind: Kind::End,
                start,
                end: start,
            };
        };
        let kind = match byte {
            b'(' => self.single(Kind::Open),
            b')' => self.single(Kind::Close),
            b',' => self.single(Kind::Comma),
            b';' => self.single(Kind::Semicolon),
            b'.' if !self.byte(1).is_some_and(|next| next.is_ascii_digit()) => {
                self.single(Kind::Dot)
            }
            b'\'' => self.quoted(b'\'', Kind::Text),
            b'"' => self.quoted(b'"', Kind::Quoted),
            b'$' => self.dollar(),
            b'0'..=b'9' | b'.' => self.number(),
            _ if starts_word(byte) => self.word(),
            // PostgreSQL reads no further.
            0 => Kind::Broken,
            _ => self.single(Kind::Other(byte)),
        };
        if kind == Kind::Broken {
            return self.broken();
        }
        Token {
            kind,
            start,
            end: self.at,
        }
    }

    #[inline]
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn broken(&mut self) -> Token {
        let start = self.at.min(self.text.len());
        self.at = self.text.len();
        Token {
            kind: Kind::Broken,
            start,
            end: self.text.len(),
        }
    }

    fn single(&mut self, kind: Kind) -> Kind {
        self.at += 1;
        kind
    }

    /// Skips white space and comments. Returns `false` if a comment does not end.
    fn skip_blank(&mut self) -> bool {
        while let Some(byte) = self.byte(0) {
            match byte {
                _ if is_space(byte) => self.at += 1,
                b'-' if self.byte(1) == Some(b'-') => {
                    let rest = &self.text[self.at..];
                    let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                    self.at += end.unwrap_or(rest.len());
                }
                b'/' if self.byte(1) == Some(b'*') => {
                    if !self.skip_comment() {
                        return false;
                    }
                }
                _ => break,
            }
        }
        true
    }

    /// Skips `/* .. */`, which may contain others.
    fn skip_comment(&mut self) -> bool {
        let end = blocks::comment_end(self.text, self.at);
        self.at = end.unwrap_or(self.text.len());
        end.is_some()
    }

    /// Reads from one quote to the next that is not doubled.
    fn quoted(&mut self, quote: u8, kind: Kind) -> Kind {
        self.at += 1;
        while let Some(length) = memchr(quote, self.text.get(self.at..).unwrap_or_default()) {
            self.at += length + 1;
            if self.byte(0) != Some(quote) {
                return kind;
            }
            self.at += 1;
        }
        Kind::Broken
    }

    /// Reads `E'..'`, from its quote on.
    fn escaped(&mut self) -> Kind {
        self.at += 1;
        while let Some(byte) = self.byte(0) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'\'' if self.byte(0) == Some(b'\'') => self.at += 1,
                b'\'' => {
                    // A string in the next line continues this one in the same way, with or without comments between
                    // them.
                    let mut ahead = *self;
                    let more = !ahead.skip_blank() || ahead.byte(0) == Some(b'\'');
                    return if more { Kind::Broken } else { Kind::OtherText };
                }
                _ => {}
            }
        }
        Kind::Broken
    }

    /// Reads `$1`, or `$tag$ .. $tag$`.
    fn dollar(&mut self) -> Kind {
        let rest = &self.text[self.at + 1..];
        let run = rest
            .iter()
            .position(|&byte| byte == b'$' || !is_of_word(byte))
            .unwrap_or(rest.len());
        let (tag, after) = rest.split_at(run);
        if tag.first().is_some_and(u8::is_ascii_digit) {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
            return self.unless_adjacent(Kind::Parameter);
        }
        if after.first() != Some(&b'$') {
            return Kind::Broken;
        }
        let end = &self.text[self.at..self.at + run + 2];
        let body = self.at + end.len();
        match memmem::find(&self.text[body..], end) {
            Some(found) => {
                self.at = body + found + end.len();
                Kind::OtherText
            }
            None => Kind::Broken,
        }
    }

    fn number(&mut self) -> Kind {
        let start = self.at;
        self.skip_digits();
        if self.byte(0) == Some(b'.') && self.byte(1) != Some(b'.') {
            self.at += 1;
            self.skip_digits();
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(1), Some(b'+' | b'-')));
            if self
                .byte(1 + sign)
                .is_some_and(|byte| byte.is_ascii_digit())
            {
                self.at += 1 + sign;
                self.skip_digits();
            }
        } else if self.at == start + 1
            && matches!(self.byte(0), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B'))
        {
            let mut ahead = *self;
            ahead.at += 1;
            ahead.skip_while(|byte| byte.is_ascii_hexdigit() || byte == b'_');
            // Otherwise, older versions read a number and a name, and newer ones report an error.
            if !ahead
                .byte(0)
                .is_some_and(|byte| is_of_word(byte) || is_quote(byte))
            {
                self.at = ahead.at;
            }
        }
        self.unless_adjacent(Kind::Number)
    }

    /// Before PostgreSQL 15, `1from` is a number and a key word, as here, and `1e''` a number and a string. Later
    /// versions report an error.
    fn unless_adjacent(&self, kind: Kind) -> Kind {
        let rest = &self.text[self.at..];
        let len = rest.iter().take_while(|&&byte| is_of_word(byte)).count();
        let (word, after) = rest.split_at(len);
        let last = word.last().or(self.text[..self.at].last());
        let is_string = matches!(after.first(), Some(b'\'' | b'"' | b'&'))
            && matches!(last, Some(b'e' | b'E' | b'u' | b'U'));
        if is_string || word.contains(&b'$') {
            Kind::Broken
        } else {
            kind
        }
    }

    /// Skips digits; since PostgreSQL 16 they may have `_` between them. In older versions the `_` begins an alias,
    /// which has no effect.
    #[inline]
    fn skip_digits(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_digit());
            let goes_on = self.byte(0) == Some(b'_')
                && self.byte(1).is_some_and(|byte| byte.is_ascii_digit());
            if !goes_on {
                return;
            }
            self.at += 1;
        }
    }

    #[inline]
    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.byte(0).is_some_and(&wanted) {
            self.at += 1;
        }
    }

    /// Reads an identifier, or the letter before a string and the string.
    fn word(&mut self) -> Kind {
        let start = self.at;
        self.at += blocks::word_len(self.text, start);
        let letter = if self.at == start + 1 {
            self.text[start].to_ascii_lowercase()
        } else {
            0
        };
        match (letter, self.byte(0), self.byte(1)) {
            (b'e', Some(b'\''), _) => self.escaped(),
            (b'b' | b'x' | b'n', Some(b'\''), _) => self.quoted(b'\'', Kind::OtherText),
            (b'u', Some(b'&'), Some(b'\'' | b'"')) => Kind::Broken,
            _ => Kind::Word,
        }
    }
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> String {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut seen = Vec::new();
        loop {
            let token = lexer.next();
            let bytes = String::from_utf8_lossy(lexer.bytes(token)).into_owned();
            seen.push(match token.kind {
                Kind::End => return seen.join(" "),
                Kind::Broken => {
                    seen.push("!".to_owned());
                    return seen.join(" ");
                }
                Kind::Word => format!("w:{bytes}"),
                Kind::Quoted => format!("q:{bytes}"),
                Kind::Text => format!("t:{bytes}"),
                Kind::OtherText => format!("o:{bytes}"),
                Kind::Number => format!("n:{bytes}"),
                Kind::Parameter => format!("p:{bytes}"),
                _ => bytes,
            });
        }
    }

    #[test]
    fn cuts() {
        let check = |text: &str, expect: &str| assert_eq!(tokens(text), expect, "{text}");
        check("", "");
        check("select a.b, \"c d\"", "w:select w:a . w:b , q:\"c d\"");
        check("'it''s' \"a\"\"b\"", "t:'it''s' q:\"a\"\"b\"");
        check("'a\\' b", "t:'a\\' w:b");
        check("e'a\\' b' c", "o:e'a\\' b' w:c");
        check("E'\\\\' c", "o:E'\\\\' w:c");
        check("date'2001-01-01'", "w:date t:'2001-01-01'");
        check("b'01' x'ff' n'a'", "o:b'01' o:x'ff' o:n'a'");
        check("a--b\nc", "w:a w:c");
        check("a/* b /* c */ d */e", "w:a w:e");
        check("a-1/2*3", "w:a - n:1 / n:2 * n:3");
        check(
            "$1 $23, $$a'b$$ $t$ $$ $t$",
            "p:$1 p:$23 , o:$$a'b$$ o:$t$ $$ $t$",
        );
        check("a$1 a$b$c", "w:a$1 w:a$b$c");
        check(
            "1 1.5 .5 1e5 1.e-5 0xff 0xffrom 1..2",
            "n:1 n:1.5 n:.5 n:1e5 n:1.e-5 n:0xff n:0 w:xffrom n:1 . n:.2",
        );
        check(
            "1from 1.from $1from 1e5from 1_0 1__0 0b1 0o7_7 0x1_Fg",
            "n:1 w:from n:1. w:from p:$1 w:from n:1e5 w:from n:1_0 n:1 w:__0 n:0b1 n:0o7_7 n:0 w:x1_Fg",
        );
        check("f(a)::int", "w:f ( w:a ) : : w:int");
        check("gr\u{fc}n", "w:gr\u{fc}n");
    }

    #[test]
    fn broken_tokens() {
        for text in [
            "'a",
            "\"a",
            "/* a",
            "/* /* */",
            "$$a",
            "$a$ b $c$",
            "e'a\\'",
            "e'a'\n'b'",
            "e'a' -- x\n 'b'",
            "u&'a'",
            "U&\"a\"",
            "$1$a$",
            "$a",
            "1$a$",
            "1e'a'",
            "1ee'\\'",
            "$",
            "a\0b",
        ] {
            assert!(tokens(text).ends_with('!'), "{text}: {}", tokens(text));
        }
    }
}
