//! Authentication of clients: by `auth_type`, or by the HBA rule that matches the client.
//!
//! The secret comes from `auth_file` or `auth_query`. A password for LDAP or PAM is checked outside the worker
//! ([`Action::CheckAuth`](crate::Action::CheckAuth)).

use std::sync::Arc;

use pgweir_auth::{
    Method,
    hba::{Asked, Found, IdentMap},
    userlist::Secret,
};
use pgweir_config::{AuthType, Settings, is_console};

use super::{Worker, lookup::Looked};
use crate::{
    Actions, Address, AuthCheck, AuthCheckResult, Level, ReadMode, Replication, Time, TlsFacts,
    Token,
    auth_cache::Answer,
    fault::{Fault, LoginFault},
    frontend::{AuthPlan, Login, Proof, Stage},
};

/// The user who needs no password over a Unix socket, if the client runs under pgweir's user id.
const CONSOLE_USER: &str = "pgbouncer";

/// The user and database that a client claims, and where it connects from.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) user: Arc<str>,
    pub(super) database: Arc<str>,
    pub(super) to_console: bool,
    is_physical: bool,
    is_tls: bool,
    same_uid: bool,
    /// The client's address, if it connects by TCP.
    address: Option<std::net::IpAddr>,
}

/// What `auth_type`, or an HBA rule, demands.
#[derive(Debug, Clone)]
struct Way {
    method: Method,
    map: Option<Arc<IdentMap>>,
}

impl Worker {
    /// Continues a login as far as possible before an answer arrives.
    pub(super) fn authenticate(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let Some(claim) = self.claim(conn) else {
            return Ok(());
        };
        let Some(plan) = self.plan(conn, &claim, now, out)? else {
            return Ok(());
        };
        let plan = self.with_made_secret(plan, &claim.user);
        let process_key = *self.directory.process_key();
        let iterations = self.snapshot.config.settings.scram_iterations;
        let Some(login) = self.login(conn) else {
            return Ok(());
        };
        let start = out.scratch.len();
        let proof = match login.repeated.take() {
            Some(message) => login.repeat(plan, &message)?,
            None => login.challenge(plan, &process_key, iterations, &mut out.scratch)?,
        };
        self.proven(conn, proof, start, now, out)
    }

    fn claim(&mut self, conn: Token) -> Option<Claim> {
        let client = self.table.client(conn)?;
        let (same_uid, remote) = (client.same_uid, client.remote);
        let is_tls = client.tls.is_some();
        let request = self.login(conn)?.request.as_ref()?;
        let exclusive = request.exclusive.as_ref();
        Some(Claim {
            user: request.user.as_str().into(),
            database: request.database.as_str().into(),
            to_console: is_console(&request.database),
            is_physical: exclusive
                .is_some_and(|exclusive| exclusive.replication == Replication::Physical),
            is_tls,
            same_uid,
            address: match remote {
                Address::Tcp(address) => Some(address.ip()),
                Address::Unix => None,
            },
        })
    }

