//! Identifiers and strings as PostgreSQL reads them.

use std::borrow::Cow;

use crate::session::sql::{
    NAME_MAX,
    lexer::{Kind, Lexer, Token},
};

/// Returns the name that a word or quoted identifier means.
pub(in crate::session::sql) fn identifier<'a>(
    lexer: &Lexer<'a>,
    token: Token,
) -> Option<Cow<'a, [u8]>> {
    let bytes = lexer.bytes(token);
    match token.kind {
        Kind::Word => Some(cut(lower_case(bytes))),
        Kind::Quoted => Some(cut(undouble_quotes(&bytes[1..bytes.len() - 1], b'"'))),
        _ => None,
    }
}

/// Returns a plain string's value.
pub(super) fn string<'a>(lexer: &Lexer<'a>, token: Token) -> Option<Cow<'a, [u8]>> {
    let bytes = lexer.bytes(token);
    (token.kind == Kind::Text).then(|| undouble_quotes(&bytes[1..bytes.len() - 1], b'\''))
}

/// Returns a name in lower case, as PostgreSQL folds it.
pub(in crate::session) fn lower_case(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// Returns the text between quotes, with each doubled quote as one.
pub(in crate::session::sql) fn undouble_quotes(within: &[u8], quote: u8) -> Cow<'_, [u8]> {
    if !within.contains(&quote) {
        return Cow::Borrowed(within);
    }
    let mut value = Vec::with_capacity(within.len());
    let mut bytes = within.iter();
    while let Some(&byte) = bytes.next() {
        value.push(byte);
        if byte == quote {
            bytes.next();
        }
    }
    Cow::Owned(value)
}

/// Truncates the name where PostgreSQL does, before a character of UTF-8 that does not fit.
pub(super) fn cut(name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if name.len() <= NAME_MAX {
        return name;
    }
    let mut len = NAME_MAX;
    while len > NAME_MAX - 4 && name[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[..len]),
        Cow::Owned(mut name) => {
            name.truncate(len);
            Cow::Owned(name)
        }
    }
}
