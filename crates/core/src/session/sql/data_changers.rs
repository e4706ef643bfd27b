//! PostgreSQL's own functions that leave no session state, but have effects that other sessions see.

use crate::session::word_list::{is_any, words};

/// PostgreSQL's own functions that have no effect on the session, but effects that other sessions see. All other
/// functions with such effects may leave session state as well.
const CHANGERS: [&str; 10] = words(
    "pg_log_standby_snapshot pg_logical_emit_message pg_notify pg_stat_reset pg_stat_reset_backend_stats \
     pg_stat_reset_shared pg_stat_reset_single_function_counters pg_stat_reset_single_table_counters \
     pg_stat_reset_slru pg_stat_reset_subscription_stats",
);
/// Returns whether PostgreSQL's own function of this name leaves no session state, but has effects that other
/// sessions see.
pub(in crate::session) fn changes_data(name: &[u8]) -> bool {
    is_any(name, &CHANGERS)
}
