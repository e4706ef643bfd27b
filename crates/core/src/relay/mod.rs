//! The relay: passes messages between a client connection and the server connection that is lent to it.
//!
//! This module owns no state. No other module moves bytes from a client to a server or back. As messages pass, the
//! relay updates the queue of a server's outstanding replies, the clients' names of prepared statements, and the
//! statistics of pools.
//!
//! Input: the bytes of clients ([`Relay::client_bytes`]) and of servers ([`Relay::pass_on`]). Output: actions that send
//! these bytes, and one [`Effect`] at a time, which the worker carries out before the relay handles the next message.
//! There are effects for a server that may have become free, the answer to an internal query, a client that has to be
//! refused, a LISTEN that the listener connection answers, and a server that violates the protocol.

mod backpressure;
mod buffered_messages;
mod byte_run;
mod channels;
mod client_to_server;
mod counting;
mod ddl;
mod message;
mod message_limits;
mod named;
mod named_statements;
mod other_clients_statements;
mod outdated_statements;
mod query_before_sync;
mod rejection;
mod repeat;
mod replay;
mod server_bytes;
mod server_errors;
mod server_loss;
mod server_reports;
mod session_texts;
mod statement_hooks;
mod statement_memory;
mod statements;
mod text_effects;
mod trace_parents;
mod unnamed;

use pgweir_config::PoolMode;
use pgweir_wire::{HEADER_LEN, MessageWriter, tag::backend};

use self::{
    byte_run::Run,
    client_to_server::{ClientMessages, RelayStop},
    counting::Counting,
    message_limits::MessageLimits,
    server_bytes::next_inspected,
};
pub(crate) use self::{server_bytes::ServerBytes, server_loss::report_server_loss};
use crate::{
    Actions, Token,
    backend::{Duty, Phase, Request, Server, Step},
    base::fault::Fault,
    client_listen::{keep_direct_notification, unlisten_completed},
    connections::Connections,
    effect::{ClientEffect, Effect, Env, ServerEffect, SessionEffect},
    exchange,
    frontend::ClientDuty,
    loan::keep_request,
    measurement::recording,
    operators::orders::retire_servers_of_database,
    pooling::LocalPools,
    server_connections::role_settings,
    session::Bindings,
    statement_statistics::Ended,
};

/// The parts of a worker that the relay uses.
pub(crate) struct Relay<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) bindings: &'w mut Bindings,
}

/// The treatment of a server's message.
enum Treatment {
    /// The client gets the message.
    Pass,
    /// The client does not get the message.
    Keep,
    /// The client does not get the message, and the worker carries out this effect.
    Act(Effect),
}

impl Treatment {
    fn keep_and(effect: Option<Effect>) -> Self {
        effect.map_or(Self::Keep, Self::Act)
    }
}

impl From<bool> for Treatment {
    #[inline]
    fn from(passes: bool) -> Self {
        if passes { Self::Pass } else { Self::Keep }
    }
}

