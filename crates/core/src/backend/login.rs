//! pgweir's login to a PostgreSQL server.

use std::{fmt, sync::Arc};

use pgweir_auth::{
    md5,
    scram::{self, ChannelBinding, ClientExchange, ClientKeys, DeriveJob, DerivedKeys},
    userlist::Secret,
};
use pgweir_wire::{Body, MessageWriter, Report, ssl_request, startup_packet, tag::backend};

use super::login_queries::LoginQueries;
use crate::{
    TlsFacts,
    base::{
        fault::ServerError,
        inbox::{BadMessage, Inbox},
    },
    session::{State, TrackedNames},
    shared::pool::{ConnectQuery, Parameters, ServerParameters, SettingsStep},
};

/// The longest message that a server may send before it is ready.
const MESSAGE_MAX: usize = 64 * 1024;
/// The largest number of parameters that are remembered; PostgreSQL 18 reports 15.
const PARAMETERS_MAX: usize = 256;

/// The credentials and parameters of a login to a server.
#[derive(Clone)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// The user's secret, if there is one.
    pub secret: Option<Arc<Secret>>,
    /// SCRAM keys from a client's login, which are valid for a server with the same SCRAM secret.
    pub keys: Option<ClientKeys>,
    /// More startup parameters: those of the database's entry, and those of the client that an exclusive server is for.
    pub parameters: Parameters,
    /// The setting `connect_query`: run before the server is first lent.
    pub connect_query: Option<ConnectQuery>,
    /// Whether the server is asked how many connections its host allows (`max_server_conn` in percent).
    pub asks_connections: bool,
}

impl Credentials {
    /// Sets the application's name, unless the database's entry sets another one.
    pub fn name_application(&mut self, name: &str) {
        let mut names = self.parameters.iter().map(|(name, _)| name);
        if names.all(|name| name != b"application_name") {
            let parameter = (b"application_name".to_vec(), name.into());
            self.parameters.push(parameter);
        }
    }
}

/// A server's cancel key.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendKey {
    /// The pid of the server process.
    pub pid: u32,
    /// The secret.
    pub secret: Box<[u8]>,
}

/// The result of a message from the server.
#[derive(Debug)]
pub enum Progress {
    /// The login waits for more messages.
    Wait,
    /// An answer was appended.
    Send,
    /// Keys have to be derived first: see [`ServerLogin::derived`].
    Derive(DeriveJob),
    /// A query failed, which does not end the login: its name for the log, and the error.
    QueryFailed(&'static str, ServerError),
    /// The server is ready.
    Ready {
        /// The parameters that the server has reported.
        server_parameters: ServerParameters,
        /// The server's cancel key.
        key: Option<BackendKey>,
        /// The parameters that `connect_query` has set; `None` if the server was not asked for them.
        connect_settings: Option<Parameters>,
        /// How many connections the host allows, less its reserved ones; `None` if the server was not asked.
        usable_connections: Option<u32>,
    },
}

/// The server's answer to an SSLRequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAnswer {
    /// No SSLRequest was sent, or the server has answered it before.
    None,
    /// The answer has not arrived.
    Awaited,
    /// The handshake may begin.
    Yes,
    /// The login goes on without TLS; the startup packet was appended.
    No,
}

