//! Statements that the server gets under the names that its client gave them, for SQL speaks of these:
//! those of the protocol, and those of SQL that this server could not make.
//!
//! Making one may fail, for what it speaks of may be gone. Directly that shows when it is executed, and
//! in no other way: so what the server has said is kept for then ([`Unmade`]), a transaction does not
//! suffer by it, and where the name alone is wanted there is a stand-in.
//!
//! [`Unmade`]: crate::session::Unmade

use std::{borrow::Cow, sync::Arc};

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    named::Named,
    own_names::spoken_of,
    upward::{Upward, send_parse, send_target},
};
use crate::{
    Actions,
    backend::{Change, Mark, MarkKind, Own},
    session::{
        RESERVED, Statement, Suspicion,
        scan::{Phrase, phrases},
        stand_in,
    },
};

/// What has become of the names that a text speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Given {
    /// The server was given none.
    Nothing,
    /// It was given some.
    Names,
    /// It was given some, and it matters to the text whether it could make them.
    Unsure,
}

/// What may change whether a statement can be made.
const CHANGES: Suspicion = Suspicion::SETTING
    .and(Suspicion::OPAQUE)
    .and(Suspicion::TEMP)
    .and(Suspicion::DISCARD);

/// A statement that the server understands whatever is gone.
const STAND_IN: &[u8] = b"\0\0\0";

/// The name that a text takes away, if it does nothing else.
fn deallocated(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut phrases = phrases(text);
    match (phrases.next(), phrases.next()) {
        (Some(Phrase::Deallocate(name)), None) => name,
        _ => None,
    }
}

