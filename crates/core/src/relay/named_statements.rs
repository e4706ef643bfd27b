//! SQL that refers to protocol-level statements: EXECUTE and DEALLOCATE of a name that the client has given in a Parse,
//! and the view `pg_prepared_statements`.
//!
//! In PostgreSQL, SQL and the protocol share one namespace of statements, but pgweir prepares protocol-level statements
//! under its own names. A DEALLOCATE in a message by itself, which drivers send, is answered by pgweir, or removes an
//! empty statement that pgweir prepares under the client's name. Before any other text of this kind, pgweir prepares
//! all of the client's statements on the server under the client's names, and closes all others. The client then keeps
//! the server, and its messages pass unchanged, until it has no protocol-level statement any more.

use std::borrow::Cow;

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    client_to_server::{ClientMessages, MessageOutcome, ResolvedName, send_parse, send_target},
    named::Named,
    session_texts::{NAMES, statement_named_by},
};
use crate::{
    Actions,
    backend::{Change, InternalQuery, Mark, MarkKind, Naming, Unnamed},
    session::{
        Effects, Names, RESERVED, WITHOUT_ROLE,
        sql::{Phrase, phrases},
        statement_key,
    },
};

/// The definition of an empty statement. DEALLOCATE removes it in place of the client's statement, which the server has
/// under another name, and may have for other clients, too.
const STAND_IN: &[u8] = b"\0\0\0";

/// Returns the name that a text deallocates, if the text does nothing else.
fn deallocated(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut phrases = phrases(text);
    match (phrases.next(), phrases.next()) {
        (Some(Phrase::Deallocate(name)), None) => name,
        _ => None,
    }
}

