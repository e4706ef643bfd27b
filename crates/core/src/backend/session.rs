//! The session state of a server connection as pgweir knows it: settings, statements, sequences, signals. The relay
//! records here the texts that it sends, and the server's answers and reports. The pool reads here whether the server
//! must be inspected or cleaned before it is lent again.

mod clean_needs;
mod extension;
mod inspections;
mod lasting;
mod notifications;
mod queries;
mod settings;
mod sql_statements;
mod transaction;

use self::clean_needs::CleanNeeds;
pub use self::{
    extension::ExtensionReports,
    inspections::{FailedInspections, Inspections},
    lasting::LastingState,
    notifications::ServerNotifications,
    queries::{CatalogRows, InspectionAnswers, InternalQueries, UnexplainedParameters},
    settings::SessionSettings,
    sql_statements::{RejectedStatement, ServerSqlStatements},
    transaction::TransactionState,
};
use super::{ClientNames, InternalQuery};
use crate::{
    Connected,
    session::{
        Class, Dialect, Effects, Literals, NAMES_MAX, RecentTexts, SessionChanges, Settings,
        SqlStatements, Tracked, TrackedNames, is_identity, outlasts_reset,
    },
    signal::Signals,
};

/// The session state of a server connection, as far as pgweir knows it.
#[derive(Debug, Default)]
pub struct ServerSession {
    /// The settings that were made in the session.
    pub(crate) settings: SessionSettings,
    /// The dialect in which the server reads the texts of this session.
    pub(crate) dialect: Dialect,
    /// The state that no clean removes.
    pub(crate) lasting: LastingState,
    /// The SQL-prepared statements.
    pub(crate) sql_statements: ServerSqlStatements,
    /// The client's statement names that the server knows.
    pub(crate) client_names: ClientNames,
    /// The possible effects of the texts of the present transaction.
    pub(crate) transaction: TransactionState,
    /// The effects of the texts that ran since the last clean and the last inspection.
    pub(crate) changes: SessionChanges,
    /// The texts that may have changed the session.
    pub(crate) recent_texts: RecentTexts,
    /// The reasons for the next clean, and the statements that it needs.
    pub(crate) clean: CleanNeeds,
    /// The client whose sequence values the server has.
    pub(crate) sequences: Sequences,
    /// The inspections of the session, and the time for which the server stays with its client without one.
    pub(crate) inspections: Inspections,
    /// The reports of the extension.
    pub(crate) extension: ExtensionReports,
    /// pgweir's queries that are under way.
    pub(crate) queries: InternalQueries,
    /// The pids that the client has named, and that may be pgweir's clients.
    pub(crate) signals: Option<Box<Signals>>,
    /// The notifications that the server itself receives.
    pub(crate) notifications: ServerNotifications,
    /// Counts the server among the connections to its database.
    pub(crate) connected: Option<Connected>,
}

/// Effects that the extension does not report.
const NOT_REPORTED: Effects = Effects::PREPARE.and(Effects::LIBRARY).and(Effects::SEED);

/// The effects of texts that may signal other clients.
pub const SIGNALS: Effects = Effects::TERMINATES.and(Effects::CANCELS);

/// The client whose sequence values (`currval`, `lastval`) a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sequences {
    /// The server has no sequence values.
    #[default]
    None,
    /// The server has those of the client with this id.
    Of(u64),
    /// The server may have those of several clients.
    Mixed,
}

impl ServerSession {
    /// Returns whether pgweir has to do something before it forwards a ReadyForQuery.
    #[must_use]
    #[inline]
    pub fn must_act_before_ready(&self) -> bool {
        self.notifications.has_listening_client
            | !self.notifications.pending.is_empty()
            | self.settings.has_unsent
            | self.extension.is_new
            | !self.transaction.effects.is_empty()
    }

    /// Returns whether a catalog query is under way.
    #[must_use]
    pub fn reads_catalog(&self) -> bool {
        self.queries.catalog.is_some()
    }

    /// Marks the catalog query as failed.
    pub fn reading_failed(&mut self) {
        if let Some(catalog) = &mut self.queries.catalog {
            catalog.failed = true;
        }
    }

    /// Notes that a text was sent that may change the session defaults of these roles and databases.
    pub fn note_changed_roles(&mut self, names: Vec<String>) {
        self.transaction.changed_roles.extend(names);
        self.transaction.changed_roles.truncate(NAMES_MAX);
    }

    /// Returns whether the client has to wait for an inspection or lookup at the end of this transaction.
    #[must_use]
    pub fn must_inspect_before_ready(&self) -> bool {
        !self.transaction.changed_roles.is_empty() || self.needs_inspection_now()
    }

    /// Returns whether the server's command tags and notices have to be read.
    #[must_use]
    #[inline]
    pub fn reads_command_tags(&self) -> bool {
        self.notifications.has_listening_client
            | self.settings.reads_notices
            | !self.transaction.effects.is_empty()
    }

