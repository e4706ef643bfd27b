//! Admission: clients that have authenticated get their pool, or the console.
//!
//! A client that is the first of its pool waits until a server has logged in, since the client is sent that server's
//! parameters. The login ends with the parameters, the cancel key and ReadyForQuery.

use std::sync::Arc;

use pgweir_auth::{scram::ClientKeys, userlist::Secret};
use pgweir_config::is_console;
use pgweir_wire::{Authentication, MessageWriter, Severity, sqlstate};

use super::{Worker, authenticate::is_own_user};
use crate::{
    Actions, Answer, Level, ReadMode, Replication, SharedPool, Time, Token, console::Console,
    fault::Fault, frontend::ClientDuty, pool::PoolKey, shared_pool::ServerParameters,
    stats::LoginResult,
};

impl Worker {
    /// Admits a client that has authenticated.
    pub(super) fn admit(
        &mut self,
        conn: Token,
        keys: Option<ClientKeys>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(login) = self.login(conn) else {
            return Ok(());
        };
        let Some(mut request) = login.request.take() else {
            return Ok(());
        };
        let early = login.inbox.rest().to_vec();
        let is_checked = login.is_checked;
        let told = match login.user_answer.take() {
            Some(Answer::Secret(secret)) if !secret.is_empty() => Some(secret),
            _ => None,
        };
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).authentication(Authentication::Ok);
        });
        if is_console(&request.database) {
            self.open_console(conn, &request.user, early, now, out);
            return Ok(());
        }
        let Some(database) = snapshot.config.database(&request.database) else {
            return Err(Fault::NoSuchDatabase(request.database));
        };
        if self.directory.operator().is_disabled(&request.database) {
            return Err(Fault::DatabaseDisabled(request.database));
        }
        if self.shutdown.is_some() {
            return Err(Fault::ShuttingDown);
        }
        self.grant_exclusive_server(conn, &mut request, out)?;
        let key = PoolKey {
            database: request.database.as_str().into(),
            user: database.user_for(&request.user).into(),
        };
        self.log_auto_database(conn, &request.database, out);
        let shared = self.directory.pool(&key, &snapshot.config, database);
        if *key.user == *request.user {
            let secret = snapshot.users.get(&request.user).or(told.as_ref());
            let is_scram = secret.is_some_and(|secret| matches!(**secret, Secret::Scram(_)));
            let mut facts = shared.facts.lock();
            if let Some(keys) = keys.filter(|_| is_scram) {
                facts.keys = Some(keys);
            }
            if let Some(told) = told {
                facts.secret = Some(told);
            }
            facts.is_checked = is_checked;
        }
        let pool = self.local_pool(&shared, now);
        pool.clients += 1;
        if pool.paused {
            self.apply_orders_to_pool(shared.id, now, out);
        }
        let Some(client) = self.table.client(conn) else {
            return Ok(());
        };
        client.pool = Some(shared.id);
        let is_native = client.exclusive.is_some();
        let asked = request.asked.filter(|_| !is_native);
        self.directory.stays();
        client.early = (!early.is_empty()).then(|| Box::new(early));
        client.duty = ClientDuty::Idle;
        out.read(conn, ReadMode::Hold);
        if is_native {
            self.wait(conn, shared.id, true, now, out);
            return Ok(());
        }
        self.join(conn, &shared, asked, now, out)
    }

    /// Logs the first client of a database that the entry `*` creates.
    pub(super) fn log_auto_database(&mut self, conn: Token, name: &str, out: &mut Actions) {
        if !self.snapshot.config.databases.contains_key(name) && !self.directory.has_pool_of(name) {
            let subject = self.subject_of(conn);
            out.log(
                Level::Log,
                subject,
                format!("registered new auto-database: {name}"),
            );
        }
    }

    /// Adds a client to a pool, whose servers it shares from here on.
    fn join(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        asked: Option<Vec<(Vec<u8>, Vec<u8>)>>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        self.count_pool_client(shared, now, out);
        // The client's session begins with the present settings of ALTER ROLE SET and the like.
        self.retire_redefined(shared.id, now, out);
        let engine = self.local_pool(shared, now).terms.engine;
        if let Some(asked) = asked.filter(|_| engine) {
            self.begin_session(conn, shared, asked);
            self.dedicate(conn, shared.id, now);
        }
        if shared.is_known() {
            match self.is_unproven(conn) {
                true => self.check_out(conn, now, out),
                false => self.welcome_client(conn, now, out),
            }
            return Ok(());
        }
        // Outdated servers must not supply the parameters for logins that follow.
        self.retire_outdated(shared.id, now, out);
        self.check_hosts(shared, now)?;
        self.wait(conn, shared.id, true, now, out);
        Ok(())
    }

    /// Ends a login: sends the parameters, the cancel key and ReadyForQuery.
    pub(crate) fn welcome_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(pool) = self.table.client(conn).and_then(|client| client.pool) else {
            return;
        };
        let Some(server_parameters) = self.pool(pool).and_then(|pool| pool.server_parameters())
        else {
            return;
        };
        if let Some(client) = self.table.client(conn) {
            client.tracked.fill(&server_parameters.tracked);
        }
        self.greet(conn, &server_parameters, now, out);
        match self.table.client(conn) {
            Some(client) if client.early.is_some() => self.check_out(conn, now, out),
            _ => out.read(conn, ReadMode::Notify),
        }
    }

    /// Sends a client its parameters, its cancel key and ReadyForQuery.
    pub(super) fn greet(
        &mut self,
        conn: Token,
        server_parameters: &ServerParameters,
        now: Time,
        out: &mut Actions,
    ) {
        let directory = Arc::clone(&self.directory);
        let settings = &self.snapshot.config.settings;
        let Some(client) = self.table.client(conn) else {
            return;
        };
        client.request_at = now;
        out.send_made(conn, |bytes| {
            bytes.extend_from_slice(&server_parameters.messages);
            let mut writer = MessageWriter::new(bytes);
            for (name, value) in directory.names().pairs(&client.tracked) {
                writer.parameter_status(name.as_bytes(), value);
            }
            let key = client.cancel_key();
            writer.backend_key_data(key.pid, &key.secret);
            if let Some(notice) = &settings.login_notify_message {
                writer.notice(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, notice);
            }
            writer.ready_for_query(b'I');
        });
        let (pool, took) = (client.pool, now.since(client.connected_at));
        if let Some(pool) = pool.and_then(|pool| self.pool(pool)) {
            pool.stats.now.client_login_count += 1;
            pool.times.login.observe(took);
        }
        self.logins.add(LoginResult::Done);
    }

    fn open_console(
        &mut self,
        conn: Token,
        user: &str,
        early: Vec<u8>,
        now: Time,
        out: &mut Actions,
    ) {
        let is_admin = {
            let settings = &self.snapshot.config.settings;
            let is_own = self
                .table
                .client(conn)
                .is_some_and(|client| is_own_user(user, client.same_uid));
            is_own || settings.admin_users.iter().any(|admin| admin == user)
        };
        let Some(client) = self.table.client(conn) else {
            return;
        };
        self.console_stats.now.client_login_count += 1;
        client.duty = ClientDuty::Console(Box::new(Console::new(is_admin)));
        self.logins.add(LoginResult::Done);
        let key = client.cancel_key();
        out.send_made(conn, |bytes| {
            crate::console::write_welcome(bytes);
            MessageWriter::new(bytes)
                .backend_key_data(key.pid, &key.secret)
                .ready_for_query(b'I');
        });
        if !early.is_empty() {
            self.console_bytes(conn, &early, now, out);
        }
    }

    pub(super) fn log_login(&mut self, conn: Token, replication: Replication, out: &mut Actions) {
        if self.snapshot.config.settings.log_connections
            && let Some(client) = self.table.client(conn)
        {
            let (database, user) = client
                .names
                .as_ref()
                .map_or(("", ""), |names| (&names.database, &names.user));
            out.log(
                Level::Log,
                client.subject(),
                format!(
                    "login attempt: db={database} user={user} tls={} replication={}",
                    client
                        .tls
                        .as_ref()
                        .map_or_else(|| "no".to_owned(), |tls| tls.to_string()),
                    replication.parameter()
                ),
            );
        }
    }
}