impl ClientMessages<'_> {
    /// Returns whether the server has the client's statements under the client's names.
    #[inline]
    pub(super) fn has_own_names(&self) -> bool {
        self.server.session.client_names.are_own()
    }

    /// Returns whether the meaning of a name depends on outstanding replies.
    #[inline]
    pub(super) fn is_unsure(&mut self) -> bool {
        let has_failed = self.server.has_failed_transaction();
        let replies = &mut self.server.replies;
        if has_failed && !replies.is_unsynced() && replies.owed_to_client() > 0 {
            // The outstanding replies may show the end of a failed transaction.
            replies.wait_for_all();
        }
        replies.is_unsure()
    }

    /// Handles a DEALLOCATE of a protocol-level statement in a message by itself. `None` for any other text.
    pub(super) fn deallocate(
        &mut self,
        tag: u8,
        text: &[u8],
        out: &mut Actions,
    ) -> Option<MessageOutcome> {
        if self.limits.statements_max == 0 || self.has_own_names() {
            return None;
        }
        let name = deallocated(text)?;
        self.client.statements.find(self.bindings, &name)?;
        if self.waits_for_replies() {
            return Some(MessageOutcome::Wait);
        }
        let has_failed = self.server.has_failed_transaction() && !self.server.replies.is_unsynced();
        if has_failed || tag == frontend::QUERY && !self.server.replies.is_settled() {
            return None;
        }
        let statement = self.client.statements.remove(self.bindings, &name)?;
        if tag == frontend::QUERY {
            self.answer_query(out, |made| {
                MessageWriter::new(made).command_complete("DEALLOCATE");
            });
            return Some(MessageOutcome::Handled);
        }
        self.server.session.client_names.naming = Naming::Mixed;
        send_parse(self.server_conn, &name, STAND_IN, out);
        let change = Change::Unnamed(name.into(), statement);
        self.server
            .replies
            .mark_sent(Mark::own(MarkKind::Parse, change));
        Some(MessageOutcome::Forward)
    }

    /// Prepares the server for a text that refers to statement names: if need be, the server gets the client's
    /// statements under the client's names. Returns whether the message must wait for replies first.
    pub(super) fn prepare_for_names(
        &mut self,
        text: &[u8],
        effects: Effects,
        out: &mut Actions,
    ) -> bool {
        if !effects.intersects(NAMES) {
            return false;
        }
        if phrases(text)
            .filter_map(statement_named_by)
            .next()
            .is_some()
            && self.is_unsure()
        {
            // The server may still skip a Close of that name.
            return true;
        }
        self.prepare_missing(text, out);
        let mut names = phrases(text).filter_map(statement_named_by);
        let sees_all =
            effects.intersects(Effects::STATEMENTS_VIEW) || names.any(|name| is_reserved(&name));
        let mut names = phrases(text).filter_map(statement_named_by);
        let is_of_protocol =
            |name: &[u8]| self.client.statements.find(self.bindings, name).is_some();
        (sees_all || names.any(|name| is_of_protocol(&name)))
            && self.change_to_own_names(sees_all, out)
    }

    /// Removes an SQL-prepared statement that the client closes, if the server does not have the statement since it
    /// could not prepare it. While an earlier request is not answered and may fail, the statement stays: the server may
    /// skip the Close.
    pub(super) fn forget_missing(&mut self, name: &[u8]) {
        let Some(context) = self.client.context.as_deref_mut() else {
            return;
        };
        let is_held = self.server.session.sql_statements.held().has(name);
        if !is_held && context.sql.has(name) && self.server.replies.is_settled() {
            context.sql = context.sql.without(&[statement_key(name).to_vec()]);
        }
    }

    /// Prepares again the statements in the text that could not be prepared when the client got the server: the objects
    /// that they use may exist by now.
    ///
    /// Within a transaction, only a text that begins with EXECUTE has this effect: if the statement can't be prepared,
    /// the transaction fails, as it does with PostgreSQL.
    fn prepare_missing(&mut self, text: &[u8], out: &mut Actions) {
        let server = &mut *self.server;
        server.session.loan.edit().rejections.clear();
        let sql = self.client.context.as_deref().map(|context| &context.sql);
        let Some(sql) = sql.filter(|sql| sql.len() > server.session.sql_statements.held().len())
        else {
            return;
        };
        let begins_with_execute = || matches!(phrases(text).next(), Some(Phrase::Execute(_)));
        let is_possible =
            server.is_outside_transaction() || server.status() == b'T' && begins_with_execute();
        if !is_possible || server.replies.is_unsynced() {
            return;
        }
        let executed: Vec<_> = phrases(text)
            .filter_map(|phrase| match phrase {
                Phrase::Execute(name) => Some(name),
                _ => None,
            })
            .collect();
        let (mut missing, mut is_any_sent) = (Vec::new(), false);
        for ((name, text), at) in sql.pairs().zip(0..) {
            if server.session.sql_statements.held().has(name) {
                continue;
            }
            if !executed.iter().any(|executed| **executed == *name) {
                missing.push(name.to_vec());
                continue;
            }
            out.send_made(self.server_conn, |made| {
                MessageWriter::new(made).unnamed_command(text);
            });
            server.replies.internal_query_sent(InternalQuery::Sql(at));
            is_any_sent = true;
        }
        if is_any_sent {
            server.statements.unnamed = Unnamed::None;
            server
                .session
                .sql_statements
                .note_made(sql.without(&missing));
        }
    }

    /// Prepares the server in the same way for a message that uses a prepared statement with such a text, or that
    /// prepares a statement under a name that SQL's PREPARE has taken: in the second case the server itself refuses the
    /// name.
    pub(super) fn prepare_for_message(
        &mut self,
        named: &Named<'_>,
        resolved: Option<ResolvedName>,
        out: &mut Actions,
    ) -> bool {
        match (named, resolved) {
            (Named::Parse { .. }, Some(_)) => self.change_to_own_names(false, out),
            (_, Some(ResolvedName::Statement(binding))) => {
                let statement = self.bindings.statement(binding).cloned();
                statement.is_some_and(|statement| {
                    let effects = self.effects_of(&statement);
                    self.prepare_for_names(statement.text(), effects, out)
                })
            }
            _ => false,
        }
    }

    /// Returns whether [`prepare_for_message`](Self::prepare_for_message) is needed.
    #[inline]
    pub(super) fn refers_to_names(
        &self,
        named: &Named<'_>,
        resolved: Option<ResolvedName>,
    ) -> bool {
        if !self.is_carried {
            return false;
        }
        match (named, resolved) {
            (Named::Parse { name, .. }, Some(_)) => self.is_of_sql(name),
            (_, Some(ResolvedName::Statement(binding))) => {
                let statement = self.bindings.statement(binding);
                statement.is_some_and(|statement| self.effects_of(statement).intersects(NAMES))
            }
            _ => false,
        }
    }

    /// Returns whether SQL's PREPARE may have made a statement of this name on the server.
    pub(super) fn is_of_sql(&self, name: &[u8]) -> bool {
        let session = &self.server.session;
        session.sql_statements.held().has(name)
            || session.client_names.prepared(name).next().is_some()
    }

    /// Replaces the statements on the server, which have pgweir's names, by the client's statements under the client's
    /// names. Returns whether the client's message must wait for replies first. In a failed transaction, statements can
    /// only be closed.
    fn change_to_own_names(&mut self, sees_all: bool, out: &mut Actions) -> bool {
        if self.limits.statements_max == 0 || self.has_own_names() {
            return false;
        }
        if self.waits_for_replies() {
            return true;
        }
        let client = self.client.origin.id;
        // A statement that failed for another reason is not tried again for this message.
        if let Some(refused) = self.server.session.client_names.take_refused(client) {
            if !refused.is_empty() {
                self.prepare_without_role(&refused, out);
            }
            return false;
        }
        let begins = !self.server.replies.is_unsynced();
        let has_failed = begins && self.server.has_failed_transaction();
        if has_failed && !sees_all {
            return false;
        }
        if self.server.replies.may_skip_query() {
            self.await_earlier_replies(out);
            return true;
        }
        for statement in self.server.statements.prepared.take_all() {
            self.send_close(statement, out);
        }
        if begins && self.server.replies.is_unsynced() {
            self.sync(out);
        }
        if has_failed {
            return false;
        }
        let may_be_refused =
            begins && self.server.is_outside_transaction() && self.server.session.may_have_role();
        self.server.session.note(Effects::PREPARE, b"");
        let names = &mut self.server.session.client_names;
        names.change_to_own(may_be_refused.then_some(client));
        let mut statements = self.client.statements.all(self.bindings);
        // PostgreSQL can describe an EXECUTE only after the statement that it names was prepared.
        statements.sort_by_key(|(_, statement)| self.effects_of(statement).intersects(NAMES));
        for (name, statement) in statements {
            self.note_parse(&statement);
            // An earlier attempt that failed may have left a statement of this name.
            send_target(self.server_conn, frontend::CLOSE, &name, out);
            self.server.replies.mark_sent(Mark::silent(MarkKind::Close));
            send_parse(self.server_conn, &name, statement.definition(), out);
            let mark = Mark::own(MarkKind::Parse, Change::Given(name));
            self.server.replies.mark_sent(mark);
            if begins {
                self.sync(out);
            }
        }
        if may_be_refused {
            self.server.replies.wait_for_all();
        }
        may_be_refused
    }

    /// Prepares statements under the client's names, which the client's role may not prepare, without this role: the
    /// client has set the role after it has prepared the statements. PostgreSQL checks the privilege to use a schema
    /// only when it analyses a statement. It checks all other privileges when it runs the statement, and then under the
    /// role. A session may drop its role at any time, so the client gains no right.
    #[cold]
    fn prepare_without_role(&mut self, names: &[Box<[u8]>], out: &mut Actions) {
        for name in names {
            let Some(statement) = self.client.statements.get(self.bindings, name) else {
                continue;
            };
            out.send_made(self.server_conn, |made| {
                MessageWriter::new(made).unsynced_command(WITHOUT_ROLE);
            });
            send_target(self.server_conn, frontend::CLOSE, name, out);
            send_parse(self.server_conn, name, statement.definition(), out);
            out.send_made(self.server_conn, |made| {
                MessageWriter::new(made).sync();
            });
            self.server.ask(InternalQuery::StatementsWithoutRole);
        }
        self.server.session.client_names.naming = Naming::Own;
    }

    /// Returns whether the client's message, which begins a request, must wait until earlier requests are answered.
    pub(super) fn waits_for_replies(&mut self) -> bool {
        let replies = &mut self.server.replies;
        let waits = !replies.is_unsynced() && !replies.is_copy_in() && replies.owed_to_client() > 0;
        if waits {
            replies.wait_for_all();
        }
        waits
    }

    /// Notes a message that is forwarded with the client's statement name. Returns its mark.
    pub(super) fn mark_of_own_name(&mut self, named: &Named<'_>) -> Option<Mark> {
        match *named {
            Named::Parse { name, definition } => {
                self.stats.client_parse_count += 1;
                self.stats.server_parse_count += 1;
                let Some(statement) = self.intern(name, definition) else {
                    // pgweir does not know the text of this statement, so its use counts as opaque.
                    self.server.session.note(Effects::OPAQUE, b"");
                    return Some(Mark::plain(MarkKind::Parse));
                };
                self.note_parse(&statement);
                let schema = self.server.schema();
                let names = &mut self.client.statements;
                if names.bytes() + Names::cost(&statement) > self.limits.prepared_bytes_max {
                    // pgweir does not know the text of this statement, so its use counts as opaque.
                    return Some(Mark::plain(MarkKind::Parse));
                }
                let change = match names.define(self.bindings, name, &statement, schema) {
                    true => Change::Named(name.into(), statement),
                    // On the server, SQL may have removed the statement of this name.
                    false => Change::Duplicate(name.into(), statement),
                };
                Some(Mark::clients(MarkKind::Parse, change))
            }
            Named::Close(name) => {
                self.server.session.note(Effects::PREPARE, b"");
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

    pub(super) fn sync(&mut self, out: &mut Actions) {
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).sync();
        });
        self.server
            .replies
            .internal_sync_sent(InternalQuery::Statements);
    }
}

fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(RESERVED)
}