    /// Returns how the client has to authenticate; `None` while a lookup is under way.
    fn plan(
        &mut self,
        conn: Token,
        claim: &Claim,
        now: Time,
        out: &mut Actions,
    ) -> Result<Option<AuthPlan>, Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let settings = &snapshot.config.settings;
        if claim.to_console && is_own_user(&claim.user, claim.same_uid) {
            return Ok(Some(AuthPlan::Accept));
        }
        if claim.to_console && !may_use_console(settings, &claim.user) {
            return Err(Fault::ConsoleNotAllowed);
        }
        if settings.auth_type == AuthType::Any {
            // Which databases exist is shown only to clients that have logged in.
            let database = snapshot.config.database(&claim.database);
            if database.is_some_and(|database| database.user.is_none()) {
                return Err(Fault::NoForcedUser);
            }
            return Ok(Some(AuthPlan::Accept));
        }
        let Some(way) = self.way_in(conn, claim, now, out)? else {
            return Ok(None);
        };
        if matches!(way.method, Method::Ldap(_) | Method::Pam(_)) {
            // The LDAP or PAM service decides whether there is such a user.
            if let Some(login) = self.login(conn) {
                login.address = claim.address;
            }
            return Ok(Some(self.plan_of_way(conn, way, &claim.user, None, out)));
        }
        if let Some(secret) = snapshot.users.get(&claim.user) {
            return Ok(Some(self.plan_of_way(
                conn,
                way,
                &claim.user,
                Some(secret),
                out,
            )));
        }
        if self
            .login(conn)
            .is_some_and(|login| login.user_answer.is_none())
            && self.look_up_user(conn, claim, false, now, out)? == Looked::Awaited
        {
            return Ok(None);
        }
        let told = self.login(conn).and_then(|login| login.user_answer.clone());
        let secret = match told {
            Some(Answer::Secret(secret)) => Some(secret),
            // As in PgBouncer, other methods report the missing user.
            Some(_) if way.method != Method::ScramSha256 => {
                return Err(Fault::Login(LoginFault::NoSuchUser));
            }
            _ => {
                let subject = self.subject_of(conn);
                out.log(Level::Log, subject, format!("no such user: {}", claim.user));
                None
            }
        };
        let plan = self.plan_of_way(conn, way, &claim.user, secret.as_ref(), out);
        Ok(Some(plan))
    }

    /// Returns the method for this client; `None` while a lookup is under way.
    fn way_in(
        &mut self,
        conn: Token,
        claim: &Claim,
        now: Time,
        out: &mut Actions,
    ) -> Result<Option<Way>, Fault> {
        let method = match self.snapshot.config.settings.auth_type {
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Password,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::ScramSha256,
            AuthType::Cert => Method::Cert,
            AuthType::Hba | AuthType::Ldap | AuthType::Pam => {
                return self.way_of_rule(conn, claim, now, out);
            }
            // `any` ends before this point; a client that comes here has no method.
            AuthType::Any => return Err(Fault::Login(LoginFault::NoMethod)),
        };
        Ok(Some(Way { method, map: None }))
    }

    fn way_of_rule(
        &mut self,
        conn: Token,
        claim: &Claim,
        now: Time,
        out: &mut Actions,
    ) -> Result<Option<Way>, Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let mut roles = self.login(conn).and_then(|login| login.roles.clone());
        loop {
            let found = snapshot.rules.find(&Asked {
                address: claim.address,
                is_tls: claim.is_tls,
                is_physical: claim.is_physical,
                database: &claim.database,
                user: &claim.user,
                roles: roles.as_deref(),
            });
            return match found {
                Found::Rule(rule) if rule.method == Method::Reject => {
                    Err(Fault::Login(LoginFault::Rejected))
                }
                Found::Rule(rule) => Ok(Some(Way {
                    method: rule.method.clone(),
                    map: rule.map.clone(),
                })),
                Found::Nothing => Err(Fault::Login(LoginFault::NoMethod)),
                Found::RolesWanted(rule) => {
                    if self.look_up_user(conn, claim, true, now, out)? == Looked::Awaited {
                        return Ok(None);
                    }
                    roles = self.login(conn).and_then(|login| login.roles.clone());
                    if roles.is_some() {
                        continue;
                    }
                    // To skip the rule might admit a client that the rule rejects.
                    let why = format!(
                        "line {} of auth_hba_file is about members of a role, and nobody can be asked for them: \
                         database \"{}\" is none, or has no auth_user",
                        rule.line, claim.database
                    );
                    let subject = self.subject_of(conn);
                    out.log(Level::Error, subject, why);
                    Err(Fault::Login(LoginFault::Rejected))
                }
            };
        }
    }

    /// Returns the plan for a client with this method, whose user name has this secret.
    fn plan_of_way(
        &mut self,
        conn: Token,
        way: Way,
        user: &str,
        secret: Option<&Arc<Secret>>,
        out: &mut Actions,
    ) -> AuthPlan {
        match way.method {
            Method::Cert => {
                let tls = self.table.client(conn).map(|client| client.tls.as_deref());
                match check_certificate(tls.flatten(), &way, user, secret.is_some()) {
                    Ok(()) => AuthPlan::Accept,
                    Err(why) => {
                        let subject = self.subject_of(conn);
                        out.log(Level::Error, subject, why);
                        AuthPlan::Refuse(Fault::Login(LoginFault::Certificate))
                    }
                }
            }
            Method::Peer => {
                let client = self.table.client(conn);
                match client.and_then(|client| client.uid) {
                    Some(uid) if secret.is_some() => AuthPlan::CheckAuth {
                        auth_check: AuthCheck::SystemUser(uid),
                        map: way.map,
                    },
                    _ => AuthPlan::Refuse(Fault::Login(LoginFault::Peer)),
                }
            }
            method => AuthPlan::new(&method, secret),
        }
    }

    /// Handles a wrong proof. If the secret came from a cached answer, the database is asked again, since the
    /// password may have changed: returns `true` if the login continues with that. SCRAM can't start again
    /// within a login; the client's next login finds the new secret.
    pub(super) fn check_claim_again(
        &mut self,
        conn: Token,
        message: Vec<u8>,
        fault: &Fault,
        now: Time,
        out: &mut Actions,
    ) -> Result<bool, Fault> {
        let Some(login) = self.login(conn) else {
            return Ok(false);
        };
        let Some(question) = login.cached.take() else {
            return Ok(false);
        };
        self.directory.auth_cache().forget(&question);
        let Some(login) = self
            .login(conn)
            .filter(|_| matches!(fault, Fault::Password))
        else {
            return Ok(false);
        };
        login.user_answer = None;
        login.repeated = Some(message.into());
        self.authenticate(conn, now, out)?;
        Ok(true)
    }

    /// Takes the answer to [`Action::CheckAuth`](crate::Action::CheckAuth). Ignored if the client has gone.
    pub fn found(&mut self, conn: Token, result: AuthCheckResult, now: Time, out: &mut Actions) {
        let Some(login) = self.login(conn) else {
            return;
        };
        if !matches!(login.stage, Stage::CheckingAuth(_) | Stage::Verifying(_)) {
            return;
        }
        out.read(conn, ReadMode::Deliver);
        let (verdict, why) = check_claim(login, result);
        if let Some(why) = why {
            let subject = self.subject_of(conn);
            out.log(Level::Error, subject, why);
        }
        let start = out.scratch.len();
        let outcome =
            verdict.and_then(|()| self.proven(conn, Proof::Accepted(None), start, now, out));
        if let Err(fault) = outcome {
            self.refuse(conn, &fault, now, out);
        }
        self.check_shutdown(now, out);
    }

    pub(super) fn subject_of(&mut self, conn: Token) -> String {
        let client = self.table.client(conn);
        client.map_or_else(String::new, |client| client.subject())
    }
}

