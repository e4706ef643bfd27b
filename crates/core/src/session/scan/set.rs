//! What SET leaves behind.

use super::{
    Suspicion,
    careful::{Reader, unquoted},
    lexer::{Kind, Token},
};

/// What is left of a parameter although it was set for the transaction only.
///
/// `seed` acts when it is set. The others change how the texts after it are read, and those may
/// have been looked at before that is known here.
pub(super) fn lasting(parameter: &[u8]) -> Suspicion {
    let is = |name: &str| parameter.eq_ignore_ascii_case(name.as_bytes());
    if is("seed") {
        Suspicion::SEED
    } else if is("standard_conforming_strings") || is("client_encoding") || is("names") {
        Suspicion::OPAQUE
    } else if parameter.iter().all(|byte| byte.is_ascii_graphic()) {
        Suspicion::NONE
    } else {
        Suspicion::OPAQUE
    }
}

impl Reader<'_> {
    /// SET was read.
    pub(super) fn set(&mut self) {
        let scope = self.lexer.next();
        let after = self.lexer.peek().kind;
        let word = self.lexer.bytes(scope);
        let is = |name: &str| {
            scope.kind == Kind::Word
                && after != Kind::Dot
                && word.eq_ignore_ascii_case(name.as_bytes())
        };
        self.found |= if is("local") {
            let name = self.lexer.next();
            self.parameter(name) | self.to_default()
        } else if is("transaction") || is("constraints") {
            Suspicion::NONE
        } else if is("session") {
            let name = self.lexer.next();
            self.parameter(name) | Suspicion::SETTING
        } else {
            self.parameter(scope) | Suspicion::SETTING
        };
    }

    /// `TO DEFAULT` brings back what the client has started with, which its server need not have.
    fn to_default(&self) -> Suspicion {
        let mut ahead = self.lexer;
        loop {
            let token = ahead.next();
            let word = ahead.bytes(token);
            match token.kind {
                Kind::Semicolon | Kind::End | Kind::Broken => return Suspicion::NONE,
                Kind::Word
                    if word.eq_ignore_ascii_case(b"default")
                        || word.eq_ignore_ascii_case(b"local") =>
                {
                    return Suspicion::SETTING;
                }
                _ => {}
            }
        }
    }

    /// What is left of the parameter of this name, or that begins so.
    fn parameter(&self, name: Token) -> Suspicion {
        let bytes = self.lexer.bytes(name);
        match name.kind {
            Kind::Word if bytes.eq_ignore_ascii_case(b"session") => Suspicion::SETTING,
            Kind::Word => lasting(bytes),
            Kind::Quoted => lasting(unquoted(bytes)),
            _ => Suspicion::OPAQUE,
        }
    }
}
