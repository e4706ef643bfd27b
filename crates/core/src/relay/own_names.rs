//! Texts that speak of prepared statements: SQL's PREPARE, EXECUTE and DEALLOCATE, and the view of
//! them. SQL and protocol have one namespace, so the server gets the statements that are spoken of
//! under the names that the client gave them, for the length of the transaction.

use std::{borrow::Cow, sync::Arc};

use pgweir_wire::{Header, MessageWriter, tag::frontend};

use super::{
    named::Named,
    upward::{Flow, Ours, Upward},
};
use crate::{
    Actions,
    backend::{Change, Mark, MarkKind, Own},
    pin::Pin,
    session::{
        Context, Resets, Statement, Suspicion, changed_roles, changes_schema, left_database,
        literal_sets, scan,
        scan::{Discard, Phrase, custom_names, is_broken, phrases},
    },
};

/// What speaks of names.
pub(super) const NAMES: Suspicion = Suspicion::PREPARE
    .and(Suspicion::EXECUTE)
    .and(Suspicion::STATEMENTS_VIEW);

/// What makes sequence values and asks for them in one text, such as a table with such defaults, is
/// likely to ask for those of an earlier transaction.
const ASKS_FOR_VALUES: Suspicion = Suspicion::SEQUENCE.and(Suspicion::READS_SEQUENCE);

