//! A client's login: from its first byte to the end of authentication.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use pgweir_auth::{
    Method, PlainCheck,
    hba::IdentMap,
    scram::{self, ClientKeys, DeriveJob, DerivedKeys, ScramError, ServerExchange},
    userlist::Secret,
    verify_md5, verify_plain,
};
use pgweir_wire::{
    Authentication, Body, HEADER_LEN, MessageWriter, ProtocolVersion, StartupError, tag::frontend,
};
use zeroize::Zeroizing;

use super::LoginRequest;
use crate::{
    Answer, AuthCheck, Service, Time, UserQuery,
    base::{
        fault::{Fault, LoginFault},
        inbox::{BadMessage, Inbox},
        memory::LoginMemory,
        tls::TlsFault,
    },
};

/// The longest message while a client logs in: a password, and its final NUL.
const MESSAGE_MAX: usize = HEADER_LEN + pgweir_auth::MAX_SECRET_BYTES + 1;

// The codes of SSLRequest and GSSENCRequest, read as protocol versions.
const SSL_VERSION: ProtocolVersion = ProtocolVersion {
    major: 1234,
    minor: 5679,
};
const GSS_VERSION: ProtocolVersion = ProtocolVersion {
    major: 1234,
    minor: 5680,
};

/// The state of a login.
#[derive(Debug)]
pub enum Stage {
    /// The startup packet has not arrived yet.
    Startup,
    /// The TLS handshake is under way.
    Handshake {
        /// Whether the client began it without an SSLRequest.
        direct: bool,
    },
    /// The client was asked for a plain password.
    Cleartext(Option<Arc<Secret>>),
    /// The client was asked for an md5 hash.
    Md5(Option<Arc<Secret>>),
    /// A SASL exchange is under way: the first message, or a later one.
    Sasl {
        /// The exchange.
        exchange: Box<ServerExchange>,
        /// The client has not chosen a mechanism yet.
        is_first: bool,
    },
    /// Keys are being derived, to make a SCRAM secret from a plain password.
    MakingSecret {
        /// The salt of the secret.
        salt: Vec<u8>,
        /// The iteration count of the secret.
        iterations: u32,
    },
    /// Keys are being derived, to check a plain password against this SCRAM secret.
    Checking(Arc<Secret>),
    /// The client has sent a wrong plain password, and no keys were derived to find that out.
    WrongPassword,
    /// Keys are being derived only so that the refusal takes as long as for a SCRAM secret.
    TakingTime,
    /// The client was asked for a plain password, which this service will check.
    CleartextFor(Service),
    /// This service is checking the password.
    Verifying(Service),
    /// The client has authenticated, with these SCRAM keys if it used SCRAM, but is above a limit: it is parked until
    /// pending disconnects were processed.
    Parked(Option<ClientKeys>),
    /// The login has failed, and the client gets the error at this time.
    Refused {
        /// The error.
        fault: Box<Fault>,
        /// The time at which the client gets the error.
        at: Time,
    },
    /// `auth_query` is being run for the user.
    LookingUp(Box<UserQuery>),
    /// The name of the system user is being looked up. This ident map, if there is one, maps the name to database
    /// users.
    CheckingAuth(Option<Arc<IdentMap>>),
}

/// The way in which a client is to be authenticated.
#[derive(Debug)]
pub enum AuthPlan {
    /// Without any proof (`trust`).
    Accept,
    /// Refuse the client at once.
    Refuse(Fault),
    /// By a plain password.
    Cleartext(Option<Arc<Secret>>),
    /// By an md5 hash.
    Md5(Option<Arc<Secret>>),
    /// By SCRAM, against this secret.
    Scram(scram::Secret),
    /// By SCRAM, against a secret that has to be made from this plain password first.
    MakeScram(Arc<Secret>),
    /// By a plain password, which this service checks.
    CleartextFor(Service),
    /// By the name of the system user (`peer`).
    CheckAuth {
        /// The lookup of the system user.
        auth_check: AuthCheck,
        /// The ident map, if there is one.
        map: Option<Arc<IdentMap>>,
    },
    /// By a mock SCRAM exchange that always fails: the user does not exist, or has no secret that SCRAM can use.
    MockScram,
}

