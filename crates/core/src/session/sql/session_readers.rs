//! PostgreSQL's own functions and key words whose result depends on the session. If a plan keeps the result of a
//! function that calls them, that plan must not be used by other clients.

use crate::session::word_list::{begins, is_any, words};

/// Returns whether the result of a function of this name, or of the key word, depends on the session.
pub(in crate::session) fn reads_session(name: &[u8]) -> bool {
    begins(name, "has_") || is_any(name, &SESSION_READERS)
}

/// `facts.sql` also contains those of them that are functions.
pub(in crate::session) const SESSION_READERS: [&str; 26] = words(
    "current_query current_role current_schema current_schemas current_setting current_user \
     gen_random_uuid getpgusername information_schema pg_client_encoding pg_cursor pg_has_role \
     pg_listening_channels pg_lock_status pg_my_temp_schema pg_prepared_statement \
     pg_show_all_settings pg_stat_get_activity random random_normal row_security_active \
     session_user system_user user uuidv4 uuidv7",
);
