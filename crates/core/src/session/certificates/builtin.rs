//! What is known of every PostgreSQL without asking: its own functions and relations.

use crate::session::scan::Suspicion;

/// Functions of `pg_catalog` that leave no trace, and take arguments that SQL can give: one name a
/// line, of PostgreSQL 15 and 18. A test holds it against both.
pub(super) const CLEAN_FUNCTIONS: &str = include_str!("functions.txt");

/// Functions of `pg_catalog` that keep something, or run what their arguments say, and that SQL can call: one
/// name a line, of PostgreSQL 14 to 18, beside those in [`SUSPECT_FUNCTIONS`].
pub(super) const DENIED_FUNCTIONS: &str = include_str!("denied.txt");

/// Tables and views of `pg_catalog` and `information_schema` that leave no trace when read.
pub(super) const CLEAN_RELATIONS: &str = include_str!("relations.txt");

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

/// What COPY names in the place of a relation.
pub(super) const COPY_ENDS: [&str; 2] = ["stdin", "stdout"];

/// Functions that are called with FROM between their arguments.
pub(super) const CALLS_WITH_FROM: [&str; 4] = ["extract", "overlay", "substring", "trim"];

/// What may stand between FROM and a relation. Relations with such names are never certified.
pub(super) const BEFORE_RELATIONS: [&[u8]; 6] =
    [b"lateral", b"only", b"select", b"table", b"values", b"with"];

/// Words of the grammar that may stand before a parenthesis: key words, types with modifiers, and
/// constructs that look like functions.
pub(super) const GRAMMAR: &str = "\
    all analyze and any array as asymmetric bernoulli bigint binary bit boolean buffers by case \
    cast char character coalesce collate columns conflict costs cross cube current_time \
    current_timestamp date day dec decimal default desc distinct do double else end escape \
    every except exists extract fetch filter first float for force_not_null force_null \
    force_quote format freeze from full greatest group grouping having hour ilike in inner \
    insert int integer intersect interval into is isnull join json json_array json_arrayagg \
    json_exists json_object json_objectagg json_query json_scalar json_serialize json_table \
    json_value jsonb lateral least left like limit localtime localtimestamp match materialized \
    merge_action minute month natural nchar next normalize not notnull nullif numeric of offset \
    on only operator or order ordinality over overlaps overlay partition position precision \
    range real repeatable returning right rollup row rows second select set sets similar \
    smallint some substring symmetric system table text then time timestamp treat trim union \
    unique update using values varbit varchar variadic varying verbose wal when where window \
    with within xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse \
    xmlpi xmlroot xmlserialize xmltable year zone";
