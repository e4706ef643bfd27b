//! Finds texts that change no data, only the session: if their server is lost, pgweir can repeat them.

use super::scan;
use crate::session::{
    certificates::Certificates,
    sql::{Dialect, Effects, Kind, Lexer, Name, changes_data},
    word_list::{is_any, words},
};

/// The verbs that write when they stand within a query.
const VERBS: [&str; 5] = words("insert update delete merge into");

/// Returns whether a text of queries may change more than rows of temporary tables: by a verb, or by a function that
/// the text calls by its name, through an operator or in another way. Functions of users that are declared STABLE or
/// IMMUTABLE can't change data themselves.
pub(in crate::session) fn may_change_data(
    text: &[u8],
    dialect: Dialect,
    certificates: &Certificates,
) -> bool {
    if scan(text, dialect, certificates) != Effects::NONE {
        return true;
    }
    let mut lexer = Lexer::new(text);
    loop {
        let token = lexer.next();
        let bytes = lexer.bytes(token);
        let name = match token.kind {
            Kind::Word if is_any(bytes, &VERBS) => return true,
            Kind::Word => bytes,
            Kind::Quoted => &bytes[1..bytes.len() - 1],
            Kind::End => return false,
            Kind::Broken => return true,
            _ => continue,
        };
        if changes_data(name) || certificates.changes_data(Name::of(name)) {
            return true;
        }
    }
}
