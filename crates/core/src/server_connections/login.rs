//! pgweir's logins to servers: the steps from an open connection to a server that is ready, and the handling of refused,
//! lost and overdue logins.

use std::sync::{Arc, atomic::Ordering};

use pgweir_auth::scram::DerivedKeys;
use pgweir_config::{Micros, TargetSession};
use pgweir_wire::MessageWriter;

use super::ServerConnections;
use crate::{
    Action, Actions, Address, ConnectError, Endpoint, Level, SharedPool, Source, Token,
    backend::{LoginError, Progress, Server, ServerLogin},
    connections::Conn,
    effect::{Effect, Env, ListenerEffect, ServerEffect},
    pool::LoginOutcome,
    server_connections::host_checks,
    shared::{
        events::EventKind,
        hosts::HostState,
        pool::{Failure, HostLogin, ServerParameters, ServerRole},
    },
};

impl ServerConnections<'_> {
    /// Handles a connection that has been opened. `nonce` is for the login.
    pub(crate) fn connected(
        &mut self,
        conn: Token,
        addresses: (Address, Address),
        nonce: [u8; 18],
        out: &mut Actions,
    ) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        server.link.note_open(addresses);
        server.times.note_connected(self.env.now);
        let race_after = self.env.snapshot.config.settings.host_race_after.0;
        (server.link.race_mut()).note_connected(self.env.now, race_after);
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
        if let Some(server) = self.connections.server(conn) {
            server.link.race_mut().note_answer();
        }
        if let Some(login) = self.login(conn) {
            login.push(bytes);
        }
        if self.take_tls_answer(conn, out) {
            return;
        }
        self.login_steps(conn, out);
    }

    pub(super) fn login(&mut self, conn: Token) -> Option<&mut ServerLogin> {
        self.connections.server(conn)?.login_mut()
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
                Ok(Some(Progress::QueryFailed(query, words))) => {
                    let text = format!("{query} failed: {}", words.message);
                    out.log(Level::Warning, self.subject(conn), text);
                }
                Ok(Some(Progress::Derive(job))) => {
                    return out.list.push(Action::Derive {
                        conn,
                        job: Box::new(job),
                    });
                }
                Ok(Some(Progress::Ready {
                    server_parameters,
                    key,
                    connect_settings,
                    usable_connections,
                })) => {
                    let rest = login.has_rest();
                    if let Some(server) = self.connections.server(conn) {
                        server.link.set_key(key);
                        if rest {
                            server
                                .retirement
                                .replace_reason("it sent more after its login than it should");
                        }
                    }
                    if let Some(usable) = usable_connections {
                        self.note_usable_connections(conn, usable, out);
                    }
                    if let Some(found) = connect_settings
                        && self.learn_connect_settings(conn, found, out)
                    {
                        return;
                    }
                    return self.ready(conn, server_parameters, out);
                }
                Err(error) => return self.refused(conn, &error, out),
            }
        }
    }

    /// Notes how many connections a server's host allows.
    fn note_usable_connections(&mut self, conn: Token, usable: u32, out: &mut Actions) {
        if let Some(server) = self.connections.server(conn)
            && let Some(host) = server.link.host()
        {
            host_checks::note_usable_connections(&self.env, host, usable, out);
        }
    }

    /// Continues a login with the keys that [`Action::Derive`] has asked for.
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
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let role = ServerRole::of(directory.names(), &server_parameters.tracked);
        let wrong = wrong_role(&self.env, server, role);
        if server.purpose().checks_host() {
            return self.check_ready(conn, role, wrong.is_some(), out);
        }
        if let Some(why) = wrong {
            return self.dismiss_server(conn, (role, why), out);
        }
        server.tracked = server_parameters.tracked.clone();
        let report = server_parameters.report.clone();
        server.session.extension.note_login(report);
        server.session.read_as(directory.names(), &server.tracked);
        server
            .session
            .note_connected(server.shared.catalog.connected());
        server.times.note_freed(now);
        if let (false, Some(why)) = (server.is_shared(), server.retirement.reason()) {
            // Any bytes that the server sent after its login are discarded.
            self.close_connection(conn, out);
            return self.drop_login(conn, Failure::unreachable(why), out);
        }
        if let Some(key) = server.link.key() {
            let holders = directory.holders();
            holders.add(server.link.endpoint(), key.pid, server.holder());
        }
        let facts = &server.shared.facts;
        facts
            .lock()
            .logins
            .note(server.link.endpoint(), HostLogin::Done, now);
        if let Some(owner) = server.purpose().owner() {
            return self.exclusive_ready(conn, owner, server_parameters, out);
        }
        if server.purpose().listener_key().is_some() {
            let logged_in = ListenerEffect::LoggedIn(conn);
            return self.effects.push(Effect::Listener(logged_in));
        }
        self.win_race(conn, out);
        if let Some(Conn::Server(server)) = self.connections.get(conn) {
            self.note_host(server, role, (Some(HostState::Up), None), out);
        }
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let shared = Arc::clone(&server.shared);
        server.session.lasting.note_login();
        server.become_idle();
        keep_parameters(server, server_parameters);
        end_outage(&self.env, &shared);
        self.open_pool(&shared).stats.now.server_login_count += 1;
        let notes = (shared.ledger.lock()).connected(self.env.worker, LoginOutcome::Done, now);
        self.deliver(&notes, &shared, out);
        self.effects.push(Effect::Server(ServerEffect::Place(conn)));
    }

    /// Starts the check of a host on a connection that has logged in for that check.
    fn check_ready(
        &mut self,
        conn: Token,
        role: Option<ServerRole>,
        is_wrong: bool,
        out: &mut Actions,
    ) {
        let login = match is_wrong {
            true => HostLogin::WrongRole,
            false => HostLogin::Done,
        };
        if let Some(Conn::Server(server)) = self.connections.get(conn) {
            let (facts, now) = (&server.shared.facts, self.env.now);
            facts.lock().logins.note(server.link.endpoint(), login, now);
            self.note_host(server, role, (Some(HostState::Up), None), out);
        }
        host_checks::begin_checking(&self.env, self.connections, conn, out);
    }

    /// Closes a server whose role does not match `target_session_attrs`.
    fn dismiss_server(
        &mut self,
        conn: Token,
        (role, why): (Option<ServerRole>, Failure),
        out: &mut Actions,
    ) {
        if let Some(Conn::Server(server)) = self.connections.get(conn) {
            self.note_host(server, role, (Some(HostState::Up), None), out);
        }
        let text = why.detail.as_deref().unwrap_or(&why.text).to_owned();
        out.log(Level::Log, self.subject(conn), text);
        self.log_end(conn, &why.text, out);
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).terminate();
        });
        self.close_connection(conn, out);
        self.end_login(conn, why, HostLogin::WrongRole, out);
    }

    /// Handles a server that refused the login or does not speak the protocol.
    pub(super) fn refused(&mut self, conn: Token, error: &LoginError, out: &mut Actions) {
        let text = match error {
            LoginError::Refused(words) => format!("{} {}", words.severity, words.message),
            other => other.to_string(),
        };
        let text = format!("server login failed: {text}");
        out.log(Level::Warning, self.subject(conn), text);
        if self.refused_connect_settings(conn, error, out) {
            return;
        }
        let mut failure = Failure::of(error);
        let server = self.connections.server(conn);
        let is_for_one_client = server.as_ref().is_some_and(|server| server.is_exclusive());
        if let (LoginError::Tls(what), Some(server)) = (error, server) {
            failure.detail = Some(format!("{}: {what}", server.link.endpoint()));
        }
        let why = match is_for_one_client {
            true => "login failed",
            false => &failure.text,
        };
        self.log_end(conn, why, out);
        self.close_connection(conn, out);
        let login = HostLogin::of(error, &failure);
        self.end_login(conn, failure, login, out);
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
            Some(server) => failure.with_detail(format!("{}: {detail}", server.link.endpoint())),
            None => failure,
        };
        let text = format!("cannot connect: {detail}");
        out.log(Level::Warning, self.subject(conn), text);
        self.log_end(conn, short, out);
        self.drop_login(conn, failure, out);
    }

    /// Ends a login that took longer than `server_connect_timeout`.
    pub(crate) fn end_overdue_login(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let why = if server.link.is_open() {
            "connect timeout"
        } else {
            "connect failed"
        };
        let settings = &self.env.snapshot.config.settings;
        let age = self.env.now.since(server.times.connected_at());
        let limit = match age >= settings.server_connect_timeout.0 {
            _ if server.purpose().checks_host() => "host_check_timeout",
            true => "server_connect_timeout",
            false => "host_connect_timeout",
        };
        let detail = format!("{}: no answer within {limit}", server.link.endpoint());
        self.log_end(conn, why, out);
        self.close_connection(conn, out);
        let failure = Failure::unreachable(why).with_detail(detail);
        self.drop_login(conn, failure, out);
    }

    /// Ends a login that pgweir no longer needs; the server has not failed.
    pub(super) fn give_up_login(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.forget(conn, out) else {
            return;
        };
        if let Some(owner) = server.purpose().owner() {
            return self.exclusive_given_up(&server, owner, out);
        }
        if let Some(key) = server.purpose().listener_key() {
            return self.report_lost_listener(conn, &server, key, "it was closed");
        }
        if server.purpose().checks_host() {
            return self.end_host_check(&server, out);
        }
        let (worker, now) = (self.env.worker, self.env.now);
        let notes = (server.shared.ledger.lock()).connected(worker, LoginOutcome::Dropped, now);
        self.deliver(&notes, &server.shared, out);
    }

    /// Removes a server whose login failed, and reports the failure to its waiters.
    pub(super) fn drop_login(&mut self, conn: Token, why: Failure, out: &mut Actions) {
        let login = match why.refusal {
            Some(_) => HostLogin::Refused,
            None => HostLogin::Unreachable,
        };
        self.end_login(conn, why, login, out);
    }

    fn end_login(&mut self, conn: Token, why: Failure, login: HostLogin, out: &mut Actions) {
        let Some(server) = self.forget(conn, out) else {
            return;
        };
        self.move_to_next_host(&server);
        let (facts, now) = (&server.shared.facts, self.env.now);
        facts.lock().logins.note(server.link.endpoint(), login, now);
        let error = why.detail.as_ref().unwrap_or(&why.text);
        let state = match login {
            HostLogin::Done | HostLogin::WrongRole => Some(HostState::Up),
            // Checks count their failures. A server that is busy may not answer a login in time.
            HostLogin::Unreachable if server.purpose().checks_host() => None,
            HostLogin::Unreachable => is_alone(&server).then_some(HostState::Down),
            // This user may not log in, but others may.
            HostLogin::Refused if why.is_final() => None,
            HostLogin::Refused => Some(HostState::Refusing),
            HostLogin::Unavailable => Some(HostState::Unavailable),
            HostLogin::Overtaken => None,
        };
        self.note_host(&server, None, (state, Some(error)), out);
        if let (HostLogin::Unavailable, Some(host)) = (login, server.link.host()) {
            let _ = host_checks::request_check(&self.env, host, out);
        }
        if server.purpose().checks_host() {
            match (server.link.host(), login) {
                (Some(host), HostLogin::Refused | HostLogin::Unavailable) => {
                    host_checks::note_refusal(&self.env, host, error)
                }
                (Some(host), _) => host_checks::note_unanswered(&self.env, host, error, out),
                (None, _) => {}
            }
            return self.end_host_check(&server, out);
        }
        if let Some(key) = server.purpose().listener_key() {
            return self.report_lost_listener(conn, &server, key, &why.text);
        }
        match server.purpose().owner() {
            Some(owner) => self.exclusive_failed(&server, owner, &why.text, out),
            None => self.login_failed(&server.shared, why, out),
        }
    }
}