    /// Compares the certificates in force with those of the transaction, after all requests were answered. If they
    /// differ, the texts of the transaction may have had effects that the former certificates did not contain.
    #[inline]
    pub fn check_certificates(&mut self, generation: u64) {
        if self
            .transaction
            .certified_by
            .take()
            .is_some_and(|by| by != generation)
        {
            self.changes.raise(Class::Opaque);
        }
    }

    /// Returns whether the server must be cleaned before another client uses it.
    #[must_use]
    #[inline]
    pub fn is_to_clean(&self) -> bool {
        self.clean.is_due || self.changes.needs_clean()
    }

    /// Returns whether the extension has reported state that only ends with the server connection.
    #[must_use]
    pub fn report_requires_close(&self) -> bool {
        let report = self.extension.last.as_ref();
        report.is_some_and(|report| report.pins().require_close())
    }

    /// Uses the extension's report as an inspection: if the report is empty, the session has no state but sequence
    /// values.
    pub fn take_report_as_inspection(&mut self) {
        let tells_all = self
            .extension
            .last
            .as_ref()
            .is_some_and(|report| !report.unclear);
        let is_unseen = self.changes.effects().intersects(NOT_REPORTED);
        if tells_all && !self.extension.is_new && !is_unseen {
            self.changes.note_inspected();
        }
    }

    /// Returns whether a role may be set. PostgreSQL checks the privilege to use a schema when it analyses a statement,
    /// and never again: so a Parse of such a client is always sent to the server, and no other client uses the
    /// resulting statement.
    #[must_use]
    pub fn may_have_role(&self) -> bool {
        self.changes.affects_role()
            || self.transaction.effects.contains(Effects::ROLE)
            || self.settings.held.iter().any(|(name, _)| is_identity(name))
    }

    /// Returns the settings under which the server analyses a statement that is sent now; `None` if they are unknown.
    #[must_use]
    #[inline]
    pub fn settings_now(&self) -> Option<&Settings> {
        (!self.changes.affects_literal_syntax()).then_some(&self.settings.held)
    }

    /// Returns whether the server has these SQL-prepared statements, with the meaning that the literals have for the
    /// client with this id and these settings.
    #[must_use]
    #[inline]
    pub fn has_sql_for(&self, sql: &SqlStatements, client: u64, settings: &Settings) -> bool {
        sql.is_equal(&self.sql_statements.held)
            && (sql.is_empty() || self.is_sql_made_for(client, settings))
    }

    /// Notes that this client, with these settings, uses the server's SQL-prepared statements: when tables change,
    /// PostgreSQL analyses the statements again, under the settings of that moment.
    pub fn sql_used_by(&mut self, client: u64, settings: &Settings) {
        let is_made = self.is_sql_made_under(settings);
        let made = self.sql_statements.made_for.1.take();
        self.sql_statements.made_for = (client, made.filter(|_| is_made));
    }

    /// Returns whether the literals of the SQL-prepared statements have the meaning that they have for this client.
    #[must_use]
    fn is_sql_made_for(&self, client: u64, settings: &Settings) -> bool {
        self.sql_statements.made_for.0 == client || self.is_sql_made_under(settings)
    }

    fn is_sql_made_under(&self, settings: &Settings) -> bool {
        let made = self.sql_statements.made_for.1.as_ref();
        made.is_some_and(|made| Literals::Bytes.mean_the_same(made, settings))
    }

    /// Notes that a client's text, or a message with such effects, is sent.
    pub fn note(&mut self, effects: Effects, text: &[u8]) {
        self.transaction.effects |= effects;
        self.lasting.outlives_clean |= effects.contains(Effects::LIBRARY);
        let class = self.transaction.effects.class();
        self.lasting.has_run_opaque_text |= class == Class::Opaque;
        match effects.class() {
            Class::Pure => {}
            Class::Sequences => self.clean.texts.sequences += 1,
            Class::Settings => self.clean.texts.settings += 1,
            Class::Opaque => self.clean.texts.opaque += 1,
        }
        self.changes.note(effects, class, text, self.dialect);
    }

    /// Returns whether the session must be inspected before the client gets the end of its request.
    #[must_use]
    pub fn needs_inspection_now(&self) -> bool {
        // State that the extension does not report needs a query in any case, which can wait as without the extension.
        let waits = self.changes.effects().intersects(NOT_REPORTED);
        self.extension.last.is_some() && self.extension.is_new && !waits
            || self.transaction.effects.intersects(Effects::LISTEN)
            || !self.settings.reset.is_empty()
            || self.inspections.must_be_exact
    }

    /// Notes that this client may have used a sequence on this server.
    pub fn touch_sequences(&mut self, client: u64) {
        self.sequences = match self.sequences {
            Sequences::None => Sequences::Of(client),
            Sequences::Of(of) if of == client => Sequences::Of(client),
            _ => Sequences::Mixed,
        };
    }

