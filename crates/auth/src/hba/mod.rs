//! The HBA file and the ident file: which users may log in from which addresses to which databases, and how.
//!
//! The rules are PgBouncer's, extended by PostgreSQL's regular expressions, `+role`, `samerole`, and lines that
//! continue after a backslash. The first rule that matches a login decides. An invalid line makes the file unusable.
//! PgBouncer skips such a line, but a skipped `reject` would admit clients.

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