/// Returns whether there is no other connection to a server's host.
pub(super) fn is_alone(server: &Server) -> bool {
    let host = server.link.host();
    host.is_some_and(|host| host.connections() <= 1)
}

/// Returns why a server does not match `target_session_attrs`; `None` if it matches.
fn wrong_role(env: &Env<'_>, server: &Server, role: Option<ServerRole>) -> Option<Failure> {
    let config = &env.snapshot.config;
    let database = config.database(&server.shared.key.database)?;
    let target = database.target_session_attrs;
    if target == TargetSession::Any {
        return None;
    }
    let endpoint = server.link.endpoint();
    let found = match role {
        Some(role) if role.fits(target) => return None,
        Some(_) if target == TargetSession::PreferStandby && is_last_resort(env, server) => {
            return None;
        }
        Some(role) => format!("{endpoint} is {}", role.name()),
        None => format!("{endpoint} does not report its role, as it does from PostgreSQL 14 on"),
    };
    let failure = Failure::unreachable("no server with target_session_attrs");
    Some(failure.with_detail(format!("{found}, but target_session_attrs = {target}")))
}

/// Returns whether no other host of the list has a standby that can be reached.
fn is_last_resort(env: &Env<'_>, server: &Server) -> bool {
    let config = &env.snapshot.config;
    let Some(database) = config.database(&server.shared.key.database) else {
        return false;
    };
    let lately = config
        .settings
        .server_login_retry
        .max(Micros::from_secs(1))
        .0;
    let requirements = host_checks::requirements_of(Some(database)).for_new_servers();
    let is_excluded = |endpoint: Endpoint| {
        let facts = env.directory.hosts().at(&Arc::new(endpoint)).facts();
        facts.is_lagging(requirements)
            || facts.is_left_behind(requirements)
            || facts.probation_ends_at.is_some()
    };
    let others = Endpoint::all_of(database)
        .filter(|endpoint| *endpoint != **server.link.endpoint() && !is_excluded(endpoint.clone()));
    let facts = server.shared.facts.lock();
    facts.logins.are_all_useless(others, env.now, lately)
}

/// Notes that a server of a pool can be used.
fn end_outage(env: &Env<'_>, shared: &SharedPool) {
    let Some(took) = shared.facts.lock().outage.end(env.now) else {
        return;
    };
    let about = (&*shared.key.database, &*shared.key.user);
    let text = format!("an outage of {} s has ended", Micros(took));
    let directory = env.directory;
    directory.note_event(EventKind::OutageEnded, about, &text, env.now);
}

/// Keeps the parameters that a server has reported, for the clients of its pool, unless a server that was opened later
/// has reported others.
fn keep_parameters(server: &Server, server_parameters: ServerParameters) {
    let (epoch, defaults) = (server.retirement.epoch(), server.retirement.defaults());
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