/// The state before the startup packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prelude {
    Over,
    /// An SSLRequest was sent.
    Asked {
        required: bool,
    },
    Handshake {
        /// Whether the handshake began without an SSLRequest.
        direct: bool,
    },
}

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginError {
    /// The server has refused the login; its error.
    Refused(ServerError),
    /// The server asks for a password, and there is none for this method.
    NoPassword(&'static str),
    /// The server asks for an authentication method that pgweir does not support.
    Method(i32),
    /// The server has sent this type of message against the protocol's rules.
    Protocol(u8),
    /// The SCRAM exchange failed: the server does not know the password, or is not the expected server.
    Scram(String),
    /// The server has violated the rules of the TLS negotiation in this way.
    Tls(&'static str),
}

/// A login under way.
#[derive(Debug)]
pub struct ServerLogin {
    credentials: Credentials,
    nonce: [u8; 18],
    prelude: Prelude,
    /// The hash of the server's certificate.
    end_point: Option<Box<[u8]>>,
    inbox: Inbox,
    exchange: Option<ClientExchange>,
    server_parameters: ServerParameters,
    parameters: usize,
    key: Option<BackendKey>,
    authenticated: bool,
    queries: LoginQueries,
}

impl ServerLogin {
    /// Creates a login.
    #[must_use]
    pub fn new(credentials: Credentials, names: &TrackedNames) -> Self {
        Self {
            credentials,
            nonce: [0; 18],
            prelude: Prelude::Over,
            end_point: None,
            inbox: Inbox::default(),
            exchange: None,
            server_parameters: ServerParameters {
                messages: Vec::new(),
                tracked: names.unset(),
                report: None,
            },
            parameters: 0,
            key: None,
            authenticated: false,
            queries: LoginQueries::default(),
        }
    }

    /// Begins the login on a connection that is open: appends the startup packet. `nonce` is fresh and random.
    pub fn start(&mut self, nonce: [u8; 18], out: &mut Vec<u8>) {
        self.nonce = nonce;
        self.begin(out);
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        self.prelude = Prelude::Over;
        let pairs = [
            (&b"user"[..], self.credentials.user.as_bytes()),
            (b"database", self.credentials.database.as_bytes()),
        ];
        let own = self.credentials.parameters.iter();
        let own = own.map(|(name, value)| (name.as_slice(), value.as_slice()));
        startup_packet(out, pairs.into_iter().chain(own));
    }

    /// Begins the login with TLS: appends an SSLRequest. The login goes on with [`ServerLogin::tls_answer`].
    pub fn ask_for_tls(&mut self, nonce: [u8; 18], required: bool, out: &mut Vec<u8>) {
        self.nonce = nonce;
        self.prelude = Prelude::Asked { required };
        ssl_request(out);
    }

    /// Reads the answer to the SSLRequest.
    ///
    /// # Errors
    /// The answer is invalid, the server refuses TLS where it is required, or more bytes came with the answer: these
    /// are not encrypted, and may be an attacker's.
    pub fn tls_answer(&mut self, out: &mut Vec<u8>) -> Result<TlsAnswer, LoginError> {
        let required = match self.prelude {
            Prelude::Over => return Ok(TlsAnswer::None),
            Prelude::Handshake { .. } => {
                return Err(LoginError::Tls("data during the TLS handshake"));
            }
            Prelude::Asked { required } => required,
        };
        match self.inbox.rest() {
            [] => return Ok(TlsAnswer::Awaited),
            [b'S' | b'N'] => {}
            [b'S' | b'N', ..] => {
                return Err(LoginError::Tls(
                    "received unencrypted data after SSL response",
                ));
            }
            _ => return Err(LoginError::Tls("bad sslreq answer")),
        }
        let is_yes = self.inbox.rest() == b"S";
        self.inbox.skip(1);
        if is_yes {
            self.prelude = Prelude::Handshake { direct: false };
            return Ok(TlsAnswer::Yes);
        }
        if required {
            return Err(LoginError::Tls("server refused SSL"));
        }
        self.begin(out);
        Ok(TlsAnswer::No)
    }

    /// Begins the login with TLS, without an SSLRequest.
    pub fn await_tls(&mut self, nonce: [u8; 18]) {
        self.nonce = nonce;
        self.prelude = Prelude::Handshake { direct: true };
    }

    /// Continues the login on the encrypted connection: appends the startup packet.
    ///
    /// # Errors
    /// The server has not confirmed PostgreSQL's protocol by ALPN, so it may be a server of another protocol.
    pub fn secured(&mut self, facts: &TlsFacts, out: &mut Vec<u8>) -> Result<(), LoginError> {
        if self.prelude == (Prelude::Handshake { direct: true }) && !facts.is_agreed {
            return Err(LoginError::Tls(
                "direct SSL connection was established without ALPN",
            ));
        }
        self.end_point = facts.end_point.clone();
        self.begin(out);
        Ok(())
    }

    /// Takes bytes from the server, for calls of [`ServerLogin::step`].
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// Processes the next message; `None` if no whole message has arrived.
    ///
    /// # Errors
    /// The login has failed.
    pub fn step(
        &mut self,
        names: &TrackedNames,
        out: &mut Vec<u8>,
    ) -> Result<Option<Progress>, LoginError> {
        // The buffer is taken out while the message in it is processed.
        let mut inbox = std::mem::take(&mut self.inbox);
        let outcome = match inbox.take(MESSAGE_MAX) {
            Ok(Some((header, message))) => self.message(header.tag, message, names, out).map(Some),
            Ok(None) => Ok(None),
            Err(BadMessage::Length(error)) => Err(LoginError::Protocol(error.tag)),
            Err(BadMessage::TooLong(tag)) => Err(LoginError::Protocol(tag)),
        };
        self.inbox = inbox;
        outcome
    }

    /// Takes the keys that [`Progress::Derive`] has asked for.
    ///
    /// # Errors
    /// No SCRAM exchange waits for keys.
    pub fn derived(&mut self, keys: &DerivedKeys, out: &mut Vec<u8>) -> Result<(), LoginError> {
        self.finish_scram(keys, out)
    }

    /// Returns whether the startup packet has parameters that `connect_query` sets. Only for a login that has not run the
    /// query yet.
    #[must_use]
    pub fn sends_connect_settings(&self) -> bool {
        let query = self.credentials.connect_query.as_ref();
        query.is_some_and(|query| query.settings == SettingsStep::Send)
    }

    /// Returns whether SCRAM was bound to the TLS connection.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        let mechanism = self.exchange.as_ref().map(ClientExchange::mechanism);
        mechanism == Some(scram::MECHANISM_PLUS)
    }

    /// Returns whether bytes follow the ReadyForQuery, which a server must not send.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        !self.inbox.rest().is_empty()
    }

    fn message(
        &mut self,
        tag: u8,
        message: &[u8],
        names: &TrackedNames,
        out: &mut Vec<u8>,
    ) -> Result<Progress, LoginError> {
        let malformed = |_| LoginError::Protocol(tag);
        let mut body = Body::new(&message[pgweir_wire::HEADER_LEN..]);
        match tag {
            backend::AUTHENTICATION if !self.authenticated => {
                let method = body.i32().map_err(malformed)?;
                return self.authenticate(method, body, out);
            }
            backend::ERROR_RESPONSE => {
                let report = Report::parse(body.rest()).map_err(malformed)?;
                let words = ServerError::of(&report);
                if report.severity == b"ERROR"
                    && let Some(query) = self.queries.note_failed()
                {
                    return Ok(Progress::QueryFailed(query, words));
                }
                return Err(LoginError::Refused(words));
            }
            backend::NOTICE_RESPONSE | backend::NEGOTIATE_PROTOCOL_VERSION => {}
            backend::PARAMETER_STATUS if self.authenticated && self.parameters < PARAMETERS_MAX => {
                self.parameters += 1;
                let (name, value) = (
                    body.cstr().map_err(malformed)?,
                    body.cstr().map_err(malformed)?,
                );
                if name == State::PARAMETER {
                    // A report of another version of the extension is ignored.
                    self.server_parameters.report = State::of_report(value).ok().map(Box::new);
                    return Ok(Progress::Wait);
                }
                match names.position(name) {
                    Some(at) => self.server_parameters.tracked.set(at, value),
                    None => self.server_parameters.messages.extend_from_slice(message),
                }
            }
            backend::BACKEND_KEY_DATA if self.authenticated => {
                let pid = body.i32().map_err(malformed)? as u32;
                self.key = Some(BackendKey {
                    pid,
                    secret: body.rest().into(),
                });
            }
            backend::READY_FOR_QUERY if self.authenticated && body.rest() == b"I" => {
                let credentials = &mut self.credentials;
                let (first, asks) = (
                    &mut credentials.connect_query,
                    &mut credentials.asks_connections,
                );
                if let Some(query) = self.queries.next(first, asks) {
                    MessageWriter::new(out).query(&query);
                    return Ok(Progress::Send);
                }
                let server_parameters = ServerParameters {
                    messages: std::mem::take(&mut self.server_parameters.messages),
                    tracked: self.server_parameters.tracked.clone(),
                    report: self.server_parameters.report.take(),
                };
                return Ok(Progress::Ready {
                    server_parameters,
                    key: self.key.take(),
                    connect_settings: self.queries.take_settings(),
                    usable_connections: self.queries.usable_connections(),
                });
            }
            backend::DATA_ROW if self.queries.is_asked() => {
                self.queries.take_row(body).map_err(malformed)?;
            }
            // The result of the query is dropped, unless it is a COPY, which is an error.
            backend::ROW_DESCRIPTION
            | backend::COMMAND_COMPLETE
            | backend::EMPTY_QUERY_RESPONSE
            | backend::NOTIFICATION_RESPONSE
                if self.queries.is_asked() => {}
            _ => return Err(LoginError::Protocol(tag)),
        }
        Ok(Progress::Wait)
    }

    fn authenticate(
        &mut self,
        method: i32,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, LoginError> {
        let malformed = |_| LoginError::Protocol(backend::AUTHENTICATION);
        match method {
            0 => {
                self.check_server_proved_itself()?;
                self.authenticated = true;
                Ok(Progress::Wait)
            }
            3 => self.send_password(out),
            5 => {
                let salt = body.bytes(4).map_err(malformed)?;
                self.send_md5([salt[0], salt[1], salt[2], salt[3]], out)
            }
            10 => self.start_scram(body, out),
            11 => self.continue_scram(body.rest(), out),
            12 => {
                let exchange = self
                    .exchange
                    .as_mut()
                    .ok_or(LoginError::Protocol(backend::AUTHENTICATION))?;
                exchange
                    .server_final(body.rest())
                    .map_err(|error| LoginError::Scram(error.to_string()))?;
                Ok(Progress::Wait)
            }
            other => Err(LoginError::Method(other)),
        }
    }

    /// Checks that the server has proved in SCRAM that it knows the secret.
    fn check_server_proved_itself(&self) -> Result<(), LoginError> {
        match &self.exchange {
            Some(exchange) if !exchange.is_verified() => Err(LoginError::Scram(
                "the server did not prove that it knows the password".into(),
            )),
            _ => Ok(()),
        }
    }

    fn send_password(&self, out: &mut Vec<u8>) -> Result<Progress, LoginError> {
        match self.credentials.secret.as_deref() {
            Some(Secret::Plain(password)) => {
                MessageWriter::new(out).password(password.as_bytes());
                Ok(Progress::Send)
            }
            _ => Err(LoginError::NoPassword("password")),
        }
    }

    fn send_md5(&self, salt: [u8; 4], out: &mut Vec<u8>) -> Result<Progress, LoginError> {
        let response = match self.credentials.secret.as_deref() {
            Some(Secret::Plain(password)) => md5::response(
                &md5::secret(password.as_bytes(), &self.credentials.user),
                salt,
            ),
            Some(Secret::Md5(secret)) => md5::response(secret, salt),
            _ => return Err(LoginError::NoPassword("md5")),
        };
        MessageWriter::new(out).password(response.as_bytes());
        Ok(Progress::Send)
    }

    fn start_scram(
        &mut self,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, LoginError> {
        let usable = self.credentials.keys.is_some()
            || matches!(self.credentials.secret.as_deref(), Some(Secret::Plain(_)));
        if !usable {
            return Err(LoginError::NoPassword("scram-sha-256"));
        }
        let (mut plain, mut plus) = (false, false);
        loop {
            match body.cstr() {
                Ok(b"") | Err(_) => break,
                Ok(name) => {
                    plain |= name == scram::MECHANISM.as_bytes();
                    plus |= name == scram::MECHANISM_PLUS.as_bytes();
                }
            }
        }
        // Channel binding is used wherever it is possible.
        let binding = match self.end_point.take() {
            Some(hash) if plus => ChannelBinding::EndPoint(hash),
            _ if !plain => return Err(LoginError::Method(10)),
            Some(_) => ChannelBinding::NotOffered,
            None => ChannelBinding::None,
        };
        let exchange = ClientExchange::new(&self.nonce).with_binding(binding);
        MessageWriter::new(out).sasl_initial_response(exchange.mechanism(), &exchange.first());
        self.exchange = Some(exchange);
        Ok(Progress::Send)
    }

    fn continue_scram(
        &mut self,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, LoginError> {
        let exchange = self
            .exchange
            .as_mut()
            .ok_or(LoginError::Protocol(backend::AUTHENTICATION))?;
        let challenge = exchange
            .server_first(message)
            .map_err(|error| LoginError::Scram(error.to_string()))?;
        let secret = self.credentials.secret.as_deref();
        if let Some(job) =
            secret.and_then(|secret| secret.derive_job(challenge.salt, challenge.iterations))
        {
            return Ok(Progress::Derive(job));
        }
        let keys = self
            .credentials
            .keys
            .clone()
            .ok_or(LoginError::NoPassword("scram-sha-256"))?;
        self.finish_scram(&keys, out)?;
        Ok(Progress::Send)
    }

    fn finish_scram(&mut self, keys: &ClientKeys, out: &mut Vec<u8>) -> Result<(), LoginError> {
        let exchange = self
            .exchange
            .as_mut()
            .ok_or(LoginError::Protocol(backend::AUTHENTICATION))?;
        let answer = exchange
            .finish(keys)
            .map_err(|error| LoginError::Scram(error.to_string()))?;
        MessageWriter::new(out).sasl_response(&answer);
        Ok(())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendKey")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(words) => write!(f, "{} {}", words.severity, words.message),
            Self::NoPassword(method) => write!(
                f,
                "the server asks for a password ({method}), and auth_file has none for this user that fits"
            ),
            Self::Method(code) => write!(
                f,
                "the server asks for an authentication method that is not known ({code})"
            ),
            Self::Protocol(tag) => write!(
                f,
                "the server broke the protocol at login (message '{}')",
                tag.escape_ascii()
            ),
            Self::Tls(what) => f.write_str(what),
            Self::Scram(what) => write!(f, "SCRAM exchange with the server failed: {what}"),
        }
    }
}

impl std::error::Error for LoginError {}
