//! Handles SQL texts that may change the session, or that refer to prepared statements: SQL's PREPARE, EXECUTE and
//! DEALLOCATE, and the view `pg_prepared_statements`.

use std::{borrow::Cow, collections::BTreeSet};

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    client_to_server::{ClientMessages, MessageOutcome},
    message::Message,
};
use crate::{
    Actions,
    backend::InternalQuery,
    base::pin::Pin,
    session::{
        Effects, Resets, Statement, changed_roles, changes_schema, left_database, literal_sets,
        scan,
        sql::{Phrase, custom_names, is_broken, phrases},
    },
};

/// Effects of texts that refer to statement names.
pub(super) const NAMES: Effects = Effects::PREPARE
    .and(Effects::EXECUTE)
    .and(Effects::STATEMENTS_VIEW);

/// Effects of a text that calls both `nextval` and `currval`. A client with such texts is likely to read values of an
/// earlier transaction, too.
const READS_OWN_SEQUENCE: Effects = Effects::SEQUENCE.and(Effects::READS_SEQUENCE);

pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// Returns the name of the statement in a phrase.
pub(super) fn statement_named_by(phrase: Phrase<'_>) -> Option<Cow<'_, [u8]>> {
    match phrase {
        Phrase::Prepare { name, .. } | Phrase::Execute(name) | Phrase::Deallocate(Some(name)) => {
            Some(name)
        }
        _ => None,
    }
}

/// The maximum length, in bytes, of all prepared statements that pgweir scans for one text that executes them. If they
/// are longer together, the text counts as opaque.
const EXECUTED_BYTES_MAX: usize = 256 * 1024;

/// Effects that any statement that may change the catalog has.
const CHANGE: Effects = Effects::OPAQUE.and(Effects::TEMP);

/// Effects that may drop all statements.
const MAY_DROP_STATEMENTS: Effects = Effects::PREPARE.and(Effects::DISCARD);

/// Effects that may reset startup values.
const MAY_RESET: Effects = Effects::SETTING.and(Effects::DISCARD).and(Effects::OPAQUE);

/// Returns the effects of a text that pgweir can't parse completely, but that may name prepared statements or read
/// their view.
pub(super) fn effects_of_unread_text(text: &[u8], effects: Effects) -> Effects {
    const VIEW: &[u8] = b"pg_prepared_statement";
    if !effects.contains(Effects::OPAQUE) || effects.contains(NAMES) {
        return Effects::NONE;
    }
    let mut found = Effects::NONE;
    if phrases(text).any(|phrase| statement_named_by(phrase).is_some()) {
        found |= Effects::EXECUTE.and(Effects::PREPARE);
    }
    // The parser stops at the first part that it does not understand. Any name may follow.
    let are_hidden = || is_broken(text);
    let says = |word: &&[u8]| contains(text, word);
    if contains(text, VIEW) || NAMING_WORDS.iter().any(says) && are_hidden() {
        found |= Effects::STATEMENTS_VIEW;
    }
    found
}

/// The words that come before a statement name.
const NAMING_WORDS: [&[u8]; 3] = [b"execute", b"prepare", b"deallocate"];

/// Returns whether a text contains a word, in upper or lower case.
fn contains(text: &[u8], word: &[u8]) -> bool {
    let mut windows = text.windows(word.len());
    windows.any(|part| part.eq_ignore_ascii_case(word))
}

impl ClientMessages<'_> {
    /// Prepares the server for a message whose text may change the session. All bytes before the message have been
    /// sent.
    #[cold]
    pub(super) fn prepare_for_text(
        &mut self,
        effects: Effects,
        message: &Message<'_>,
        out: &mut Actions,
    ) -> MessageOutcome {
        let (tag, is_whole) = (message.tag(), message.is_whole());
        let is_query = tag == frontend::QUERY && is_whole;
        let text = match (tag, is_whole) {
            (frontend::PARSE, true) => message.body().get(1..).unwrap_or_default(),
            (frontend::QUERY, true) => message.body(),
            _ => message.rest,
        };
        let text = until_nul(text);
        if is_query && self.answers_reset(text, out) {
            return MessageOutcome::Handled;
        }
        if self.only_executes(text, effects) {
            return MessageOutcome::Forward;
        }
        let effects = effects | effects_of_unread_text(text, effects);
        if self.server.session.loan.has_listening_client()
            && effects.intersects(Effects::CHANNELS_VIEW)
        {
            self.give_channels(out);
        }
        if self.close_before_text(tag, effects, out) {
            self.postpone(message.head.header, message.rest, out);
            return MessageOutcome::Wait;
        }
        let deallocates = match effects.contains(Effects::PREPARE) && is_whole {
            true => self.deallocate(tag, text, out),
            false => None,
        };
        match deallocates {
            Some(MessageOutcome::Handled) => return MessageOutcome::Handled,
            Some(MessageOutcome::Forward) => {}
            Some(MessageOutcome::Wait) | None => {
                if deallocates.is_some() || self.prepare_for_names(text, effects, out) {
                    self.postpone(message.head.header, message.rest, out);
                    return MessageOutcome::Wait;
                }
            }
        }
        self.note(effects, text);
        if is_query
            && effects == Effects::SETTING
            && let Some(pairs) = literal_sets(text)
        {
            self.server.session.changes.note_literal_sets(pairs);
        }
        if !is_whole {
            self.server.session.note_unread_code();
            self.read_on_later(message);
        } else if tag == frontend::FUNCTION_CALL {
            self.note_call(message.body());
        } else {
            self.note_ddl(effects, text);
        }
        MessageOutcome::Forward
    }

    /// Returns whether the text only executes SQL-prepared statements that change no session state.
    pub(super) fn only_executes(&self, text: &[u8], effects: Effects) -> bool {
        let session = &self.server.session;
        // Earlier texts with effects may have replaced the statements.
        if effects != Effects::EXECUTE
            || session.sql_statements.held().is_empty()
            || session.client_names.has_hidden()
            || !session.loan.effects().is_empty()
        {
            return false;
        }
        let mut bytes = 0;
        let mut is_clean = |name: &[u8]| {
            let prepared = session.sql_statements.held().prepared(name);
            prepared.is_some_and(|text| {
                bytes += text.len();
                bytes <= EXECUTED_BYTES_MAX
                    && scan(text, session.dialect(), self.certificates).is_empty()
            })
        };
        // The same statement may be executed many times.
        let names: BTreeSet<_> = phrases(text).filter_map(statement_named_by).collect();
        !names.is_empty() && names.iter().all(|name| is_clean(name))
    }

    /// Notes a text that may change the session.
    #[cold]
    pub(super) fn note(&mut self, effects: Effects, text: &[u8]) {
        self.server.session.note(effects, text);
        let context = self.client.context.as_ref();
        if effects.contains(Effects::CURSOR)
            && context.is_some_and(|context| context.pins.contains(Pin::Cursor))
        {
            // CLOSE may have ended the cursor that pins the client.
            self.server.session.changes.demand_inspection();
        }
        let hash = self.counting.fingerprint;
        self.server.session.recent_texts.note(effects, text, hash);
        if effects.contains(CHANGE) {
            self.server
                .session
                .transaction
                .note_changed_roles(changed_roles(text));
        }
        if effects.contains(Effects::TEMP)
            && let Some(name) = left_database(text)
        {
            self.left_database = Some(name);
        }
        if effects.contains(Effects::OPAQUE) && changes_schema(text, effects) {
            let catalog = &self.server.shared.catalog;
            self.server
                .session
                .transaction
                .set_schema(catalog.schema_within());
        }
        if self.server.session.loan.has_listening_client() {
            self.client.unlistens(text);
        }
        if effects.intersects(NAMES) {
            self.note_names(text);
        }
        if effects.intersects(MAY_DROP_STATEMENTS)
            && phrases(text)
                .any(|phrase| matches!(phrase, Phrase::Deallocate(None) | Phrase::DiscardAll))
        {
            self.server.replies.statements_dropped();
        }
        if effects.intersects(MAY_RESET)
            && let Some(context) = &self.client.context
        {
            let notes = self.server.session.loan.edit();
            if notes.inspection.note_reset(text, context) {
                self.server.replies.startup_values_taken();
            }
        }
        if effects.intersects(Effects::SETTING.and(Effects::OPAQUE)) {
            self.note_custom_parameters(&custom_names(text));
            self.note_computed_name(effects, text);
        }
        self.note_values(effects);
    }

    /// Notes a text that may use sequences.
    pub(super) fn note_values(&mut self, effects: Effects) {
        if effects.contains(READS_OWN_SEQUENCE) {
            let readers = &self.server.shared.sequence_readers;
            readers.insert(self.client.tracked.application_name());
        }
        if let Some(context) = &mut self.client.context {
            let anything = Effects::SEQUENCE.and(Effects::OPAQUE);
            context.has_sequences |= effects.intersects(anything);
        }
    }

    /// Answers a query such as DISCARD ALL in the server's place, if the client has no session state on the server.
    /// Returns whether the query was answered.
    fn answers_reset(&mut self, text: &[u8], out: &mut Actions) -> bool {
        // Only the server can remove the state that the client has left in its session.
        let needs_clean = self.server.session.changes.needs_clean();
        if !self.server.replies.is_settled() || !self.server.is_outside_transaction() || needs_clean
        {
            return false;
        }
        let (Some(resets), Some(context)) = (Resets::read(text), &mut self.client.context) else {
            return false;
        };
        let is_listening = resets.contains(Resets::PINS) && self.client.listening.is_some();
        if is_listening || !context.needs_no_server(resets) {
            return false;
        }
        if resets.contains(Resets::STATEMENTS) {
            context.sql = Default::default();
            self.client.statements.clear(self.bindings);
        }
        self.answer_query(out, |made| Resets::answer(text, made));
        true
    }

    /// Notes the statements that a text prepares or executes.
    fn note_names(&mut self, text: &[u8]) {
        let mut executed = BTreeSet::new();
        for phrase in phrases(text) {
            match phrase {
                Phrase::Prepare { name, prepared, .. } => {
                    let names = &mut self.server.session.client_names;
                    let is_kept = names.prepare(&name, &text[prepared]);
                    self.stats.unread_prepare_count += u64::from(!is_kept);
                }
                Phrase::Execute(name) => {
                    executed.insert(name);
                }
                _ => {}
            }
        }
        let mut bytes = 0;
        for name in executed {
            bytes += self.note_executed(&name);
            if bytes > EXECUTED_BYTES_MAX {
                self.stats.unread_prepare_count += 1;
                self.server.session.note(Effects::OPAQUE, b"");
                return self.note_ddl(Effects::OPAQUE, b"");
            }
        }
    }

    /// Answers a Query in the server's place. There must be no outstanding replies.
    pub(super) fn answer_query(&mut self, out: &mut Actions, answer: impl FnOnce(&mut Vec<u8>)) {
        // Any simple query drops the unnamed statement.
        self.client.unnamed.forget();
        self.server.link.close_repeatable();
        let status = self.server.status();
        self.stats.query_count += 1;
        self.stats.xact_count += u64::from(status == b'I');
        out.send_made(self.client_conn, |made| {
            answer(made);
            MessageWriter::new(made).ready_for_query(status);
        });
    }

    /// Makes the server listen to the client's channels until the end of this transaction. In a transaction that has
    /// begun before, LISTEN would take effect too late.
    fn give_channels(&mut self, out: &mut Actions) {
        let is_between = self.server.replies.is_settled() && self.server.is_outside_transaction();
        let Some(listening) = self.client.listening.as_ref().filter(|_| is_between) else {
            return;
        };
        let text = listening.listen_commands();
        self.server.session.note(Effects::LISTEN, b"");
        // The clean has to remove the LISTEN, even if the extension reports no change.
        self.server.session.extension.note_own_change();
        out.ask(
            self.server_conn,
            self.server,
            InternalQuery::Channels,
            &text,
        );
    }

    #[inline]
    pub(super) fn effects_of(&self, statement: &Statement) -> Effects {
        let effects = statement.effects(self.server.session.dialect(), self.certificates);
        match self.may_be_misread(statement.definition()) {
            true => effects | Effects::OPAQUE,
            false => effects,
        }
    }

    /// Notes the use of a statement that may change the session.
    #[cold]
    pub(super) fn note_use(&mut self, statement: &Statement, effects: Effects) {
        let text = until_nul(statement.definition());
        if !self.only_executes(text, effects) {
            self.note(effects, text);
            self.note_ddl(effects, text);
        }
    }
}