impl Relay<'_> {
    /// Handles the bytes of a client that has a server connection.
    #[inline]
    pub(crate) fn client_bytes(
        &mut self,
        conn: Token,
        bytes: &[u8],
        out: &mut Actions,
    ) -> Option<Effect> {
        let now = self.env.now;
        let settings = &self.env.snapshot.config.settings;
        let Some(&ClientDuty::Active(server_conn)) =
            self.connections.client(conn).map(|client| client.duty())
        else {
            return None;
        };
        let (client, server) = self.connections.pair(conn, server_conn)?;
        server.times.note_client_sent(now);
        let stale_plans = server.shared.catalog.stale_plans();
        server.statements.prepared.trust_since(stale_plans);
        if !matches!(server.duty().phase(), Some(Phase::Relaying)) {
            server.enter(Phase::Relaying);
        }
        let (pool, statistics) = self.pools.with_statements(server.pool())?;
        statistics.set_limit(settings.statement_statistics);
        pool.use_current_catalog();
        // An exclusive server keeps the statements that its client prepares.
        let is_shared = !server.is_exclusive();
        if server.replies.owe_client_nothing() {
            client.request.note_sent(now);
            if server.is_outside_transaction() {
                // In session mode the last transaction may have ended long ago.
                client.request.note_transaction(now);
                let hold = replay::hold(&self.env, pool, (conn, client, server), bytes, out);
                if hold.is_some() {
                    return hold;
                }
                recording::relayed(&self.env, client, out);
            }
        }
        pool.stats.now.received += bytes.len() as u64;
        let is_carried = is_shared && client.context.is_some();
        if is_carried {
            let generation = pool.catalog.certificates.generation();
            server.session.transaction.note_certificates(generation);
        }
        keep_request(conn, (client, server), bytes, pool.terms.repeat_max);
        let mut messages = ClientMessages {
            client_conn: conn,
            client,
            server_conn,
            server,
            bindings: self.bindings,
            env: self.env,
            stats: &mut pool.stats.now,
            limits: MessageLimits {
                statements_max: match is_shared {
                    true => pool.terms.prepared_max,
                    false => 0,
                },
                prepared_bytes_max: settings.max_client_prepared_bytes as usize,
                replies_max: settings.max_pipelined_messages as usize,
                message_max: settings.longest_message(),
                refuses_simple: settings.disable_pqexec,
                as_pgbouncer: pool.terms.as_pgbouncer,
            },
            is_carried,
            certificates: &pool.catalog.certificates,
            verdicts: &mut pool.catalog.verdicts,
            bound: None,
            left_database: None,
            channel_command: None,
            has_effects: false,
            counting: Counting::new(statistics, now),
        };
        let ran = messages.run(bytes, out);
        let is_partial = !messages.client.socket.stream.is_between_messages();
        if let Some(name) = messages.left_database.take() {
            let config = &self.env.snapshot.config;
            retire_servers_of_database(self.env.directory, config, &name, now, out);
        }
        let settles = may_be_free(messages.server);
        if is_partial {
            self.connections.schedule(now);
        }
        match ran {
            // After a Flush, or the last bytes of a message, no reply may follow that would release the server.
            Ok(()) => settles.then(|| Effect::Settle(server_conn)),
            Err(stopped) => Some(stopped.effect(conn, server_conn)),
        }
    }

    /// Handles the bytes of a server up to the first message that has an effect for another module; `None` when all
    /// bytes are handled.
    #[inline]
    pub(crate) fn pass_on(
        &mut self,
        input: &mut ServerBytes<'_>,
        out: &mut Actions,
    ) -> Option<Effect> {
        // The handling of a message may have removed the server, so the loop looks it up again for each message.
        while let Some(server) = self.connections.server(input.server) {
            let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
            let to = server.relays_for().filter(|_| !is_own);
            let counts = !is_own && server.statements.running.is_outstanding();
            let step = match next_inspected(server, input, is_own, to, out) {
                Ok(step) => step,
                Err(violation) => {
                    input.run.flush(out);
                    return Some(Effect::fault(input.server, &violation.to_string()));
                }
            };
            input.count(&mut server.statements.running, counts);
            let effect = match step? {
                Step::Inspect { start, end } => {
                    let message = &input.bytes[start..end];
                    let effect = self.handle_step(input, (message, Some((start, end))), to, out);
                    if effect.is_none() && input.at == input.bytes.len() {
                        return None;
                    }
                    effect
                }
                Step::InspectHeld => self.handle_held(input, to, out),
                Step::Overlong(tag) => self.passes_unread(input.server, tag, out),
                Step::Pass { .. } | Step::PassHeld => None,
            };
            if effect.is_some() {
                input.run.flush(out);
                self.close_if_sent(input);
                return effect;
            }
        }
        None
    }

    /// Ends the handling of a server's bytes: sends the remaining bytes to the client, and checks whether the server
    /// has become free or its clean can go on. This comes last, since a server with unread bytes must not be lent to
    /// another client.
    #[inline]
    pub(crate) fn end(&mut self, mut input: ServerBytes<'_>, out: &mut Actions) -> Option<Effect> {
        input.run.flush(out);
        if let Some(pool) = input.counts_in.and_then(|pool| self.pools.get_mut(pool)) {
            pool.stats.now.sent += input.bytes.len() as u64;
            if pool.terms.repeat_max > 0 {
                self.close_if_sent(&input);
            }
        }
        let conn = input.server;
        let server = self.connections.server(conn)?;
        if !server.stream.is_quiet() {
            self.connections.schedule(self.env.now);
        }
        let server = self.connections.server(conn)?;
        match server.duty() {
            // If the server was lent during this call, pgweir has not read its new client's messages yet.
            &Duty::Lent { client, ref phase } if input.was_lent && phase.relays() => {
                let owed_max = self.env.snapshot.config.settings.max_pipelined_messages;
                backpressure::read_on_if_answered(server, client, owed_max as usize, out);
                may_be_free(server).then(|| Effect::Settle(conn))
            }
            Duty::Cleaning { .. } => Some(Effect::Server(ServerEffect::GoOnCleaning(conn))),
            Duty::Idle if !server.stream.is_quiet() => {
                // The server has begun an asynchronous message, so it is not lent until that message is complete.
                if let Some(pool) = self.pools.get_mut(server.pool()) {
                    pool.idle.retain(|&idle| idle != conn);
                }
                Some(Effect::Server(ServerEffect::BeginCleaning(conn)))
            }
            _ => None,
        }
    }

    /// Handles a complete message that came in parts, and was buffered.
    #[cold]
    fn handle_held(
        &mut self,
        input: &mut ServerBytes<'_>,
        to: Option<Token>,
        out: &mut Actions,
    ) -> Option<Effect> {
        let message = (self.connections.server(input.server)?)
            .stream
            .held()
            .to_vec();
        self.handle_step(input, (&message, None), to, out)
    }

    /// Handles a complete message, and forwards it. `place`: its position in the input; `None` if the message was
    /// buffered.
    #[inline(always)]
    fn handle_step(
        &mut self,
        input: &mut ServerBytes<'_>,
        (message, place): (&[u8], Option<(usize, usize)>),
        to: Option<Token>,
        out: &mut Actions,
    ) -> Option<Effect> {
        let mut acts_before = |server| {
            let server = self.connections.server(server);
            server.is_some_and(|server| server.session.must_act_before_ready())
        };
        let is_end = message[0] == backend::READY_FOR_QUERY;
        if place.is_none() || stands_alone(message[0]) || is_end && acts_before(input.server) {
            input.run.flush(out);
        }
        match (self.handle_message(input.server, message, out), place) {
            (Treatment::Pass, Some((start, end))) => input.run.add(to, start, end, out),
            (Treatment::Pass, None) => input.run.add_buffered(to, message, out),
            (Treatment::Keep, _) => input.run.flush(out),
            (Treatment::Act(effect), _) => return Some(effect),
        }
        self.follow_message(input.server, message[0], &mut input.run, out)
    }

    /// Processes a whole message of a server.
    #[inline]
    fn handle_message(&mut self, conn: Token, message: &[u8], out: &mut Actions) -> Treatment {
        let Some(server) = self.connections.known_server(conn, out) else {
            return Treatment::Keep;
        };
        let body = &message[HEADER_LEN..];
        server.replies.note_message(message[0]);
        match message[0] {
            backend::READY_FOR_QUERY => {
                server.note_ready(body[0]);
                if server.session.transaction.schema().is_some() && body[0] == b'I' {
                    server.settle_schema();
                }
                if server.session.transaction.has_ddl()
                    && body[0] == b'I'
                    && server.replies.is_last()
                {
                    role_settings::end_ddl(&self.env, server, out);
                }
                let is_known = matches!(body[0], b'I' | b'T' | b'E');
                let is_plain = !server.session.must_act_before_ready();
                let passes = is_known
                    && (is_plain || exchange::before_ready(&self.env, self.connections, conn, out));
                passes.into()
            }
            backend::COPY_IN_RESPONSE => {
                server.replies.copy_in_started();
                Treatment::Pass
            }
            backend::COPY_BOTH_RESPONSE => {
                server.begin_stream(self.env.directory.operator().departures().count_stream());
                Treatment::Pass
            }
            backend::PARAMETER_STATUS => self.parameter_changed(conn, body, out).into(),
            tag @ (backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE) => {
                self.mark_completed(conn, tag)
            }
            backend::PARAMETER_DESCRIPTION | backend::ROW_DESCRIPTION | backend::NO_DATA => {
                self.described(conn, message).into()
            }
            backend::NOTIFICATION_RESPONSE => {
                let effect =
                    keep_direct_notification(&self.env, self.connections, conn, message, out);
                Treatment::keep_and(effect)
            }
            backend::DATA_ROW => {
                exchange::take_answer(server, body);
                Treatment::Keep
            }
            backend::EMPTY_QUERY_RESPONSE => {
                self.statement_completed(conn, Ended::Completed(b""));
                Treatment::Pass
            }
            backend::PORTAL_SUSPENDED => {
                self.statement_completed(conn, Ended::Suspended);
                Treatment::Pass
            }
            backend::COMMAND_COMPLETE => {
                server.session.loan.forget_signals_after(body);
                let has_listening_client = server.session.loan.has_listening_client();
                self.statement_completed(conn, Ended::Completed(body));
                self.command_completed(conn, body);
                if has_listening_client {
                    unlisten_completed(self.connections, conn, Some(body));
                }
                Treatment::Pass
            }
            backend::NOTICE_RESPONSE => {
                server_reports::noticed(server, message, out);
                Treatment::Pass
            }
            _ => self.handle_error(conn, body, out),
        }
    }

    /// Handles the consequences of a server's message, after the message was forwarded.
    #[inline]
    fn follow_message(
        &mut self,
        conn: Token,
        tag: u8,
        run: &mut Run,
        out: &mut Actions,
    ) -> Option<Effect> {
        if tag == backend::COPY_IN_RESPONSE {
            return self.copy_began(conn);
        }
        if tag != backend::READY_FOR_QUERY {
            return None;
        }
        let server = self.connections.server(conn)?;
        if !matches!(server.status(), b'I' | b'T' | b'E') {
            return Some(Effect::fault(conn, "ReadyForQuery with an unknown status"));
        }
        if server.replies.front_mark().is_some() {
            // An error that was too long to be inspected has failed these messages.
            let marks = server.replies.take_marks();
            self.undo(conn, marks);
        }
        let server = self.connections.server(conn)?;
        match server.replies.ready() {
            Some(Request::Internal(own)) => {
                Some(Effect::Session(conn, SessionEffect::Answered(own)))
            }
            Some(Request::Simple | Request::Sync) => {
                run.flush(out);
                self.client_request_done(conn, out)
            }
            None => Some(Effect::fault(conn, "an unexpected ReadyForQuery")),
        }
    }

    /// Ends the COPY that a server has begun to read if the client has left, since no data will come.
    #[cold]
    fn copy_began(&mut self, conn: Token) -> Option<Effect> {
        let server = self.connections.server(conn)?;
        matches!(*server.duty(), Duty::Cleaning { .. })
            .then(|| Effect::Server(ServerEffect::EndCopy(conn)))
    }

    /// Updates the statistics after a client's request was answered, and checks whether the session has to be
    /// inspected.
    #[inline]
    fn client_request_done(&mut self, conn: Token, out: &mut Actions) -> Option<Effect> {
        let now = self.env.now;
        let server = self.connections.server(conn)?;
        let (pool_id, is_idle) = (server.pool(), server.is_outside_transaction());
        let is_native = server.is_exclusive();
        let (replies, running) = (&server.replies, &mut server.statements.running);
        running.add_rows(server.stream.take_rows());
        let (request, is_settled) = (replies.present_request(), replies.is_settled());
        running.ready(request, is_settled, now, &mut self.pools.statements);
        let Some(client_conn) = server.relays_for() else {
            answered_during_inspection(server, out);
            return exchange::inspection_due(server, conn);
        };
        let (client, server) = self.connections.pair(client_conn, conn)?;
        let (request_at, transaction_at) =
            (client.request.sent_at(), client.request.transaction_at());
        client.request.note_sent(now);
        if is_idle {
            client.request.note_transaction(now);
            let duration = now.since(transaction_at);
            let (env, statistics) = (&self.env, &mut self.pools.statements);
            statement_hooks::transaction_ended(env, client, server, duration, statistics, out);
        }
        recording::answered(&self.env, client, server, request_at, out);
        let pool = self.pools.get_mut(pool_id)?;
        let stats = &mut pool.stats.now;
        stats.query_count += 1;
        stats.query_time += now.since(request_at);
        pool.times.query.observe(now.since(request_at));
        if is_idle {
            stats.xact_count += 1;
            stats.xact_time += now.since(transaction_at);
            pool.times.transaction.observe(now.since(transaction_at));
        } else if pool.terms.mode == PoolMode::Statement && !is_native {
            server
                .retirement
                .replace_reason("transaction blocks not allowed in statement pooling mode");
            return Some(Effect::refuse(client_conn, Fault::StatementMode));
        }
        exchange::inspection_due(server, conn)
    }
}

