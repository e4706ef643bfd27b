//! Refusals of messages about prepared statements.

use pgweir_wire::tag::frontend;

use super::{
    client_to_server::{ClientMessages, RelayStop, send_target},
    named::Named,
};
use crate::{
    Actions, Level,
    backend::{Change, Mark, MarkKind},
    base::fault::Fault,
    frontend::Upstream,
    session::NO_SUCH_NAME,
};

impl ClientMessages<'_> {
    /// Returns the error that ends the client's connection, with `session_state = off`, as PgBouncer does. Otherwise
    /// the server reports the error.
    #[inline]
    pub(super) fn refusal_of(&mut self, named: &Named<'_>, out: &mut Actions) -> Option<Fault> {
        if !self.limits.as_pgbouncer {
            return None;
        }
        let (name, fault) = match *named {
            Named::Parse { name, .. } => (name, Fault::StatementExists),
            Named::Bind { name, .. } | Named::Describe(name) => (name, Fault::NoSuchStatement),
            _ => return None,
        };
        let is_known = self.client.statements.find(self.bindings, name).is_some();
        if is_known != (fault == Fault::StatementExists) {
            return None;
        }
        if is_known {
            let name = String::from_utf8_lossy(name);
            let text = format!("prepared statement '{name}' was already prepared");
            out.log(Level::Error, self.client.subject(), text);
        }
        self.client.socket.stream = Upstream::default();
        Some(fault)
    }

    /// Sends the server a message that fails, so that the server skips the messages after it. The client gets `fault`
    /// in place of the server's error.
    #[cold]
    pub(super) fn refuse(&mut self, fault: Fault, out: &mut Actions) {
        send_target(self.server_conn, frontend::DESCRIBE, NO_SUCH_NAME, out);
        let mark = Mark::clients(MarkKind::Refused, Change::Refused(fault));
        self.server.replies.mark_sent(mark);
    }

    /// Returns why the relay stops at a message of this type; `None` if the relay does not stop.
    #[inline]
    pub(super) fn stop_at(&mut self, tag: u8) -> Option<RelayStop> {
        if tag == frontend::TERMINATE {
            return Some(RelayStop::Terminated);
        }
        if self.limits.refuses_simple && tag == frontend::QUERY {
            // No part of the message is sent, so the server is not in the middle of a message.
            self.client.socket.stream = Upstream::default();
            return Some(RelayStop::Refused(Fault::SimpleQuery));
        }
        None
    }
}