/// The names in a text, and whether each is executed before anything else is done with it.
fn names_in(text: &[u8]) -> Vec<(Cow<'_, [u8]>, bool)> {
    let mut names: Vec<(Cow<'_, [u8]>, bool)> = Vec::new();
    for phrase in phrases(text) {
        let executes = matches!(phrase, Phrase::Execute(_));
        if let Some(name) = spoken_of(phrase)
            && !names.iter().any(|(known, _)| *known == name)
        {
            names.push((name, executes));
        }
    }
    names
}

impl Upward<'_> {
    /// Does what a name stands for depend on what is yet to be answered?
    #[inline]
    pub(super) fn is_unsure(&mut self) -> bool {
        let (replies, status) = (&mut self.server.replies, self.server.status);
        let may_end = status == b'E' || self.server.session.own.are_leaving();
        if may_end && !replies.is_unsynced() && replies.owed_to_client() > 0 {
            // A transaction that has failed, or what stands in for a statement.
            replies.wait_for_all();
        }
        replies.is_unsure()
    }

    /// Does it depend on what the client has asked before whether the server can make the statements
    /// that this text speaks of? A transaction may begin there, or a failed one end.
    pub(super) fn waits_for_answers(&self, text: &[u8], suspicion: Suspicion) -> bool {
        let replies = &self.server.replies;
        if replies.is_unsynced() || replies.is_copy_in() || replies.owed_to_client() == 0 {
            return false;
        }
        let own = &self.server.session.own;
        if names_in(text).iter().any(|(name, _)| own.is_stand_in(name)) {
            return true;
        }
        // A stand-in can always be made; but what is said of one that could not be made is said first.
        let can_stand_in = |name: &[u8]| !self.is_unmade(name) && !self.has_failed(name);
        if self.server.status != b'E' && deallocated(text).is_some_and(|name| can_stand_in(&name)) {
            return false;
        }
        self.lacks_names(text, suspicion)
    }

    /// Does a text speak of statements that the server lacks, under the names that it says?
    pub(super) fn lacks_names(&self, text: &[u8], suspicion: Suspicion) -> bool {
        let own = &self.server.session.own;
        let lacks = |name: &[u8]| {
            let is_known = self.client.statements.find(self.bindings, name).is_some();
            (!own.has(name) || own.is_stand_in(name)) && (is_known || self.is_unmade(name))
        };
        let names = names_in(text);
        wants_all(suspicion, &names) && !own.has_all() || names.iter().any(|(name, _)| lacks(name))
    }

    /// Is it a statement of SQL that the server could not make?
    pub(super) fn is_unmade(&self, name: &[u8]) -> bool {
        let session = &self.server.session;
        let context = self.client.context.as_ref();
        context.is_some_and(|context| context.sql.has(name))
            && !session.sql.has(name)
            && !session.own.has(name)
    }

    /// The server gets, under their own names, the client's statements that a text speaks of.
    pub(super) fn give_names(
        &mut self,
        text: &[u8],
        suspicion: Suspicion,
        out: &mut Actions,
    ) -> Given {
        let begins = !self.server.replies.is_unsynced();
        if self.server.replies.is_skipping() || begins && self.server.status == b'E' {
            return Given::Nothing;
        }
        self.server.segment.spoil();
        // Those that a text in front of this one takes away are not to come back, should it succeed.
        let are_going = self.server.replies.drops_statements();
        let names = names_in(text);
        let mut given = Given::Nothing;
        if wants_all(suspicion, &names) && !self.server.session.own.has_all() {
            given = self.give_all(are_going, out);
        }
        let is_deallocated = deallocated(text).is_some();
        for (name, executes) in names {
            if executes && !are_going && !self.server.session.own.is_leaving(&name) {
                self.take_stand_in(&name, out);
            }
            if are_going {
                self.server.session.own.withhold(&name);
            } else if self.is_unmade(&name) {
                if executes {
                    self.try_again(&name, out);
                } else {
                    self.stand_in(&name, out);
                }
            } else if let Some(statement) = self.client.statements.get(self.bindings, &name) {
                let statement = Arc::clone(statement);
                if !self.server.session.own.insert(&name) {
                    continue;
                }
                let is_risky = self.has_failed(&name) || self.may_fail_here();
                if is_deallocated || is_risky && !executes {
                    self.stand_in(&name, out);
                } else {
                    self.give(&name, statement, out);
                    if begins && !executes {
                        given = Given::Unsure;
                    }
                }
            } else {
                if !self.server.session.sql.has(&name) {
                    self.server.session.own.speak(&name);
                }
                continue;
            }
            given = given.max(Given::Names);
        }
        self.note_taken(text);
        given
    }

    /// What stands in for a statement may be taken away by this text: whether it is, is known once that is
    /// answered.
    fn note_taken(&mut self, text: &[u8]) {
        let ahead = self.server.replies.owed_to_client();
        for phrase in phrases(text) {
            if let Phrase::Deallocate(Some(name)) = phrase {
                self.server.session.own.leaves(&name, ahead);
            }
        }
    }

    /// Nothing but what is its own is to be seen.
    fn give_all(&mut self, are_going: bool, out: &mut Actions) -> Given {
        let begins = !self.server.replies.is_unsynced();
        let mut given = Given::Nothing;
        for statement in self.server.prepared.take_all() {
            self.send_close(statement, out);
            given = Given::Names;
        }
        if begins && given == Given::Names {
            self.sync(out);
        }
        for (name, statement) in self.client.statements.all(self.bindings) {
            let own = &mut self.server.session.own;
            if are_going {
                own.withhold(&name);
            } else if own.insert(&name) {
                given = given.max(Given::Names);
                if self.has_failed(&name) || self.may_fail_here() {
                    self.stand_in(&name, out);
                } else {
                    self.give(&name, statement, out);
                    if begins {
                        given = Given::Unsure;
                    }
                }
            }
        }
        let context = self.client.context.as_ref();
        let sql = context
            .map(|context| context.sql.clone())
            .unwrap_or_default();
        for (name, _) in sql.pairs() {
            if are_going && !self.server.session.sql.has(name) {
                self.server.session.own.withhold(name);
            } else if self.is_unmade(name) {
                self.stand_in(name, out);
                given = given.max(Given::Names);
            }
        }
        self.server.session.own.insert_all();
        given
    }

    /// Is a request going on that may have changed what statements speak of, or who one is? Its failure
    /// would be the client's, and a statement that is only seen does not fail.
    fn may_fail_here(&self) -> bool {
        self.server.replies.is_unsynced() && self.server.session.suspicion.intersects(CHANGES)
    }

    /// A statement is used for which something else stands in: that goes.
    pub(super) fn take_stand_in(&mut self, name: &[u8], out: &mut Actions) {
        if !self.server.session.own.is_stand_in(name) {
            return;
        }
        let begins = !self.server.replies.is_unsynced();
        self.server.session.own.missed(name);
        send_target(self.server_conn, frontend::CLOSE, name, out);
        self.server.replies.mark_sent(Mark {
            swallow: true,
            ..Mark::plain(MarkKind::Close)
        });
        if begins {
            self.sync(out);
        }
    }

    /// Was this one tried, in vain?
    fn has_failed(&self, name: &[u8]) -> bool {
        let context = self.client.context.as_ref();
        context.is_some_and(|context| context.unmade.get(name).is_some())
    }

    fn sync(&mut self, out: &mut Actions) {
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).sync();
        });
        self.server.replies.own_synced(Own::Statements);
    }

    /// The server gets a statement of the protocol: in a request of its own, if the client's has not begun.
    fn give(&mut self, name: &[u8], statement: Arc<Statement>, out: &mut Actions) {
        let begins = !self.server.replies.is_unsynced();
        if begins {
            self.set_savepoint(out);
        }
        self.note_parse(&statement);
        send_parse(self.server_conn, name, statement.definition(), out);
        let mark = Mark::own(MarkKind::Parse, Change::Given(name.into()));
        self.server.replies.mark_sent(mark);
        if begins {
            self.sync(out);
            self.back_to_savepoint(out);
        }
    }

    /// The server gets something of this name.
    pub(super) fn stand_in(&mut self, name: &[u8], out: &mut Actions) {
        self.server.session.own.insert(name);
        self.server.session.own.stood_in(name);
        self.server.session.note(Suspicion::PREPARE, b"");
        let begins = !self.server.replies.is_unsynced();
        if begins && self.is_of_sql(name) {
            // As one of SQL, which it is seen as.
            return self.ask(&stand_in(name), out);
        }
        send_parse(self.server_conn, name, STAND_IN, out);
        let mark = Mark::own(MarkKind::Parse, Change::Given(name.into()));
        self.server.replies.mark_sent(mark);
        if begins {
            self.sync(out);
        }
    }

    /// The client makes a statement under the name of one of SQL that the server lacks.
    #[cold]
    pub(super) fn parse_unmade(&mut self, name: &[u8], definition: &[u8], out: &mut Actions) {
        if self.server.status != b'E' {
            self.stand_in(name, out);
        }
        send_parse(self.server_conn, name, definition, out);
        if let Some(mark) = self.mark_of_own(&Named::Parse { name, definition }) {
            self.server.replies.mark_sent(mark);
        }
    }

    pub(super) fn is_of_sql(&self, name: &[u8]) -> bool {
        let context = self.client.context.as_ref();
        context.is_some_and(|context| context.sql.has(name))
    }

    /// What has failed before may be there now.
    fn try_again(&mut self, name: &[u8], out: &mut Actions) {
        let Some(context) = self.client.context.as_ref() else {
            return;
        };
        if self.server.replies.is_unsynced() {
            return;
        }
        let Some(at) = context.sql.position(name) else {
            return;
        };
        let sql = context.sql.clone();
        let session = &mut self.server.session;
        session.sql = session.sql.with(&sql, at);
        session.sql_made = (self.client.id, None);
        self.set_savepoint(out);
        out.send_made(self.server_conn, |made| sql.write_make(at, made));
        self.server.ask(Own::Sql(at));
        self.back_to_savepoint(out);
        self.server.replies.wait_for_all();
    }

    /// What we try is not to cost the client its transaction.
    fn set_savepoint(&mut self, out: &mut Actions) {
        if self.server.status == b'T' {
            self.ask(b"SAVEPOINT \"PGWEIR\"", out);
        }
    }

    fn back_to_savepoint(&mut self, out: &mut Actions) {
        if self.server.status == b'T' {
            self.ask(b"ROLLBACK TO \"PGWEIR\"; RELEASE \"PGWEIR\"", out);
            // Until then it may look like a transaction that has failed.
            self.server.replies.wait_for_all();
        }
    }

    fn ask(&mut self, text: &[u8], out: &mut Actions) {
        self.server.ask(Own::Statements);
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(text);
        });
    }
}

/// Who says names of ours finds none of those either.
fn wants_all(suspicion: Suspicion, names: &[(Cow<'_, [u8]>, bool)]) -> bool {
    suspicion.intersects(Suspicion::STATEMENTS_VIEW)
        || names.iter().any(|(name, _)| name.starts_with(RESERVED))
}
