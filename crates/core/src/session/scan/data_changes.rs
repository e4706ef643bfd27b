//! Finds texts that change no data, only the session: if their server is lost, pgweir can repeat them.

use super::{Dialect, Effects, Kind, Lexer, scan};
use crate::session::{
    certificates::{Certificates, Name},
    word_list::{is_any, words},
};

/// PostgreSQL's own functions that have no effect on the session, but effects that other sessions see. All other
/// functions with such effects may leave session state as well.
const CHANGERS: [&str; 10] = words(
    "pg_log_standby_snapshot pg_logical_emit_message pg_notify pg_stat_reset pg_stat_reset_backend_stats \
     pg_stat_reset_shared pg_stat_reset_single_function_counters pg_stat_reset_single_table_counters \
     pg_stat_reset_slru pg_stat_reset_subscription_stats",
);
/// The verbs that write when they stand within a query.
const VERBS: [&str; 5] = words("insert update delete merge into");

/// Returns whether PostgreSQL's own function of this name has effects that others see, though it leaves no session state.
pub(in crate::session) fn changes_data(name: &[u8]) -> bool {
    is_any(name, &CHANGERS)
}

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