    /// Returns whether the server has sequence values of another client than the one with this id.
    #[must_use]
    #[inline]
    pub fn has_foreign_sequences(&self, client: u64) -> bool {
        self.sequences != Sequences::None && self.sequences != Sequences::Of(client)
    }

    /// Sets the dialect of texts by the server's parameters.
    pub fn read_as(&mut self, names: &TrackedNames, tracked: &Tracked) {
        let value = |name: &[u8]| names.value(tracked, name).unwrap_or_default();
        let strings = value(b"standard_conforming_strings");
        let at_login = self
            .lasting
            .strings_at_login
            .get_or_insert_with(|| strings.into());
        self.lasting.may_have_misread_bodies |= **at_login != *strings;
        self.dialect = Dialect::of(strings, value(b"client_encoding"));
    }

    /// Returns whether a query is under way that is answered by rows.
    #[must_use]
    #[inline]
    pub fn awaits_rows(&self) -> bool {
        self.queries.awaits_rows() || self.asks_for_rights()
    }

    /// Takes a row of the answer to such a query.
    pub fn take_row(&mut self, own: Option<InternalQuery>, row: &[u8]) {
        self.queries.take_row(own, &mut self.signals, row);
    }

    /// Drops the signals if a command that may change the role follows in the same request: after the command, the
    /// server could not report the role under which the client has sent the signals.
    #[inline]
    pub fn forget_signals_after(&mut self, tag: &[u8]) {
        if self.signals.is_some()
            && matches!(
                tag,
                b"SET\0" | b"RESET\0" | b"COMMIT\0" | b"ROLLBACK\0" | b"DISCARD ALL\0"
            )
        {
            self.signals = None;
        }
    }

    /// Returns whether the server has to report the role under which the client signals other clients.
    #[must_use]
    #[inline]
    pub fn asks_for_rights(&self) -> bool {
        let signals = self.signals.as_ref();
        signals.is_some_and(|signals| signals.are_asked_for())
    }

    /// Notes that the session has these settings, which pgweir has sent.
    pub fn holds(&mut self, settings: &Settings) {
        self.settings.held = settings.clone();
        let mut names = settings.iter().map(|(name, _)| name);
        self.lasting.outlives_clean |= names.any(outlasts_reset);
        self.extension.is_new = false;
    }

    /// Notes that a request of the client has failed.
    pub fn has_failed(&mut self) {
        self.changes.forget_literal_sets();
        self.transaction.changed_roles.clear();
    }

    /// Notes that an inspection has read the session. `channels` means that it has also read the channels.
    pub fn inspected(&mut self, channels: Option<Vec<Vec<u8>>>) {
        self.notifications.channels = channels;
        self.transaction.effects = Effects::default();
        self.inspections.is_missing = false;
        self.inspections.must_be_exact = false;
        self.settings.named.clear();
        self.settings.reset.clear();
    }

    /// Notes that the settings were reset: the session has no state that texts of class settings can leave.
    pub fn settings_cleaned(&mut self) {
        self.settings.held = Settings::default();
        self.changes.note_cleaned();
        if self.sequences != Sequences::None {
            self.changes.raise(Class::Sequences);
        }
        self.settings.named.clear();
        self.settings.reset.clear();
        self.inspections.must_be_exact = false;
        self.extension.is_new = false;
        self.inspections.is_missing = false;
        self.clean.is_due = false;
    }

    /// Returns whether the session's settings are known from the client's texts, and no other state must be read at the
    /// end of the transaction.
    #[must_use]
    pub fn texts_tell_settings(&self) -> bool {
        self.extension.last.is_none()
            && !self.must_inspect_before_ready()
            && !self.inspections.is_missing
            && !self.clean.is_due
            && !self.may_have_role()
    }

    /// Notes that the session has these settings, and that its other state has not changed, so that no inspection is
    /// needed.
    pub fn settings_known(&mut self, settings: &Settings) {
        self.settings.held = settings.clone();
        self.changes.note_cleaned();
        if self.sequences != Sequences::None {
            self.changes.raise(Class::Sequences);
        }
        self.settings.named.clear();
        self.recent_texts.clear();
        self.settings.are_new = true;
    }

    /// Notes that the session was cleaned.
    pub fn cleaned(&mut self) {
        self.sequences = Sequences::None;
        self.settings_cleaned();
        self.sql_statements.held = SqlStatements::default();
        self.client_names = ClientNames::default();
        self.transaction.effects = Effects::default();
        self.queries.cleaned = None;
        self.clean.must_ask_rights = false;
        self.inspections.last_at = None;
        self.inspections.failed = FailedInspections::default();
        self.inspections.turn_until = None;
        self.settings.are_new = false;
        self.recent_texts.clear();
        self.queries.ready_is_held = false;
        self.settings.reads_notices = false;
        self.signals = None;
        self.transaction.changed_roles.clear();
        self.notifications.pending = Vec::new();
    }
}
