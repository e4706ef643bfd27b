//! What a text says of its session's state, read in full once it is suspect.
//!
//! A text is what its client wanted; what became of it, the server knows. So phrases only say what
//! to ask for, and what a name was prepared as.

mod custom;
mod name;
mod parse;

use std::{borrow::Cow, collections::VecDeque, ops::Range};

pub use custom::{CustomNames, custom_names};
pub(super) use name::identifier;

use super::lexer::{Kind, Lexer};

/// One thing that a statement does to its session. Names are as PostgreSQL takes them: folded,
/// without quotes, cut at 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phrase<'a> {
    /// SET in all its forms; `role` and `session_authorization` are parameters like others.
    Set {
        /// The parameter.
        name: Cow<'a, [u8]>,
        /// For the transaction only.
        local: bool,
        /// `SET name TO DEFAULT`.
        to_default: bool,
    },
    /// RESET of a parameter.
    Reset(Cow<'a, [u8]>),
    /// RESET ALL.
    ResetAll,
    /// A call of `set_config`, anywhere in a statement; its first argument, if it is a plain string.
    SetConfig(Option<Cow<'a, [u8]>>),
    /// UNLISTEN, of one channel or of all.
    Unlisten(Option<Cow<'a, [u8]>>),
    /// PREPARE.
    Prepare {
        /// Its name.
        name: Cow<'a, [u8]>,
        /// Where the PREPARE stands in the text, from its first word to before its semicolon.
        statement: Range<usize>,
        /// Where the statement stands in the text that was prepared.
        prepared: Range<usize>,
    },
    /// EXECUTE, also within EXPLAIN and CREATE TABLE AS.
    Execute(Cow<'a, [u8]>),
    /// DEALLOCATE, of one name or of all.
    Deallocate(Option<Cow<'a, [u8]>>),
    /// DISCARD.
    Discard(Discard),
    /// Any other statement, or one that is not understood.
    Other,
}

/// What DISCARD throws away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// DISCARD ALL
    All,
    /// DISCARD PLANS
    Plans,
    /// DISCARD SEQUENCES
    Sequences,
    /// DISCARD TEMP
    Temp,
}

/// The phrases of a text in their order: one at least for each statement, several where a statement
/// sets several parameters.
#[derive(Debug)]
pub struct Phrases<'a> {
    lexer: Lexer<'a>,
    /// Of the statement that was read last.
    found: VecDeque<Phrase<'a>>,
}

/// What a text says of its session's state. For a text that suspicion has fallen on: it allocates.
#[must_use]
pub fn phrases(text: &[u8]) -> Phrases<'_> {
    Phrases {
        lexer: Lexer::new(text),
        found: VecDeque::new(),
    }
}

/// Does a text end in what can't be cut into tokens? Phrases behind that are not found.
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
