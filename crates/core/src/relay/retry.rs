//! `cached plan must not change result type`: a table has changed since the server has prepared a
//! statement that depends on it. Directly, a client that prepares the statement after the change
//! never sees this error, and one that did so before is protected by it from columns that it was
//! not told of. So the statement is made anew and the client's request repeated, if it can't tell.

use std::sync::Arc;

use pgweir_wire::{HEADER_LEN, MessageWriter, tag::backend, tag::frontend};

use super::{
    demands::{self, declares},
    outdated::note,
    upward::{send_parse, send_target},
};
use crate::{
    Actions, ReadMode, Time, Token,
    backend::{Change, Demands, Mark, MarkKind, Own, Request, Retry},
    frontend::Client,
    session::Shape,
    worker::Worker,
};

/// How often one request is repeated: once for each of its statements that is out of date.
const REPEATS_MAX: u8 = 8;

impl Worker {
    /// A description that is to be noted: of a client's statement, or of one that we make anew.
    /// `true` if it may be passed on.
    pub(super) fn described(&mut self, conn: Token, message: &[u8], out: &mut Actions) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        if message[0] == backend::PARAMETER_DESCRIPTION {
            server.segment.params.clear();
            server.segment.params.extend_from_slice(message);
            return false;
        }
        let params = server.segment.params.get(HEADER_LEN..);
        let params = params.map(|params| self.bindings.digest_params(params));
        let columns = (message[0] == backend::ROW_DESCRIPTION).then_some(&message[HEADER_LEN..]);
        let columns = self.bindings.digest_columns(columns).ok();
        if self.checked_statement(conn, params, columns) {
            return false;
        }
        self.send_params(conn, out);
        if let Some(server) = self.table.server(conn)
            && let Some(mark) = server.replies.described(params.is_some())
            && let MarkKind::Describe(binding) | MarkKind::Portal(binding) = mark.kind
        {
            let told = self.bindings.shape(binding);
            let schema = note(server, self.bindings.statement(binding), params, columns);
            let shape = Shape {
                params: params.or(told.params),
                columns,
                stale: false,
                schema: schema.unwrap_or(told.schema),
            };
            let client = server.relays_for();
            match (&mut server.retry, client) {
                (Some(retry), _) if mark.swallow => retry.new = retry.new.map(|_| shape),
                (_, Some(client)) if shape != told => {
                    if let Some(client) = self.table.client(client) {
                        client.statements.tell(&mut self.bindings, binding, shape);
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// Sends what was held back of a description.
    pub(super) fn send_params(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let is_own = matches!(server.replies.current(), Some(Request::Own(_)));
        if let (Some(client), false) = (server.relays_for(), is_own)
            && !server.segment.params.is_empty()
        {
            out.send_made(client, |made| {
                made.extend_from_slice(&server.segment.params);
            });
            server.segment.replied = true;
        }
        server.segment.params.clear();
    }

    /// A server has said that a plan is stale, or that a statement of ours is gone, since something out
    /// of sight (dynamic SQL in a function) has deallocated it. `true` if its client is not to hear of it yet.
    #[cold]
    pub(super) fn retry_later(
        &mut self,
        conn: Token,
        body: &[u8],
        is_gone: bool,
        out: &mut Actions,
    ) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        // What was made before can't be trusted to be what a new one would be.
        server.prepared.distrust();
        let Some(client_conn) = server.relays_for() else {
            return false;
        };
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return false;
        };
        let is_alone = server.replies.owed_to_client() == 1 && server.replies.is_synced();
        let was_seen = server.segment.replied || server.status != b'I';
        if !is_alone || was_seen || server.retry.is_some() || is_ahead(client) {
            return false;
        }
        if server.segment.repeats >= REPEATS_MAX {
            return false;
        }
        let Some((name, demands)) = server.segment.whole().and_then(demands::read) else {
            return false;
        };
        let Some(binding) = client.statements.find(&self.bindings, name) else {
            return false;
        };
        let mut error = Vec::with_capacity(HEADER_LEN + body.len());
        MessageWriter::new(&mut error).message(backend::ERROR_RESPONSE, |out| {
            out.extend_from_slice(body);
        });
        server.segment.params.clear();
        let demands = if is_gone {
            // What is made is what it was.
            Demands::default()
        } else {
            demands
        };
        server.retry = Some(Box::new(Retry {
            error,
            binding,
            demands,
            is_gone,
            new: Some(Shape::default()),
        }));
        out.read(client_conn, ReadMode::Hold);
        true
    }

    /// The failed request is over: make its statement anew.
    #[cold]
    pub(super) fn remake(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(binding) = server.retry.as_ref().map(|retry| retry.binding) else {
            return;
        };
        let is_idle = server.status == b'I' && server.last_words.is_none();
        let is_lent = server.relays_for().is_some();
        let Some(statement) = self
            .bindings
            .statement(binding)
            .filter(|_| is_lent && is_idle)
        else {
            return self.give_up(conn, now, out);
        };
        let name = statement.name();
        server.prepared.forget(statement.id());
        if server.retry.as_ref().is_some_and(|retry| retry.is_gone) {
            // Others may be gone too: which, nobody knows.
            for other in server.prepared.take_all() {
                send_target(conn, frontend::CLOSE, other.name(), out);
                server.replies.mark_sent(Mark {
                    swallow: true,
                    ..Mark::plain(MarkKind::Close)
                });
            }
        }
        send_target(conn, frontend::CLOSE, name, out);
        server.replies.mark_sent(Mark {
            swallow: true,
            ..Mark::plain(MarkKind::Close)
        });
        send_parse(conn, name, statement.definition(), out);
        let user = (0, server.session.settings_now().cloned());
        server
            .prepared
            .add(Arc::clone(statement), server.schema(), user);
        let made = Change::Made(Arc::clone(statement), None);
        server.replies.mark_sent(Mark::own(MarkKind::Parse, made));
        send_target(conn, frontend::DESCRIBE, name, out);
        server.replies.mark_sent(Mark {
            swallow: true,
            ..Mark::plain(MarkKind::Describe(binding))
        });
        out.send_made(conn, |made| {
            made.extend_from_slice(&[frontend::SYNC, 0, 0, 0, 4]);
        });
        server.replies.own_synced(Own::Remake);
        let pool = server.pool();
        if let Some(pool) = self.pool(pool) {
            pool.stats.now.server_parse_count += 1;
        }
    }

    /// The statement was made anew, or could not be: repeat the request, or tell of the error.
    #[cold]
    pub(super) fn remade(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(client_conn) = server.relays_for() else {
            server.retry = None;
            return;
        };
        let Some(retry) = server.retry.take() else {
            return;
        };
        let (new, told) = (retry.new, self.bindings.shape(retry.binding));
        let is_idle = server.status == b'I' && server.last_words.is_none();
        let has_failed = new.is_none();
        let unseen = new.filter(|&new| is_idle && self.is_unseen(&retry, told, new));
        let Some(client) = self.table.client(client_conn) else {
            return;
        };
        if let Some(Shape {
            columns, schema, ..
        }) = unseen
        {
            let shape = Shape {
                columns,
                schema,
                ..told
            };
            client
                .statements
                .tell(&mut self.bindings, retry.binding, shape);
            return self.repeat(client_conn, conn, now, out);
        }
        if !has_failed && !retry.is_gone {
            // On this server it would now do what the client was not told of.
            let shape = Shape {
                stale: true,
                ..told
            };
            client
                .statements
                .tell(&mut self.bindings, retry.binding, shape);
        }
        if let Some(server) = self.table.server(conn) {
            server.retry = Some(retry);
        }
        self.give_up(conn, now, out);
    }

    /// Can't the client tell the statement that was made anew from the one that it was told of?
    fn is_unseen(&self, retry: &Retry, told: Shape, new: Shape) -> bool {
        let statement = self.bindings.statement(retry.binding);
        let count = retry.demands.params;
        let declares = statement.is_some_and(|statement| declares(statement.definition(), count));
        let same_params = told.params.is_some() && told.params == new.params;
        let same_columns = told.columns.is_some() && told.columns == new.columns;
        (declares || same_params) && (!retry.demands.columns || same_columns)
    }

    fn repeat(&mut self, client_conn: Token, conn: Token, now: Time, out: &mut Actions) {
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return;
        };
        let repeats = server.segment.repeats + 1;
        let mut bytes = server.segment.whole().unwrap_or_default().to_vec();
        let received = bytes.len() as u64;
        if let Some(later) = client.early.take() {
            bytes.extend_from_slice(&later);
        }
        client.early = Some(Box::new(bytes));
        let pool = server.pool();
        if let Some(pool) = self.pool(pool) {
            // They are counted when they are read again.
            let stats = &mut pool.stats.now;
            stats.received = stats.received.saturating_sub(received);
        }
        self.take_up(client_conn, conn, now, out);
        if let Some(server) = self.table.server(conn) {
            server.segment.repeats = repeats;
        }
    }

    /// The client hears of the error, and goes on.
    fn give_up(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let (retry, status) = (server.retry.take(), server.status);
        if let (Some(retry), Some(client)) = (retry, server.relays_for()) {
            out.send_made(client, |made| {
                made.extend_from_slice(&retry.error);
                MessageWriter::new(made).ready_for_query(status);
            });
            self.client_request_done(conn, now, out);
            self.take_up(client, conn, now, out);
        }
    }
}

/// Has it sent more than the request?
fn is_ahead(client: &Client) -> bool {
    client.early.is_some() || client.held.is_some() || !client.stream.is_at_boundary()
}
