//! What SQL does to a session, as far as the texts of the pooler and of the clients of this world go.
//!
//! Statements are understood by their words, and queries are evaluated over what the session holds: so
//! the pooler may ask in whichever form it likes. What is not understood is an error of its own kind,
//! which ends the world.

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