impl AuthPlan {
    /// Returns the plan for a method and a user with this secret; `None` if the method does not use secrets.
    #[must_use]
    pub fn new(method: &Method, secret: Option<&Arc<Secret>>) -> Self {
        let usable = secret.filter(|secret| !secret.is_empty());
        match method {
            Method::Trust if secret.is_some() => Self::Accept,
            Method::Trust => Self::Refuse(Fault::Trust),
            Method::Password => Self::Cleartext(usable.cloned()),
            Method::Md5 | Method::ScramSha256 => match usable.map(|secret| (secret, &**secret)) {
                Some((_, Secret::Scram(secret))) => Self::Scram(secret.clone()),
                _ if *method == Method::Md5 => Self::Md5(usable.cloned()),
                Some((secret, Secret::Plain(_))) => Self::MakeScram(Arc::clone(secret)),
                _ => Self::MockScram,
            },
            Method::Ldap(options) => Self::CleartextFor(Service::Ldap(Arc::clone(options))),
            Method::Pam(options) => Self::CleartextFor(Service::Pam(Arc::clone(options))),
            Method::Reject | Method::Cert | Method::Peer => {
                Self::Refuse(Fault::Login(LoginFault::Rejected))
            }
        }
    }
}

/// The result of a client's message.
#[derive(Debug)]
pub enum Proof {
    /// The exchange continues; a further challenge may have been appended.
    More,
    /// Keys have to be derived first: see [`Login::derived`].
    Derive(DeriveJob),
    /// A service has to check the password first.
    Inquire(AuthCheck),
    /// The client is authenticated, with the SCRAM keys from its proof, if it used SCRAM.
    Accepted(Option<ClientKeys>),
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    /// Bytes that have not been processed yet.
    pub(crate) inbox: Inbox,
    /// The login's state.
    pub(crate) stage: Stage,
    /// The startup packet, once it has arrived.
    pub(crate) request: Option<LoginRequest>,
    /// Whether the client has sent an SSLRequest.
    pub(crate) asked_ssl: bool,
    /// The hash of the certificate that the client was shown.
    pub(crate) end_point: Option<Box<[u8]>>,
    /// Whether the client has sent a GSSENCRequest.
    pub(crate) asked_gss: bool,
    /// The result of `auth_query` for the user, once there is one.
    pub(crate) user_answer: Option<Answer>,
    /// Whether a service has checked the password.
    pub(crate) is_checked: bool,
    /// Whether the result of `auth_query` is from the cache.
    pub(crate) cached: Option<UserQuery>,
    /// The roles that the user is a member of.
    pub(crate) roles: Option<Arc<BTreeSet<String>>>,
    /// The client's password message, kept to be checked once more.
    pub(crate) repeated: Option<Zeroizing<Vec<u8>>>,
    /// The client's address, if it is connected by TCP.
    pub(crate) address: Option<IpAddr>,
    /// The number of servers that were lost while a lookup for this login ran on them.
    pub(crate) losses: u8,
    /// The time at which the client last sent something, or was asked for something.
    pub(crate) waits_since: Time,
    /// The login's part of `login_memory`.
    pub(crate) memory: LoginMemory,
    random: RandomBytes,
}

/// Random bytes for a login.
#[derive(Debug)]
struct RandomBytes {
    /// The nonce for SCRAM.
    nonce: [u8; scram::NONCE_BYTES],
    /// The salt for md5.
    salt: [u8; 4],
}

