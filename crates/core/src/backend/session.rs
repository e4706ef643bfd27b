//! The session state of a server connection as pgweir knows it: settings, statements, sequences, signals. The relay
//! records here the texts that it sends, and the server's answers and reports. The pool reads here whether the server
//! must be inspected or cleaned before it is lent again.

mod clean_needs;
mod compiled_types;
mod extension;
mod inspections;
mod lasting;
mod loan_notes;
mod notifications;
mod pool_lists;
mod queries;
mod settings;
mod sql_statements;
mod transaction;

use self::clean_needs::CleanNeeds;
pub use self::{
    extension::ExtensionReports,
    inspections::NextInspection,
    lasting::LastingState,
    loan_notes::LoanNotes,
    notifications::ServerNotifications,
    pool_lists::PoolLists,
    queries::{
        CatalogRows, Inspection, InspectionAnswers, InternalAnswer, InternalQueries,
        UnexplainedParameters,
    },
    settings::SessionSettings,
    sql_statements::{Rejections, ServerSqlStatements},
    transaction::TransactionState,
};
use super::{ClientNames, InternalQuery, SettingsNow, stream::INSPECT_MAX};
use crate::{
    Catalog, Connected,
    base::conditions::first_of,
    session::{
        Class, Dialect, Effects, RecentTexts, SessionChanges, Settings, Tracked, TrackedNames,
        is_identity, may_misread_bodies, runs_unread_code,
    },
};

/// The session state of a server connection, as far as pgweir knows it.
#[derive(Debug, Default)]
pub struct ServerSession {
    /// The settings that were made in the session.
    pub(crate) settings: SessionSettings,
    /// The dialect in which the server reads the texts of this session.
    dialect: Dialect,
    /// The state that no clean removes.
    pub(crate) lasting: LastingState,
    /// The SQL-prepared statements.
    pub(crate) sql_statements: ServerSqlStatements,
    /// The client's statement names that the server knows.
    pub(crate) client_names: ClientNames,
    /// The notes about the client that has the server. They end with the loan.
    pub(crate) loan: LoanNotes,
    /// Changes by the present transaction that concern other sessions.
    pub(crate) transaction: TransactionState,
    /// The effects of the texts that ran since the last clean and the last inspection.
    pub(crate) changes: SessionChanges,
    /// The texts that may have changed the session.
    pub(crate) recent_texts: RecentTexts,
    /// The reasons for the next clean, and the statements that it needs.
    pub(crate) clean: CleanNeeds,
    /// The client whose sequence values the server has.
    sequences: Sequences,
    /// The pool's lists of servers that stay with their clients.
    pub(crate) lists: PoolLists,
    /// The reports of the extension.
    pub(crate) extension: ExtensionReports,
    /// pgweir's queries that are under way.
    pub(crate) queries: InternalQueries,
    /// Counts the server among the connections to its database.
    connected: Option<Connected>,
}

/// Effects that the extension does not report.
const NOT_REPORTED: Effects = Effects::PREPARE.and(Effects::LIBRARY).and(Effects::SEED);

/// The effects of texts that may signal other clients.
pub const SIGNALS: Effects = Effects::TERMINATES.and(Effects::CANCELS);

