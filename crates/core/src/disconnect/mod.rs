//! Disconnects: client connections are closed, and the servers that they used are cleaned or closed.
//!
//! A client leaves the queue, its LISTENs end, and its cancel key is forgotten. Its server is closed if it was opened
//! for this client, or if the client left in the middle of a message or of a pipeline. Other servers are cleaned,
//! or closed if cleaning is impossible.

use pgweir_config::PoolMode;
use pgweir_wire::{MessageWriter, Severity};

use super::{Worker, notification_forwarding::send_listen_note, pins::uncount_kept};
use crate::{
    Action, Actions, Closed, Level, ReadMode, Shutdown, Time, Token,
    backend::{Duty, InternalQuery, Sequences},
    connections::Conn,
    events::EventKind,
    fault::Fault,
    frontend::{Client, ClientDuty},
    session::Class,
    shutdown,
    stats::LoginResult,
    takeover::ListenNote,
};

/// The reason for closing a server that was opened for one client.
const OWNER_LEFT: &str = "the client that it was opened for has left";

impl Worker {
    /// Closes a client's connection; `why` is for the log.
    pub(crate) fn close_client(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        self.log_end(conn, why, now, out);
        self.disconnect_client(conn, now, out);
    }

    /// Sends the client the error, and closes its connection.
    pub(crate) fn refuse(&mut self, conn: Token, fault: &Fault, now: Time, out: &mut Actions) {
        let client = self.table.client(conn);
        let logs_in = |client: &mut Client| {
            let is_new = matches!(
                client.duty,
                ClientDuty::Login(_) | ClientDuty::Waiting { at_login: true, .. }
            );
            is_new || client.login.is_some()
        };
        if client.is_some_and(logs_in) {
            let result = LoginResult::of_sqlstate(fault.sqlstate());
            self.logins.results_mut().add(result);
            self.record_failed_login(conn, result, fault, now, out);
        }
        if self.sampler.is_some() {
            self.record_refusal(conn, fault, out);
        }
        let server = self.table.client(conn).and_then(|client| client.server());
        let mid_message = server
            .and_then(|server| self.table.server(server))
            .is_some_and(|server| !server.stream.is_at_boundary());
        self.log_end(conn, &fault.to_string(), now, out);
        // In the middle of a server's message the client could not parse an error.
        if !mid_message {
            self.log_pooler_error(conn, fault, out);
            // A user who has seen the error finds its line in the log at once.
            out.list.push(Action::WriteLog);
            if fault.is_sent_to_client() {
                out.send_made(conn, |bytes| fault.write(Severity::Fatal, bytes));
            }
        }
        self.disconnect_client(conn, now, out);
    }

    /// Records a failed login: an event without the user, whose name anybody can choose, and an audit line.
    fn record_failed_login(
        &mut self,
        conn: Token,
        result: LoginResult,
        fault: &Fault,
        now: Time,
        out: &mut Actions,
    ) {
        let config = &self.snapshot.config;
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let (database, _) = client.database_and_user();
        let is_known = config.database(database).is_some();
        let about = if is_known { database } else { "" };
        let text = format!(
            "login of a client failed: {}, SQLSTATE {}",
            result.name(),
            fault.sqlstate()
        );
        self.directory
            .note_event(EventKind::LoginFailed, (about, ""), &text, now);
        if config.settings.log_audit {
            let audit = client.audit("login", String::new(), format!("failed: {fault}"));
            out.audit(client.subject(), audit);
        }
    }

    fn log_end(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        if self.snapshot.config.settings.log_disconnections
            && let Some(client) = self.table.client(conn)
        {
            let age = now.since(client.origin.connected_at) / 1_000_000;
            let text = format!("closing because: {why} (age={age}s)");
            out.log(Level::Log, client.subject(), text);
        }
    }

    fn log_pooler_error(&mut self, conn: Token, fault: &Fault, out: &mut Actions) {
        if self.snapshot.config.settings.log_pooler_errors
            && let Some(client) = self.table.client(conn)
        {
            let text = format!("pooler error: {fault}");
            out.log(Level::Warning, client.subject(), text);
        }
    }

    /// Handles a client connection that is gone.
    pub(crate) fn client_gone(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        if matches!(why, Closed::Tls(_))
            && let Some(client) = self.table.client(conn)
            && client.tls.is_none()
        {
            self.logins.results_mut().client_tls_failed += 1;
        }
        let why = match why {
            Closed::Eof => "client unexpected eof".to_owned(),
            Closed::Error(error) => format!("client connection failed: {error}"),
            Closed::Tls(error) => format!("TLS handshake failed: {error}"),
        };
        self.log_end(conn, &why, now, out);
        self.forget_client(conn, now, out);
    }

