//! Queries about users who log in, sent to their database: `auth_query`, and the users' roles.
//!
//! A client that logs in waits for a server of `auth_user`'s pool like any other client, under the same limits. The
//! query is sent to that server, which then goes back to its pool, whether the client has stayed or not. The only
//! input of the client that reaches the server is the user's name, as a parameter.

use std::sync::Arc;

use pgweir_config::{Settings as Config, is_console};
use pgweir_wire::MessageWriter;

use super::{Claim, LoginEvent, LoginStep, Next, check_hosts};
use crate::{
    Action, Actions, Level, ReadMode, SharedPool, Shutdown, Source, Token, WorkerId,
    backend::{self, InternalAnswer, InternalQuery, Server, Unnamed},
    base::fault::{Fault, LoginFault},
    directory::Directory,
    effect::{ClientEffect, Effect, PoolEffect},
    frontend::{Login, Stage},
    mail::Mail,
    operators::shutdown,
    pool::PoolKey,
    session::{Settings, plan},
    shared::auth_cache::{Answer, CacheLimits, Topic, UserQuery},
};

/// Microseconds that a server may take to answer if logins have no time limit.
const PATIENCE: u64 = 60_000_000;
/// The largest number of servers that may be lost while they answer for one login.
const LOSSES_MAX: u8 = 3;

/// Whether a login needs the answer of a database about its user.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The login has the answer.
    Known,
    /// This query has to be sent to a database.
    Needed(UserQuery),
    /// There is no server to ask.
    Nowhere,
}

/// Returns the time for which answers about users are cached, and the most answers.
pub(crate) fn cache_limits(settings: &Config) -> CacheLimits {
    CacheLimits {
        ttl: settings.auth_cache_ttl.0,
        size: settings.auth_cache_size as usize,
    }
}

/// Reports the loss of a server that was answering a query about a user to the worker's own mail.
pub(crate) fn note_lost_lookup(to: WorkerId, lookup: &backend::Lookup, out: &mut Actions) {
    let mail = Mail::LookUpAgain(lookup.client);
    out.mail(to, mail);
}

/// Records that the server's session is as it was after its login.
pub(crate) fn note_neutral_session(server: &mut Server) {
    server.session.settings.set_held(Settings::default());
    server.session.extension.note_known();
}

impl LoginStep<'_> {
    /// Looks up the user who logs in.
    pub(super) fn look_up_user(
        &mut self,
        claim: &Claim,
        about_roles: bool,
    ) -> Result<Lookup, Fault> {
        let Some(query) = self.query_about(claim, about_roles)? else {
            return Ok(Lookup::Nowhere);
        };
        let limits = cache_limits(&self.env.snapshot.config.settings);
        let cache = self.env.directory.auth_cache();
        if let Some(answer) = cache.get(&query, limits, self.env.now) {
            self.login.cached = matches!(answer, Answer::Secret(_)).then_some(query);
            self.login.take(answer);
            return Ok(Lookup::Known);
        }
        match self.env.shutdown {
            Some(_) => Err(Fault::ShuttingDown),
            None => Ok(Lookup::Needed(query)),
        }
    }

    /// Returns the query, and the pool to ask; `None` if there is no `auth_user`.
    fn query_about(
        &mut self,
        claim: &Claim,
        about_roles: bool,
    ) -> Result<Option<UserQuery>, Fault> {
        let config = &self.env.snapshot.config;
        let settings = &config.settings;
        let entry = config.database(&claim.database);
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
        let mistake = if is_console(database) {
            Some(format!(
                "cannot use the reserved \"{database}\" database as an auth_dbname"
            ))
        } else if config.database(database).is_none() {
            Some(format!(
                "authentication database \"{database}\" is not configured"
            ))
        } else {
            None
        };
        if let Some(mistake) = mistake {
            self.log(Level::Error, mistake);
            return Err(Fault::Login(LoginFault::Misconfigured));
        }
        if self.env.directory.operator().is_disabled(database) {
            let fault = LoginFault::AuthDatabaseDisabled(database.to_owned());
            return Err(Fault::Login(fault));
        }
        let of_entry = entry.and_then(|entry| entry.auth_query.as_deref());
        let query = of_entry.unwrap_or(&settings.auth_query);
        Ok(Some(UserQuery {
            database: database.into(),
            auth_user: auth_user.as_str().into(),
            user: Arc::clone(&claim.user),
            topic: match about_roles {
                true => Topic::Roles,
                false => Topic::Secret(query.into()),
            },
        }))
    }

    /// Returns the query whose answer the login waits for.
    fn query(&self) -> Option<&UserQuery> {
        match &self.login.stage {
            Stage::LookingUp(query) => Some(query),
            _ => None,
        }
    }

    /// Asks another server, since one was lost while it answered, unless too many were lost.
    fn look_up_again(&mut self) -> Result<Next, Fault> {
        let Some(query) = self.query().cloned() else {
            return Ok(Next::Awaited);
        };
        self.login.losses += 1;
        if self.login.losses > LOSSES_MAX {
            return self.take_answer(Err("the server was lost".to_owned()));
        }
        Ok(Next::LookUp(query))
    }

    /// Continues the login with the answer.
    fn take_answer(&mut self, answer: Result<Answer, String>) -> Result<Next, Fault> {
        if self.query().is_none() {
            return Ok(Next::Awaited);
        }
        self.login.stage = Stage::Startup;
        match answer {
            Ok(answer) => {
                self.login.take(answer);
                self.out.read(self.conn, ReadMode::Deliver);
                self.authenticate_and_run()
            }
            Err(why) => {
                self.log(Level::Error, format!("error in auth_query: {why}"));
                Err(Fault::Login(LoginFault::Misconfigured))
            }
        }
    }
}