impl Login {
    /// Returns the bytes of the messages that the login keeps.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let repeated = self.repeated.as_ref();
        self.inbox.capacity() + repeated.map_or(0, |message| message.capacity())
    }

    /// Creates a login; `nonce` and `salt` are random.
    #[must_use]
    pub fn new(nonce: [u8; scram::NONCE_BYTES], salt: [u8; 4], now: Time) -> Self {
        Self {
            inbox: Inbox::default(),
            stage: Stage::Startup,
            request: None,
            asked_ssl: false,
            end_point: None,
            asked_gss: false,
            user_answer: None,
            is_checked: false,
            cached: None,
            roles: None,
            repeated: None,
            address: None,
            losses: 0,
            waits_since: now,
            memory: LoginMemory::default(),
            random: RandomBytes { nonce, salt },
        }
    }

    /// Notes that the client asks for this kind of encryption. As in PostgreSQL, it may ask once for each kind, and
    /// must wait for the answer: earlier bytes may be an attacker's.
    ///
    /// # Errors
    /// The client has asked before, or has sent more bytes.
    pub fn ask_encryption(&mut self, kind: &'static str) -> Result<(), Fault> {
        let (asked, version) = match kind {
            "SSL" => (&mut self.asked_ssl, SSL_VERSION),
            _ => (&mut self.asked_gss, GSS_VERSION),
        };
        if std::mem::replace(asked, true) {
            return Err(Fault::Startup(StartupError::Version(version)));
        }
        match self.inbox.rest() {
            [] => Ok(()),
            _ => Err(Fault::Tls(TlsFault::EarlyData(kind))),
        }
    }

    /// Returns whether the login may be ended when there are too many logins: the client must send something before the
    /// login can go on, or only waits for its refusal.
    #[must_use]
    pub fn awaits_client(&self) -> bool {
        match self.stage {
            Stage::Startup
            | Stage::Handshake { .. }
            | Stage::Cleartext(_)
            | Stage::CleartextFor(_)
            | Stage::Md5(_)
            | Stage::Sasl { .. }
            | Stage::Refused { .. } => true,
            Stage::MakingSecret { .. }
            | Stage::Checking(_)
            | Stage::WrongPassword
            | Stage::TakingTime
            | Stage::Verifying(_)
            | Stage::Parked(_)
            | Stage::LookingUp(_)
            | Stage::CheckingAuth(_) => false,
        }
    }

    /// Returns whether the login is parked, since it is above a limit.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.stage, Stage::Parked(_))
    }

    /// Returns whether the login has failed, and the client has not got the error yet.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.stage, Stage::Refused { .. })
    }

    /// Returns the error of a login that has failed, if the client has to get it by now.
    #[must_use]
    pub fn refusal(&self, now: Time) -> Option<Fault> {
        match &self.stage {
            Stage::Refused { fault, at } if *at <= now => Some((**fault).clone()),
            _ => None,
        }
    }

    /// Returns the user's name; empty before the startup packet.
    #[must_use]
    pub fn user(&self) -> &str {
        self.request.as_ref().map_or("", |request| &request.user)
    }

    /// Takes the next whole password message out of the buffer.
    ///
    /// # Errors
    /// The next message has another type, or is longer than any password.
    pub fn take_password_message(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(&tag) = self.inbox.rest().first()
            && tag != frontend::PASSWORD
        {
            return Err(Fault::UnexpectedMessage(tag));
        }
        let message = match self.inbox.take(MESSAGE_MAX) {
            Err(BadMessage::TooLong(_)) => return Err(Fault::Password),
            message => message?,
        };
        Ok(message.map(|(_, bytes)| bytes[HEADER_LEN..].to_vec()))
    }

    /// Appends the challenge of a plan. `process_key` is a secret that stays the same while the process runs;
    /// `iterations` is the setting `scram_iterations`.
    ///
    /// # Errors
    /// The plan is to refuse.
    pub fn challenge(
        &mut self,
        plan: AuthPlan,
        process_key: &[u8; 32],
        iterations: u32,
        out: &mut Vec<u8>,
    ) -> Result<Proof, Fault> {
        match plan {
            AuthPlan::Accept => return Ok(Proof::Accepted(None)),
            AuthPlan::Refuse(fault) => return Err(fault),
            AuthPlan::CheckAuth { auth_check, map } => {
                self.stage = Stage::CheckingAuth(map);
                return Ok(Proof::Inquire(auth_check));
            }
            AuthPlan::CleartextFor(service) => {
                self.stage = Stage::CleartextFor(service);
                MessageWriter::new(out).authentication(Authentication::CleartextPassword);
            }
            AuthPlan::Cleartext(secret) => {
                self.stage = Stage::Cleartext(secret);
                MessageWriter::new(out).authentication(Authentication::CleartextPassword);
            }
            AuthPlan::Md5(secret) => {
                self.stage = Stage::Md5(secret);
                MessageWriter::new(out)
                    .authentication(Authentication::Md5Password(self.random.salt));
            }
            AuthPlan::Scram(secret) => {
                self.offer_scram(ServerExchange::new(secret, &self.random.nonce), out)
            }
            AuthPlan::MockScram => {
                let exchange =
                    ServerExchange::mock(process_key, self.user(), iterations, &self.random.nonce);
                self.offer_scram(exchange, out);
            }
            AuthPlan::MakeScram(secret) => {
                let salt = scram::user_salt(process_key, self.user()).to_vec();
                let job = secret
                    .derive_job(salt.clone(), iterations)
                    .ok_or(Fault::Sasl)?;
                self.stage = Stage::MakingSecret { salt, iterations };
                return Ok(Proof::Derive(job));
            }
        }
        Ok(Proof::More)
    }

    /// Takes the result of a lookup.
    pub(crate) fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Roles(roles) => self.roles = Some(roles),
            answer => self.user_answer = Some(answer),
        }
    }

    /// Checks the password message once more, with a newer secret.
    ///
    /// # Errors
    /// The password is wrong, or another kind of proof is needed.
    pub(crate) fn repeat(&mut self, plan: AuthPlan, body: &[u8]) -> Result<Proof, Fault> {
        self.stage = match plan {
            AuthPlan::Cleartext(secret) => Stage::Cleartext(secret),
            AuthPlan::Md5(secret) => Stage::Md5(secret),
            _ => return Err(Fault::Password),
        };
        self.password(body, &mut Vec::new())
    }

    /// Processes the body of a password message.
    ///
    /// # Errors
    /// The proof is wrong, or the client was not asked for one.
    pub fn password(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Proof, Fault> {
        match std::mem::replace(&mut self.stage, Stage::Startup) {
            Stage::Cleartext(secret) => self.check_cleartext(secret, body),
            Stage::CleartextFor(service) => self.have_checked(service, body),
            Stage::Md5(secret) => {
                let response = Body::new(body)
                    .cstr()
                    .map_err(|_| Fault::Malformed(frontend::PASSWORD))?;
                // A login of an unknown user costs the same hashes.
                let is_known = secret.is_some();
                let secret =
                    secret.unwrap_or_else(|| Arc::new(Secret::Plain("-".to_owned().into())));
                match verify_md5(&secret, self.user(), self.random.salt, response) && is_known {
                    true => Ok(Proof::Accepted(None)),
                    false => Err(Fault::Password),
                }
            }
            Stage::Sasl { exchange, is_first } => {
                self.continue_scram(exchange, is_first, body, out)
            }
            other => {
                self.stage = other;
                Err(Fault::UnexpectedMessage(frontend::PASSWORD))
            }
        }
    }

    /// Takes the keys that [`Proof::Derive`] asked for. Returns the secret made from them, for the user's next login.
    ///
    /// # Errors
    /// The password was wrong.
    pub fn derived(
        &mut self,
        keys: &DerivedKeys,
        out: &mut Vec<u8>,
    ) -> Result<(Proof, Option<scram::Secret>), Fault> {
        match std::mem::replace(&mut self.stage, Stage::Startup) {
            Stage::MakingSecret { salt, iterations } => {
                let secret = scram::build_secret(keys, salt, iterations);
                self.offer_scram(ServerExchange::new(secret.clone(), &self.random.nonce), out);
                Ok((Proof::More, Some(secret)))
            }
            Stage::Checking(secret) => match &*secret {
                Secret::Scram(secret) if secret.is_from(keys) => {
                    Ok((Proof::Accepted(Some(keys.clone())), None))
                }
                _ => Err(Fault::Password),
            },
            Stage::TakingTime => Err(Fault::Password),
            other => {
                self.stage = other;
                Ok((Proof::More, None))
            }
        }
    }

    /// Notes that the service is checking the password.
    fn have_checked(&mut self, service: Service, body: &[u8]) -> Result<Proof, Fault> {
        let password = Body::new(body)
            .cstr()
            .map_err(|_| Fault::Malformed(frontend::PASSWORD))?;
        let password = match std::str::from_utf8(password) {
            // LDAP takes a bind without a password for an anonymous bind, which succeeds.
            Ok(password) if !password.is_empty() => Zeroizing::new(password.to_owned()),
            _ => return Err(Fault::Login(LoginFault::Service(service))),
        };
        // If the password is right, logins to servers may use it.
        let secret = Secret::Plain(password.clone());
        self.user_answer = Some(Answer::Secret(Arc::new(secret)));
        self.is_checked = true;
        self.stage = Stage::Verifying(service.clone());
        Ok(Proof::Inquire(AuthCheck::Password {
            service,
            user: self.user().to_owned(),
            password,
            address: self.address,
        }))
    }

    fn check_cleartext(
        &mut self,
        secret: Option<Arc<Secret>>,
        body: &[u8],
    ) -> Result<Proof, Fault> {
        let password = Body::new(body)
            .cstr()
            .map_err(|_| Fault::Malformed(frontend::PASSWORD))?;
        let found = secret.map(|secret| (verify_plain(&secret, self.user(), password), secret));
        match found {
            Some((PlainCheck::Accepted, _)) => Ok(Proof::Accepted(None)),
            Some((PlainCheck::Derive(job), secret)) => {
                self.stage = Stage::Checking(secret);
                Ok(Proof::Derive(job))
            }
            Some((PlainCheck::Refused, _)) | None => {
                self.stage = Stage::WrongPassword;
                Err(Fault::Password)
            }
        }
    }

    /// Returns the derivation that a login with a wrong plain password still has to run. The derivation makes the login
    /// take the same time whether the user has a SCRAM secret, another secret, or does not exist.
    pub(crate) fn remaining_work(
        &mut self,
        process_key: &[u8; 32],
        iterations: u32,
    ) -> Option<DeriveJob> {
        if !matches!(self.stage, Stage::WrongPassword) {
            return None;
        }
        self.stage = Stage::TakingTime;
        let salt = scram::user_salt(process_key, self.user()).to_vec();
        Some(DeriveJob::new(b"-", salt, iterations))
    }

    fn offer_scram(&mut self, exchange: ServerExchange, out: &mut Vec<u8>) {
        let exchange = exchange.bound_to(self.end_point.take());
        MessageWriter::new(out).authentication(Authentication::Sasl(exchange.mechanisms()));
        self.stage = Stage::Sasl {
            exchange: Box::new(exchange),
            is_first: true,
        };
    }

    fn continue_scram(
        &mut self,
        mut exchange: Box<ServerExchange>,
        is_first: bool,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Proof, Fault> {
        if is_first {
            let (mechanism, data) =
                sasl_initial(body).ok_or(Fault::Malformed(frontend::PASSWORD))?;
            let answer = exchange.client_first(mechanism, data).map_err(refusal)?;
            MessageWriter::new(out).authentication(Authentication::SaslContinue(&answer));
            self.stage = Stage::Sasl {
                exchange,
                is_first: false,
            };
            return Ok(Proof::More);
        }
        let (answer, keys) = exchange.client_final(body).map_err(refusal)?;
        MessageWriter::new(out).authentication(Authentication::SaslFinal(&answer));
        Ok(Proof::Accepted(Some(keys)))
    }
}

/// Reads SASLInitialResponse: the mechanism and its first message.
fn sasl_initial(body: &[u8]) -> Option<(&str, &[u8])> {
    let mut body = Body::new(body);
    let mechanism = std::str::from_utf8(body.cstr().ok()?).ok()?;
    let len = usize::try_from(body.i32().ok()?).ok()?;
    let data = body.bytes(len).ok()?;
    body.end().ok()?;
    Some((mechanism, data))
}

fn refusal(error: ScramError) -> Fault {
    match error {
        ScramError::Failed => Fault::Sasl,
        other => Fault::MalformedSasl(match other.detail() {
            Some(detail) => format!("{other}: {detail}"),
            None => other.to_string(),
        }),
    }
}