impl RelayStop {
    /// Returns the effect for a client whose message the relay does not forward.
    #[cold]
    fn effect(self, client: Token, server: Token) -> Effect {
        match self {
            Self::Listens(command) => Effect::ChannelCommand(server, Box::new(command)),
            Self::Terminated => {
                Effect::Client(ClientEffect::Dismiss(client, "client close request"))
            }
            Self::Refused(fault) => Effect::refuse(client, fault),
        }
    }
}

/// Returns whether the loan of the server may end now, or messages of its client that waited for replies can be sent.
#[inline]
fn may_be_free(server: &Server) -> bool {
    let replies = &server.replies;
    replies.is_awaited() || replies.is_settled() && server.is_outside_transaction()
}

/// Handles the answer to a request that pgweir expected the server to ignore, while the client's session is being
/// inspected. The client gets a ReadyForQuery for this request, besides the one that is held back.
#[cold]
fn answered_during_inspection(server: &Server, out: &mut Actions) {
    if let Some(client) = server.holds_client() {
        out.send_made(client, |made| {
            MessageWriter::new(made).ready_for_query(server.status());
        });
    }
}

/// Returns whether pgweir may have to send another message before this one or instead of it.
fn stands_alone(tag: u8) -> bool {
    matches!(
        tag,
        backend::ERROR_RESPONSE | backend::NOTIFICATION_RESPONSE
    )
}
