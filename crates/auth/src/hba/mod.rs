//! The HBA file and the ident file: who may log in from where to what, and how.
//!
//! The rules are PgBouncer's, with what PostgreSQL has beyond them: regular expressions, `+role`,
//! `samerole`, lines that go on after a backslash. The first rule that fits a login decides. A line
//! that can't be understood makes the file unusable, where PgBouncer would skip it: to skip a
//! `reject` would let people in.

mod address;
mod ident;
mod line;
mod names;
mod pattern;
mod problem;
mod rules;

pub use ident::{IdentMap, IdentMaps};
pub use problem::{HbaProblem, Wrong};
pub use rules::{Asked, Found, Rule, Rules};
