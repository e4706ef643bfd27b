//! What a server says of its parameters, and the extension of its session.

use pgweir_wire::{Body, Report, tag::backend};

use crate::{Actions, Time, Token, backend::Request, session::State, worker::Worker};

/// An error that was not read.
const UNREAD: Report<'_> = Report {
    severity: b"ERROR",
    code: b"54000",
    message: b"the server has said more than is read",
    detail: None,
    hint: None,
    routine: b"",
};

impl Worker {
    /// ParameterStatus: `true` if the client is to see it.
    pub(super) fn parameter_changed(&mut self, conn: Token, body: &[u8]) -> bool {
        let mut body = Body::new(body);
        let (Ok(name), Ok(value)) = (body.cstr(), body.cstr()) else {
            return true;
        };
        if name == State::PARAMETER {
            self.state_reported(conn, value);
            return false;
        }
        let Some(at) = self.directory.names().position(name) else {
            return true;
        };
        let Some(server) = self.table.server(conn) else {
            return true;
        };
        let before = server.tracked.clone();
        let names = self.directory.names();
        server.tracked.set(at, value);
        server.session.read_as(names, &server.tracked);
        if let Some(client) = server.client()
            && let Some((client, server)) = self.table.pair(client, conn)
        {
            if client.context.is_some() {
                server.session.settings.has_unsent = true;
                return false;
            }
            if server.relays_for().is_none() {
                return true;
            }
            if client.tracked.is_same(&before) {
                client.tracked = server.tracked.clone();
            } else {
                client.tracked.set(at, value);
            }
        }
        true
    }

    /// A server says something that matters, and is too long to be looked at.
    #[cold]
    pub(super) fn passes_unread(&mut self, conn: Token, tag: u8, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if tag != backend::ERROR_RESPONSE {
            // A row.
            if let Some(answers) = &mut server.session.queries.inspection {
                answers.failed = true;
                answers.is_too_long = true;
            }
            return;
        }
        match server.replies.current() {
            Some(Request::Internal(own)) => {
                self.internal_query_failed(conn, own, &UNREAD, now, out);
            }
            _ => {
                server.session.has_failed();
                let marks = server.replies.failed();
                self.undo(conn, marks);
            }
        }
    }

    /// The extension has reported what the session holds.
    fn state_reported(&mut self, conn: Token, value: &[u8]) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let unclear = || State {
            unclear: true,
            ..State::default()
        };
        let state = State::of_report(value).unwrap_or_else(|_| unclear());
        server.session.extension.last = Some(Box::new(state));
        let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
        server.session.extension.is_new |= server.relays_for().is_some() && !is_own;
    }
}
