//! The effect of SQL on a session, for the texts of the pooler and of this world's clients.
//!
//! Statements are parsed by their words, and queries are evaluated over the session state. So the pooler may word its
//! queries in any form. A text that the parser does not understand ends the simulation with an error of its own kind.

mod eval;
mod functions;
mod parse;
mod state;
mod syntax;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use self::{
    eval::Facts,
    parse::parse,
    state::{Failure, State, Values},
    syntax::Statement,
    token::split,
};
