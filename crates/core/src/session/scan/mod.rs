//! The scanner finds the effects that an SQL text may have on its session, without a query to the server.
//!
//! The rules: the text must be cut into tokens with certainty, and each of its statements must begin with a word of a
//! closed list. Every word and quoted identifier is looked up wherever it stands: among the key words, among those
//! functions of PostgreSQL's own that leave session state, and in the certificates of the database. The scanner parses
//! no grammar beyond that, so no place in a statement hides a name. It reads a text in one pass and allocates nothing.

mod data_changes;
mod ddl;
mod reader;
mod template;
mod verdict_cache;
#[cfg(test)]
mod verdicts;

pub(in crate::session) use data_changes::may_change_data;
pub use ddl::DdlWords;
pub(in crate::session) use ddl::may_change_catalog;
use reader::Look;
pub use verdict_cache::{Verdict, VerdictCache};

use super::{
    certificates::Certificates,
    sql::{Dialect, Effects, lexer::Literals},
};

/// Returns the effects that the text may have on the session that runs it. Empty if it is certain that the text leaves
/// no trace.
pub fn scan(text: &[u8], dialect: Dialect, certificates: &Certificates) -> Effects {
    look(text, dialect, certificates, &mut ()).found
}

fn look(
    text: &[u8],
    dialect: Dialect,
    certificates: &Certificates,
    literals: &mut impl Literals,
) -> Look {
    if dialect == Dialect::Unreadable {
        return Look {
            found: reader::unreadable(text),
            by_literals: true,
        };
    }
    let utf8 = dialect == Dialect::Utf8 && certificates.is_utf8();
    reader::look(text, utf8, certificates, literals)
}
