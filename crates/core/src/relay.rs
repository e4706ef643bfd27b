//! Relays messages between a client connection and the server connection that is lent to it. This is the only module
//! that moves bytes from one to the other. Bytes of either side come in; actions that send them, and changes of the
//! pool's statistics, go out.

mod backpressure;
mod buffered_messages;
mod byte_run;
mod channels;
mod client_names;
mod client_to_server;
mod ddl;
mod fence;
mod internal_query;
mod named;
mod named_statements;
mod outdated_statements;
mod recording;
mod rejection;
mod server_reports;
mod statements;
mod text_effects;
mod unnamed;

use pgweir_config::PoolMode;
use pgweir_wire::{HEADER_LEN, Report, Severity, tag::backend};

use self::{
    byte_run::Run,
    client_to_server::{ClientMessages, Stopped},
};
use crate::{
    Action, Actions, Closed, ReadMode, Time, Token,
    backend::{Duty, Expected, Phase, Request, Step},
    client_listen::{keep_direct_notification, unlisten_completed},
    fault::{Fault, STALE_PLAN, Words},
    frontend::ClientDuty,
    operator_orders::retire_servers_of_database,
    worker::{Loss, Worker, send_early},
};

impl Worker {
    /// Handles the bytes of a client that has a server connection.
    #[inline]
    pub(crate) fn relay_up(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let settings = &self.snapshot.config.settings;
        let (longest, no_simple) = (settings.longest_message(), settings.disable_pqexec);
        let most_bytes = settings.max_client_prepared_bytes as usize;
        let Some(ClientDuty::Active(server_conn)) =
            self.table.client(conn).map(|client| &client.duty)
        else {
            return;
        };
        let server_conn = *server_conn;
        let Some((client, server)) = self.table.pair(conn, server_conn) else {
            return;
        };
        server.times.heard_at = now;
        let stale_plans = server.shared.catalog.stale_plans();
        server.statements.prepared.trust_since(stale_plans);
        if !matches!(server.duty.phase(), Some(Phase::Relaying)) {
            server.enter(Phase::Relaying);
        }
        let Some(pool) = self.pools.get_mut(server.pool()) else {
            return;
        };
        pool.use_current_catalog();
        // A server connection that belongs to one client keeps what the client makes there.
        let is_shared = server.purpose.owner.is_none();
        // The queries that clean the server for this client may be in front of the client's first request.
        let replies = &server.replies;
        if replies.is_settled() || replies.owed_to_client() == 0 && replies.is_synced() {
            client.request.sent_at = now;
            if server.status == b'I' {
                // In session mode the last transaction may have ended long ago.
                client.request.transaction_at = now;
                if let Some(sampler) = &mut self.sampler {
                    let last = sampler.relay(&mut client.recording, now);
                    out.list.extend(last.map(Action::Export));
                }
            }
        }
        pool.stats.now.received += bytes.len() as u64;
        let is_carried = is_shared && client.context.is_some();
        if is_carried {
            let generation = pool.certificates.generation();
            server
                .session
                .transaction
                .certified_by
                .get_or_insert(generation);
        }
        let mut upward = ClientMessages {
            client_conn: conn,
            client,
            server_conn,
            server,
            bindings: &mut self.bindings,
            statements: self.directory.statements(),
            stats: &mut pool.stats.now,
            most: if is_shared {
                pool.terms.prepared_max
            } else {
                0
            },
            most_bytes,
            is_carried,
            certificates: &pool.certificates,
            verdicts: &mut pool.verdicts,
            as_pgbouncer: pool.terms.as_pgbouncer,
            bound: None,
            owed_max: self.snapshot.config.settings.max_pipelined_messages as usize,
            longest,
            no_simple,
            left_database: None,
            channel_command: None,
            has_effects: false,
        };
        let ran = upward.run(bytes, out);
        if let Some(name) = upward.left_database.take() {
            let config = &self.snapshot.config;
            retire_servers_of_database(&self.directory, config, &name, now, out);
        }
        match ran {
            // A lone Flush or the end of a message changes nothing that a reply would report.
            Ok(()) => self.release_if_done(server_conn, now, out),
            Err(stopped) => self.stopped(conn, server_conn, stopped, now, out),
        }
    }

