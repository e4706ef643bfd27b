//! Admission: clients that have authenticated get their place in a pool, or the console.
//!
//! A client that is the first of its pool waits until a server has logged in, since the client is sent that server's
//! parameters. The login ends with the parameters, the cancel key and ReadyForQuery. Clients of `bypass_users` are
//! exempt from the limits, and get an exclusive server that no ledger and no cap counts.

use std::sync::Arc;

use pgweir_auth::{scram::ClientKeys, userlist::Secret};
use pgweir_config::{PoolMode, is_console};
use pgweir_wire::{Authentication, MessageWriter, Severity, sqlstate};

use super::{LoginEvent, LoginStep, Next, authentication::is_own_user, greetings};
use crate::{
    Action, Actions, Level, ReadMode, SharedPool, Token,
    base::{
        fault::{Fault, LoginFault},
        stats::LoginResult,
    },
    console::{self, Console},
    effect::{ClientEffect, ConsoleEffect, Effect, Env, PoolEffect},
    frontend::{AskedParameters, Client, LoginRequest, Stage},
    login::parked::{ParkedLogin, limits_at_login, limits_of},
    pool::PoolKey,
    shared::{auth_cache::Answer, client_counts::ClientLimits, pool::ServerParameters},
};

/// The warning for a client of `bypass_users` that connects when `bypass_max` is reached.
const NOTICE: &str = "bypass_max is reached: this client is served from the pool, like others";

/// A client that may use the console.
#[derive(Debug)]
pub(super) struct ConsoleLogin {
    is_admin: bool,
    /// Bytes that arrived together with the end of the login.
    early: Vec<u8>,
}

/// A client that gets a place in its pool.
#[derive(Debug)]
pub(super) struct Admission {
    shared: Arc<SharedPool>,
    /// All parameters of the startup packet, if the client's session moves between servers.
    asked: Option<AskedParameters>,
    /// Bytes that arrived together with the end of the login.
    early: Vec<u8>,
}

