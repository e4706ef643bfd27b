//! Closes the prepared statements of other clients before a client runs code that pgweir has not read.
//!
//! Dynamic SQL can list and execute every prepared statement of its server, under pgweir's names. So before the
//! server gets a text that may run such code, pgweir closes all statements that the client has not prepared itself.
//! Clients of one application prepare the same statements, so there is rarely anything to close.
//!
//! pgweir removes a statement from the server's list as soon as it sends the Close. If the server skips the Close
//! because an earlier message of the same request fails, it skips the text, too. If earlier requests may still fail,
//! the text waits for their replies.

use pgweir_wire::tag::frontend;

use super::client_to_server::ClientMessages;
use crate::{
    Actions,
    session::{Effects, Statement},
};

/// Effects of a text that may run code that pgweir has not read. The text of a statement that is executed by its name
/// may be such a text.
const RUNS_UNREAD_CODE: Effects = Effects::OPAQUE.and(Effects::EXECUTE);

impl ClientMessages<'_> {
    /// Closes the statements of other clients before a message whose text has these effects. Returns whether the
    /// message must wait for replies first.
    pub(super) fn close_before_text(
        &mut self,
        tag: u8,
        effects: Effects,
        out: &mut Actions,
    ) -> bool {
        if !effects.intersects(RUNS_UNREAD_CODE) || self.has_own_names() {
            return false;
        }
        if self.is_unsure() {
            return true;
        }
        let others = self.statements_of_others();
        if others.is_empty() {
            return false;
        }
        let begins_query = tag != frontend::PARSE && !self.server.replies.is_unsynced();
        if begins_query && self.waits_for_replies() {
            return true;
        }
        self.close_statements(others, out);
        if begins_query {
            self.sync(out);
        }
        false
    }

    /// Closes the statements of other clients before a message that uses a statement with these effects. The message
    /// has waited until the names are certain.
    #[inline]
    pub(super) fn close_before_use(&mut self, effects: Effects, out: &mut Actions) {
        if effects.intersects(RUNS_UNREAD_CODE) && !self.has_own_names() {
            let others = self.statements_of_others();
            self.close_statements(others, out);
        }
    }

    /// Closes the statements of other clients before this statement is sent in a Parse.
    #[inline]
    pub(super) fn close_before_parse(&mut self, statement: &Statement, out: &mut Actions) {
        if self.is_carried {
            self.close_before_use(self.effects_of(statement), out);
        }
    }

    /// Returns the ids of the server's statements that the client has not prepared itself.
    #[cold]
    fn statements_of_others(&mut self) -> Vec<u64> {
        let own = self.client.statements.statement_ids(self.bindings);
        let prepared = &mut self.server.statements.prepared;
        prepared.others(self.client.origin.id, own)
    }

    fn close_statements(&mut self, ids: Vec<u64>, out: &mut Actions) {
        for id in ids {
            self.close_if_prepared(id, out);
        }
    }
}
