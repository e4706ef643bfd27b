//! Statements that the server gets under the names that its client gave them, since SQL speaks of these.
//!
//! Making such a statement may fail, since the objects in it may be gone. On a direct connection the client would get
//! that error at EXECUTE, so pgweir keeps the server's error until then
//! ([`FailedStatements`](crate::session::FailedStatements)), and no transaction fails for it.

use std::{borrow::Cow, sync::Arc};

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    client_names::statement_named_by,
    client_to_server::{ClientMessages, send_parse, send_target},
};
use crate::{
    Actions,
    backend::{Change, InternalQuery, Mark, MarkKind},
    session::{
        Effects, RESERVED, Statement,
        scan::{Phrase, phrases},
    },
};

/// Effects that may change whether a statement can be made.
const CHANGES: Effects = Effects::SETTING
    .and(Effects::OPAQUE)
    .and(Effects::TEMP)
    .and(Effects::DISCARD);

/// A statement that every server understands: what a DEALLOCATE takes away in place of the client's statement, which
/// the server has under another name and for others too.
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
    /// Returns whether the meaning of a name depends on outstanding replies.
    #[inline]
    pub(super) fn is_unsure(&mut self) -> bool {
        let (replies, status) = (&mut self.server.replies, self.server.status);
        if status == b'E' && !replies.is_unsynced() && replies.owed_to_client() > 0 {
            // A failed transaction may end.
            replies.wait_for_all();
        }
        replies.is_unsure()
    }

    /// Does it depend on what the client has asked before whether the server can make the statements
    /// that this text speaks of? A transaction may begin there, or a failed one end.
    pub(super) fn waits_for_answers(&self, text: &[u8], effects: Effects) -> bool {
        let replies = &self.server.replies;
        if replies.is_unsynced() || replies.is_copy_in() || replies.owed_to_client() == 0 {
            return false;
        }
        let own = &self.server.session.client_names;
        let lacks = |name: &[u8]| {
            let is_known = self.client.statements.find(self.bindings, name).is_some();
            (is_known || self.has_failed_statement(name)) && !own.has(name)
        };
        wants_all(effects, text) && !own.has_all()
            || phrases(text)
                .filter_map(statement_named_by)
                .any(|name| lacks(&name))
    }

    /// Returns whether this is a statement of SQL that the server could not make.
    pub(super) fn has_failed_statement(&self, name: &[u8]) -> bool {
        let session = &self.server.session;
        let context = self.client.context.as_ref();
        context.is_some_and(|context| context.sql.has(name))
            && !session.sql.has(name)
            && !session.client_names.is_prepared(name)
    }

    /// The client gives up a statement of SQL, or makes another one of its name, which the server lacks.
    #[cold]
    pub(super) fn forget_failed_statement(&mut self, name: &[u8]) {
        if let Some(context) = &mut self.client.context {
            context.sql = context.sql.without(&[name.to_vec()]);
        }
    }

    /// A DEALLOCATE of one statement that the server knows by another name, or lacks, is answered at once.
    pub(super) fn answers_deallocate(&mut self, text: &[u8], out: &mut Actions) -> bool {
        let Some(name) = deallocated(text) else {
            return false;
        };
        let is_settled = self.server.replies.is_settled() && self.server.status != b'E';
        if self.most == 0 || !is_settled || self.server.session.client_names.has(&name) {
            return false;
        }
        if self.has_failed_statement(&name) {
            self.forget_failed_statement(&name);
        } else if self
            .client
            .statements
            .remove(self.bindings, &name)
            .is_none()
        {
            return false;
        }
        self.answer_query(out, |made| {
            MessageWriter::new(made).command_complete("DEALLOCATE");
        });
        true
    }

    /// Prepares, under the client's names, the statements that a text refers to. Returns whether there are any.
    pub(super) fn prepare_client_names(
        &mut self,
        text: &[u8],
        effects: Effects,
        out: &mut Actions,
    ) -> bool {
        let begins = !self.server.replies.is_unsynced();
        if self.server.replies.is_skipping() {
            return false;
        }
        if begins && self.server.status == b'E' {
            // Nothing can be made there. A text that ends the failed transaction finds no names of ours.
            return wants_all(effects, text) && self.deallocate_pooled_names(out);
        }
        let mut has_given = false;
        if wants_all(effects, text) && !self.server.session.client_names.has_all() {
            has_given = self.prepare_all_names(out);
        }
        let is_deallocated = deallocated(text).is_some();
        for phrase in phrases(text) {
            let executes = matches!(phrase, Phrase::Execute(_));
            let Some(name) = statement_named_by(phrase) else {
                continue;
            };
            if executes {
                self.deallocate_stand_in(&name, out);
            }
            let statement = self.client.statements.get(self.bindings, &name);
            let statement = statement.map(Arc::clone);
            if is_deallocated && (statement.is_some() || self.has_failed_statement(&name)) {
                has_given |= self.stand_in(&name, out);
                if !self.server.session.client_names.is_missing(&name) {
                    self.server.session.client_names.leave(&name);
                }
            } else if let Some(statement) = statement {
                has_given |= self.give(&name, statement, out);
            } else if !self.server.session.sql.has(&name) {
                self.try_again(&name, out);
                self.server.session.client_names.mention(&name);
            }
        }
        has_given
    }

    /// Deallocates all statements under pgweir's names. Returns whether there were any.
    fn deallocate_pooled_names(&mut self, out: &mut Actions) -> bool {
        let ours = self.server.prepared.take_all();
        let has_taken = !ours.is_empty();
        let begins = !self.server.replies.is_unsynced();
        for statement in ours {
            self.send_close(statement, out);
        }
        if begins && has_taken {
            self.sync(out);
        }
        has_taken
    }

    /// Nothing but what is its own is to be seen.
    fn prepare_all_names(&mut self, out: &mut Actions) -> bool {
        let mut has_given = self.deallocate_pooled_names(out);
        let begins = !self.server.replies.is_unsynced();
        // Is a request going on that may have changed what statements speak of, or who one is? Its failure would be
        // the client's, and a statement that is only seen does not fail.
        let may_fail = !begins && self.server.session.effects.intersects(CHANGES);
        for (name, statement) in self.client.statements.all(self.bindings) {
            if may_fail {
                has_given |= self.stand_in(&name, out);
            } else {
                has_given |= self.give(&name, statement, out);
            }
        }
        self.server.session.client_names.prepare_all_names();
        has_given
    }

    /// The server gets a statement of the protocol: in a request of its own, if the client's has not begun.
    fn give(&mut self, name: &[u8], statement: Arc<Statement>, out: &mut Actions) -> bool {
        let begins = !self.server.replies.is_unsynced();
        let own = &self.server.session.client_names;
        // A failure would be that of the client's request.
        let would_fail = !begins && own.is_missing(name);
        if own.is_prepared(name) || would_fail || self.is_discarded_before(name) {
            return false;
        }
        if begins {
            self.set_savepoint(out);
        }
        self.note_parse(&statement);
        self.server.session.client_names.give(name);
        self.prepare_under_client_name(name, statement.definition(), out);
        if begins {
            self.roll_back_to_savepoint(out);
        }
        true
    }

    /// A statement of SQL that the server could not make before may be what it can make now.
    fn try_again(&mut self, name: &[u8], out: &mut Actions) {
        if self.server.replies.is_unsynced() || !self.has_failed_statement(name) {
            return;
        }
        let context = self.client.context.as_deref();
        if let Some(text) = context.and_then(|context| context.sql.text(name)) {
            let text = text.to_vec();
            self.set_savepoint(out);
            self.ask(&text, out);
            self.roll_back_to_savepoint(out);
            self.server.session.needs_exact_inspection = true;
        }
    }

    /// A statement is executed for which something else stands in: that goes.
    fn deallocate_stand_in(&mut self, name: &[u8], out: &mut Actions) {
        if !self.server.session.client_names.is_stand_in(name) {
            return;
        }
        let begins = !self.server.replies.is_unsynced();
        self.server.session.client_names.gone(name);
        send_target(self.server_conn, frontend::CLOSE, name, out);
        self.server.replies.mark_sent(Mark {
            swallow: true,
            ..Mark::plain(MarkKind::Close)
        });
        if begins {
            self.sync(out);
        }
    }

    /// Prepares a stand-in of this name, where only the name is needed.
    fn stand_in(&mut self, name: &[u8], out: &mut Actions) -> bool {
        if self.server.session.client_names.is_prepared(name) || self.is_discarded_before(name) {
            return false;
        }
        self.server.session.client_names.stand_in(name);
        self.server.session.note(Effects::PREPARE, b"");
        self.prepare_under_client_name(name, STAND_IN, out);
        true
    }

    /// A text in front of this one takes all statements away: they are not to come back, should it succeed.
    fn is_discarded_before(&mut self, name: &[u8]) -> bool {
        let are_going = self.server.replies.drops_statements();
        if are_going {
            self.server.session.client_names.miss(name);
        }
        are_going
    }

    fn prepare_under_client_name(&mut self, name: &[u8], definition: &[u8], out: &mut Actions) {
        let begins = !self.server.replies.is_unsynced();
        send_parse(self.server_conn, name, definition, out);
        let mark = Mark::own(MarkKind::Parse, Change::Given(name.into()));
        self.server.replies.mark_sent(mark);
        if begins {
            self.sync(out);
        }
    }

    fn sync(&mut self, out: &mut Actions) {
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).sync();
        });
        self.server
            .replies
            .internal_sync_sent(InternalQuery::Statements);
    }

    /// Sets a savepoint, so that pgweir's attempts do not fail the client's transaction.
    fn set_savepoint(&mut self, out: &mut Actions) {
        if self.server.status == b'T' {
            self.ask(b"SAVEPOINT \"PGWEIR\"", out);
        }
    }

    fn roll_back_to_savepoint(&mut self, out: &mut Actions) {
        if self.server.status == b'T' {
            self.ask(b"ROLLBACK TO \"PGWEIR\"; RELEASE \"PGWEIR\"", out);
            // Until then it may look like a transaction that has failed.
            self.server.replies.wait_for_all();
        }
    }

    fn ask(&mut self, text: &[u8], out: &mut Actions) {
        self.server.ask(InternalQuery::Statements);
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(text);
        });
    }
}

/// Who says names of ours finds none of those either.
fn wants_all(effects: Effects, text: &[u8]) -> bool {
    effects.intersects(Effects::STATEMENTS_VIEW)
        || phrases(text)
            .filter_map(statement_named_by)
            .any(|name| name.starts_with(RESERVED))
}
