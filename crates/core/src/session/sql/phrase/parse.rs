//! Parses the phrases of one statement.

use std::{borrow::Cow, collections::VecDeque};

use super::{Phrase, name};
use crate::session::sql::lexer::{Kind, Lexer, Token};

/// Reads to the end of the next statement. Adds no phrase only at the end of the text.
pub(super) fn statement<'a>(lexer: &mut Lexer<'a>, found: &mut VecDeque<Phrase<'a>>) {
    let first = loop {
        let token = lexer.next();
        match token.kind {
            Kind::Semicolon => {}
            Kind::End => return,
            _ => break token,
        }
    };
    let mut reader = Reader {
        lexer: *lexer,
        found,
    };
    if let Some(phrase) = reader.phrase(first) {
        reader.found.push_back(phrase);
    }
    if reader.found.is_empty() {
        reader.found.push_back(Phrase::Other);
    }
    // Reads from the statement's beginning again, and skips the part that was not understood.
    loop {
        let token = lexer.next();
        match token.kind {
            Kind::Semicolon | Kind::End => break,
            _ => {}
        }
        if token.kind == Kind::Broken {
            break;
        }
    }
}

/// Reads the rest of a SET, or of a RESET. `lexer` is after that word. Adds the phrases to `several` if there are
/// more than one.
pub(in crate::session::sql) fn setting<'a>(
    lexer: Lexer<'a>,
    is_reset: bool,
    several: &mut VecDeque<Phrase<'a>>,
) -> Option<Phrase<'a>> {
    let mut reader = Reader {
        lexer,
        found: several,
    };
    match is_reset {
        true => reader.reset(),
        false => reader.set(),
    }
}

struct Reader<'a, 'f> {
    lexer: Lexer<'a>,
    found: &'f mut VecDeque<Phrase<'a>>,
}

