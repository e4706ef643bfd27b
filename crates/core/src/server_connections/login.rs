//! Server connections: opened when the ledger of a pool asks for one, logged in, and removed when they end. Their
//! events (connected, bytes, refused, overdue) come in here; a server that is ready is lent to a waiter or becomes
//! idle.

use std::sync::{Arc, atomic::Ordering};

use pgweir_auth::{scram::DerivedKeys, userlist::Secret};
use pgweir_config::LoadBalance;

use super::{Worker, pins::uncount_kept};
use crate::{
    Action, Actions, Address, ConnectError, Level, SharedPool, Time, Token,
    backend::{Credentials, Duty, LoginError, Progress, Server, ServerLogin},
    connections::Conn,
    listen::{ListenerKey, ListenerOpening, Opened, OpeningPurpose},
    listeners::complete_parameters,
    login::note_lost_lookup,
    operator_orders,
    pool::{Above, Connecting, Opening},
    shared_pool::{Failure, HostLogin, ServerParameters},
};

impl Worker {
    /// Opens one more server connection if the ledger wants one.
    pub(crate) fn open_server(&mut self, shared: &Arc<SharedPool>, now: Time, out: &mut Actions) {
        let opening = shared.ledger.lock().opening(self.id, now);
        let above_size = match opening {
            Opening::Go { above_size, notes } => {
                self.deliver(notes, shared, out);
                above_size
            }
            Opening::Not(notes) => return self.deliver(notes, shared, out),
        };
        if let Some((client, above)) = above_size
            && let Some(client) = self.table.client(client)
        {
            let text = match above {
                Above::Reserve => "taking connection from reserve_pool",
                Above::Overflow => "taking connection from overflow",
                Above::Pinned => {
                    "taking connection beyond pool_size: more are pinned than max_pinned"
                }
            };
            out.log(Level::Warning, client.subject(), text);
        }
        let Some((endpoint, credentials)) = self.terms_of_login(shared, now) else {
            let text = format!("no such database: {}", shared.key.database);
            return self.login_failed(shared, Failure::unreachable(&text), now, out);
        };
        self.begin_server_login(shared, endpoint, credentials, None, now, out);
    }

    /// Opens a server connection that the ledger has counted.
    pub(super) fn begin_server_login(
        &mut self,
        shared: &Arc<SharedPool>,
        endpoint: Arc<crate::Endpoint>,
        credentials: Credentials,
        listens: Option<ListenerKey>,
        now: Time,
        out: &mut Actions,
    ) -> Token {
        self.local_pool(shared, now).servers += 1;
        let pool = self.local_pool(shared, now);
        let epoch = pool.epoch;
        let defaults = shared.defaults.load(Ordering::Acquire);
        if listens.is_none() {
            shared.epochs.lock().opened(epoch);
        }
        let login = ServerLogin::new(credentials, self.directory.names());
        let mut server = Server::new(
            self.directory.next_id(),
            shared,
            Arc::clone(&endpoint),
            Duty::Login(Box::new(login)),
            self.directory.names().unset(),
            epoch,
            now,
        );
        server.purpose.listens = listens;
        server.retirement.defaults = defaults;
        let conn = self.table.insert(Conn::Server(Box::new(server)));
        self.suspension.add(conn);
        self.schedule(now);
        out.list.push(Action::Connect { conn, endpoint });
        conn
    }

