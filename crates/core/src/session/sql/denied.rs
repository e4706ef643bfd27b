//! PostgreSQL's own functions and relations that leave session state, or that may run code which pgweir has not read.
//! Texts, function bodies and stored trees all use this one list.
//!
//! `tests/test_denied.py` checks the list against PostgreSQL 15 and 18, and reports each volatile, parallel-restricted
//! or parallel-unsafe function that is neither here nor in `harmless.txt`.

use super::{
    Effects,
    meaning::{CHANGE, Meaning},
};

/// Volatile and parallel-restricted functions of PostgreSQL 15 to 18 that were reviewed, one name a line, sorted. Their
/// effects end with the transaction, or do not concern the session. A function of a newer PostgreSQL that is on neither
/// list is opaque.
const HARMLESS: &str = include_str!("harmless.txt");

/// Returns whether the volatile or parallel-restricted function of this name was reviewed, and found to leave nothing.
pub(in crate::session) fn is_harmless(name: &str) -> bool {
    HARMLESS.lines().any(|harmless| harmless == name)
}

/// The effects of using a name.
const fn uses(effects: Effects) -> Meaning {
    Meaning::Name(effects, Effects::NONE)
}

/// The names by their meaning.
pub(in crate::session) const NAMES: [(&str, Meaning); 14] = [
    ("setseed", uses(Effects::SEED)),
    ("nextval setval", uses(Effects::SEQUENCE)),
    ("currval lastval", uses(Effects::READS_SEQUENCE)),
    (
        "pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock \
         pg_try_advisory_lock_shared pg_advisory_unlock pg_advisory_unlock_shared \
         pg_advisory_unlock_all",
        uses(Effects::LOCK),
    ),
    (
        "pg_prepared_statement pg_prepared_statements",
        uses(Effects::STATEMENTS_VIEW),
    ),
    ("pg_listening_channels", uses(Effects::CHANNELS_VIEW)),
    ("pg_terminate_backend", uses(Effects::TERMINATES)),
    ("pg_cancel_backend", uses(Effects::CANCELS)),
    (
        "pg_replication_origin_session_setup pg_replication_origin_session_reset \
         pg_replication_origin_xact_setup pg_replication_origin_xact_reset \
         pg_create_logical_replication_slot pg_create_physical_replication_slot \
         pg_copy_logical_replication_slot pg_copy_physical_replication_slot \
         pg_sync_replication_slots pg_backup_start pg_backup_stop pg_start_backup pg_stop_backup \
         dblink_connect dblink_connect_u",
        uses(Effects::LIBRARY),
    ),
    // Functions that run a query, or the expressions of an index: the code that they call may do DDL.
    (
        "brin_summarize_new_values brin_summarize_range cursor_to_xml cursor_to_xmlschema \
         database_to_xml database_to_xml_and_xmlschema database_to_xmlschema query_to_xml \
         query_to_xml_and_xmlschema query_to_xmlschema schema_to_xml schema_to_xml_and_xmlschema \
         schema_to_xmlschema table_to_xml table_to_xml_and_xmlschema table_to_xmlschema \
         ts_rewrite ts_stat",
        uses(CHANGE),
    ),
    // Functions that call input functions by name, read state that others left, or change the server.
    (
        "amvalidate array_in brin_desummarize_range currtid2 domain_in fmgr_c_validator \
         fmgr_internal_validator fmgr_sql_validator gin_clean_pending_list lo_close lo_creat \
         lo_create lo_export lo_from_bytea lo_get lo_import lo_lseek lo_lseek64 lo_open lo_put \
         lo_tell lo_tell64 lo_truncate lo_truncate64 lo_unlink loread lowrite multirange_in \
         pg_backend_memory_contexts \
         pg_clear_attribute_stats pg_clear_relation_stats pg_create_restore_point \
         pg_drop_replication_slot pg_extension_config_dump pg_get_backend_memory_contexts \
         pg_import_system_collations \
         pg_input_error_info pg_input_is_valid pg_isolation_test_session_is_blocked \
         pg_logical_slot_get_binary_changes pg_logical_slot_get_changes \
         pg_logical_slot_peek_binary_changes pg_logical_slot_peek_changes pg_nextoid pg_promote \
         pg_reload_conf pg_replication_origin_advance pg_replication_origin_create \
         pg_replication_origin_drop pg_replication_origin_oid pg_replication_origin_progress \
         pg_replication_origin_session_progress pg_replication_slot_advance \
         pg_restore_attribute_stats pg_restore_relation_stats pg_rotate_logfile \
         pg_rotate_logfile_old pg_stat_get_replication_slot pg_stat_reset_replication_slot \
         pg_stop_making_pinned_objects pg_switch_wal pg_wal_replay_pause pg_wal_replay_resume \
         plpgsql_validator postgresql_fdw_validator range_in record_in",
        uses(Effects::OPAQUE),
    ),
    ("set_config", Meaning::SetConfig),
    // UPDATE of this view is `set_config`.
    (
        "pg_settings",
        Meaning::Name(Effects::OPAQUE, Effects::SETTING.and(Effects::PATH)),
    ),
    // Tables of the catalog: writing to them changes what functions and relations are.
    (
        "pg_aggregate pg_am pg_amop pg_amproc pg_attrdef pg_attribute pg_auth_members pg_authid \
         pg_cast pg_class pg_collation pg_constraint pg_conversion pg_database pg_db_role_setting \
         pg_default_acl pg_depend pg_description pg_enum pg_event_trigger pg_extension \
         pg_foreign_data_wrapper pg_foreign_server pg_foreign_table pg_index pg_inherits \
         pg_init_privs pg_language pg_largeobject pg_largeobject_metadata pg_namespace pg_opclass \
         pg_operator pg_opfamily pg_parameter_acl pg_partitioned_table pg_policy pg_proc \
         pg_publication pg_publication_namespace pg_publication_rel pg_range \
         pg_replication_origin pg_rewrite pg_seclabel pg_sequence pg_shdepend pg_shdescription \
         pg_shseclabel pg_statistic pg_statistic_ext pg_statistic_ext_data pg_subscription \
         pg_subscription_rel pg_tablespace pg_transform pg_trigger pg_ts_config pg_ts_config_map \
         pg_ts_dict pg_ts_parser pg_ts_template pg_type pg_user_mapping",
        Meaning::Name(Effects::NONE, CHANGE),
    ),
];
