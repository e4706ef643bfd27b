//! What a server says of its parameters, and the extension of its session.

use pgweir_wire::Body;

use crate::{
    Token,
    backend::{Duty, Request},
    session::State,
    worker::Worker,
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
                server.session.has_news = true;
                // What is said twice is said by the last.
                server
                    .session
                    .news
                    .retain(|&known| usize::from(known) != at);
                server.session.news.push(at as u16);
                return false;
            }
            if !matches!(server.duty, Duty::Lent(_)) {
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
        server.session.report = Some(Box::new(state));
        let is_own = matches!(server.replies.current(), Some(Request::Own(_)));
        server.session.has_reported |= matches!(server.duty, Duty::Lent(_)) && !is_own;
    }
}