pub(super) fn up_to_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// The name of a statement in a phrase.
pub(super) fn spoken_of(phrase: Phrase<'_>) -> Option<Cow<'_, [u8]>> {
    match phrase {
        Phrase::Prepare { name, .. } | Phrase::Execute(name) | Phrase::Deallocate(Some(name)) => {
            Some(name)
        }
        _ => None,
    }
}

/// What every statement is suspected of that may change the catalog.
const CHANGE: Suspicion = Suspicion::OPAQUE.and(Suspicion::TEMP);

/// What may take all statements away.
const DROPS: Suspicion = Suspicion::PREPARE.and(Suspicion::DISCARD);

/// What may bring startup values back.
const TAKES_BACK: Suspicion = Suspicion::SETTING
    .and(Suspicion::DISCARD)
    .and(Suspicion::OPAQUE);

/// A text that can't be read as a whole may still speak of statements, or look at them all.
fn out_of_sight(text: &[u8], suspicion: Suspicion) -> Suspicion {
    const VIEW: &[u8] = b"pg_prepared_statement";
    if !suspicion.contains(Suspicion::OPAQUE) || suspicion.contains(NAMES) {
        return Suspicion::NONE;
    }
    let mut found = Suspicion::NONE;
    if phrases(text).any(|phrase| spoken_of(phrase).is_some()) {
        found |= Suspicion::EXECUTE.and(Suspicion::PREPARE);
    }
    // Behind what is not understood, phrases end: there it may be any name.
    let are_hidden = || is_broken(text);
    let says = |word: &&[u8]| contains(text, word);
    if contains(text, VIEW) || SPEAKING.iter().any(says) && are_hidden() {
        found |= Suspicion::STATEMENTS_VIEW;
    }
    found
}

/// The words that come before a name.
const SPEAKING: [&[u8]; 3] = [b"execute", b"prepare", b"deallocate"];

/// In whatever case.
fn contains(text: &[u8], word: &[u8]) -> bool {
    let mut windows = text.windows(word.len());
    windows.any(|part| part.eq_ignore_ascii_case(word))
}

impl Upward<'_> {
    /// A message comes whose text is suspect; all before it was sent.
    #[cold]
    pub(super) fn attend(
        &mut self,
        suspicion: Suspicion,
        header: Header,
        rest: &[u8],
        out: &mut Actions,
    ) -> Flow {
        let body = rest.get(..header.body_len as usize);
        if header.tag == frontend::QUERY
            && let Some(text) = body.and_then(|body| body.strip_suffix(b"\0"))
            && (self.answers_reset(text, out) || self.answers_deallocate(text, out))
        {
            return Flow::Taken;
        }
        let text = match (header.tag, body) {
            (frontend::PARSE, Some(body)) => body.get(1..).unwrap_or_default(),
            (frontend::QUERY, Some(body)) => body,
            _ => rest,
        };
        let text = up_to_zero(text);
        if self.only_executes(text, suspicion) {
            return Flow::Pass;
        }
        let suspicion = suspicion | out_of_sight(text, suspicion);
        if suspicion.intersects(NAMES) && self.most > 0 {
            if self.waits_for_answers(text, suspicion) {
                self.server.replies.wait_for_all();
            }
            if self.server.replies.is_unsure() {
                self.put_off(header, &[rest], out);
                return Flow::Wait;
            }
            self.give_names(text, suspicion, out);
        }
        if self.server.session.hears && suspicion.intersects(Suspicion::STATEMENTS_VIEW) {
            self.give_channels(out);
        }
        self.note(suspicion, text);
        if header.tag == frontend::QUERY
            && body.is_some()
            && suspicion == Suspicion::SETTING
            && let Some(pairs) = literal_sets(text)
        {
            self.server.session.dirt.sets(pairs);
        }
        if body.is_none() {
            self.read_on_later(header, rest);
        } else if header.tag == frontend::FUNCTION_CALL {
            self.note_call(rest);
        } else {
            self.note_ddl(suspicion, text);
        }
        Flow::Pass
    }

    /// Does it nothing but execute SQL-prepared statements that leave no trace?
    fn only_executes(&self, text: &[u8], suspicion: Suspicion) -> bool {
        let session = &self.server.session;
        // What was suspect before may have changed what they are.
        if suspicion != Suspicion::EXECUTE
            || session.sql.is_empty()
            || session.own.has_hidden()
            || !session.suspicion.is_empty()
        {
            return false;
        }
        let is_clean = |name: &[u8]| {
            let prepared = session.sql.prepared(name);
            prepared.is_some_and(|text| scan(text, session.dialect, self.certificates).is_empty())
        };
        let names: Vec<_> = phrases(text).filter_map(spoken_of).collect();
        !names.is_empty() && names.iter().all(|name| is_clean(name))
    }

    /// This text may change the session.
    #[cold]
    pub(super) fn note(&mut self, suspicion: Suspicion, text: &[u8]) {
        self.server.session.note(suspicion, text);
        let context = self.client.context.as_ref();
        if suspicion.contains(Suspicion::CURSOR)
            && context.is_some_and(|context| context.pins.contains(Pin::Cursor))
        {
            // CLOSE may have ended what pins the client.
            self.server.session.dirt.wants_look();
        }
        self.server.session.suspects.note(suspicion, text);
        if suspicion.contains(CHANGE) {
            self.server.session.note_changed_roles(changed_roles(text));
        }
        if suspicion.contains(Suspicion::TEMP)
            && let Some(name) = left_database(text)
        {
            self.left_database = Some(name);
        }
        if suspicion.contains(Suspicion::OPAQUE) && changes_schema(text, suspicion) {
            let catalog = &self.server.shared.catalog;
            self.server.session.schema = Some(catalog.schema_within());
        }
        if self.server.session.hears {
            self.client.unlistens(text);
        }
        if suspicion.intersects(NAMES) {
            self.note_names(text);
        }
        if suspicion.intersects(DROPS)
            && phrases(text).any(|phrase| {
                matches!(
                    phrase,
                    Phrase::Deallocate(None) | Phrase::Discard(Discard::All)
                )
            })
        {
            self.server.replies.statements_dropped();
        }
        let has_sql = |context: &Context| !context.sql.is_empty();
        if suspicion.intersects(DROPS) && self.client.context.as_deref().is_some_and(has_sql) {
            self.server.session.looks_at_once = true;
        }
        if suspicion.intersects(TAKES_BACK)
            && let Some(context) = &self.client.context
            && !context.implied.is_empty()
        {
            let implied = &context.implied;
            let is_implied = |name: &[u8]| implied.get(&name.to_ascii_lowercase()).is_some();
            self.server.session.looks_at_once |= phrases(text).any(|phrase| match phrase {
                Phrase::Reset(name)
                | Phrase::Set {
                    name,
                    to_default: true,
                    ..
                } => is_implied(&name),
                Phrase::ResetAll | Phrase::Discard(Discard::All) => true,
                _ => false,
            });
        }
        if suspicion.intersects(TAKES_BACK)
            && let Some(context) = &self.client.context
            && !context.base.is_empty()
        {
            let taken_back = &mut self.server.session.taken_back;
            if taken_back.note(text, &context.base) {
                self.server.replies.startup_values_taken();
            }
        }
        if suspicion.intersects(Suspicion::SETTING.and(Suspicion::OPAQUE)) {
            self.learn_customs(&custom_names(text));
        }
        self.note_values(suspicion);
    }

    /// A text may use sequences.
    pub(super) fn note_values(&mut self, suspicion: Suspicion) {
        if suspicion.contains(ASKS_FOR_VALUES) {
            let readers = &self.server.shared.sequence_readers;
            readers.insert(self.client.tracked.application_name());
        }
        if let Some(context) = &mut self.client.context {
            let anything = Suspicion::SEQUENCE.and(Suspicion::OPAQUE);
            context.has_sequences |= suspicion.intersects(anything);
        }
    }

    /// A query that makes a session new is answered at once if there is nothing to do, or nothing that
    /// any server had to do with.
    fn answers_reset(&mut self, text: &[u8], out: &mut Actions) -> bool {
        // What the client has left in the session of its server, only the server can take away.
        let is_dirty = self.server.session.dirt.needs_clean();
        if !self.server.replies.is_settled() || self.server.status != b'I' || is_dirty {
            return false;
        }
        let (Some(resets), Some(context)) = (Resets::read(text), &mut self.client.context) else {
            return false;
        };
        let is_heard = resets.pins && self.client.hearing.is_some();
        if is_heard || !context.needs_no_server(resets) {
            return false;
        }
        if resets.statements {
            context.sql = Default::default();
            self.client.statements.clear(self.bindings);
        }
        self.answer_query(out, |made| Resets::answer(text, made));
        true
    }

    /// Statements that a text prepares or executes.
    fn note_names(&mut self, text: &[u8]) {
        for phrase in phrases(text) {
            match phrase {
                Phrase::Prepare { name, prepared, .. } => {
                    self.server.session.own.prepare(&name, &text[prepared]);
                }
                Phrase::Execute(name) => self.note_executed(&name),
                _ => {}
            }
        }
    }

    /// Answers a Query in the server's place, when nothing else is to be answered.
    pub(super) fn answer_query(&mut self, out: &mut Actions, answer: impl FnOnce(&mut Vec<u8>)) {
        // As by any query.
        self.client.forget_unnamed();
        let status = self.server.status;
        self.stats.query_count += 1;
        self.stats.xact_count += u64::from(status == b'I');
        out.send_made(self.client_conn, |made| {
            answer(made);
            MessageWriter::new(made).ready_for_query(status);
        });
    }

    /// The server listens to what the client listens to, until the end of this transaction. Within one
    /// that has begun before, that would show too late.
    fn give_channels(&mut self, out: &mut Actions) {
        let is_between = self.server.replies.is_settled() && self.server.status == b'I';
        let Some(hearing) = self.client.hearing.as_ref().filter(|_| is_between) else {
            return;
        };
        let text = hearing.listen_commands();
        self.server.session.note(Suspicion::LISTEN, b"");
        // Whatever the extension says of it: it is to be taken back.
        self.server.session.has_reported = true;
        self.server.ask(Own::Channels);
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(&text);
        });
    }

    /// Is it about a name that means the same to the server?
    #[inline]
    pub(super) fn is_own(&self, named: &Named<'_>) -> bool {
        let session = &self.server.session;
        (!session.own.is_empty() || !session.sql.is_empty())
            && named
                .name()
                .is_some_and(|name| self.means_the_same(named, name))
    }

    fn means_the_same(&self, named: &Named<'_>, name: &[u8]) -> bool {
        let session = &self.server.session;
        let is_free = || self.client.statements.find(self.bindings, name).is_none();
        if matches!(named, Named::Bind { .. } | Named::Describe(_))
            && session.own.is_stand_in(name)
            && !is_free()
        {
            return false;
        }
        session.own.has(name) || session.sql.has(name) || session.own.is_spoken(name) && is_free()
    }

    /// A Parse or Close of such a name passes: the mark for it.
    pub(super) fn mark_of_own(&mut self, named: &Named<'_>) -> Option<Mark> {
        match *named {
            Named::Parse { name, definition } => {
                self.stats.client_parse_count += 1;
                self.stats.server_parse_count += 1;
                // Whatever SQL had of that name.
                self.server.session.own.give(name);
                let statement = self.statements.intern(definition);
                self.note_parse(&statement);
                if self.client.statements.find(self.bindings, name).is_some() {
                    // SQL may have taken the name away on the server.
                    let change = Change::Duplicate(name.into(), statement);
                    return Some(Mark::clients(MarkKind::Parse, change));
                }
                self.client.statements.define(
                    self.bindings,
                    name,
                    &statement,
                    self.server.schema(),
                );
                let change = Change::Named(name.into(), statement);
                Some(Mark::clients(MarkKind::Parse, change))
            }
            Named::Close(name) => {
                self.server.session.note(Suspicion::PREPARE, b"");
                let known = self.client.statements.remove(self.bindings, name);
                Some(match known {
                    Some(statement) => {
                        Mark::clients(MarkKind::Close, Change::Unnamed(name.into(), statement))
                    }
                    None => Mark::plain(MarkKind::Close),
                })
            }
            _ => None,
        }
    }

    /// Does a statement that is about to be used speak of others?
    #[inline]
    pub(super) fn speaks_of_names(&self, ours: Option<Ours>) -> bool {
        let Some(Ours::Statement(binding)) = ours.filter(|_| self.is_carried) else {
            return false;
        };
        let statement = self.bindings.statement(binding);
        statement.is_some_and(|statement| self.suspicion_of(statement).intersects(NAMES))
    }

    #[inline]
    pub(super) fn suspicion_of(&self, statement: &Statement) -> Suspicion {
        let suspicion = statement.suspicion(self.server.session.dialect, self.certificates);
        match self.may_be_misread(statement.definition()) {
            true => suspicion | Suspicion::OPAQUE,
            false => suspicion,
        }
    }

    /// A statement is used that may change the session.
    #[cold]
    pub(super) fn note_use(&mut self, statement: &Statement, suspicion: Suspicion) {
        let text = up_to_zero(statement.definition());
        if !self.only_executes(text, suspicion) {
            self.note(suspicion, text);
            self.note_ddl(suspicion, text);
        }
    }

    /// Such a one.
    #[cold]
    pub(super) fn attend_use(&mut self, ours: Option<Ours>, out: &mut Actions) {
        let Some(Ours::Statement(binding)) = ours else {
            return;
        };
        let Some(statement) = self.bindings.statement(binding).cloned() else {
            return;
        };
        self.attend_statement(&statement, out);
    }

    /// A statement is about to be made or used that may speak of others. What it gives depends on
    /// those, so that the server makes it once they have their names.
    pub(super) fn attend_statement(&mut self, statement: &Arc<Statement>, out: &mut Actions) {
        let suspicion = self.suspicion_of(statement);
        let text = up_to_zero(statement.definition());
        let has_given = self.attend_text(text, suspicion, out);
        if has_given && self.server.prepared.touch(statement.id()) {
            self.server.prepared.forget(statement.id());
            self.send_close(Arc::clone(statement), out);
        }
    }

    /// A text is about to be run that may change the session: `true` if the server has got names for it.
    #[cold]
    pub(super) fn attend_text(
        &mut self,
        text: &[u8],
        suspicion: Suspicion,
        out: &mut Actions,
    ) -> bool {
        if self.only_executes(text, suspicion) {
            return false;
        }
        let suspicion = suspicion | out_of_sight(text, suspicion);
        self.note(suspicion, text);
        suspicion.intersects(NAMES) && self.most > 0 && self.give_names(text, suspicion, out)
    }
}