impl LoginEvent<'_> {
    /// Sends the query to an idle server, or lets the client wait for a server that can answer.
    pub(super) fn ask_database(
        &mut self,
        conn: Token,
        query: UserQuery,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let config = &self.env.snapshot.config;
        let Some(entry) = config.database(&query.database) else {
            return Err(Fault::Login(LoginFault::Misconfigured));
        };
        let key = PoolKey {
            database: (&*query.database).into(),
            user: (&*query.auth_user).into(),
        };
        let Some(client) = self.connections.known_client(conn, out) else {
            return Ok(());
        };
        self.env.log_auto_database(client, &key.database, out);
        if let Some(login) = client.login_mut() {
            login.stage = Stage::LookingUp(Box::new(query));
        }
        let shared = self.env.directory.pool(&key, config, entry);
        out.read(conn, ReadMode::Hold);
        let pool = self.open_pool(&shared);
        let is_paused = pool.orders.paused;
        // A paused pool has no idle server.
        let idle = (!is_paused).then(|| pool.take_idle()).flatten();
        if is_paused {
            self.effects
                .push(Effect::Pool(shared.id, PoolEffect::ApplyOrders));
        }
        match idle {
            Some(server) => {
                self.ask_server(server, conn, out);
                Ok(())
            }
            None => self.wait_to_ask(conn, &shared),
        }
    }

    fn wait_to_ask(&mut self, conn: Token, shared: &Arc<SharedPool>) -> Result<(), Fault> {
        let pool = self.pools.open(&self.env, self.connections, shared);
        check_hosts(pool, self.env.now).map_err(Fault::before_authentication)?;
        pool.add_client();
        if let Some(client) = self.connections.client(conn) {
            client.postpone_login();
            client.join_pool(shared.id);
        }
        self.env.directory.stays();
        self.effects.push(Effect::Client(ClientEffect::Wait {
            client: conn,
            pool: shared.id,
            at_login: true,
        }));
        Ok(())
    }

    /// Serves a client that waited for this server to look up its user. Returns `false` if the client no longer
    /// needs the server.
    pub(crate) fn serve_lookup(
        &mut self,
        server: Token,
        conn: Token,
        login: Box<Login>,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.connections.client(conn) else {
            return false;
        };
        let pool = client.leave_pool();
        let query = match &login.stage {
            Stage::LookingUp(query) => Some(query.clone()),
            _ => None,
        };
        self.connections.resume_login(conn, login, self.env.now);
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(pool)) {
            pool.remove_client(self.env.now);
        }
        let directory = self.env.directory;
        if directory.note_stayed_client_left() {
            let how = Shutdown::WaitForClients;
            shutdown::announce(self.env.worker, directory, how, out);
        }
        let limits = cache_limits(&self.env.snapshot.config.settings);
        let cache = directory.auth_cache();
        let known = query.and_then(|query| cache.get(&query, limits, self.env.now));
        match known {
            // Another client has asked the same query meanwhile.
            Some(answer) => {
                self.step(conn, out, |step| step.take_answer(Ok(answer)));
                false
            }
            None => {
                self.ask_server(server, conn, out);
                true
            }
        }
    }

    fn ask_server(&mut self, server_conn: Token, conn: Token, out: &mut Actions) {
        let (env, now) = (self.env, self.env.now);
        let patience = match env.snapshot.config.settings.client_login_timeout.0 {
            0 => PATIENCE,
            limit => limit,
        };
        let Some((client, server)) = self.connections.pair(conn, server_conn) else {
            return out.report_missing("the client or the server of a query about a user");
        };
        let stage = client.present_login().map(|login| &login.stage);
        let Some(Stage::LookingUp(query)) = stage else {
            return out.report_missing("the query about the user of a client that logs in");
        };
        let clears = env.directory.auth_cache().clears();
        let lookup = backend::Lookup::new(conn, (**query).clone(), clears, now);
        server.times.note_lent(now);
        reset_parameters(env.directory, server_conn, server, out);
        server.replies.internal_sync_sent(InternalQuery::Lookup);
        server.statements.unnamed = Unnamed::None;
        out.send_made(server_conn, |bytes| lookup.ask(bytes));
        let answer = InternalAnswer::Lookup(Box::new(lookup));
        server.session.queries.begin(answer);
        let pool = server.pool();
        (self.connections).begin_cleaning(server_conn, now.after(patience), now, out);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.stats.now.server_assignment_count += 1;
        }
    }

    /// Hands the server's answer to the login.
    pub(crate) fn lookup_answered(&mut self, server: Token, out: &mut Actions) {
        let server = self.connections.server(server);
        let answer = server.and_then(|server| server.session.queries.end(InternalQuery::Lookup));
        let Some(InternalAnswer::Lookup(lookup)) = answer else {
            return out.report_missing("the query about a user that a server has answered");
        };
        let (client, clears) = (lookup.client, lookup.clears);
        let query = lookup.query.clone();
        let answer = lookup.answer();
        if let Ok(answer) = &answer {
            let limits = cache_limits(&self.env.snapshot.config.settings);
            let cache = self.env.directory.auth_cache();
            cache.keep(&query, answer, clears, limits, self.env.now);
        }
        let answer = answer.map(|answer| answer.answer);
        self.step(client, out, |step| step.take_answer(answer));
    }

    /// Asks another server, since one was lost while it answered.
    pub(crate) fn look_up_again(&mut self, conn: Token, out: &mut Actions) {
        self.step(conn, out, |step| step.look_up_again());
    }
}

/// Resets the parameters that clients have set on the server: the answer must not depend on them.
fn reset_parameters(directory: &Directory, conn: Token, server: &mut Server, out: &mut Actions) {
    let start = out.scratch.len();
    let own_change = plan(&Settings::default(), server.session.settings.held());
    let server_parameters = server.shared.facts.lock().server_parameters.clone();
    let is_changed = match (own_change, server_parameters) {
        (Some(text), _) => {
            MessageWriter::new(&mut out.scratch).query(&text);
            true
        }
        (None, Some(usual)) => {
            let names = directory.names();
            names.plan(&usual.tracked, &server.tracked, &mut out.scratch)
        }
        (None, None) => false,
    };
    if is_changed {
        server.ask(InternalQuery::Neutral);
        let source = Source::Scratch(start..out.scratch.len());
        out.list.push(Action::Send { to: conn, source });
    }
}