    /// Opens a connection that listens, if the caps allow one more.
    pub(super) fn open_listener(&mut self, opening: ListenerOpening, now: Time, out: &mut Actions) {
        let opened = self.begin_listener_login(&opening, now, out);
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, parts.connections);
        let effect = parts
            .listeners
            .opened(env, connections, opening, opened, out);
        self.carry_out(effect, now, out);
    }

    fn begin_listener_login(
        &mut self,
        opening: &ListenerOpening,
        now: Time,
        out: &mut Actions,
    ) -> Opened {
        let (shared, key) = (&opening.shared, &opening.key);
        if self.shutdown.is_on() {
            return Opened::Impossible;
        }
        let Some((endpoint, mut credentials)) = self.terms_of_login(shared, now) else {
            return Opened::Impossible;
        };
        if let OpeningPurpose::Replacement { endpoint: former } = &opening.purpose
            && *former != endpoint
        {
            return Opened::Impossible;
        }
        if !shared.ledger.lock().take_extra_place() {
            return Opened::CapReached;
        }
        complete_parameters(key, &mut credentials.parameters);
        let listens = Some(key.clone());
        let conn = self.begin_server_login(shared, endpoint, credentials, listens, now, out);
        Opened::Connecting(conn)
    }

    /// Handles the end of a listener connection.
    fn listener_lost(
        &mut self,
        listener: (Token, &ListenerKey, &Arc<SharedPool>),
        why: &str,
        now: Time,
        out: &mut Actions,
    ) {
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, parts.connections);
        let effect = parts.listeners.lost(env, connections, listener, why, out);
        self.carry_out(effect, now, out);
    }

    pub(super) fn terms_of_login(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
    ) -> Option<(Arc<crate::Endpoint>, Credentials)> {
        let snapshot = Arc::clone(&self.snapshot);
        let database = snapshot.config.database(&shared.key.database)?;
        let terms = &mut self.local_pool(shared, now).terms;
        if terms.endpoints.is_empty() {
            return None;
        }
        let at = match database.load_balance_hosts {
            LoadBalance::RoundRobin => shared.hosts.fetch_add(1, Ordering::Relaxed),
            // A failed login moves on to the next host.
            LoadBalance::Disable => shared.hosts.load(Ordering::Relaxed),
        };
        let endpoint = Arc::clone(&terms.endpoints[at % terms.endpoints.len()]);
        let user = shared.key.user.to_string();
        // The password of a database entry belongs to the entry's `user`.
        let is_of_entry = database.user.as_ref().is_none_or(|own| *own == user);
        let (secret, keys) = match &database.password {
            Some(password) if is_of_entry => {
                (Some(Arc::new(Secret::parse(password.expose()))), None)
            }
            _ => {
                let facts = shared.facts.lock();
                let secret = facts.secret(snapshot.users.get(&user));
                (secret.cloned(), facts.keys.clone())
            }
        };
        let parameters = [
            ("client_encoding", &database.client_encoding),
            ("datestyle", &database.datestyle),
            ("timezone", &database.timezone),
            ("application_name", &database.application_name),
        ];
        let parameters = parameters
            .into_iter()
            .filter_map(|(name, value)| Some((name.into(), value.clone()?.into())))
            .collect();
        let dbname = database.dbname_for(&shared.key.database).to_owned();
        Some((
            endpoint,
            Credentials {
                user,
                database: dbname,
                secret,
                keys,
                parameters,
                connect_query: database.connect_query.clone(),
            },
        ))
    }

    pub(crate) fn server_connected(
        &mut self,
        conn: Token,
        addresses: (Address, Address),
        nonce: [u8; 18],
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.link.addresses = Some(addresses);
        server.times.connected_at = now;
        self.open_login(conn, nonce, out);
        if self.snapshot.config.settings.log_connections {
            let from = match addresses.0 {
                Address::Tcp(local) => format!(" (from {local})"),
                Address::Unix => String::new(),
            };
            out.log(
                Level::Log,
                self.server_subject(conn),
                format!("new connection to server{from}"),
            );
        }
    }

    pub(crate) fn server_login_bytes(
        &mut self,
        conn: Token,
        bytes: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(login) = self.server_login(conn) {
            login.push(bytes);
        }
        if self.server_answers_tls(conn, now, out) {
            return;
        }
        self.server_login_steps(conn, now, out);
    }

    fn server_login(&mut self, conn: Token) -> Option<&mut ServerLogin> {
        match &mut self.table.server(conn)?.duty {
            Duty::Login(login) => Some(login),
            _ => None,
        }
    }

    fn server_login_steps(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        loop {
            let Some(login) = self.server_login(conn) else {
                return;
            };
            let start = out.scratch.len();
            let progress = login.step(directory.names(), &mut out.scratch);
            let end = out.scratch.len();
            if start < end {
                out.list.push(Action::Send {
                    to: conn,
                    source: crate::Source::Scratch(start..end),
                });
            }
            match progress {
                Ok(None) => return,
                Ok(Some(Progress::Wait | Progress::Send)) => {}
                Ok(Some(Progress::QueryFailed(words))) => {
                    let text = format!("connect_query failed: {}", words.message);
                    out.log(Level::Warning, self.server_subject(conn), text);
                }
                Ok(Some(Progress::Derive(job))) => {
                    return out.list.push(Action::Derive { conn, job });
                }
                Ok(Some(Progress::Ready {
                    server_parameters,
                    key,
                })) => {
                    let rest = login.has_rest();
                    if let Some(server) = self.table.server(conn) {
                        server.link.key = key;
                        if rest {
                            server.retirement.reason =
                                Some("it sent more after its login than it should");
                        }
                    }
                    return self.server_ready(conn, server_parameters, now, out);
                }
                Err(error) => return self.server_refused(conn, &error, now, out),
            }
        }
    }

    pub(crate) fn server_derived(
        &mut self,
        conn: Token,
        keys: &DerivedKeys,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(login) = self.server_login(conn) else {
            return;
        };
        let start = out.scratch.len();
        let outcome = login.derived(keys, &mut out.scratch);
        let end = out.scratch.len();
        match outcome {
            Ok(()) => {
                out.list.push(Action::Send {
                    to: conn,
                    source: crate::Source::Scratch(start..end),
                });
                self.server_login_steps(conn, now, out);
            }
            Err(error) => self.server_refused(conn, &error, now, out),
        }
    }

    /// Puts a server that has logged in to use.
    fn server_ready(
        &mut self,
        conn: Token,
        server_parameters: ServerParameters,
        now: Time,
        out: &mut Actions,
    ) {
        let worker = self.id;
        let directory = Arc::clone(&self.directory);
        let Some(server) = self.table.server(conn) else {
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
            return self.drop_login(conn, Failure::unreachable(why), now, out);
        }
        if let Some(key) = &server.link.key {
            let holders = self.directory.holders();
            holders.add(&server.link.endpoint, key.pid, &server.holder);
        }
        let done = HostLogin::Done;
        let facts = &server.shared.facts;
        facts.lock().logins.note(&server.link.endpoint, done);
        if let Some(owner) = server.purpose.owner {
            return self.exclusive_ready(conn, owner, &server_parameters, now, out);
        }
        if server.purpose.listens.is_some() {
            let parts = self.parts(now);
            let (env, connections) = (&parts.env, parts.connections);
            let effect = parts.listeners.logged_in(env, connections, conn, out);
            return self.carry_out(effect, now, out);
        }
        let shared = Arc::clone(&server.shared);
        self.local_pool(&shared, now).stats.now.server_login_count += 1;
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.session.lasting.is_from_login = shared.catalog.certificates().logins_leave_state();
        server.duty = Duty::Idle;
        let (epoch, defaults) = (server.retirement.epoch, server.retirement.defaults);
        let is_present = epoch == shared.epochs.lock().present()
            && defaults == shared.defaults.load(Ordering::Acquire);
        {
            let mut facts = shared.facts.lock();
            facts.failure = None;
            let known = facts.server_parameters.as_ref();
            let is_news =
                known.is_none_or(|known| !known.tracked.is_equal(&server_parameters.tracked));
            if is_present || known.is_none() {
                facts.server_parameters = Some(Arc::new(server_parameters));
                facts.epoch = epoch;
                facts.defaults = defaults;
                if is_news {
                    shared.startups.lock().clear();
                }
            }
        }
        let notes = shared
            .ledger
            .lock()
            .connected(worker, Connecting::Done, now);
        self.deliver(notes, &shared, out);
        self.place_server(conn, now, out);
    }

    /// Handles a server that refused the login or does not speak the protocol.
    pub(super) fn server_refused(
        &mut self,
        conn: Token,
        error: &LoginError,
        now: Time,
        out: &mut Actions,
    ) {
        let text = match error {
            LoginError::Refused(words) => format!("{} {}", words.severity, words.message),
            other => other.to_string(),
        };
        out.log(
            Level::Warning,
            self.server_subject(conn),
            format!("server login failed: {text}"),
        );
        let mut failure = Failure::of(error);
        if let (LoginError::Tls(what), Some(server)) = (error, self.table.server(conn)) {
            failure.detail = Some(format!("{}: {what}", server.link.endpoint));
        }
        self.log_refused(conn, &failure.text, now, out);
        out.list.push(Action::Close(conn));
        self.drop_login(conn, failure, now, out);
    }

    pub(crate) fn server_unreachable(
        &mut self,
        conn: Token,
        error: &ConnectError,
        now: Time,
        out: &mut Actions,
    ) {
        let (short, detail) = match error {
            ConnectError::Lookup(detail) => ("server DNS lookup failed", detail),
            ConnectError::Refused(detail) | ConnectError::Local(detail) => {
                ("connect failed", detail)
            }
        };
        let failure = Failure::unreachable(short);
        let failure = match self.table.server(conn) {
            Some(server) => failure.with_detail(format!("{}: {detail}", server.link.endpoint)),
            None => failure,
        };
        let subject = self.server_subject(conn);
        out.log(Level::Warning, subject, format!("cannot connect: {detail}"));
        self.log_server_end(conn, short, now, out);
        self.drop_login(conn, failure, now, out);
    }

    /// Ends a login that took longer than `server_connect_timeout`.
    pub(crate) fn server_login_overdue(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
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
        self.log_server_end(conn, why, now, out);
        out.list.push(Action::Close(conn));
        let failure = Failure::unreachable(why).with_detail(detail);
        self.drop_login(conn, failure, now, out);
    }

    /// Ends a login that pgweir no longer needs; the server has not failed.
    pub(super) fn give_up_login(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.forget_server(conn, now, out) else {
            return;
        };
        if let Some(owner) = server.purpose.owner {
            return self.exclusive_given_up(&server, owner, now, out);
        }
        if let Some(key) = &server.purpose.listens {
            return self.listener_lost((conn, key, &server.shared), "it was closed", now, out);
        }
        let shared = &server.shared;
        let notes = shared
            .ledger
            .lock()
            .connected(self.id, Connecting::Dropped, now);
        self.deliver(notes, shared, out);
    }

    pub(super) fn drop_server(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        let worker = self.id;
        self.log_server_end(conn, why, now, out);
        let Some(mut server) = self.forget_server(conn, now, out) else {
            return;
        };
        if server.purpose.bypass {
            return;
        }
        if let Some(key) = &server.purpose.listens {
            return self.listener_lost((conn, key, &server.shared), why, now, out);
        }
        server.ends_reading();
        let notes = server.shared.ledger.lock().closed(worker, now);
        self.deliver(notes, &server.shared, out);
    }

    /// Removes a server whose login failed, and reports the failure to its waiters.
    pub(super) fn drop_login(&mut self, conn: Token, why: Failure, now: Time, out: &mut Actions) {
        let Some(server) = self.forget_server(conn, now, out) else {
            return;
        };
        let shared = &server.shared;
        let terms = &self.local_pool(shared, now).terms;
        if let Some(entry) = &terms.entry
            && entry.load_balance_hosts == LoadBalance::Disable
        {
            // Takes the next host, unless another failed login has moved on already.
            let at = shared.hosts.load(Ordering::Relaxed);
            if terms.endpoints[at % terms.endpoints.len()] == server.link.endpoint {
                let next = at.wrapping_add(1);
                let order = Ordering::Relaxed;
                let _ = shared.hosts.compare_exchange(at, next, order, order);
            }
        }
        let login = match why.refusal {
            Some(_) => HostLogin::Refused,
            None => HostLogin::Unreachable,
        };
        let facts = &shared.facts;
        facts.lock().logins.note(&server.link.endpoint, login);
        if let Some(key) = &server.purpose.listens {
            return self.listener_lost((conn, key, shared), &why.text, now, out);
        }
        match server.purpose.owner {
            Some(owner) => self.exclusive_failed(&server, owner, &why.text, now, out),
            None => self.login_failed(shared, why, now, out),
        }
    }

    /// Logs the end of a server connection with PgBouncer's text, which operators search for.
    pub(super) fn log_server_end(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        if self.snapshot.config.settings.log_disconnections
            && let Some(server) = self.table.server(conn)
        {
            let age = now.since(server.times.connected_at) / 1_000_000;
            let text = format!("closing because: {why} (age={age}s)");
            out.log(Level::Log, self.server_subject(conn), text);
        }
    }

    pub(super) fn forget_server(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Option<Box<Server>> {
        let Some(Conn::Server(mut server)) = self.table.remove(conn) else {
            return None;
        };
        let _ = uncount_kept(&mut server);
        if let Some(lookup) = server.session.queries.lookup.take() {
            note_lost_lookup(self.id, &lookup, out);
        }
        if let Some(key) = &server.link.key {
            let holders = self.directory.holders();
            holders.remove(&server.link.endpoint, key.pid, &server.holder);
        }
        if server.purpose.listens.is_none() {
            operator_orders::count_closed(
                &self.directory,
                &server.shared,
                server.retirement.epoch,
                out,
            );
        }
        if let Some(pool) = self.pool(server.pool()) {
            pool.servers -= 1;
            pool.empty_since = now;
            if matches!(server.duty, Duty::Idle) {
                pool.idle.retain(|&idle| idle != conn);
            }
            if pool.keeps_min() || pool.servers == 0 {
                self.schedule(now);
            }
        }
        Some(server)
    }

    /// Returns the server's name for the log.
    pub(crate) fn server_subject(&mut self, conn: Token) -> String {
        self.table
            .server(conn)
            .map_or_else(String::new, |server| server.subject())
    }
}
