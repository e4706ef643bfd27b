//! Disconnects: client connections are closed, and everything that they used is given back.
//!
//! This module owns no state. A client leaves the queue, its LISTENs end, its cancel key and its statements are
//! forgotten, and the server that it used is cleaned or closed. A client may hang up while pgweir does not read from it
//! (`hang_up`). The request of a client that waits can be discarded (`discard`).
//!
//! Input: clients that left or sent Terminate, and clients whose connections other modules close, with an error or
//! without one. Output: the last messages to the client, log lines, and effects: other modules release the client's
//! part of their state ([`ClientEffect::ReleaseClient`]), the client's server is cleaned or closed, the pool has one
//! client fewer.

mod discard;
mod hang_up;

use std::sync::Arc;

use pgweir_config::PoolMode;
use pgweir_wire::{Severity, tag::frontend};

use crate::{
    Action, Actions, Closed, Level, Shutdown, Token,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, ConsoleEffect, Effect, Effects, Env, ServerEffect},
    frontend::{Client, ClientDuty},
    loan::AbandonedSession,
    login::ClientLogins,
    measurement::recording,
    operators::shutdown,
    pooling::LocalPools,
    shared::events::{EventKind, EventSource, NAME_MAX, Occurrence, cut},
};

/// The reason for closing a server that was opened for one client.
const OWNER_LEFT: &str = "the client that it was opened for has left";

