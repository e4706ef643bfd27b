//! Queries about users who log in, sent to their database: `auth_query`, and the users' roles.
//!
//! A client that logs in waits for a server of `auth_user`'s pool like any other client, under the same limits. The
//! query is sent to that server, which then goes back to its pool, whether the client has stayed or not. The only
//! input of the client that reaches the server is the user's name, as a parameter.

use std::sync::Arc;

use pgweir_config::is_console;

use super::{Worker, authenticate::Claim};
use crate::{
    Action, Actions, Level, ReadMode, SharedPool, Shutdown, Time, Token,
    auth_cache::{Answer, CacheLimits, Topic, UserQuestion},
    backend::{Duty, InternalQuery, Lookup, Unnamed},
    fault::{Fault, LoginFault},
    frontend::{ClientDuty, Login, Stage},
    mail::Mail,
    pool::PoolKey,
    session::{Settings, plan},
};

/// Microseconds that a server may take to answer where logins have no time limit.
const PATIENCE: u64 = 60_000_000;
/// How many servers may be lost while they answer for one login.
const LOSSES_MAX: u8 = 3;

/// The outcome of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// The login has the answer.
    Known,
    /// The answer will come.
    Awaited,
    /// There is no server to ask.
    Nowhere,
}

impl Worker {
    /// Looks up the user who logs in.
    pub(super) fn look_up_user(
        &mut self,
        conn: Token,
        claim: &Claim,
        about_roles: bool,
        now: Time,
        out: &mut Actions,
    ) -> Result<Looked, Fault> {
        let Some(question) = self.question_about(conn, claim, about_roles, out)? else {
            return Ok(Looked::Nowhere);
        };
        let keeping = self.cache_limits();
        if let Some(answer) = self.directory.auth_cache().get(&question, keeping, now) {
            if let Some(login) = self.login(conn) {
                login.cached = matches!(answer, Answer::Secret(_)).then_some(question);
                login.take(answer);
            }
            return Ok(Looked::Known);
        }
        if self.shutdown.is_some() {
            return Err(Fault::ShuttingDown);
        }
        self.ask_database(conn, question, now, out)?;
        Ok(Looked::Awaited)
    }

    /// Returns how long answers are kept, and how many.
    pub(crate) fn cache_limits(&self) -> CacheLimits {
        let settings = &self.snapshot.config.settings;
        CacheLimits {
            ttl: settings.auth_cache_ttl.0,
            size: settings.auth_cache_size as usize,
        }
    }

