//! The tokens of a text, for readers outside of the scanner: bodies of functions, and DDL.

use super::lexer::{Kind, Lexer, Token};

/// A token, with what of it matters to a reader that compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Piece<'a> {
    /// An identifier or key word, as it is written.
    Word(&'a [u8]),
    /// An identifier in quotes, without them. A doubled quote stands within as it is written.
    Quoted(&'a [u8]),
    /// A plain string, or `N'..'`, without its quotes.
    Text(&'a [u8]),
    /// A string of another kind, a number or a parameter.
    Value(&'a [u8]),
    /// A parenthesis, a comma, a semicolon, a dot, or one character of an operator.
    Symbol(u8),
    /// The text is not understood from here on.
    Broken,
}

impl Piece<'_> {
    /// Is this the key word? `word` is in lower case.
    pub(in crate::session) fn is(self, word: &[u8]) -> bool {
        matches!(self, Self::Word(found) if found.eq_ignore_ascii_case(word))
    }
}

/// Cuts a text, under `standard_conforming_strings = on`. Ends behind [`Piece::Broken`].
pub(in crate::session) fn pieces(text: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut lexer = Lexer::new(text);
    let mut is_done = false;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let token = lexer.next();
        is_done = token.kind == Kind::Broken;
        piece(&lexer, token)
    })
}

fn piece<'a>(lexer: &Lexer<'a>, token: Token) -> Option<Piece<'a>> {
    let bytes = lexer.bytes(token);
    let within = || bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or(&[]);
    Some(match token.kind {
        Kind::Word => Piece::Word(bytes),
        Kind::Quoted => Piece::Quoted(within()),
        Kind::Text => Piece::Text(within()),
        // `standard_conforming_strings` says what a backslash is in it, as in a plain string.
        Kind::OtherText if matches!(bytes, [b'n' | b'N', ..]) => {
            Piece::Text(bytes.get(2..bytes.len() - 1).unwrap_or(&[]))
        }
        Kind::OtherText | Kind::Number | Kind::Parameter => Piece::Value(bytes),
        Kind::Open => Piece::Symbol(b'('),
        Kind::Close => Piece::Symbol(b')'),
        Kind::Comma => Piece::Symbol(b','),
        Kind::Semicolon => Piece::Symbol(b';'),
        Kind::Dot => Piece::Symbol(b'.'),
        Kind::Other(byte) => Piece::Symbol(byte),
        Kind::Broken => Piece::Broken,
        Kind::End => return None,
    })
}
