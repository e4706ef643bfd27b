//! Logins to servers: the connection is open, the server asks for a proof, and is ready, refuses, or does not answer.

use std::sync::{Arc, atomic::Ordering};

use pgweir_auth::scram::DerivedKeys;

use super::ServerConnections;
use crate::{
    Action, Actions, Address, ConnectError, Level, Source, Token,
    backend::{Duty, LoginError, Progress, Server, ServerLogin},
    effect::{Effect, ListenerEffect},
    pool::Connecting,
    shared_pool::{Failure, HostLogin, ServerParameters},
};

impl ServerConnections<'_> {
    /// Handles a connection that is open. `nonce` is for the login.
    pub(crate) fn connected(
        &mut self,
        conn: Token,
        addresses: (Address, Address),
        nonce: [u8; 18],
        out: &mut Actions,
    ) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        server.link.addresses = Some(addresses);
        server.times.connected_at = self.env.now;
        self.open_login(conn, nonce, out);
        if self.env.snapshot.config.settings.log_connections {
            let from = match addresses.0 {
                Address::Tcp(local) => format!(" (from {local})"),
                Address::Unix => String::new(),
            };
            let text = format!("new connection to server{from}");
            out.log(Level::Log, self.subject(conn), text);
        }
    }

    /// Handles bytes of a server that pgweir logs in to.
    pub(crate) fn login_bytes(&mut self, conn: Token, bytes: &[u8], out: &mut Actions) {
        if let Some(login) = self.login(conn) {
            login.push(bytes);
        }
        if self.take_tls_answer(conn, out) {
            return;
        }
        self.login_steps(conn, out);
    }

    fn login(&mut self, conn: Token) -> Option<&mut ServerLogin> {
        match &mut self.connections.server(conn)?.duty {
            Duty::Login(login) => Some(login),
            _ => None,
        }
    }

    fn login_steps(&mut self, conn: Token, out: &mut Actions) {
        let directory = self.env.directory;
        loop {
            let Some(login) = self.login(conn) else {
                return;
            };
            let start = out.scratch.len();
            let progress = login.step(directory.names(), &mut out.scratch);
            let end = out.scratch.len();
            if start < end {
                let source = Source::Scratch(start..end);
                out.list.push(Action::Send { to: conn, source });
            }
            match progress {
                Ok(None) => return,
                Ok(Some(Progress::Wait | Progress::Send)) => {}
                Ok(Some(Progress::QueryFailed(words))) => {
                    let text = format!("connect_query failed: {}", words.message);
                    out.log(Level::Warning, self.subject(conn), text);
                }
                Ok(Some(Progress::Derive(job))) => {
                    return out.list.push(Action::Derive { conn, job });
                }
                Ok(Some(Progress::Ready {
                    server_parameters,
                    key,
                })) => {
                    let rest = login.has_rest();
                    if let Some(server) = self.connections.server(conn) {
                        server.link.key = key;
                        if rest {
                            server.retirement.reason =
                                Some("it sent more after its login than it should");
                        }
                    }
                    return self.ready(conn, server_parameters, out);
                }
                Err(error) => return self.refused(conn, &error, out),
            }
        }
    }

    /// Takes the keys that [`Action::Derive`] asked for.
    pub(crate) fn keys_derived(&mut self, conn: Token, keys: &DerivedKeys, out: &mut Actions) {
        let Some(login) = self.login(conn) else {
            return;
        };
        let start = out.scratch.len();
        let outcome = login.derived(keys, &mut out.scratch);
        let end = out.scratch.len();
        match outcome {
            Ok(()) => {
                let source = Source::Scratch(start..end);
                out.list.push(Action::Send { to: conn, source });
                self.login_steps(conn, out);
            }
            Err(error) => self.refused(conn, &error, out),
        }
    }

    /// Puts a server that has logged in to use.
    fn ready(&mut self, conn: Token, server_parameters: ServerParameters, out: &mut Actions) {
        let (directory, now) = (self.env.directory, self.env.now);
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        server.tracked = server_parameters.tracked.clone();
        server.session.extension.last = server_parameters.report.clone();
        server.session.read_as(directory.names(), &server.tracked);
        server.session.connected = Some(server.shared.catalog.connected());
        server.times.freed_at = now;
        let is_for_one = server.purpose.owner.is_some() || server.purpose.listens.is_some();
        if let (true, Some(why)) = (is_for_one, server.retirement.reason) {
            // The bytes that the server sent after its login are lost.
            out.list.push(Action::Close(conn));
            return self.drop_login(conn, Failure::unreachable(why), out);
        }
        if let Some(key) = &server.link.key {
            let holders = directory.holders();
            holders.add(&server.link.endpoint, key.pid, &server.holder);
        }
        let facts = &server.shared.facts;
        facts
            .lock()
            .logins
            .note(&server.link.endpoint, HostLogin::Done);
        if let Some(owner) = server.purpose.owner {
            return self.exclusive_ready(conn, owner, server_parameters, out);
        }
        if server.purpose.listens.is_some() {
            let logged_in = ListenerEffect::LoggedIn(conn);
            return self.effects.push(Effect::Listener(logged_in));
        }
        let shared = Arc::clone(&server.shared);
        server.session.lasting.is_from_login = shared.catalog.certificates().logins_leave_state();
        server.duty = Duty::Idle;
        keep_parameters(server, server_parameters);
        self.open_pool(&shared).stats.now.server_login_count += 1;
        let notes = (shared.ledger.lock()).connected(self.env.worker, Connecting::Done, now);
        self.deliver(&notes, &shared, out);
        self.effects.push(Effect::PlaceServer(conn));
    }

    /// Handles a server that refused the login or does not speak the protocol.
    pub(super) fn refused(&mut self, conn: Token, error: &LoginError, out: &mut Actions) {
        let text = match error {
            LoginError::Refused(words) => format!("{} {}", words.severity, words.message),
            other => other.to_string(),
        };
        let text = format!("server login failed: {text}");
        out.log(Level::Warning, self.subject(conn), text);
        let mut failure = Failure::of(error);
        let server = self.connections.server(conn);
        let is_for_one_client = server
            .as_ref()
            .is_some_and(|server| server.purpose.owner.is_some());
        if let (LoginError::Tls(what), Some(server)) = (error, server) {
            failure.detail = Some(format!("{}: {what}", server.link.endpoint));
        }
        let why = match is_for_one_client {
            true => "login failed",
            false => &failure.text,
        };
        self.log_end(conn, why, out);
        out.list.push(Action::Close(conn));
        self.drop_login(conn, failure, out);
    }

    /// Handles a connection that could not be opened.
    pub(crate) fn unreachable(&mut self, conn: Token, error: &ConnectError, out: &mut Actions) {
        let (short, detail) = match error {
            ConnectError::Lookup(detail) => ("server DNS lookup failed", detail),
            ConnectError::Refused(detail) | ConnectError::Local(detail) => {
                ("connect failed", detail)
            }
        };
        let failure = Failure::unreachable(short);
        let failure = match self.connections.server(conn) {
            Some(server) => failure.with_detail(format!("{}: {detail}", server.link.endpoint)),
            None => failure,
        };
        let text = format!("cannot connect: {detail}");
        out.log(Level::Warning, self.subject(conn), text);
        self.log_end(conn, short, out);
        self.drop_login(conn, failure, out);
    }

    /// Ends a login that took longer than `server_connect_timeout`.
    pub(crate) fn end_overdue_login(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        let why = if server.link.addresses.is_some() {
            "connect timeout"
        } else {
            "connect failed"
        };
        let detail = format!(
            "{}: no answer within server_connect_timeout",
            server.link.endpoint
        );
        self.log_end(conn, why, out);
        out.list.push(Action::Close(conn));
        let failure = Failure::unreachable(why).with_detail(detail);
        self.drop_login(conn, failure, out);
    }

    /// Ends a login that pgweir no longer needs; the server has not failed.
    pub(super) fn give_up_login(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.forget(conn, out) else {
            return;
        };
        if let Some(owner) = server.purpose.owner {
            return self.exclusive_given_up(&server, owner, out);
        }
        if let Some(key) = &server.purpose.listens {
            return self.report_lost_listener(conn, &server, key, "it was closed");
        }
        let (worker, now) = (self.env.worker, self.env.now);
        let notes = (server.shared.ledger.lock()).connected(worker, Connecting::Dropped, now);
        self.deliver(&notes, &server.shared, out);
    }

    /// Removes a server whose login failed, and reports the failure to its waiters.
    pub(super) fn drop_login(&mut self, conn: Token, why: Failure, out: &mut Actions) {
        let Some(server) = self.forget(conn, out) else {
            return;
        };
        self.move_to_next_host(&server);
        let login = match why.refusal {
            Some(_) => HostLogin::Refused,
            None => HostLogin::Unreachable,
        };
        let facts = &server.shared.facts;
        facts.lock().logins.note(&server.link.endpoint, login);
        if let Some(key) = &server.purpose.listens {
            return self.report_lost_listener(conn, &server, key, &why.text);
        }
        match server.purpose.owner {
            Some(owner) => self.exclusive_failed(&server, owner, &why.text, out),
            None => self.login_failed(&server.shared, why, out),
        }
    }
}

/// Keeps the parameters that a server has reported, for the clients of its pool, unless a server that was opened later
/// has reported others.
fn keep_parameters(server: &Server, server_parameters: ServerParameters) {
    let (epoch, defaults) = (server.retirement.epoch, server.retirement.defaults);
    let shared = &server.shared;
    let is_present = epoch == shared.epochs.lock().present()
        && defaults == shared.defaults.load(Ordering::Acquire);
    let mut facts = shared.facts.lock();
    facts.failure = None;
    let known = facts.server_parameters.as_ref();
    let is_news = known.is_none_or(|known| !known.tracked.is_equal(&server_parameters.tracked));
    if is_present || known.is_none() {
        facts.server_parameters = Some(Arc::new(server_parameters));
        facts.epoch = epoch;
        facts.defaults = defaults;
        if is_news {
            shared.startups.lock().clear();
        }
    }
}