    /// Handles the answer to a peek at a client that hung up while it was not read, or whose server would
    /// have to be checked first.
    pub(crate) fn client_peeked(
        &mut self,
        conn: Token,
        first: Option<u8>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        // A client with a server is in the middle of a request, and its bytes are read in order to the end, unless the
        // server has received all that the client has sent.
        let has_sent_all = matches!(client.duty, ClientDuty::Active(_))
            && first.is_none()
            && client.socket.early.is_none();
        if client.server().is_some() && !has_sent_all {
            return;
        }
        // In the middle of a header the byte is no tag: a length may contain the byte of Terminate.
        let is_tag = client.socket.stream.partial().is_empty();
        match first {
            None => {
                out.list.push(Action::Close(conn));
                self.client_gone(conn, &Closed::Eof, now, out);
            }
            Some(pgweir_wire::tag::frontend::TERMINATE) if is_tag => {
                self.close_client(conn, "client close request", now, out)
            }
            Some(_) if client.socket.peeked && matches!(client.duty, ClientDuty::Idle) => {
                self.check_out(conn, now, out);
            }
            // The client has sent a last request, which is served in its turn.
            Some(_) => {}
        }
    }

    /// Closes a server that is being cleaned after its client.
    pub(crate) fn close_if_cleaning(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let server = self.table.server(conn);
        if server.is_some_and(|server| server.is_cleaning()) {
            self.close_server(conn, "unclean server", now, out);
        }
    }

