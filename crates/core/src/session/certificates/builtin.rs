//! What is known of every PostgreSQL without asking: its own functions and relations.

use crate::session::scan::Suspicion;

/// Functions of `pg_catalog` that leave no trace, and take arguments that SQL can give: one name a
/// line, of PostgreSQL 15 and 18. A test holds it against both.
pub(super) const CLEAN_FUNCTIONS: &str = include_str!("functions.txt");

/// Functions of `pg_catalog` that keep something, or run what their arguments say, and that SQL can call: one
/// name a line, of PostgreSQL 14 to 18, beside those in [`SUSPECT_FUNCTIONS`].
pub(super) const DENIED_FUNCTIONS: &str = include_str!("denied.txt");

/// Functions that do leave one, or that run what their arguments say.
pub(super) const SUSPECT_FUNCTIONS: &[(&str, Suspicion)] = &[
    ("set_config", Suspicion::SETTING),
    ("setseed", Suspicion::SEED),
    ("nextval", Suspicion::SEQUENCE),
    ("setval", Suspicion::SEQUENCE),
    ("currval", Suspicion::READS_SEQUENCE),
    ("lastval", Suspicion::READS_SEQUENCE),
    ("pg_advisory_lock", Suspicion::LOCK),
    ("pg_advisory_lock_shared", Suspicion::LOCK),
    ("pg_try_advisory_lock", Suspicion::LOCK),
    ("pg_try_advisory_lock_shared", Suspicion::LOCK),
    ("pg_advisory_unlock", Suspicion::LOCK),
    ("pg_advisory_unlock_shared", Suspicion::LOCK),
    ("pg_advisory_unlock_all", Suspicion::LOCK),
    ("pg_prepared_statement", Suspicion::STATEMENTS_VIEW),
    ("pg_listening_channels", Suspicion::STATEMENTS_VIEW),
    ("pg_replication_origin_session_setup", Suspicion::LIBRARY),
    ("pg_replication_origin_session_reset", Suspicion::LIBRARY),
    ("pg_replication_origin_xact_setup", Suspicion::LIBRARY),
    ("pg_replication_origin_xact_reset", Suspicion::LIBRARY),
    ("pg_create_logical_replication_slot", Suspicion::LIBRARY),
    ("pg_create_physical_replication_slot", Suspicion::LIBRARY),
    ("pg_copy_logical_replication_slot", Suspicion::LIBRARY),
    ("pg_copy_physical_replication_slot", Suspicion::LIBRARY),
    ("pg_sync_replication_slots", Suspicion::LIBRARY),
    ("pg_backup_start", Suspicion::LIBRARY),
    ("pg_backup_stop", Suspicion::LIBRARY),
    ("pg_start_backup", Suspicion::LIBRARY),
    ("pg_stop_backup", Suspicion::LIBRARY),
    ("pg_terminate_backend", Suspicion::TERMINATES),
    ("pg_cancel_backend", Suspicion::CANCELS),
    ("dblink_connect", Suspicion::LIBRARY),
    ("dblink_connect_u", Suspicion::LIBRARY),
];

/// Relations that leave one: when read, when written.
pub(super) const SUSPECT_RELATIONS: &[(&str, Suspicion, Suspicion)] = &[
    ("pg_settings", Suspicion::NONE, Suspicion::SETTING),
    (
        "pg_prepared_statements",
        Suspicion::STATEMENTS_VIEW,
        Suspicion::STATEMENTS_VIEW,
    ),
];
