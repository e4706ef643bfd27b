//! The messages of listener connections: notifications, and the answers to queries.

use pgweir_wire::{HEADER_LEN, Report, tag::backend};

use super::{Listeners, key_of, replacement::Received};
use crate::{
    Actions, Level, Token,
    backend::{InternalQuery, OUTDATED, Request},
    base::fault::ServerError,
    connections::Connections,
    effect::{Effect, Env},
};

impl Listeners {
    /// Handles bytes from a listener, from `at` on, up to the first message with an effect.
    pub(crate) fn received(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        (bytes, at): (&[u8], &mut usize),
        out: &mut Actions,
    ) -> Option<Effect> {
        loop {
            // An effect may have closed the connection.
            let server = connections.server(conn)?;
            let reads = (server.replies.is_asked(), false);
            let effect = match server.stream.next_inspected(bytes, at, reads) {
                Ok(Some(message)) => self.message(env, connections, conn, &message, out),
                Ok(None) => return None,
                Err(violation) => Some(Effect::fault(conn, &violation.to_string())),
            };
            if effect.is_some() {
                return effect;
            }
        }
    }

    fn message(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        message: &[u8],
        out: &mut Actions,
    ) -> Option<Effect> {
        match message[0] {
            backend::NOTIFICATION_RESPONSE => self.notified(env, connections, conn, message, out),
            backend::READY_FOR_QUERY => self.query_done(env, connections, conn, out),
            backend::ERROR_RESPONSE => {
                let server = connections.server(conn)?;
                let report = Report::parse(&message[HEADER_LEN..]).ok()?;
                if report.ends_session() {
                    server.link.note_final_error(ServerError::of(&report));
                    return None;
                }
                server.note_failed_query();
                let text = String::from_utf8_lossy(report.message).into_owned();
                let text = format!("LISTEN failed: {text}");
                out.log(Level::Warning, server.subject(), text);
                None
            }
            _ => None,
        }
    }

    fn query_done(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let server = connections.server(conn)?;
        let has_failed = server.end_listener_query();
        let query = match server.replies.ready() {
            Some(Request::Internal(query)) => query,
            Some(_) => return None,
            None => {
                let what = "an unexpected ReadyForQuery";
                return Some(Effect::fault(conn, what));
            }
        };
        // The listener may have been replaced, or a replacement given up, while the query was under way.
        let key = key_of(connections, conn, out)?;
        let listener = self.by_key.get_mut(key)?;
        match query {
            InternalQuery::Listen => {
                if let Some(failed) = listener.resumed(key, has_failed, out) {
                    return Some(failed);
                }
                listener.query_answered(env, connections, conn, has_failed, out)
            }
            InternalQuery::Succession => {
                listener.replacement_answered(env, connections, has_failed, out)
            }
            _ => None,
        }
    }

    /// Handles a notification that a listener connection has received.
    fn notified(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        message: &[u8],
        out: &mut Actions,
    ) -> Option<Effect> {
        let key = key_of(connections, conn, out)?.clone();
        let listener = self.by_key.get_mut(&key)?;
        match listener.received(env, connections, conn, message) {
            Received::ByListener => listener.forward(env, connections, &key, message, out),
            Received::ByOther => {}
            Received::TooMuch => {
                let why = "too much was notified while another one took over";
                return Some(Effect::close(listener.conn, why));
            }
            Received::LastMark(replacement) => {
                let outdated = listener.replace(env, connections, &key, *replacement, out);
                return Some(Effect::close(outdated, OUTDATED));
            }
        }
        None
    }
}