    /// Handles the reason why a client's bytes are not sent to the server.
    #[cold]
    fn stopped(
        &mut self,
        conn: Token,
        server_conn: Token,
        stopped: Stopped,
        now: Time,
        out: &mut Actions,
    ) {
        match stopped {
            Stopped::Listens(command) => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                let clients = parts.listening_clients;
                let effects = clients.command(env, connections, server_conn, command, out);
                self.carry_out(effects, now, out);
            }
            Stopped::Terminated => self.close_client(conn, "client close request", now, out),
            Stopped::Refused(fault) => self.refuse(conn, &fault, now, out),
        }
    }

    /// Handles the bytes of a server that has logged in.
    #[inline]
    pub(crate) fn relay_down(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let pool = server.pool();
        let reader = server.client();
        let was_lent = server.relays_for().or(server.holds_client()).is_some();
        if let Some(client) = server.relays_for() {
            send_early(client, server, out);
        }
        let mut run = Run::default();
        let mut at = 0;
        // Each inspected message may have changed everything, so the loop looks the server up each time.
        while let Some(server) = self.table.server(conn) {
            let front = server.replies.front();
            let expected = Expected {
                answers: server.replies.is_asked(),
                marks: front.is_mark,
                describes: front.is_describe,
                checks: server.replies.is_awaited(),
                rows: server.session.awaits_rows(),
                // While it is uncertain which replies have arrived, any message shows that the server is answering an
                // internal query.
                tags: server.session.reads_command_tags() || server.replies.is_uncertain(),
            };
            let step = match server.stream.next(bytes, &mut at, expected) {
                Ok(Some(step)) => step,
                Ok(None) => break,
                Err(violation) => {
                    run.flush(out);
                    self.server_fault(conn, &violation, now, out);
                    break;
                }
            };
            let swallow = matches!(server.replies.current(), Some(Request::Internal(_)));
            let to = server.relays_for().filter(|_| !swallow);
            match step {
                Step::Pass { start, end } => {
                    // A description may have been too long to be inspected.
                    server.statements.params = None;
                    run.add(to, start, end, out);
                }
                Step::PassHeld => {
                    run.flush(out);
                    if let Some(to) = to {
                        out.send_made(to, |made| made.extend_from_slice(server.stream.held()));
                        run.sent = true;
                    }
                }
                Step::Inspect { start, end } => {
                    let is_end = bytes[start] == backend::READY_FOR_QUERY;
                    if stands_alone(bytes[start])
                        || is_end && server.session.must_act_before_ready()
                    {
                        run.flush(out);
                    }
                    let passed = self.handle_message(conn, &bytes[start..end], now, out);
                    if self.table.server(conn).is_none() {
                        // The server connection was closed because of this message, and its client connection too.
                        run = Run::default();
                        break;
                    }
                    if passed {
                        run.add(to, start, end, out);
                    } else {
                        run.flush(out);
                    }
                    self.follow_message(conn, bytes[start], &mut run, now, out);
                }
                Step::InspectHeld => self.handle_held_message(conn, to, &mut run, now, out),
                Step::Overlong(tag) => self.passes_unread(conn, tag, now, out),
            }
        }
        run.flush(out);
        if reader.is_some()
            && let Some(pool) = self.pool(pool)
        {
            pool.stats.now.sent += bytes.len() as u64;
        }
        // This comes last, since a server with unread bytes must not be lent to another client.
        self.finish_server_bytes(conn, was_lent, now, out);
    }

    /// Does the same for a message that was buffered until it was complete.
    #[cold]
    fn handle_held_message(
        &mut self,
        conn: Token,
        to: Option<Token>,
        run: &mut Run,
        now: Time,
        out: &mut Actions,
    ) {
        run.flush(out);
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let message = server.stream.held().to_vec();
        if self.handle_message(conn, &message, now, out)
            && let Some(to) = to
        {
            out.send_made(to, |made| made.extend_from_slice(&message));
            run.sent = true;
        }
        self.follow_message(conn, message[0], run, now, out);
    }

    /// Processes a whole message of a server. Returns whether the message may be passed to the client.
    #[inline]
    fn handle_message(
        &mut self,
        conn: Token,
        message: &[u8],
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        let body = &message[HEADER_LEN..];
        server.replies.said(message[0]);
        match message[0] {
            backend::READY_FOR_QUERY => {
                server.status = body[0];
                if server.session.transaction.schema.is_some() && body[0] == b'I' {
                    server.settle_schema();
                }
                if server.session.transaction.ddl.is_some()
                    && body[0] == b'I'
                    && server.replies.is_last()
                {
                    server.session.transaction.ddl = None;
                }
                let is_known = matches!(body[0], b'I' | b'T' | b'E');
                let is_plain = !server.session.must_act_before_ready();
                is_known && (is_plain || self.before_ready(conn, now, out))
            }
            backend::COPY_IN_RESPONSE => {
                server.replies.copy_in_started();
                true
            }
            backend::PARAMETER_STATUS => self.parameter_changed(conn, body),
            tag @ (backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE) => {
                self.mark_completed(conn, tag, now, out)
            }
            backend::PARAMETER_DESCRIPTION | backend::ROW_DESCRIPTION | backend::NO_DATA => {
                self.described(conn, message)
            }
            backend::NOTIFICATION_RESPONSE => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                let effect = keep_direct_notification(env, connections, conn, message, out);
                self.carry_out(effect, now, out);
                false
            }
            backend::DATA_ROW => {
                self.take_answer(conn, body);
                false
            }
            backend::COMMAND_COMPLETE => {
                server.session.forget_signals_after(body);
                self.command_completed(conn, body);
                unlisten_completed(&mut self.table, conn, Some(body));
                true
            }
            backend::NOTICE_RESPONSE => {
                self.noticed(conn, message, out);
                true
            }
            _ => self.handle_error(conn, body, now, out),
        }
    }

    /// Does what follows from a server's message once that message is on its way to the client.
    #[inline]
    fn follow_message(
        &mut self,
        conn: Token,
        tag: u8,
        run: &mut Run,
        now: Time,
        out: &mut Actions,
    ) {
        if tag == backend::COPY_IN_RESPONSE {
            return self.copy_began(conn, run, now, out);
        }
        if tag != backend::READY_FOR_QUERY {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if !matches!(server.status, b'I' | b'T' | b'E') {
            run.flush(out);
            return self.server_fault(conn, &"ReadyForQuery with an unknown status", now, out);
        }
        if server.replies.front_mark().is_some() {
            // The error was too long to be inspected.
            let marks = server.replies.take_marks();
            self.undo(conn, marks);
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        match server.replies.ready() {
            Some(Request::Internal(own)) => {
                run.flush(out);
                self.internal_query_done(conn, own, now, out);
            }
            Some(Request::Simple | Request::Sync) => {
                run.flush(out);
                self.client_request_done(conn, now, out);
                self.inspect_if_held(conn, now, out);
            }
            None => {
                run.flush(out);
                self.server_fault(conn, &"ReadyForQuery that nobody asked for", now, out);
            }
        }
    }

    /// Ends the COPY that a server has begun to read if the client has left, since no data will come.
    #[cold]
    fn copy_began(&mut self, conn: Token, run: &mut Run, now: Time, out: &mut Actions) {
        if let Some(server) = self.table.server(conn)
            && matches!(server.duty, Duty::Cleaning { .. })
        {
            run.flush(out);
            self.end_copy(conn, now, out);
        }
    }

    /// Checks, after all received bytes of a server are handled, whether its client or its cleaning is done.
    #[inline]
    fn finish_server_bytes(&mut self, conn: Token, was_lent: bool, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        match &server.duty {
            // If the server was lent during this call, its new client's messages have yet to be read.
            Duty::Lent(exchange) if was_lent && exchange.phase().relays() => {
                let client = exchange.client();
                self.read_on_if_answered(conn, client, out);
                self.release_if_done(conn, now, out);
            }
            Duty::Cleaning { .. } => self.continue_cleaning(conn, now, out),
            Duty::Idle if !server.stream.is_quiet() => {
                // The server has begun an asynchronous message, so it is not lent until that message is complete.
                let pool = server.pool();
                if let Some(pool) = self.pool(pool) {
                    pool.idle.retain(|&idle| idle != conn);
                }
                self.begin_cleaning(conn, now, out);
            }
            _ => {}
        }
    }

    /// Updates the statistics after a client's request was answered.
    #[inline]
    fn client_request_done(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let (pool_id, is_idle) = (server.pool(), server.status == b'I');
        let is_native = server.purpose.owner.is_some();
        let Some(client_conn) = server.relays_for() else {
            return self.answered_during_inspection(conn, out);
        };
        let Some(client) = self.table.client(client_conn) else {
            return;
        };
        let (request_at, transaction_at) = (client.request.sent_at, client.request.transaction_at);
        client.request.sent_at = now;
        if is_idle {
            client.request.transaction_at = now;
        }
        if client.recording.is_some() {
            self.record_answer(client_conn, conn, request_at, now, out);
        }
        let Some(pool) = self.pool(pool_id) else {
            return;
        };
        let stats = &mut pool.stats.now;
        stats.query_count += 1;
        stats.query_time += now.since(request_at);
        pool.times.query.observe(now.since(request_at));
        if is_idle {
            stats.xact_count += 1;
            stats.xact_time += now.since(transaction_at);
            pool.times.transaction.observe(now.since(transaction_at));
        } else if pool.terms.mode == PoolMode::Statement && !is_native {
            self.refuse_transaction(client_conn, conn, now, out);
        }
    }

    /// Processes an ErrorResponse. Returns whether the client gets it unchanged.
    #[cold]
    pub(super) fn handle_error(
        &mut self,
        conn: Token,
        body: &[u8],
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        if !matches!(server.replies.current(), Some(Request::Internal(_))) {
            server.session.has_failed();
        }
        let marks = server.replies.failed();
        unlisten_completed(&mut self.table, conn, None);
        let Ok(report) = Report::parse(body) else {
            self.undo(conn, marks);
            return true;
        };
        if report.routine == STALE_PLAN.as_bytes()
            && let Some(server) = self.table.server(conn)
            // A client's SQL EXECUTE says nothing about the statements that clients share.
            && !matches!(server.replies.current(), Some(Request::Simple))
        {
            server.shared.catalog.plan_is_stale();
        }
        if let Some(message) = self.statements_failed(conn, marks, body, &report, out) {
            if let Some(client) = self
                .table
                .server(conn)
                .and_then(|server| server.relays_for())
            {
                out.send_made(client, |made| made.extend_from_slice(&message));
            }
            return false;
        }
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        if matches!(report.severity, b"FATAL" | b"PANIC") {
            // The server is about to close. The error that the client gets depends on what the server was doing.
            server.link.last_words = Some(Words::of(&report));
            if matches!(server.duty, Duty::Idle) {
                // The server may take its time to close, and must not be lent meanwhile.
                out.list.push(Action::Close(conn));
                self.server_gone(conn, &Closed::Eof, now, out);
            }
            return false;
        }
        if !server.replies.is_asked() {
            self.server_fault(conn, &"an error that nobody asked for", now, out);
            return false;
        }
        if let Some(Request::Internal(own)) = server.replies.current() {
            self.internal_query_failed(conn, own, &report, now, out);
            return false;
        }
        if self.sampler.is_some() {
            self.record_error(conn, report.code);
        }
        true
    }

    /// Refuses a transaction that was begun in statement mode.
    #[cold]
    fn refuse_transaction(&mut self, client: Token, server: Token, now: Time, out: &mut Actions) {
        if let Some(server) = self.table.server(server) {
            server.retirement.reason =
                Some("transaction blocks not allowed in statement pooling mode");
        }
        self.refuse(client, &Fault::StatementMode, now, out);
    }

    /// Reports to a client that its server connection is lost. Returns whether the client connection can stay open.
    pub(crate) fn report_server_loss(
        &mut self,
        client_conn: Token,
        loss: &Loss,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.table.client(client_conn) else {
            return true;
        };
        let pool = client.pool;
        let is_session = pool
            .and_then(|pool| self.pool(pool))
            .is_some_and(|pool| pool.terms.mode == PoolMode::Session);
        let Some(client) = self.table.client(client_conn) else {
            return true;
        };
        let must_go = is_session
            || loss.was_in_transaction
            || loss.mid_message
            || !client.socket.stream.is_at_boundary();
        client.duty = ClientDuty::Idle;
        if must_go {
            if loss.mid_message {
                // The client is in the middle of a message, so it would not understand an error.
                self.close_client(client_conn, &loss.fault.to_string(), now, out);
            } else {
                self.refuse(client_conn, &loss.fault, now, out);
            }
            return false;
        }
        for _ in 0..loss.owed {
            out.send_made(client_conn, |bytes| {
                loss.fault.write(Severity::Error, bytes);
                pgweir_wire::MessageWriter::new(bytes).ready_for_query(b'I');
            });
        }
        match self.table.client(client_conn) {
            Some(client) if client.socket.early.is_some() => self.check_out(client_conn, now, out),
            _ => out.read(client_conn, ReadMode::Notify),
        }
        true
    }
}

/// Returns whether pgweir may have to send another message before this one or instead of it.
fn stands_alone(tag: u8) -> bool {
    matches!(
        tag,
        backend::ERROR_RESPONSE | backend::NOTIFICATION_RESPONSE
    )
}
