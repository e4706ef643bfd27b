//! The session state that a client expects, the state that a server connection holds, and the messages that change
//! the server's state into the client's.
//!
//! A client's **context** is the part of its session state that pgweir carries from server to server. The **state** is
//! the session state that the server itself reports. **Pins** are the parts of the state that can't be carried: they
//! keep the server connection with its client.

mod baseline;
pub mod certificates;
mod changes;
mod clean;
mod context;
mod custom_parameters;
mod ddl;
mod fingerprint;
mod ids;
mod interner;
mod literals;
mod names;
mod outcome;
mod plan;
mod probe;
pub(crate) mod quote;
mod recent_texts;
mod reported_parameters;
mod resets;
mod role_changes;
pub mod scan;
mod schema;
mod sequence_readers;
mod settings;
pub mod sql;
mod sql_statements;
mod startup_values;
mod startups;
mod state;
mod statement;
mod statement_description;
mod word_list;

pub use baseline::{BASELINE, Baseline, SHOWN};
pub use certificates::{ANY_FOREIGN_CODE, Certificates, FACT_MAX, Facts, MadeNames};
pub use changes::SessionChanges;
pub use clean::{Clean, Cleaned, MAY_KEEP_STATE, Questions, ToDeallocate};
pub use context::{Context, Turns, Unlisted};
pub use custom_parameters::CustomParameters;
pub use ddl::{Change, DdlCause, catalog_change, ddl_cause, runs_unread_code};
pub use fingerprint::Fingerprint;
pub use literals::{Literals, names_mean_the_same};
pub use names::{BindingId, Bindings, Names, statement_key};
pub use outcome::Unanswered;

pub use plan::{ROLE, WITHOUT_ROLE, discards_plans, is_identity, login_plan, plan, shown};
pub use probe::{AllSettings, Probe};
pub use recent_texts::RecentTexts;
pub use reported_parameters::{Tracked, TrackedNames};
pub use resets::Resets;
pub(crate) use role_changes::DefaultsChange;
pub use role_changes::{NAMES_MAX, changed_roles};
pub use scan::{Verdict, VerdictCache, scan};
pub use schema::{changes_schema, left_database};
pub use sequence_readers::SequenceReaders;
pub use settings::{Settings, SettingsTable, SharedPairs};
pub use sql::{
    ChannelCommand, Class, Dialect, Effects, affects_literals, literal_sets, may_misread_bodies,
    outlasts_reset,
};
pub use sql_statements::SqlStatements;
pub use startup_values::ResetParameters;
pub use startups::{Startup, Startups};
pub use state::{BadState, State, Summary};
pub use statement::{NO_SUCH_NAME, RESERVED, Statement, Statements};
pub use statement_description::StatementDescription;