impl LoginStep<'_> {
    /// Completes the authentication of the client, which has proven who it is: the client is admitted, or parked above a
    /// limit.
    ///
    /// # Errors
    /// The client may not use the database now.
    pub(super) fn complete(&mut self, keys: Option<ClientKeys>) -> Result<Next, Fault> {
        // The ban may have begun while this login was under way.
        self.refuse_if_banned()?;
        self.forget_failures();
        match self.count_client() {
            Ok(()) => self.enter(keys),
            // The process is shutting down, and workers may no longer answer.
            Err(fault) if self.env.shutdown.is_some() => Err(fault),
            Err(_) => {
                self.login.stage = Stage::Parked(keys);
                Ok(Next::Park)
            }
        }
    }

    /// Counts a parked login again, now that all workers have processed pending disconnects.
    ///
    /// # Errors
    /// The client may not use the database now.
    pub(super) fn count_again(&mut self, parked: ParkedLogin) -> Result<Next, Fault> {
        if !self.login.is_parked() {
            return Ok(Next::Awaited);
        }
        if let Err(fault) = self.count_client() {
            return Ok(Next::ParkAgain(parked, fault));
        }
        self.out.read(self.conn, ReadMode::Deliver);
        let Stage::Parked(keys) = std::mem::replace(&mut self.login.stage, Stage::Startup) else {
            return Ok(Next::Awaited);
        };
        self.enter(keys)
    }

    /// Counts a client, if the limits allow it.
    ///
    /// # Errors
    /// The client is above a limit.
    fn count_client(&mut self) -> Result<(), Fault> {
        let (Some(names), Some(request)) = (self.client.names(), &self.login.request) else {
            return Err(self.without_startup_packet());
        };
        let is_own = is_own_user(&request.user, self.client.origin.same_uid);
        let limits = limits_at_login(&self.env.snapshot.config, names, request, is_own);
        self.env.directory.admit_client(names, &limits)
    }

    /// Finds the place of a client that was counted.
    ///
    /// # Errors
    /// The client may not use the database now: it is not counted any more.
    fn enter(&mut self, keys: Option<ClientKeys>) -> Result<Next, Fault> {
        let outcome = self.find_place(keys);
        if let (Err(_), Some(names)) = (&outcome, self.client.names()) {
            self.env.directory.dismiss_client(names);
        }
        outcome
    }

    fn without_startup_packet(&mut self) -> Fault {
        debug_assert!(false, "a client has authenticated without a startup packet");
        let text = "a client has authenticated without a startup packet";
        self.log(Level::Error, text.to_owned());
        Fault::Login(LoginFault::Rejected)
    }

    fn find_place(&mut self, keys: Option<ClientKeys>) -> Result<Next, Fault> {
        let Some(mut request) = self.login.request.take() else {
            return Err(self.without_startup_packet());
        };
        let early = self.login.inbox.rest().to_vec();
        self.out.send_made(self.conn, |bytes| {
            MessageWriter::new(bytes).authentication(Authentication::Ok);
        });
        let config = &self.env.snapshot.config;
        if is_console(&request.database) {
            let is_own = is_own_user(&request.user, self.client.origin.same_uid);
            let is_admin = is_own
                || config
                    .settings
                    .admin_users
                    .iter()
                    .any(|name| **name == *request.user);
            return Ok(Next::Console(ConsoleLogin { is_admin, early }));
        }
        let Some(database) = config.database(&request.database) else {
            return Err(Fault::NoSuchDatabase(request.database.to_string()));
        };
        if self.env.directory.operator().is_disabled(&request.database) {
            return Err(Fault::DatabaseDisabled(request.database.to_string()));
        }
        if self.env.shutdown.is_some() {
            return Err(Fault::ShuttingDown);
        }
        self.grant_exclusive_server(&mut request)?;
        let (database_name, user) = (&*request.database, database.user_for(&request.user));
        let is_key =
            |names: &&Arc<PoolKey>| *names.database == *database_name && *names.user == *user;
        let key = match self.client.names().filter(is_key) {
            Some(names) => Arc::clone(names),
            None => Arc::new(PoolKey {
                database: database_name.into(),
                user: user.into(),
            }),
        };
        self.env
            .log_auto_database(self.client, &request.database, self.out);
        let shared = self.env.directory.pool(&key, config, database);
        if *key.user == *request.user {
            self.keep_secret(&shared, &request.user, keys);
        }
        Ok(Next::Admit(Box::new(Admission {
            shared,
            asked: request.asked,
            early,
        })))
    }

    /// Keeps the client's password or SCRAM keys for logins to servers.
    fn keep_secret(&mut self, shared: &SharedPool, user: &str, keys: Option<ClientKeys>) {
        let answer = match self.login.user_answer.take() {
            Some(Answer::Secret(secret)) if !secret.is_empty() => Some(secret),
            _ => None,
        };
        let secret = self.env.snapshot.users.get(user).or(answer.as_ref());
        let is_scram = secret.is_some_and(|secret| matches!(**secret, Secret::Scram(_)));
        let mut facts = shared.facts.lock();
        if let Some(keys) = keys.filter(|_| is_scram) {
            facts.keys = Some(keys);
        }
        if let Some(answer) = answer {
            facts.secret = Some(answer);
        }
        facts.is_checked = self.login.is_checked;
    }

    /// Notes the reason for which the client gets an exclusive server, if any, and counts the client as exempt from the
    /// limits. If `bypass_max` such clients exist already, the limits apply to this client.
    ///
    /// # Errors
    ///
    /// The client exceeds one of the limits.
    fn grant_exclusive_server(&mut self, request: &mut LoginRequest) -> Result<(), Fault> {
        let asks = request
            .exclusive
            .as_ref()
            .is_some_and(|exclusive| exclusive.bypass);
        let most = self.env.snapshot.config.settings.bypass_max;
        let bypass = self.env.directory.bypass();
        let granted = asks && bypass.take(most);
        if asks && !granted {
            request.give_up_bypass()?;
            self.warn_of_limits(most);
        }
        self.client.set_exclusive(request.exclusive.take());
        if asks && !granted {
            self.check_limits()?;
        }
        if granted {
            let taken = bypass.taken();
            let text = format!("past all limits: {taken} of bypass_max = {most}");
            self.log(Level::Log, text);
        }
        Ok(())
    }

    fn warn_of_limits(&mut self, most: u32) {
        let text = format!("bypass_max = {most} is reached: served from the pool");
        self.log(Level::Warning, text);
        self.out.send_made(self.conn, |bytes| {
            let code = sqlstate::SUCCESSFUL_COMPLETION;
            MessageWriter::new(bytes).notice(Severity::Warning, code, NOTICE);
        });
    }

    /// Checks the limits that were skipped when the client connected.
    fn check_limits(&self) -> Result<(), Fault> {
        let Some(names) = self.client.names() else {
            return Ok(());
        };
        let config = &self.env.snapshot.config;
        let limits = ClientLimits {
            total: Some(config.settings.max_client_conn as usize),
            ..limits_of(config, names)
        };
        let counts = self.env.directory.client_counts();
        // The client is counted already.
        limits.admit(
            self.env
                .directory
                .limited_clients(&counts)
                .saturating_sub(1),
            counts.of_database(&names.database).saturating_sub(1),
            counts.of_user(&names.user).saturating_sub(1),
        )
    }
}

