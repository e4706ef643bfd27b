//! The tokens of a text, for readers outside of the scanner: those of function bodies and of DDL.

use super::{
    is_catalog,
    lexer::{Kind, Lexer, Token},
};
use crate::session::word_list::{is_any, words};

/// A token, with the text that a reader needs to compare names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Piece<'a> {
    /// An identifier or key word, as it is written.
    Word(&'a [u8]),
    /// An identifier in quotes, given without them. Doubled quotes within it stay doubled.
    Quoted(&'a [u8]),
    /// A plain string, or `N'..'`, without its quotes.
    Text(&'a [u8]),
    /// A string of another kind, a number or a parameter.
    Value(&'a [u8]),
    /// A parenthesis, a comma, a semicolon, a dot, or one character of an operator.
    Symbol(u8),
    /// The text can't be read from here on.
    Broken,
}

impl<'a> Piece<'a> {
    /// Returns whether this is the key word `word`, which is in lower case.
    pub(in crate::session) fn is(self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Returns the identifier or key word.
    pub(in crate::session) fn name(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Word(name) | Self::Quoted(name) => Some(name),
            _ => None,
        }
    }
}

/// Words that may stand between CREATE and the kind of the object.
pub(in crate::session) const BEFORE_KIND: [&str; 8] =
    words("or replace unique unlogged temp temporary local global");

/// Returns whether a text that writes names a system catalog. A superuser may change functions without DDL.
pub(in crate::session) fn writes_to_catalogs(pieces: &[Piece<'_>]) -> bool {
    const WRITING: [&str; 5] = words("insert update delete merge copy");
    let mut names = pieces.iter().filter_map(Piece::name);
    names.clone().any(|name| is_any(name, &WRITING)) && names.any(is_catalog)
}

/// Returns whether the last argument of a call is the word `true`. `arguments` begin behind the parenthesis, or behind one
/// of the first arguments; the end of the call is searched among the first `max` pieces.
pub(in crate::session) fn last_argument_is_true(arguments: &[Piece<'_>], max: usize) -> bool {
    let mut depth = 0_usize;
    let mut is_true = false;
    let arguments = &arguments[..arguments.len().min(max)];
    for (at, piece) in arguments.iter().enumerate() {
        match piece {
            Piece::Symbol(b'(' | b'[') => depth += 1,
            Piece::Symbol(b')' | b']') if depth == 0 => return is_true,
            Piece::Symbol(b')' | b']') => depth -= 1,
            Piece::Symbol(b',') if depth == 0 => {
                is_true = matches!(&arguments[at + 1..], [word, Piece::Symbol(b')'), ..] if word.is("true"));
            }
            _ => {}
        }
    }
    false
}

/// Returns the statements of a text that was cut into pieces.
pub(in crate::session) fn statements<'a, 'p>(
    pieces: &'a [Piece<'p>],
) -> impl Iterator<Item = &'a [Piece<'p>]> {
    pieces.split(|piece| *piece == Piece::Symbol(b';'))
}

/// Cuts a text into pieces, under `standard_conforming_strings = on`. Ends after [`Piece::Broken`].
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
        // `standard_conforming_strings` decides what a backslash in it means, as in a plain string.
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