/// Checks that the certificate is this user's. If not, returns the text for the log.
fn check_certificate(
    tls: Option<&TlsFacts>,
    way: &Way,
    user: &str,
    is_known: bool,
) -> Result<(), String> {
    let Some(tls) = tls else {
        return Err("TLS connection required".to_owned());
    };
    let Some(shown) = &tls.peer else {
        return Err("TLS client certificate required".to_owned());
    };
    if !is_known {
        return Err(format!("no such user: {user}"));
    }
    let dns_names = shown.dns_names.iter().map(String::as_str);
    let mut names = shown.common_name.as_deref().into_iter().chain(dns_names);
    match &way.map {
        None if names.any(|name| name == user) => Ok(()),
        None => Err("TLS certificate name mismatch".to_owned()),
        Some(map) if names.any(|name| map.allows(name, user)) => Ok(()),
        Some(map) => Err(format!("ident map: {} does not have a match", map.name())),
    }
}

/// Returns whether the client is admitted, and a text for the log.
fn check_claim(login: &mut Login, result: AuthCheckResult) -> (Result<(), Fault>, Option<String>) {
    let map = match std::mem::replace(&mut login.stage, Stage::Startup) {
        Stage::Verifying(service) => {
            let refusal = Fault::Login(LoginFault::Service(service));
            return match result {
                AuthCheckResult::Password(Ok(())) => (Ok(()), None),
                AuthCheckResult::Password(Err(why)) => (Err(refusal), Some(why)),
                AuthCheckResult::SystemUser(_) => (Err(refusal), None),
                AuthCheckResult::Overloaded => (Err(Fault::Overloaded), None),
            };
        }
        Stage::CheckingAuth(map) => map,
        _ => return (Err(Fault::Login(LoginFault::Rejected)), None),
    };
    let user = login.user();
    match (result, map) {
        (AuthCheckResult::Password(_), _) => (Err(Fault::Login(LoginFault::Rejected)), None),
        (AuthCheckResult::Overloaded, _) => (Err(Fault::Overloaded), None),
        (AuthCheckResult::SystemUser(Err(why)), _) => {
            (Err(Fault::Login(LoginFault::Peer)), Some(why))
        }
        (AuthCheckResult::SystemUser(Ok(name)), None) if name == user => (Ok(()), None),
        (AuthCheckResult::SystemUser(Ok(_)), None) => (Err(Fault::Login(LoginFault::Peer)), None),
        (AuthCheckResult::SystemUser(Ok(name)), Some(map)) if map.allows(&name, user) => {
            (Ok(()), None)
        }
        (AuthCheckResult::SystemUser(Ok(_)), Some(map)) => {
            let why = format!("ident map {} cannot be matched", map.name());
            (Err(Fault::Login(LoginFault::Peer)), Some(why))
        }
    }
}

/// Returns whether this is the user who needs no password on the console.
pub(super) fn is_own_user(user: &str, same_uid: bool) -> bool {
    same_uid && user == CONSOLE_USER
}

/// Returns whether this user may use the console, once authenticated.
fn may_use_console(settings: &Settings, user: &str) -> bool {
    let mut allowed = settings.admin_users.iter().chain(&settings.stats_users);
    allowed.any(|name| name == user)
}
