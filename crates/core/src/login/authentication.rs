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

use super::{Claim, LoginStep, Next, user_lookup::Lookup};
use crate::{
    Address, AuthCheck, AuthCheckResult, Level, ReadMode, Replication, TlsFacts,
    base::fault::{Fault, LoginFault},
    frontend::{AuthPlan, Login, Proof, Stage},
    shared::auth_cache::{Answer, UserQuery},
};

/// The user who needs no password over a Unix socket, if the client runs under pgweir's user id.
const CONSOLE_USER: &str = "pgbouncer";

/// The proof that `auth_type`, or an HBA rule, demands.
#[derive(Debug, Clone)]
struct Demand {
    method: Method,
    map: Option<Arc<IdentMap>>,
}

/// A part of the authentication that may need the answer of a database.
#[derive(Debug)]
enum Known<T> {
    /// This worker has the result without a query.
    Now(T),
    /// The result needs this query to a database first.
    After(UserQuery),
}

impl LoginStep<'_> {
    /// Continues the login as far as possible before an answer arrives.
    pub(super) fn authenticate(&mut self) -> Result<Next, Fault> {
        let Some(claim) = self.claim() else {
            debug_assert!(false, "authentication before the startup packet");
            self.log(
                Level::Error,
                "authentication before the startup packet".to_owned(),
            );
            return Err(Fault::Login(LoginFault::Rejected));
        };
        let plan = match self.plan(&claim)? {
            Known::Now(plan) => self.with_derived_secret(plan, &claim.user),
            Known::After(query) => return Ok(Next::LookUp(query)),
        };
        let iterations = self.env.snapshot.config.settings.scram_iterations;
        let process_key = self.env.directory.process_key();
        let start = self.out.scratch.len();
        let proof = match self.login.repeated.take() {
            Some(message) => self.login.repeat(plan, &message)?,
            None => {
                let bytes = &mut self.out.scratch;
                self.login.challenge(plan, process_key, iterations, bytes)?
            }
        };
        self.take_proof(proof, start)
    }

    fn claim(&self) -> Option<Claim> {
        let (client, request) = (&self.client, self.login.request.as_ref()?);
        let exclusive = request.exclusive.as_ref();
        Some(Claim {
            user: Arc::clone(&request.user),
            database: Arc::clone(&request.database),
            to_console: is_console(&request.database),
            is_physical: exclusive
                .is_some_and(|exclusive| exclusive.replication == Replication::Physical),
            is_tls: client.tls().is_some(),
            same_uid: client.origin.same_uid,
            address: match client.origin.remote {
                Address::Tcp(address) => Some(address.ip()),
                Address::Unix => None,
            },
        })
    }

    /// Returns the way in which the client has to authenticate.
    fn plan(&mut self, claim: &Claim) -> Result<Known<AuthPlan>, Fault> {
        let snapshot = self.env.snapshot;
        let settings = &snapshot.config.settings;
        if claim.to_console && is_own_user(&claim.user, claim.same_uid) {
            return Ok(Known::Now(AuthPlan::Accept));
        }
        if claim.to_console && !may_use_console(settings, &claim.user) {
            return Err(Fault::ConsoleNotAllowed);
        }
        if settings.auth_type == AuthType::Any {
            // A client that has not logged in must not learn which databases exist.
            let database = snapshot.config.database(&claim.database);
            if database.is_some_and(|database| database.user.is_none()) {
                return Err(Fault::NoForcedUser);
            }
            return Ok(Known::Now(AuthPlan::Accept));
        }
        let demand = match self.demand(claim)? {
            Known::Now(demand) => demand,
            Known::After(query) => return Ok(Known::After(query)),
        };
        if matches!(demand.method, Method::Ldap(_) | Method::Pam(_)) {
            // The LDAP or PAM service decides whether there is such a user.
            self.login.address = claim.address;
            return Ok(Known::Now(self.plan_for(demand, &claim.user, None)));
        }
        if let Some(secret) = snapshot.users.get(&claim.user) {
            let plan = self.plan_for(demand, &claim.user, Some(secret));
            return Ok(Known::Now(plan));
        }
        if self.login.user_answer.is_none()
            && let Lookup::Needed(query) = self.look_up_user(claim, false)?
        {
            return Ok(Known::After(query));
        }
        let secret = match self.login.user_answer.clone() {
            Some(Answer::Secret(secret)) => Some(secret),
            _ => {
                self.log(Level::Log, format!("no such user: {}", claim.user));
                None
            }
        };
        let plan = self.plan_for(demand, &claim.user, secret.as_ref());
        Ok(Known::Now(plan))
    }

    /// Returns the method for this client.
    fn demand(&mut self, claim: &Claim) -> Result<Known<Demand>, Fault> {
        let method = match self.env.snapshot.config.settings.auth_type {
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Password,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::ScramSha256,
            AuthType::Cert => Method::Cert,
            AuthType::Hba | AuthType::Ldap | AuthType::Pam => return self.demand_of_rule(claim),
            // `any` is handled before this point; a client that comes here has no method.
            AuthType::Any => return Err(Fault::Login(LoginFault::NoMethod)),
        };
        Ok(Known::Now(Demand { method, map: None }))
    }

    fn demand_of_rule(&mut self, claim: &Claim) -> Result<Known<Demand>, Fault> {
        let snapshot = self.env.snapshot;
        loop {
            let found = snapshot.rules.find(&Asked {
                address: claim.address,
                is_tls: claim.is_tls,
                is_physical: claim.is_physical,
                database: &claim.database,
                user: &claim.user,
                roles: self.login.roles.as_deref(),
            });
            let rule = match found {
                Found::Rule(rule) if rule.method == Method::Reject => {
                    return Err(Fault::Login(LoginFault::Rejected));
                }
                Found::Rule(rule) => {
                    return Ok(Known::Now(Demand {
                        method: rule.method.clone(),
                        map: rule.map.clone(),
                    }));
                }
                Found::Nothing => return Err(Fault::Login(LoginFault::NoMethod)),
                Found::RolesWanted(rule) => rule,
            };
            if let Lookup::Needed(query) = self.look_up_user(claim, true)? {
                return Ok(Known::After(query));
            }
            if self.login.roles.is_none() {
                // If the rule were skipped, a client that it rejects might be admitted.
                let text = format!(
                    "line {} of auth_hba_file is about members of a role, and nobody can be asked for them: database \
                     \"{}\" is none, or has no auth_user",
                    rule.line, claim.database
                );
                self.log(Level::Error, text);
                return Err(Fault::Login(LoginFault::Rejected));
            }
        }
    }

    /// Returns the plan for a client of which this proof is demanded, and whose user has this secret.
    fn plan_for(&mut self, demand: Demand, user: &str, secret: Option<&Arc<Secret>>) -> AuthPlan {
        match demand.method {
            Method::Cert => {
                let tls = self.client.tls();
                match check_certificate(tls, demand.map.as_deref(), user, secret.is_some()) {
                    Ok(()) => AuthPlan::Accept,
                    Err(why) => {
                        self.log(Level::Error, why);
                        AuthPlan::Refuse(Fault::Login(LoginFault::Certificate))
                    }
                }
            }
            Method::Peer => match self.client.origin.uid {
                Some(uid) if secret.is_some() => AuthPlan::CheckAuth {
                    auth_check: AuthCheck::SystemUser(uid),
                    map: demand.map,
                },
                _ => AuthPlan::Refuse(Fault::Login(LoginFault::Peer)),
            },
            // A user who does not exist must give the same proof as most existing users: the one of most users in the
            // file, or, if a database was queried, the one of PostgreSQL's default for password_encryption.
            Method::Md5
                if secret.is_none_or(|secret| secret.is_empty())
                    && (self.login.user_answer.is_some()
                        || self.env.snapshot.users.have_mostly_scram()) =>
            {
                AuthPlan::MockScram
            }
            method => AuthPlan::new(&method, secret),
        }
    }

    /// Reuses the SCRAM secret that was made for the user's last login.
    fn with_derived_secret(&self, plan: AuthPlan, user: &str) -> AuthPlan {
        let iterations = self.env.snapshot.config.settings.scram_iterations;
        let made = match &plan {
            AuthPlan::MakeScram(secret) => {
                self.env.directory.derived_secret(user, secret, iterations)
            }
            _ => None,
        };
        made.map_or(plan, AuthPlan::Scram)
    }

    /// Handles a wrong proof. If the secret came from a cached answer, pgweir queries the database again, since the
    /// password may have changed. SCRAM can't start again within a login, so only the client's next login uses the new
    /// secret.
    ///
    /// # Errors
    /// The proof is wrong under the newest secret.
    pub(super) fn check_again(&mut self, message: Vec<u8>, fault: Fault) -> Result<Next, Fault> {
        let Some(query) = self.login.cached.take() else {
            return Err(fault);
        };
        self.env.directory.auth_cache().forget(&query);
        if !matches!(fault, Fault::Password) {
            return Err(fault);
        }
        self.login.user_answer = None;
        self.login.repeated = Some(message.into());
        self.authenticate()
    }

    /// Takes the answer to [`Action::CheckAuth`](crate::Action::CheckAuth).
    pub(super) fn take_check(&mut self, result: AuthCheckResult) -> Result<Next, Fault> {
        if !matches!(
            self.login.stage,
            Stage::CheckingAuth(_) | Stage::Verifying(_)
        ) {
            return Ok(Next::Awaited);
        }
        self.out.read(self.conn, ReadMode::Deliver);
        let (verdict, why) = check_claim(&mut self.login, result);
        if let Some(why) = why {
            self.log(Level::Error, why);
        }
        verdict?;
        let start = self.out.scratch.len();
        self.take_proof(Proof::Accepted(None), start)
    }
}

/// Checks that the certificate belongs to this user. If not, returns the text for the log.
fn check_certificate(
    tls: Option<&TlsFacts>,
    map: Option<&IdentMap>,
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
    match map {
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