impl<'a> Reader<'a, '_> {
    fn word(&mut self) -> Cow<'a, [u8]> {
        let token = self.lexer.next();
        self.lower(token)
    }

    fn peek(&self) -> Cow<'a, [u8]> {
        self.lower(self.lexer.peek())
    }

    /// Returns a word in lower case; empty if the token is not a word.
    fn lower(&self, token: Token) -> Cow<'a, [u8]> {
        if token.kind == Kind::Word {
            name::identifier(&self.lexer, token).unwrap_or_default()
        } else {
            Cow::Borrowed(b"")
        }
    }

    fn identifier(&mut self) -> Option<Cow<'a, [u8]>> {
        let token = self.lexer.next();
        name::identifier(&self.lexer, token)
    }

    /// Returns the phrase of the statement that begins with this token; `None` if its phrases are in `found` already.
    fn phrase(&mut self, first: Token) -> Option<Phrase<'a>> {
        match &*self.lower(first) {
            b"set" => self.set(),
            b"reset" => self.reset(),
            b"unlisten" => Some(Phrase::Unlisten(self.identifier())),
            b"prepare" => self.prepare(first),
            b"execute" => self.identifier().map(Phrase::Execute),
            b"deallocate" => self.deallocate(),
            b"discard" if *self.peek() == *b"all" => Some(Phrase::DiscardAll),
            b"explain" | b"create" => {
                self.execute_within();
                None
            }
            _ => {
                self.set_config_calls();
                None
            }
        }
    }

    fn set(&mut self) -> Option<Phrase<'a>> {
        let before = self.lexer;
        let scope = self.word();
        let qualified = self.lexer.peek().kind == Kind::Dot;
        match &*scope {
            b"local" if !qualified => self.parameter(true),
            b"session" if !qualified => match &*self.peek() {
                b"characteristics" => {
                    self.characteristics();
                    None
                }
                b"authorization" => self.session_authorization(false),
                _ => self.parameter(false),
            },
            b"transaction" | b"constraints" if !qualified => Some(Phrase::OfTransaction),
            _ => {
                self.lexer = before;
                self.parameter(false)
            }
        }
    }

    /// Reads the parameter's name, which comes next, and what follows.
    fn parameter(&mut self, local: bool) -> Option<Phrase<'a>> {
        let plain = |name: &'static [u8], to_default| {
            Some(Phrase::Set {
                name: Cow::Borrowed(name),
                local,
                to_default,
            })
        };
        let name = self.parameter_name()?;
        match &*name {
            b"role" if self.lexer.peek().kind != Kind::Other(b'=') && *self.peek() != *b"to" => {
                plain(b"role", false)
            }
            b"session" if *self.peek() == *b"authorization" => self.session_authorization(local),
            b"session" if *self.peek() == *b"characteristics" => {
                self.characteristics();
                None
            }
            b"time" if *self.peek() == *b"zone" => {
                self.word();
                let value = self.word();
                plain(b"TimeZone", matches!(&*value, b"default" | b"local"))
            }
            b"names" => plain(b"client_encoding", self.is_default()),
            b"schema" => plain(b"search_path", false),
            b"xml" => plain(b"xmloption", false),
            b"transaction" => Some(Phrase::OfTransaction),
            _ => {
                self.lexer.next();
                let to_default = self.is_default();
                Some(Phrase::Set {
                    name,
                    local,
                    to_default,
                })
            }
        }
    }

    fn is_default(&self) -> bool {
        *self.peek() == *b"default"
    }

    fn session_authorization(&mut self, local: bool) -> Option<Phrase<'a>> {
        self.word();
        let to_default = self.is_default();
        Some(Phrase::Set {
            name: Cow::Borrowed(b"session_authorization"),
            local,
            to_default,
        })
    }

    /// Reads `a`, or `a.b`, as one name.
    fn parameter_name(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut name = self.identifier()?;
        while self.lexer.peek().kind == Kind::Dot {
            self.lexer.next();
            let part = self.identifier()?;
            let whole = name.to_mut();
            whole.push(b'.');
            whole.extend_from_slice(&part);
        }
        Some(name)
    }

    /// Reads `SET SESSION CHARACTERISTICS AS TRANSACTION` and modes.
    fn characteristics(&mut self) {
        for name in [
            &b"default_transaction_isolation"[..],
            b"default_transaction_read_only",
            b"default_transaction_deferrable",
        ] {
            self.found.push_back(Phrase::Set {
                name: Cow::Borrowed(name),
                local: false,
                to_default: false,
            });
        }
    }

    fn reset(&mut self) -> Option<Phrase<'a>> {
        let before = self.lexer;
        let first = self.word();
        let second = self.peek();
        Some(match (&*first, &*second) {
            (b"all", b"") => Phrase::ResetAll,
            (b"time", b"zone") => Phrase::Reset(Cow::Borrowed(b"TimeZone")),
            (b"session", b"authorization") => {
                Phrase::Reset(Cow::Borrowed(b"session_authorization"))
            }
            (b"transaction", b"isolation") => {
                Phrase::Reset(Cow::Borrowed(b"transaction_isolation"))
            }
            _ => {
                self.lexer = before;
                Phrase::Reset(self.parameter_name()?)
            }
        })
    }

    fn prepare(&mut self, first: Token) -> Option<Phrase<'a>> {
        let name = self.identifier()?;
        if *name == *b"transaction" && self.lexer.peek().kind == Kind::Text {
            return Some(Phrase::Other);
        }
        let mut depth = 0_u32;
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.checked_sub(1)?,
                Kind::Semicolon | Kind::Broken | Kind::End => return None,
                Kind::Word if depth == 0 && *self.lower(token) == *b"as" => break,
                _ => {}
            }
        }
        let start = self.lexer.peek().start;
        let mut end = start;
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::Semicolon | Kind::End => break,
                Kind::Broken => return None,
                _ => end = token.end,
            }
        }
        Some(Phrase::Prepare {
            name,
            statement: first.start..end,
            prepared: start..end,
        })
    }

    fn deallocate(&mut self) -> Option<Phrase<'a>> {
        let mut token = self.lexer.next();
        let follows = matches!(self.lexer.peek().kind, Kind::Word | Kind::Quoted);
        if *self.lower(token) == *b"prepare" && follows {
            token = self.lexer.next();
        }
        if *self.lower(token) == *b"all" {
            return Some(Phrase::Deallocate(None));
        }
        name::identifier(&self.lexer, token).map(|name| Phrase::Deallocate(Some(name)))
    }

    /// Finds `EXPLAIN .. EXECUTE name` and `CREATE TABLE .. AS EXECUTE name`. The word EXECUTE may be a name elsewhere,
    /// so some of the phrases may not be executions.
    fn execute_within(&mut self) {
        let begin = self.lexer;
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::Semicolon | Kind::Broken | Kind::End => break,
                Kind::Word if *self.lower(token) == *b"execute" => {
                    if let Some(name) = name::identifier(&self.lexer, self.lexer.peek()) {
                        self.found.push_back(Phrase::Execute(name));
                    }
                }
                _ => {}
            }
        }
        self.lexer = begin;
        self.set_config_calls();
    }

    /// Finds the calls of `set_config` in the rest of the statement.
    fn set_config_calls(&mut self) {
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::Semicolon | Kind::Broken | Kind::End => return,
                Kind::Word | Kind::Quoted => {}
                _ => continue,
            }
            let called = name::identifier(&self.lexer, token)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"set_config"));
            if called && self.lexer.peek().kind == Kind::Open {
                let mut ahead = self.lexer;
                ahead.next();
                let argument = ahead.next();
                let whole = ahead.peek().kind == Kind::Comma;
                let name = name::string(&self.lexer, argument).filter(|_| whole);
                self.found.push_back(Phrase::SetConfig(name));
            }
        }
    }
}
