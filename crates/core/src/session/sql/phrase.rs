//! Parses a text into phrases: the parts of its statements that concern session state. Only texts that may change the
//! session are parsed in this way.
//!
//! A text does not show whether the server carried it out. So phrases only decide which state to read from the server,
//! and which statement was prepared under a name.

mod custom;
mod name;
mod parse;

use std::{borrow::Cow, collections::VecDeque, ops::Range};

pub use custom::{CustomNames, custom_names};
pub(crate) use custom::{custom_name_of_value, names_in_strings};
pub(in crate::session) use name::lower_case;
pub(super) use name::{identifier, undouble_quotes};
pub(super) use parse::setting;

use super::lexer::{Kind, Lexer};

/// One change that a statement makes to its session. Names are as PostgreSQL reads them: in lower case unless quoted,
/// without quotes, truncated at 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phrase<'a> {
    /// SET in all its forms; `role` and `session_authorization` are parameters like others.
    Set {
        /// The parameter.
        name: Cow<'a, [u8]>,
        /// Whether it is set for the transaction only.
        local: bool,
        /// Whether it is `SET name TO DEFAULT`.
        to_default: bool,
    },
    /// RESET of a parameter.
    Reset(Cow<'a, [u8]>),
    /// RESET ALL.
    ResetAll,
    /// A call of `set_config`, anywhere in a statement, with its first argument, if that is a plain string.
    SetConfig(Option<Cow<'a, [u8]>>),
    /// UNLISTEN, of one channel or of all.
    Unlisten(Option<Cow<'a, [u8]>>),
    /// PREPARE.
    Prepare {
        /// The statement's name.
        name: Cow<'a, [u8]>,
        /// The position of the PREPARE in the text, from its first word to before its semicolon.
        statement: Range<usize>,
        /// The position of the prepared statement in the text.
        prepared: Range<usize>,
    },
    /// EXECUTE, also within EXPLAIN and CREATE TABLE AS.
    Execute(Cow<'a, [u8]>),
    /// DEALLOCATE, of one name or of all.
    Deallocate(Option<Cow<'a, [u8]>>),
    /// DISCARD ALL.
    DiscardAll,
    /// SET TRANSACTION and SET CONSTRAINTS, which last for the transaction.
    OfTransaction,
    /// Any other statement, or one that is not understood.
    Other,
}

/// Iterates over the phrases of a text in their order. Each statement has at least one, and several if it sets several
/// parameters.
#[derive(Debug)]
pub struct Phrases<'a> {
    lexer: Lexer<'a>,
    /// The phrases of the statement that was read last.
    found: VecDeque<Phrase<'a>>,
}

/// Parses the phrases of a text that may change the session. This allocates.
#[must_use]
pub fn phrases(text: &[u8]) -> Phrases<'_> {
    Phrases {
        lexer: Lexer::new(text),
        found: VecDeque::new(),
    }
}

/// Returns whether the end of a text can't be cut into tokens. Phrases after that place are not found.
#[must_use]
pub fn is_broken(text: &[u8]) -> bool {
    let mut lexer = Lexer::new(text);
    loop {
        match lexer.next().kind {
            Kind::Broken => return true,
            Kind::End => return false,
            _ => {}
        }
    }
}

impl<'a> Iterator for Phrases<'a> {
    type Item = Phrase<'a>;

    fn next(&mut self) -> Option<Phrase<'a>> {
        if self.found.is_empty() {
            parse::statement(&mut self.lexer, &mut self.found);
        }
        self.found.pop_front()
    }
}

#[cfg(test)]
mod tests;