impl LoginEvent<'_> {
    /// Gives a client that has authenticated its place in its pool.
    pub(super) fn admit(&mut self, conn: Token, admission: Admission, out: &mut Actions) {
        let Admission {
            shared,
            asked,
            early,
        } = admission;
        let pool = self.open_pool(&shared);
        pool.add_client();
        if pool.orders.paused {
            self.effects
                .push(Effect::Pool(shared.id, PoolEffect::ApplyOrders));
        }
        self.env.directory.stays();
        let Some(client) = self.connections.client(conn) else {
            debug_assert!(false, "a client vanished in its login");
            return;
        };
        client.join_pool(shared.id);
        client.socket.keep_early(early);
        client.become_idle();
        out.read(conn, ReadMode::Hold);
        let next = match client.exclusive() {
            Some(_) => Effect::Client(ClientEffect::Wait {
                client: conn,
                pool: shared.id,
                at_login: true,
            }),
            None => Effect::Client(ClientEffect::JoinPool(conn, asked)),
        };
        self.effects.push(next);
    }

    /// Serves a client that may use the console.
    pub(super) fn open_console(&mut self, conn: Token, login: ConsoleLogin, out: &mut Actions) {
        let ConsoleLogin { is_admin, early } = login;
        let Some(client) = self.connections.client(conn) else {
            debug_assert!(false, "a client vanished in its login");
            return;
        };
        client.open_console(Console::new(is_admin));
        self.logins.results.add(LoginResult::Done);
        out.list.push(Action::LoggedIn(conn));
        let key = client.cancel_key();
        out.send_made(conn, |bytes| {
            console::write_welcome(bytes);
            MessageWriter::new(bytes)
                .backend_key_data(key.pid, &key.secret)
                .ready_for_query(b'I');
        });
        let effect = ConsoleEffect::Serve(conn, early);
        self.effects.push(Effect::Console(effect));
    }

    /// Ends the login of a client whose pool has had a server: sends the parameters, the cancel key and
    /// ReadyForQuery.
    pub(crate) fn welcome(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        let pool = client.pool().and_then(|pool| self.pools.get(pool));
        let Some(server_parameters) = pool.and_then(|pool| pool.server_parameters()) else {
            return out.report_missing("the parameters of a pool that has had a server");
        };
        let names = self.env.directory.names();
        let greeting = (self.logins.greetings).find(names, &client.tracked, &server_parameters);
        client.tracked = greeting.tracked().clone();
        let has_early = client.socket.has_early();
        let is_session_mode = pool.is_some_and(|pool| pool.terms.mode == PoolMode::Session);
        end_login(&self.env, conn, client, greeting.messages(), out);
        self.count_login(conn, out);
        if has_early {
            let check_out = Effect::Client(ClientEffect::CheckOut(conn));
            return self.effects.push(check_out);
        }
        out.read(conn, ReadMode::Notify);
        if is_session_mode {
            let assign = Effect::Client(ClientEffect::AssignWorker(conn));
            self.effects.push(assign);
        }
    }

    /// Sends a client the parameters of its exclusive server, its cancel key and ReadyForQuery.
    pub(crate) fn greet(
        &mut self,
        conn: Token,
        server_parameters: &ServerParameters,
        out: &mut Actions,
    ) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        let names = self.env.directory.names();
        let messages = greetings::messages(names, &client.tracked, server_parameters);
        end_login(&self.env, conn, client, &messages, out);
        self.count_login(conn, out);
    }

    fn count_login(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let took = self.env.now.since(client.origin.connected_at);
        if let Some(pool) = client.pool().and_then(|pool| self.pools.get_mut(pool)) {
            pool.stats.now.client_login_count += 1;
            pool.times.login.observe(took);
        }
        self.logins.results.add(LoginResult::Done);
        out.list.push(Action::LoggedIn(conn));
    }
}

/// Sends a client the messages about parameters, its cancel key and ReadyForQuery.
fn end_login(
    env: &Env<'_>,
    conn: Token,
    client: &mut Client,
    parameters: &[u8],
    out: &mut Actions,
) {
    client.request.note_sent(env.now);
    out.send_made(conn, |bytes| {
        bytes.extend_from_slice(parameters);
        let mut writer = MessageWriter::new(bytes);
        let key = client.key_mut();
        writer.backend_key_data(key.pid(), key.secret());
        if let Some(notice) = &env.snapshot.config.settings.login_notify_message {
            writer.notice(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, notice);
        }
        writer.ready_for_query(b'I');
    });
}

impl Env<'_> {
    /// Logs the first client of a database that the entry `*` creates.
    pub(super) fn log_auto_database(&self, client: &Client, name: &str, out: &mut Actions) {
        let is_named = self.snapshot.config.databases.contains_key(name);
        if !is_named && !self.directory.has_pool_of(name) {
            let text = format!("registered new auto-database: {name}");
            out.log(Level::Log, client.subject(), text);
        }
    }
}