/// An event of a client that leaves, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct Disconnect<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    /// The counts of clients and of the results of logins.
    pub(crate) logins: &'w mut ClientLogins,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl Disconnect<'_> {
    /// Closes a client's connection; `why` is for the log.
    pub(crate) fn dismiss(&mut self, conn: Token, why: &str, out: &mut Actions) {
        self.log_end(conn, why, out);
        self.close(conn, out);
    }

    /// Sends the client the error, and closes its connection.
    pub(crate) fn refuse(&mut self, conn: Token, fault: &Fault, out: &mut Actions) {
        let client = self.connections.client(conn);
        let server = match client {
            Some(client) => {
                recording::refused(&self.env, client, fault, out);
                let server = client.server();
                if logs_in(client) {
                    self.record_failed_login(conn, fault, out);
                }
                server
            }
            None => None,
        };
        let server = server.and_then(|server| self.connections.server(server));
        let mid_message = server.is_some_and(|server| !server.stream.is_at_boundary());
        self.log_end(conn, &fault.to_string(), out);
        // In the middle of a server's message the client could not parse an error.
        if !mid_message {
            self.log_pooler_error(conn, fault, out);
            // The line is written before the error is sent: a user who looks into the log after the error finds it.
            out.list.push(Action::WriteLog);
            if fault.is_sent_to_client() {
                out.send_made(conn, |bytes| fault.write(Severity::Fatal, bytes));
            }
        }
        self.close(conn, out);
    }

    /// Records a failed login: an event and an audit line. Failed logins of a user of the userlist are a separate
    /// event. Anybody can invent other names, so failed logins with such names are one event, which has the client's
    /// address only.
    fn record_failed_login(&mut self, conn: Token, fault: &Fault, out: &mut Actions) {
        let result = fault.login_result();
        self.logins.results_mut().add(result);
        let config = &self.env.snapshot.config;
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let (database, user) = client.database_and_user();
        let is_known = config.database(database).is_some();
        let database = if is_known { database } else { "" };
        let is_listed = self.env.snapshot.users.get(user).is_some();
        let user = if is_listed { user } else { "" };
        let text = format!(
            "login of a client failed: {}, SQLSTATE {}",
            result.words(),
            fault.sqlstate()
        );
        let address = client.origin.remote.without_port();
        let about = describe_login(client, is_listed);
        let occurrence = Occurrence {
            kind: EventKind::LoginFailed,
            about: (database, user),
            text: &text,
            source: Some(EventSource {
                address: &address,
                about: &about,
            }),
        };
        self.env.directory.note_occurrence(occurrence, self.env.now);
        if config.settings.log_audit {
            let audit = client.audit("login", String::new(), format!("failed: {fault}"));
            out.audit(client.subject(), audit);
        }
    }

    fn log_end(&mut self, conn: Token, why: &str, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_disconnections
            && let Some(client) = self.connections.client(conn)
        {
            let age = self.env.now.since(client.origin.connected_at) / 1_000_000;
            let text = format!("closing because: {why} (age={age}s)");
            out.log(Level::Log, client.subject(), text);
        }
    }

    fn log_pooler_error(&mut self, conn: Token, fault: &Fault, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_pooler_errors
            && let Some(client) = self.connections.client(conn)
        {
            let text = format!("pooler error: {fault}");
            out.log(Level::Warning, client.subject(), text);
        }
    }

    /// Handles a client connection that is gone.
    pub(crate) fn gone(&mut self, conn: Token, why: &Closed, out: &mut Actions) {
        if matches!(why, Closed::Tls(_))
            && let Some(client) = self.connections.client(conn)
            && client.tls().is_none()
        {
            self.logins.results_mut().client_tls_failed += 1;
        }
        let why = match why {
            Closed::Eof => "client unexpected eof".to_owned(),
            Closed::Error(error) => format!("client connection failed: {error}"),
            Closed::Tls(error) => format!("TLS handshake failed: {error}"),
        };
        self.log_end(conn, &why, out);
        self.forget(conn, out);
    }

    /// Handles the answer to a peek at a client's next byte. pgweir peeks if the client hung up while pgweir did not
    /// read from it, or if a server would have to be checked first for the client.
    pub(crate) fn peeked(&mut self, conn: Token, first: Option<u8>, out: &mut Actions) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        // A client with a server is in the middle of a request, and its bytes are read in order to the end, unless the
        // server has received all that the client has sent.
        let has_sent_all = matches!(*client.duty(), ClientDuty::Active(_))
            && first.is_none()
            && !client.socket.has_early();
        if client.server().is_some() && !has_sent_all {
            return;
        }
        // Within a header, the byte is no tag: a byte of the length may have the value of Terminate's tag.
        let is_tag = client.socket.stream.partial().is_empty();
        match first {
            None => {
                out.list.push(Action::Close(conn));
                self.gone(conn, &Closed::Eof, out);
            }
            Some(frontend::TERMINATE) if is_tag => self.dismiss(conn, "client close request", out),
            Some(_) if client.socket.is_peeked() && matches!(*client.duty(), ClientDuty::Idle) => {
                self.effects
                    .push(Effect::Client(ClientEffect::CheckOut(conn)));
            }
            // The client has sent a last request, which is served in its turn.
            Some(_) => {}
        }
    }

    fn close(&mut self, conn: Token, out: &mut Actions) {
        out.list.push(Action::Close(conn));
        self.forget(conn, out);
    }

    /// Removes a client connection. The effects release the client's part of other modules' state.
    pub(crate) fn forget(&mut self, conn: Token, out: &mut Actions) {
        let (env, directory) = (self.env, self.env.directory);
        (self.pools).leave_queue(env.worker, self.connections, conn, out);
        let Some(Conn::Client(mut client)) = self.connections.remove(conn) else {
            return;
        };
        recording::left(&env, self.connections, &mut client, out);
        self.logins.client_left();
        directory.client_left(
            client
                .names()
                .map(|names| &**names)
                .filter(|_| client.is_admitted()),
        );
        if client.pool().is_some() && directory.note_stayed_client_left() {
            shutdown::announce(env.worker, directory, Shutdown::WaitForClients, out);
        }
        if client.is_past_limits() {
            directory.bypass().give_back();
        }
        let had = self.leave_pool(&client);
        let follows = match client.leave() {
            ClientDuty::Active(server) => {
                Some(Effect::Server(ServerEffect::CleanAbandoned(server, had)))
            }
            ClientDuty::Preparing(server) => {
                let context = client.context.as_ref();
                let had = AbandonedSession {
                    mid_message: false,
                    // A server that rejected the startup parameters has kept none of them.
                    must_be_cleaned: had.must_be_cleaned
                        || context.is_some_and(|context| !context.failed),
                    ..had
                };
                Some(Effect::Server(ServerEffect::CleanAbandoned(server, had)))
            }
            ClientDuty::Console(_) => Some(Effect::Console(ConsoleEffect::Left(conn))),
            ClientDuty::Opening(server) => Some(Effect::close(server, OWNER_LEFT)),
            _ => None,
        };
        let shared = client
            .pool()
            .filter(|_| !client.is_exclusive() && !client.has_postponed_login());
        let shared = shared.and_then(|pool| self.pools.get(pool));
        let shared = shared.map(|pool| Arc::clone(&pool.shared));
        self.effects
            .push(Effect::Client(ClientEffect::ReleaseClient(conn, client)));
        self.effects
            .extend(shared.map(|conn| Effect::Client(ClientEffect::PoolClientLeft(conn))));
        self.effects.extend(follows);
    }

    /// Counts a client that leaves its pool. Returns the session state that it leaves on its server.
    fn leave_pool(&mut self, client: &Client) -> AbandonedSession {
        let mut had = AbandonedSession {
            mid_message: !client.socket.stream.is_at_boundary(),
            ..AbandonedSession::default()
        };
        if let Some(context) = &client.context {
            had.must_be_cleaned = context.is_pinned();
            had.outlives_clean = context.pins.require_close();
        }
        if let Some(pool) = client.pool().and_then(|pool| self.pools.get_mut(pool)) {
            pool.remove_client(self.env.now);
            had.was_session = pool.terms.mode == PoolMode::Session;
            if !pool.has_clients() && !pool.has_servers() {
                self.connections.schedule(self.env.now);
            }
        }
        had
    }
}

/// Returns whether the client has not logged in yet.
fn logs_in(client: &Client) -> bool {
    let is_new = matches!(
        *client.duty(),
        ClientDuty::Login(_) | ClientDuty::Waiting { at_login: true, .. }
    );
    is_new || client.has_postponed_login()
}

/// Returns what a client said of itself at its login: its application, and its user unless the event names it.
fn describe_login(client: &Client, is_user_named: bool) -> String {
    let user = client.database_and_user().1;
    let application = String::from_utf8_lossy(client.tracked.application_name());
    let said = [
        ("user", if is_user_named { "" } else { user }),
        ("application", &application),
    ];
    let said = said.into_iter().filter(|(_, name)| !name.is_empty());
    let said: Vec<String> = said
        .map(|(what, name)| format!("{what} \"{}\"", cut(name, NAME_MAX)))
        .collect();
    said.join(", ")
}