/// The client whose sequence values (`currval`, `lastval`) a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sequences {
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
        self.loan.must_act_before_ready() | self.extension.is_new()
    }

    /// Returns whether the client has to wait for an inspection or lookup at the end of this transaction.
    #[must_use]
    pub fn must_inspect_before_ready(&self) -> bool {
        self.transaction.has_changed_roles() || self.needs_inspection_now()
    }

    /// Compares the certificates in force with those of the transaction, after all requests were answered. If they
    /// differ, the texts of the transaction may have had effects that the former certificates did not contain.
    #[inline]
    pub fn check_certificates(&mut self, catalog: &Catalog) {
        if let Some(by) = self.transaction.end_certified(catalog.generation()) {
            self.note_other_certificates(by, catalog);
        }
    }

    /// Notes that the transaction's texts were read by certificates of this generation, which are no longer in force.
    #[cold]
    fn note_other_certificates(&mut self, by: u64, catalog: &Catalog) {
        self.changes.raise(Class::Opaque);
        if by < catalog.code_since() {
            self.note_unread_code();
        }
    }

    /// Returns whether the server must be cleaned before another client uses it.
    #[must_use]
    #[inline]
    pub fn is_to_clean(&self) -> bool {
        self.clean.is_due() || self.changes.needs_clean()
    }

    /// Returns whether the extension has reported state that only ends with the server connection.
    #[must_use]
    pub fn report_requires_close(&self) -> bool {
        let report = self.extension.last();
        report.is_some_and(|report| report.pins.require_close())
    }

    /// Uses the extension's report as an inspection: if the report is empty, the session has no state but sequence
    /// values.
    pub fn take_report_as_inspection(&mut self) {
        let is_complete = (self.extension.last()).is_some_and(|report| !report.unclear);
        let is_unseen = self.changes.effects().intersects(NOT_REPORTED);
        if is_complete && !self.extension.is_new() && !is_unseen {
            self.changes.note_inspected();
            self.lasting.types.note_settings(self.settings.held());
        }
    }

    /// Returns whether a role may be set. PostgreSQL checks the privilege to use a schema when it analyses a statement,
    /// and never again: so a Parse of such a client is always sent to the server, and no Parse of another client is
    /// answered because of the resulting statement.
    #[must_use]
    pub fn may_have_role(&self) -> bool {
        self.changes.affects_role()
            || self.loan.effects().contains(Effects::ROLE)
            || self
                .settings
                .held()
                .iter()
                .any(|(name, _)| is_identity(name))
    }

    /// Returns the settings under which the server analyses a statement that is sent now.
    #[must_use]
    #[inline]
    pub fn settings_now(&self) -> SettingsNow<'_> {
        SettingsNow {
            held: self.settings.held(),
            are_names_known: !self.changes.affects_names(),
            are_literals_known: !self.changes.affects_literal_syntax(),
        }
    }

    /// Notes that a client's text, or a message with such effects, is sent.
    pub fn note(&mut self, effects: Effects, text: &[u8]) {
        let is_unread = effects.contains(Effects::OPAQUE)
            && !effects.contains(Effects::UNREAD)
            && runs_unread_code(text, self.dialect);
        let effects = match is_unread {
            true => effects | Effects::UNREAD,
            false => effects,
        };
        let class = self.loan.edit().note_effects(effects);
        self.lasting.note_text(effects, class);
        if effects.contains(Effects::OPAQUE) && may_misread_bodies(text) {
            self.lasting.note_strings_unknown();
        }
        self.clean.count_text(effects.class());
        self.changes.note(effects, class, text, self.dialect);
        let (transaction, held) = (self.loan.effects(), self.settings.held());
        self.lasting.types.note(effects, transaction, held);
        self.clean.note_made(effects, text);
    }

    /// Notes that code runs which pgweir has not read.
    pub fn note_unread_code(&mut self) {
        self.changes.raise(Class::Opaque);
        self.lasting.types.note_any();
        self.clean.note_made(Effects::UNREAD, b"");
    }

    /// Returns whether the session must be inspected before the client gets the end of its request.
    #[must_use]
    pub fn needs_inspection_now(&self) -> bool {
        // State that the extension does not report needs a query in any case, which can wait as without the extension.
        let waits = self.changes.effects().intersects(NOT_REPORTED);
        self.extension.last().is_some() && self.extension.is_new() && !waits
            || self.loan.effects().intersects(Effects::LISTEN)
            || self.loan.inspection.concerns_startup_values()
    }

    /// Notes that this client may have used a sequence on this server.
    pub fn touch_sequences(&mut self, client: u64) {
        self.sequences = match self.sequences {
            Sequences::None => Sequences::Of(client),
            Sequences::Of(of) if of == client => Sequences::Of(client),
            _ => Sequences::Mixed,
        };
    }

    /// Notes that several clients may have used sequences on this server.
    pub fn mix_sequences(&mut self) {
        self.sequences = Sequences::Mixed;
    }

    /// Notes that the server discards its sequence values.
    pub fn discard_sequences(&mut self) {
        self.sequences = Sequences::None;
    }

    /// Returns whether the server has sequence values of the client with this id, and of no other.
    #[must_use]
    pub fn has_sequences_of(&self, client: u64) -> bool {
        self.sequences == Sequences::Of(client)
    }

    /// Returns whether the server has sequence values of another client than the one with this id.
    #[must_use]
    #[inline]
    pub fn has_foreign_sequences(&self, client: u64) -> bool {
        self.sequences != Sequences::None && self.sequences != Sequences::Of(client)
    }

    /// Returns the dialect in which the server reads the texts of this session.
    #[must_use]
    #[inline]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Notes that the server counts among the connections to its database.
    pub fn note_connected(&mut self, connected: Connected) {
        self.connected = Some(connected);
    }

    /// Sets the dialect of texts by the server's parameters.
    pub fn read_as(&mut self, names: &TrackedNames, tracked: &Tracked) {
        let value = |name: &[u8]| names.value(tracked, name).unwrap_or_default();
        let strings = value(b"standard_conforming_strings");
        self.lasting.note_strings(strings);
        self.dialect = Dialect::of(strings, value(b"client_encoding"));
    }

    /// Returns the longest row of the query under way that pgweir reads, in bytes with the header; 0 if the query is
    /// answered by no rows.
    #[must_use]
    #[cold]
    pub fn row_max(&self) -> usize {
        match self.loan.asks_for_rights() {
            true => INSPECT_MAX,
            false => self.queries.row_max(),
        }
    }

    /// Takes a row of the answer to this query.
    pub fn take_row(&mut self, query: InternalQuery, row: &[u8]) {
        match query {
            InternalQuery::Rights => self.loan.edit().take_rights(row),
            _ => self.queries.take_row(query, row),
        }
    }

    /// Notes that the session has these settings, which pgweir has sent.
    pub fn holds(&mut self, settings: &Settings) {
        self.settings.set_held(settings.clone());
        self.lasting.note_settings(settings);
        self.extension.note_known();
    }

    /// Notes that a request of the client has failed.
    pub fn has_failed(&mut self) {
        self.changes.forget_literal_sets();
        self.transaction.forget_changed_roles();
    }

    /// Notes that the settings were reset: the session has no state that texts of class settings can leave.
    pub fn settings_cleaned(&mut self) {
        self.settings.set_held(Settings::default());
        self.changes.note_cleaned();
        self.lasting.types.note_cleaned();
        if self.sequences != Sequences::None {
            self.changes.raise(Class::Sequences);
        }
        self.loan.forget_inspection();
        self.extension.note_known();
        self.clean.note_settings_cleaned();
    }

    /// Returns whether the session's settings are known from the client's texts, and no other state must be read at the
    /// end of the transaction.
    #[must_use]
    pub fn settings_are_known_from_texts(&self) -> bool {
        self.extension.last().is_none()
            && !self.must_inspect_before_ready()
            && !self.loan.inspection.is_missing()
            && !self.clean.is_due()
            && !self.may_have_role()
    }

    /// Notes that the session has these settings, and that its other state has not changed, so that no inspection is
    /// needed.
    pub fn settings_known(&mut self, settings: &Settings) {
        self.settings.set_held(settings.clone());
        self.loan.edit().note_known_settings();
        self.changes.note_cleaned();
        if self.sequences != Sequences::None {
            self.changes.raise(Class::Sequences);
        }
        self.recent_texts.clear();
    }

    /// Notes that the loan has ended: nothing that was noted for the client concerns the next one.
    #[inline]
    pub(super) fn end_loan(&mut self) {
        if self.loan.are_edited() {
            self.forget_loan();
        }
    }

    #[cold]
    fn forget_loan(&mut self) {
        self.loan = LoanNotes::default();
        self.recent_texts.clear();
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    #[must_use]
    pub fn unfinished(&self) -> Option<&'static str> {
        let of_session = first_of(&[
            (!self.loan.are_empty(), "a note for a client"),
            (self.queries.row_max() > 0, "a query of pgweir's own"),
            (self.clean.is_due(), "a clean"),
            (self.extension.is_new(), "a report of the extension"),
            (self.lists.is_counted(), "the count of a pinned client"),
        ]);
        of_session
            .or_else(|| self.transaction.unfinished())
            .or_else(|| self.client_names.unfinished())
    }

    /// Notes that the session was cleaned.
    pub fn cleaned(&mut self) {
        self.sequences = Sequences::None;
        self.settings_cleaned();
        self.sql_statements.clear();
        self.client_names = ClientNames::default();
        self.transaction.forget_changed_roles();
        self.clean.note_cleaned();
    }
}