    /// Returns the pool to ask and the question; `None` if there is no `auth_user`.
    fn question_about(
        &mut self,
        conn: Token,
        claim: &Claim,
        about_roles: bool,
        out: &mut Actions,
    ) -> Result<Option<UserQuestion>, Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let settings = &snapshot.config.settings;
        let entry = snapshot.config.database(&claim.database);
        // A client that has not logged in must not learn whether the database exists.
        if entry.is_none() && !claim.to_console {
            return Ok(None);
        }
        let of_entry = entry.and_then(|entry| entry.auth_user.as_ref());
        let Some(auth_user) = of_entry.or(settings.auth_user.as_ref()) else {
            return Ok(None);
        };
        let of_entry = entry.and_then(|entry| entry.auth_dbname.as_deref());
        let named = of_entry.or(settings.auth_dbname.as_deref());
        let database = named.unwrap_or(&claim.database);
        let mut misconfigured = |worker: &mut Self, why: String| {
            let subject = worker.subject_of(conn);
            out.log(Level::Error, subject, why);
            Err(Fault::Login(LoginFault::Misconfigured))
        };
        if is_console(database) {
            let why = format!("cannot use the reserved \"{database}\" database as an auth_dbname");
            return misconfigured(self, why);
        }
        if snapshot.config.database(database).is_none() {
            let why = format!("authentication database \"{database}\" is not configured");
            return misconfigured(self, why);
        }
        if self.directory.operator().is_disabled(database) {
            return Err(Fault::Login(LoginFault::AuthDatabaseDisabled(
                database.to_owned(),
            )));
        }
        let of_entry = entry.and_then(|entry| entry.auth_query.as_deref());
        let query = of_entry.unwrap_or(&settings.auth_query);
        Ok(Some(UserQuestion {
            database: database.into(),
            auth_user: auth_user.as_str().into(),
            user: Arc::clone(&claim.user),
            topic: match about_roles {
                true => Topic::Roles,
                false => Topic::Secret(query.into()),
            },
        }))
    }

    /// Gives the client a server that can answer, or puts it into the queue.
    fn ask_database(
        &mut self,
        conn: Token,
        question: UserQuestion,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(entry) = snapshot.config.database(&question.database) else {
            return Err(Fault::Login(LoginFault::Misconfigured));
        };
        let key = PoolKey {
            database: (&*question.database).into(),
            user: (&*question.auth_user).into(),
        };
        self.log_auto_database(conn, &key.database, out);
        let shared = self.directory.pool(&key, &snapshot.config, entry);
        out.read(conn, ReadMode::Hold);
        let Some(login) = self.login(conn) else {
            return Ok(());
        };
        login.stage = Stage::LookingUp(Box::new(question));
        let pool = self.local_pool(&shared, now);
        if pool.paused {
            self.apply_orders_to_pool(shared.id, now, out);
        }
        let idle = self.pool(shared.id).and_then(|pool| pool.take_idle());
        match idle {
            Some(server) => self.ask_server(server, conn, now, out),
            None => self.wait_to_ask(conn, &shared, now, out)?,
        }
        Ok(())
    }

    fn wait_to_ask(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        self.check_hosts(shared, now)
            .map_err(Fault::before_authentication)?;
        let Some(client) = self.table.client(conn) else {
            return Ok(());
        };
        if let ClientDuty::Login(login) = std::mem::replace(&mut client.duty, ClientDuty::Idle) {
            client.login = Some(login);
        }
        client.pool = Some(shared.id);
        self.directory.stays();
        self.local_pool(shared, now).clients += 1;
        self.wait(conn, shared.id, true, now, out);
        Ok(())
    }

    /// Serves a client that waited for this server to look up its user. Returns `false` if the client no longer
    /// needs the server.
    pub(super) fn serve_lookup(
        &mut self,
        server: Token,
        conn: Token,
        login: Box<Login>,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.table.client(conn) else {
            return false;
        };
        let pool = client.pool.take();
        client.duty = ClientDuty::Login(login);
        if let Some(pool) = pool.and_then(|pool| self.pool(pool)) {
            pool.clients -= 1;
            pool.empty_since = now;
        }
        if self.directory.stays_no_more() {
            self.announce_shutdown(Shutdown::WaitForClients, out);
        }
        let keeping = self.cache_limits();
        let question = self.login(conn).and_then(|login| match &login.stage {
            Stage::LookingUp(question) => Some(question.clone()),
            _ => None,
        });
        let known =
            question.and_then(|question| self.directory.auth_cache().get(&question, keeping, now));
        match known {
            // Another client has asked the same question meanwhile.
            Some(answer) => {
                self.looked_up(conn, Ok(answer), now, out);
                false
            }
            None => {
                self.ask_server(server, conn, now, out);
                true
            }
        }
    }

    fn ask_server(&mut self, server_conn: Token, conn: Token, now: Time, out: &mut Actions) {
        let settings = &self.snapshot.config.settings;
        let patience = match settings.client_login_timeout.0 {
            0 => PATIENCE,
            limit => limit,
        };
        let Some((client, server)) = self.table.pair(conn, server_conn) else {
            return;
        };
        let ClientDuty::Login(login) = &client.duty else {
            return;
        };
        let Stage::LookingUp(question) = &login.stage else {
            return;
        };
        let clears = self.directory.auth_cache().clears();
        let lookup = Lookup::new(conn, (**question).clone(), clears, now);
        let pool = server.pool();
        let duty = Duty::Cleaning {
            until: now.after(patience),
            rolled_back: false,
        };
        server.lent_at = now;
        server.duty = duty;
        self.schedule(now);
        self.make_neutral(server_conn, out);
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        server.replies.internal_sync_sent(InternalQuery::Lookup);
        server.unnamed = Unnamed::None;
        out.send_made(server_conn, |bytes| lookup.ask(bytes));
        server.session.lookup = Some(Box::new(lookup));
        if let Some(pool) = self.pool(pool) {
            pool.stats.now.server_assignment_count += 1;
        }
    }

    /// Resets the parameters that clients have set: the answer must not depend on them.
    fn make_neutral(&mut self, server_conn: Token, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let start = out.scratch.len();
        let engine = plan(&Settings::default(), &server.session.held);
        let server_parameters = server.shared.facts.lock().server_parameters.clone();
        let is_changed = match (engine, server_parameters) {
            (Some(text), _) => {
                pgweir_wire::MessageWriter::new(&mut out.scratch).query(&text);
                true
            }
            (None, Some(server_parameters)) => {
                let names = directory.names();
                names.plan(
                    &server_parameters.tracked,
                    &server.tracked,
                    &mut out.scratch,
                )
            }
            (None, None) => false,
        };
        if is_changed {
            server.ask(InternalQuery::Neutral);
            let end = out.scratch.len();
            out.list.push(Action::Send {
                to: server_conn,
                source: crate::Source::Scratch(start..end),
            });
        }
    }

    /// Records that the server's session is as it was after its login.
    pub(crate) fn is_neutral(&mut self, conn: Token) {
        if let Some(server) = self.table.server(conn) {
            server.session.held = Settings::default();
            server.session.has_reported = false;
            server.session.has_unsent_parameters = false;
        }
    }

    /// Hands the server's answer to the login.
    pub(crate) fn lookup_done(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let lookup = self
            .table
            .server(conn)
            .and_then(|server| server.session.lookup.take());
        let Some(lookup) = lookup else { return };
        let (client, clears) = (lookup.client, lookup.clears);
        let question = lookup.question.clone();
        let told = lookup.answer();
        if let Ok(told) = &told {
            let keeping = self.cache_limits();
            let lookups = self.directory.auth_cache();
            lookups.keep(&question, told, clears, keeping, now);
        }
        self.looked_up(client, told.map(|told| told.answer), now, out);
    }

    /// Reports the loss of a server that was answering.
    pub(crate) fn lookup_lost(&self, lookup: &Lookup, out: &mut Actions) {
        out.list.push(Action::Mail {
            to: self.id,
            mail: Mail::LookUpAgain(lookup.client),
        });
    }

    /// Asks another server, unless too many were lost.
    pub(crate) fn look_up_again(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(login) = self.login(conn) else {
            return;
        };
        let Stage::LookingUp(question) = &login.stage else {
            return;
        };
        let question = (**question).clone();
        login.losses += 1;
        if login.losses > LOSSES_MAX {
            let why = "the server was lost".to_owned();
            return self.looked_up(conn, Err(why), now, out);
        }
        if let Err(fault) = self.ask_database(conn, question, now, out) {
            self.refuse(conn, &fault, now, out);
        }
    }

    /// Continues the login with the answer.
    fn looked_up(
        &mut self,
        conn: Token,
        answer: Result<Answer, String>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(login) = self.login(conn) else {
            return;
        };
        if !matches!(login.stage, Stage::LookingUp(_)) {
            return;
        }
        login.stage = Stage::Startup;
        let outcome = match answer {
            Ok(answer) => {
                login.take(answer);
                out.read(conn, ReadMode::Deliver);
                self.authenticate(conn, now, out)
                    .and_then(|()| self.login_steps(conn, now, out))
            }
            Err(why) => {
                let subject = self.subject_of(conn);
                out.log(Level::Error, subject, format!("error in auth_query: {why}"));
                Err(Fault::Login(LoginFault::Misconfigured))
            }
        };
        if let Err(fault) = outcome {
            self.refuse(conn, &fault, now, out);
        }
    }
}
