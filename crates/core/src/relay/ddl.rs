//! Notes texts that may change the catalog, before the server gets them.

use pgweir_wire::tag::frontend;

use super::{client_to_server::ClientMessages, message::Message};
use crate::session::{
    Change, Effects, catalog_change, changes_schema, ddl_cause,
    scan::DdlWords,
    sql::{Phrase, is_broken, phrases},
};

/// Returns whether a text may contain an SQL EXECUTE. EXECUTE runs a statement that an earlier text may have prepared.
fn executes(text: &[u8]) -> bool {
    is_broken(text) || phrases(text).any(|phrase| matches!(phrase, Phrase::Execute(_)))
}

impl ClientMessages<'_> {
    /// Notes a text that is about to be sent. An empty text means that the text is unknown.
    pub(super) fn note_ddl(&mut self, effects: Effects, text: &[u8]) {
        if !effects.contains(Effects::OPAQUE) {
            return;
        }
        let change = if text.is_empty() {
            Change::Any
        } else {
            catalog_change(text, self.server.session.dialect(), self.certificates)
        };
        self.begin_ddl(change);
        let catalog = &self.server.shared.catalog;
        if change == Change::Any && !text.is_empty() && catalog.lacks_cause() {
            let dialect = self.server.session.dialect();
            catalog.note_cause(ddl_cause(text, dialect, self.certificates));
        }
        if change != Change::No && self.certificates.alters_types(text) {
            self.server.session.transaction.note_altered_types();
        }
    }

    /// Notes the use of an unknown statement: a function may have prepared it.
    pub(super) fn note_ddl_of_unknown(&mut self) {
        if self.certificates.has_ddl_code() {
            self.begin_ddl(Change::Any);
        }
    }

    /// Notes a FunctionCall, whose body begins with the function's OID.
    pub(super) fn note_call(&mut self, body: &[u8]) {
        let oid = body.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        if oid.is_none_or(|oid| self.certificates.calls_ddl(oid)) {
            self.begin_ddl(Change::Any);
        }
    }

    fn begin_ddl(&mut self, change: Change) {
        let catalog = &self.server.shared.catalog;
        // Without valid certificates, nothing but a call of code is quiet, and its code may be new.
        let may_be_new = change == Change::Quiet && self.certificates.may_have_new_code();
        if change >= Change::Tables || may_be_new {
            // A text with unknown effects may prepare statements as well.
            self.server.session.client_names.hide();
            self.server.session.clean.demand_rights();
        }
        let transaction = &mut self.server.session.transaction;
        match change {
            Change::No => {}
            Change::Quiet => transaction.begin_quiet_ddl(|| catalog.quiet_begins()),
            Change::Tables => transaction.begin_ddl(|| catalog.ddl_of_tables_begins()),
            Change::Any => {
                transaction.begin_ddl(|| catalog.ddl_begins());
                catalog.note_new_code();
            }
        }
    }

    /// Notes a message of a client whose session state is not carried: clients of other `[databases]` entries may use
    /// the same database.
    #[inline]
    pub(super) fn note_ddl_elsewhere(&mut self, message: &Message<'_>) {
        let tag = message.tag();
        let is_of_interest = matches!(
            tag,
            frontend::QUERY | frontend::PARSE | frontend::FUNCTION_CALL
        ) || tag == frontend::EXECUTE && self.client.prepares_ddl();
        if is_of_interest && self.server.shared.catalog.is_any_read() {
            self.note_ddl_of(message);
        }
    }

    fn note_ddl_of(&mut self, message: &Message<'_>) {
        let is_parse = message.tag() == frontend::PARSE;
        match message.tag() {
            frontend::EXECUTE => return self.begin_ddl(Change::Any),
            frontend::FUNCTION_CALL => return self.note_call(message.body()),
            _ if !message.is_whole() => return self.read_ddl_on_later(message.rest),
            _ => {}
        }
        let mut parts = message.body().split(|&byte| byte == 0);
        let text = parts.nth(usize::from(is_parse));
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            let effects = match self.certificates.has_ddl_code() {
                // Functions and triggers may change the catalog, and a text may call them without their names.
                true => Effects::OPAQUE,
                false => self.note_text_effects(Some(text)),
            };
            self.note_ddl(effects, text);
            let transaction = &mut self.server.session.transaction;
            if transaction.has_ddl() && changes_schema(text, Effects::TEMP) {
                transaction.set_schema(self.server.shared.catalog.schema_within());
            }
            let may_execute_ddl = self.client.prepares_ddl() || self.certificates.has_ddl_code();
            if may_execute_ddl && executes(text) {
                self.begin_ddl(Change::Any);
            }
        }
        // Code that may change the catalog may also prepare statements.
        let transaction = &self.server.session.transaction;
        if transaction.has_ddl() && (is_parse || !transaction.has_only_quiet_ddl()) {
            self.client.note_prepared_ddl();
        }
    }

    /// Begins to search a text for DDL keywords before the text has arrived completely.
    pub(super) fn read_ddl_on_later(&mut self, begun: &[u8]) {
        let mut words = DdlWords::default();
        let is_quiet = self.server.session.transaction.has_only_quiet_ddl();
        if words.read(begun, self.certificates) {
            self.note_streamed_ddl();
        } else if is_quiet {
            self.begin_ddl(Change::Any);
        }
        self.server.session.loan.edit().begin_text(words);
    }

    /// Notes that the part of the text that has arrived may change the catalog.
    fn note_streamed_ddl(&mut self) {
        self.begin_ddl(Change::Any);
        if self.is_carried {
            let schema = self.server.shared.catalog.schema_within();
            self.server.session.transaction.set_schema(schema);
        }
    }

    /// Searches more of the text for DDL keywords. `is_end`: these are its last bytes.
    pub(super) fn read_ddl_on(&mut self, bytes: &[u8], is_end: bool) {
        let notes = self.server.session.loan.edit();
        if notes.read_text_on(bytes, is_end, self.certificates) {
            self.note_streamed_ddl();
        }
    }
}