    fn disconnect_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        out.list.push(Action::Close(conn));
        self.forget_client(conn, now, out);
    }

    pub(super) fn forget_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        self.leave_queue(conn);
        let Some(Conn::Client(mut client)) = self.table.remove(conn) else {
            return;
        };
        if client.recording.is_some() {
            self.record_departure(&mut client, now, out);
        }
        client.statements.clear(&mut self.bindings);
        self.cancel_requests.drop_key(conn, &client);
        if let Some(listening) = client.listening.take() {
            if listening.taken_over.is_some() {
                send_listen_note(&client.cancel_key(), ListenNote::Done, out);
            }
            let parts = self.parts(now);
            let clients = parts.listening_clients;
            clients.stop(&parts.env, conn, *listening, out);
        }
        self.logins.client_left();
        self.directory
            .client_left(client.names.as_deref(), client.is_parked());
        if client.pool.is_some() && self.directory.stays_no_more() {
            shutdown::announce(self.id, &self.directory, Shutdown::WaitForClients, out);
        }
        let mut had = AbandonedSession {
            mid_message: !client.socket.stream.is_at_boundary(),
            ..AbandonedSession::default()
        };
        if let Some(context) = &client.context {
            had.must_be_cleaned = context.is_pinned();
            had.spoils = context.pins.require_close();
        }
        if let Some(pool) = client.pool.and_then(|pool| self.pool(pool)) {
            pool.clients -= 1;
            pool.empty_since = now;
            had.was_session = pool.terms.mode == PoolMode::Session;
            if pool.clients == 0 && pool.servers == 0 {
                self.schedule(now);
            }
        }
        if let Some(pool) = client.pool
            && client.exclusive.is_none()
            && client.login.is_none()
            && let Some(pool) = self.pool(pool)
        {
            let shared = std::sync::Arc::clone(&pool.shared);
            self.uncount_pool_client(&shared, now, out);
        }
        match std::mem::replace(&mut client.duty, ClientDuty::Idle) {
            ClientDuty::Active(server) => self.clean_abandoned_server(server, had, now, out),
            ClientDuty::Preparing(server) => {
                had.mid_message = false;
                // Startup parameters that failed have left nothing on the server.
                had.must_be_cleaned |= client.context.as_ref().is_some_and(|own| !own.failed);
                self.clean_abandoned_server(server, had, now, out);
            }
            ClientDuty::Console(_) => self.console_left(conn, out),
            ClientDuty::Opening(server) => self.close_server(server, OWNER_LEFT, now, out),
            _ => {}
        }
        if client.is_past_limits() {
            self.directory.bypass().give_back();
        }
    }

    /// Ends what a client began on this server before it left.
    fn clean_abandoned_server(
        &mut self,
        conn: Token,
        had: AbandonedSession,
        now: Time,
        out: &mut Actions,
    ) {
        let closes = self.may_survive_clean(conn);
        if closes || had.spoils {
            self.count_unclean_close(conn);
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if server.purpose.owner.is_some() {
            return self.close_server(conn, OWNER_LEFT, now, out);
        }
        if had.mid_message {
            return self.close_server(conn, "client left in the middle of a message", now, out);
        }
        if uncount_kept(server) {
            server.retirement.reason.get_or_insert("above pool_size");
        }
        // Reading from the server may have been held back for the client.
        out.read(conn, ReadMode::Deliver);
        server.replies.client_left();
        if server.session.dirt.class() >= Class::Sequences {
            server.session.sequences = Sequences::Mixed;
        }
        // The session state that the client left was not inspected.
        server.session.unclean |= server.session.dirt.class() == Class::Opaque
            || server.session.extension.is_new
            || had.must_be_cleaned;
        if had.spoils || closes {
            server
                .retirement
                .reason
                .get_or_insert("its session can't be cleaned");
        }
        server.next_loan.needs_reset |=
            had.was_session || self.snapshot.config.settings.server_reset_query_always;
        if server.replies.is_settled()
            && server.status == b'I'
            && !server.next_loan.needs_reset
            && !server.session.is_to_clean()
        {
            return self.give_back(conn, false, now, out);
        }
        if server.replies.is_uncertain() && !server.replies.is_settled() {
            let why = "client left, and nobody knows what is outstanding";
            return self.close_server(conn, why, now, out);
        }
        if server.replies.is_unsynced() {
            // A Sync would commit what PostgreSQL rolls back when a client leaves without one.
            let why = "client left in the middle of a pipeline";
            return self.close_server(conn, why, now, out);
        }
        self.begin_cleaning(conn, now, out);
    }

    /// Ends the COPY of a client that left before it had sent the data.
    pub(crate) fn end_copy(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if server.replies.is_unsynced() {
            let why = "client left in the middle of a COPY";
            return self.close_server(conn, why, now, out);
        }
        if server.replies.is_copy_in() {
            server
                .replies
                .client_sent(pgweir_wire::tag::frontend::COPY_FAIL);
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).copy_fail("the client left");
            });
        }
    }

    /// Starts to clean the server. No client gets the server until it is clean.
    pub(crate) fn begin_cleaning(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let patience = self.snapshot.config.settings.abandoned_query_timeout.0;
        let until = if patience == 0 {
            Time(u64::MAX)
        } else {
            now.after(patience)
        };
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.times.freed_at = now;
        let duty = Duty::Cleaning {
            until,
            rolled_back: false,
        };
        server.duty = duty;
        self.schedule(now);
        self.end_copy(conn, now, out);
        self.continue_cleaning(conn, now, out);
    }

    /// Takes the next step of cleaning, once the last one was answered.
    pub(crate) fn continue_cleaning(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if !server.replies.is_settled() || !server.stream.is_quiet() {
            return;
        }
        if server.replies.is_uncertain() {
            server
                .retirement
                .reason
                .get_or_insert("unexpected replies may follow");
        }
        if server.session.report_requires_close() {
            server
                .retirement
                .reason
                .get_or_insert("its session can't be cleaned");
        }
        if let Some(why) = server.retirement.reason {
            return self.close_server(conn, why, now, out);
        }
        if server.status != b'I' {
            if let Duty::Cleaning {
                rolled_back: true, ..
            } = server.duty
            {
                return self.close_server(conn, "ROLLBACK left a transaction open", now, out);
            }
            if let Duty::Cleaning { rolled_back, .. } = &mut server.duty {
                *rolled_back = true;
            }
            server.ask(InternalQuery::Rollback);
            return out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).query(b"ROLLBACK");
            });
        }
        if std::mem::take(&mut server.next_loan.needs_reset) {
            let query = self.snapshot.config.settings.server_reset_query.as_bytes();
            if !query.is_empty() {
                server.ask(InternalQuery::Reset);
                return out.send_made(conn, |bytes| {
                    MessageWriter::new(bytes).query(query);
                });
            }
        }
        if server.session.is_to_clean() {
            return self.clean_session(conn, now, out);
        }
        self.place_server(conn, now, out);
    }

    /// Notes that `server_reset_query` was run.
    pub(crate) fn was_reset(&mut self, conn: Token) {
        let pool = self.table.server(conn).map(|server| server.pool());
        let engine = pool
            .and_then(|pool| self.pool(pool))
            .is_some_and(|pool| pool.terms.engine);
        let is_thorough = self.snapshot.config.settings.server_reset_query == "DISCARD ALL";
        if let Some(server) = self.table.server(conn) {
            server.session.cleaned();
            // A reset query other than DISCARD ALL may leave session state, which other clients of the pool would see.
            server.session.unclean = !is_thorough && engine;
        }
    }
}

/// The session state that a client leaves on its server.
#[derive(Debug, Clone, Copy, Default)]
struct AbandonedSession {
    was_session: bool,
    mid_message: bool,
    /// Whether the session holds state, or may hold unknown state.
    must_be_cleaned: bool,
    /// Whether no cleaning can remove the state.
    spoils: bool,
}
