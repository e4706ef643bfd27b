//! Opens server connections: for the clients of a pool, and connections that listen.

use std::sync::{Arc, atomic::Ordering};

use pgweir_auth::userlist::Secret;
use pgweir_config::{Database, LoadBalance};

use super::ServerConnections;
use crate::{
    Action, Actions, Endpoint, Level, SharedPool, Token,
    backend::{Credentials, Duty, Purpose, Retirement, Server, ServerLogin},
    connections::Conn,
    effect::{Effect, ListenerEffect, OwnConnection},
    listen::{ListenerOpening, Opened, OpeningPurpose},
    listeners::complete_credentials,
    pool::{AboveSize, Opening},
    server_connections::host_checks,
    shared::{
        hosts::HostConnection,
        pool::{Candidate, ConnectQuery, Failure, Parameters, SettingsStep},
    },
};

impl ServerConnections<'_> {
    /// Opens one more server connection if the ledger wants one.
    pub(crate) fn open(&mut self, shared: &Arc<SharedPool>, out: &mut Actions) {
        let opening = (shared.ledger.lock()).opening(self.env.worker, self.env.now);
        let above_size = match opening {
            Opening::Go { above_size, notes } => {
                self.deliver(&notes, shared, out);
                above_size
            }
            Opening::Not(notes) => return self.deliver(&notes, shared, out),
        };
        if let Some((client, above)) = above_size
            && let Some(client) = self.connections.client(client)
        {
            let text = match above {
                AboveSize::Reserve => "taking connection from reserve_pool",
                AboveSize::Overflow => "taking connection from overflow",
                AboveSize::Pinned => {
                    "taking connection beyond pool_size: more are pinned than max_pinned"
                }
            };
            out.log(Level::Warning, client.subject(), text);
        }
        let Some((endpoint, credentials)) = self.terms_of_login(shared) else {
            let text = format!("no such database: {}", shared.key.database);
            return self.login_failed(shared, Failure::unreachable(&text), out);
        };
        let conn = self.begin_login(shared, endpoint, credentials, Purpose::Pool, out);
        self.plan_race(conn, shared);
    }

    /// Opens a server connection that the ledger has counted.
    pub(super) fn begin_login(
        &mut self,
        shared: &Arc<SharedPool>,
        endpoint: Arc<Endpoint>,
        credentials: Credentials,
        purpose: Purpose,
        out: &mut Actions,
    ) -> Token {
        let pool = self.open_pool(shared);
        pool.add_server();
        let epoch = pool.orders.epoch;
        if !purpose.is_own() {
            shared.epochs.lock().opened(epoch);
        }
        let (directory, now) = (self.env.directory, self.env.now);
        let login = ServerLogin::new(credentials, directory.names());
        let mut server = Server::new(
            directory.next_id(),
            shared,
            Arc::clone(&endpoint),
            Duty::Login(Box::new(login)),
            directory.names().unset(),
            Retirement::new(epoch, shared.defaults.load(Ordering::Acquire)),
            now,
        )
        .with_purpose(purpose);
        let changes = shared.catalog.changes();
        server.session.lasting.note_opening(changes);
        let host = directory.hosts().at(&endpoint);
        server.link.count_at_host(HostConnection::open(host));
        let conn = (self.connections).insert(Conn::Server(Box::new(server)), now);
        self.effects.push(Effect::FreezeIfSuspended(conn));
        out.list.push(Action::Connect { conn, endpoint });
        conn
    }

    /// Opens a connection for pgweir itself, if the caps allow one more.
    pub(crate) fn open_own(&mut self, own: OwnConnection, out: &mut Actions) {
        match own {
            OwnConnection::Listener(opening) => self.open_listener(opening, out),
            OwnConnection::HostCheck(pool, endpoint) => {
                self.open_host_check(&pool, &endpoint, out);
            }
        }
    }

    /// Opens a connection that listens, if the caps allow one more, and reports the outcome.
    fn open_listener(&mut self, opening: Box<ListenerOpening>, out: &mut Actions) {
        let opened = self.begin_listener_login(&opening, out);
        let outcome = ListenerEffect::Opened(opening, opened);
        self.effects.push(Effect::Listener(outcome));
    }

    fn begin_listener_login(&mut self, opening: &ListenerOpening, out: &mut Actions) -> Opened {
        let (shared, key) = (&opening.shared, &opening.key);
        if self.env.shutdown.is_some() {
            return Opened::Impossible;
        }
        let Some((endpoint, mut credentials)) = self.terms_of_login(shared) else {
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
        complete_credentials(key, &mut credentials);
        let purpose = Purpose::Listen(key.clone());
        Opened::Connecting(self.begin_login(shared, endpoint, credentials, purpose, out))
    }

    /// Opens a connection that checks its host, if the caps allow one more.
    fn open_host_check(
        &mut self,
        shared: &Arc<SharedPool>,
        endpoint: &Arc<Endpoint>,
        out: &mut Actions,
    ) {
        let (worker, host) = (self.env.worker, self.env.directory.hosts().at(endpoint));
        let Some((_, mut credentials)) = self.terms_of_login(shared) else {
            return host.release_check(worker);
        };
        if !shared.ledger.lock().take_extra_place() {
            return host.release_check(worker);
        }
        credentials.name_application(host_checks::APPLICATION_NAME);
        credentials.connect_query = None;
        credentials.asks_connections = false;
        let endpoint = Arc::clone(endpoint);
        self.begin_login(shared, endpoint, credentials, Purpose::CheckHost, out);
    }

    /// Returns the host and the credentials for a login to a server of a pool; `None` if the pool's database is gone.
    pub(super) fn terms_of_login(
        &mut self,
        shared: &Arc<SharedPool>,
    ) -> Option<(Arc<Endpoint>, Credentials)> {
        let database = self.env.snapshot.config.database(&shared.key.database)?;
        let endpoint = self.choose_host(shared, database, None)?;
        Some((endpoint, self.credentials(shared, database)))
    }

    /// Returns the host and the credentials for a login beside a login to `first`; `None` if no other host can be used.
    pub(super) fn terms_of_second_login(
        &mut self,
        shared: &Arc<SharedPool>,
        first: &Endpoint,
    ) -> Option<(Arc<Endpoint>, Credentials)> {
        let database = self.env.snapshot.config.database(&shared.key.database)?;
        let endpoint = self.choose_host(shared, database, Some(first))?;
        Some((endpoint, self.credentials(shared, database)))
    }

    /// Chooses the host for a login to a server of a pool. With `first`, chooses a host that can be used beside this one: the
    /// search begins behind it in the list.
    fn choose_host(
        &mut self,
        shared: &Arc<SharedPool>,
        database: &Database,
        first: Option<&Endpoint>,
    ) -> Option<Arc<Endpoint>> {
        let (snapshot, now) = (self.env.snapshot, self.env.now);
        let directory = self.env.directory;
        let pool = &*self.open_pool(shared);
        let endpoints = &pool.terms.endpoints;
        if endpoints.is_empty() {
            return None;
        }
        let place_of = |first: &Endpoint| endpoints.iter().position(|one| **one == *first);
        let start = match (first, database.load_balance_hosts) {
            (Some(first), _) => place_of(first)? + 1,
            (None, LoadBalance::RoundRobin) => shared.take_host_number(),
            // A failed login moves on to the next host.
            (None, LoadBalance::Disable) => shared.host_number(),
        };
        let retry = snapshot.config.login_retry(database).0;
        let requirements = host_checks::requirements_of(Some(database)).for_new_servers();
        let exclusions = host_checks::host_exclusions(directory, pool, requirements);
        let spreads = database.load_balance_hosts == LoadBalance::RoundRobin
            && requirements.target.prefers_standbys();
        let own_zone = snapshot.config.settings.zone.as_deref();
        let hosts = endpoints.iter().zip(&exclusions).enumerate();
        let candidates: Vec<Candidate<'_>> = hosts
            .map(|(at, (endpoint, exclusion))| Candidate {
                endpoint,
                is_excluded: exclusion.is_some() || first.is_some_and(|first| *first == **endpoint),
                is_in_another_zone: database.is_in_another_zone(at, own_zone),
                connections: match spreads {
                    true => directory.hosts().at(endpoint).connections(),
                    false => 0,
                },
            })
            .collect();
        let facts = shared.facts.lock();
        let at = match first {
            Some(_) => (facts.logins).choose_usable(&candidates, start, (now, retry))?,
            None => (facts.logins).choose(&candidates, start, (now, retry)),
        };
        Some(Arc::clone(&endpoints[at]))
    }

    /// Returns the credentials for a login to a server of a pool.
    fn credentials(&mut self, shared: &Arc<SharedPool>, database: &Database) -> Credentials {
        let user = shared.key.user.to_string();
        // The password of a database entry belongs to the entry's `user`.
        let is_of_entry = database.user.as_ref().is_none_or(|own| *own == user);
        let (secret, keys) = match &database.password {
            Some(password) if is_of_entry => {
                (Some(Arc::new(Secret::parse(password.expose()))), None)
            }
            _ => {
                let facts = shared.facts.lock();
                let secret = facts.secret(self.env.snapshot.users.get(&user));
                (secret.cloned(), facts.keys.clone())
            }
        };
        let mut parameters = parameters_of(database);
        let connect_query = (database.connect_query.as_ref())
            .map(|text| self.connect_query(shared, text, &mut parameters));
        Credentials {
            user,
            database: database.dbname_for(&shared.key.database).to_owned(),
            secret,
            keys,
            parameters,
            connect_query,
            asks_connections: self.env.directory.hosts().limit_servers(),
        }
    }

    /// Returns the `connect_query` for a new server of a pool, and adds the parameters to the startup packet that the query
    /// is known to set.
    fn connect_query(
        &mut self,
        shared: &Arc<SharedPool>,
        text: &str,
        parameters: &mut Parameters,
    ) -> ConnectQuery {
        let carries_sessions = self.open_pool(shared).terms.carries_sessions;
        let facts = shared.facts.lock();
        let known = facts.connect_settings.as_ref();
        let settings = match known.filter(|known| known.query == text) {
            _ if !carries_sessions => SettingsStep::None,
            None => SettingsStep::Ask,
            Some(known) if known.parameters.is_empty() => SettingsStep::None,
            Some(known) => {
                known.add_to(parameters);
                SettingsStep::Send
            }
        };
        ConnectQuery {
            text: text.to_owned(),
            settings,
        }
    }

    /// After a failed login, moves on to the next host, unless another failed login has moved on already.
    pub(super) fn move_to_next_host(&mut self, server: &Server) {
        let shared = &server.shared;
        let terms = &self.open_pool(shared).terms;
        let stays = |entry: &Database| entry.load_balance_hosts == LoadBalance::Disable;
        if !terms.entry.as_ref().is_some_and(stays) {
            return;
        }
        let at = shared.host_number();
        if terms.endpoints[at % terms.endpoints.len()] == *server.link.endpoint() {
            shared.skip_host(at);
        }
    }
}

/// Returns the startup parameters that a database's entry sets.
fn parameters_of(database: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let parameters = [
        ("client_encoding", &database.client_encoding),
        ("datestyle", &database.datestyle),
        ("timezone", &database.timezone),
        ("application_name", &database.application_name),
    ];
    let set = parameters
        .into_iter()
        .filter_map(|(name, value)| Some((name.into(), value.clone()?.into())));
    set.collect()
}
