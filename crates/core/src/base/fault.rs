//! The errors that clients get from pgweir, each with its SQLSTATE, message and hint, and with the
//! side that can solve the problem.

use std::{borrow::Cow, fmt};

use pgweir_wire::{BadLength, MessageWriter, Report, Severity, StartupError, sqlstate};

mod login;

pub use self::login::LoginFault;
use crate::base::{inbox::BadMessage, pin::Pins, tls::TlsFault};

/// The side that can cure an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client, or its application.
    Client,
    /// PostgreSQL, or the network to it.
    Server,
    /// The operator: the configuration, or a console command.
    Operator,
    /// pgweir itself.
    Us,
}

/// The fields of a server's ErrorResponse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// FATAL, PANIC or ERROR.
    pub severity: String,
    /// The SQLSTATE.
    pub code: String,
    /// The message.
    pub message: String,
    /// The DETAIL.
    pub detail: Option<String>,
    /// The HINT.
    pub hint: Option<String>,
}

impl ServerError {
    /// An owned copy of a report.
    #[must_use]
    pub fn of(report: &Report<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            severity: text(report.severity),
            code: text(report.code),
            message: text(report.message),
            detail: report.detail.map(text),
            hint: report.hint.map(text),
        }
    }
}

/// The reason why a client has waited for a server for so long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The clients that have the servers, and the limit that keeps the pool from opening one more.
    pub detail: String,
    /// The advice to the operator or the developer of the application.
    pub hint: Cow<'static, str>,
}

/// The reason why a client is refused or its request fails. `Display` gives the message for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The first packet is not a startup packet.
    Startup(StartupError),
    /// The client's TLS is refused.
    Tls(TlsFault),
    /// The startup packet names no user.
    NoUserName,
    /// A name in the startup packet is longer than PostgreSQL allows, or not text.
    BadName(&'static str),
    /// The startup packet has a parameter that pgweir does not support.
    UnsupportedParameter(String),
    /// The startup parameter `options` sets a parameter that pgweir does not support.
    UnsupportedOption(String),
    /// The startup parameter `options` contains something other than settings.
    OptionsSyntax,
    /// A simple query under `disable_pqexec`.
    SimpleQuery,
    /// The startup parameter `replication` has an invalid value.
    BadReplication(String),
    /// A feature of PostgreSQL that pgweir does not support.
    NotSupported(&'static str),
    /// The configuration has no such database.
    NoSuchDatabase(String),
    /// DISABLE was given for the database.
    DatabaseDisabled(String),
    /// The connection was in the middle of a message for longer than `suspend_timeout` after SUSPEND.
    SuspendTimeout,
    /// The console has ended this client by KILL_CLIENT.
    Killed,
    /// Another client has ended this one by `pg_terminate_backend`, or the process is drained.
    Terminated,
    /// A console command was cancelled before it was done.
    CommandCanceled,
    /// The database was removed from the configuration, or killed.
    DatabaseRemoved,
    /// `auth_type = any` needs a forced user.
    NoForcedUser,
    /// The password is wrong, or the user does not exist: clients can't tell which.
    Password,
    /// Like [`Fault::Password`], for SCRAM.
    Sasl,
    /// The user is not in `auth_file`, under `auth_type = trust`.
    Trust,
    /// The user may not use the console.
    ConsoleNotAllowed,
    /// `max_client_conn` is reached.
    TooManyClients,
    /// `max_db_client_connections` is reached.
    TooManyClientsOfDatabase,
    /// `max_user_client_connections` is reached.
    TooManyClientsOfUser,
    /// More connections than `max_login_clients`, or more of one address than `max_login_clients_per_address`, have not
    /// authenticated, and pgweir has waited longest for this one.
    TooManyLogins,
    /// The login took longer than `client_login_timeout`.
    LoginTimeout,
    /// The login took longer than `client_login_timeout`, waiting for a server that is down.
    LoginTimeoutServerDown,
    /// The client was idle for longer than `client_idle_timeout`.
    ClientIdle,
    /// The query ran for longer than `query_timeout`.
    QueryTimeout,
    /// The query waited for a server for longer than `query_timeout`.
    QueryTimeoutInQueue,
    /// The client was idle in a transaction for longer than `idle_transaction_timeout`.
    IdleTransaction,
    /// The transaction took longer than `transaction_timeout`.
    TransactionTimeout,
    /// The client was idle for longer than `pin_timeout` while it was pinned for these reasons.
    PinTimeout(Pins),
    /// The client has stopped in the middle of a message for longer than `partial_message_timeout`.
    PartialMessage,
    /// The process is shutting down.
    ShuttingDown,
    /// The client could not be handed over in an online restart before `takeover_timeout`.
    TakeoverTimeout,
    /// The client needs a server, and the shutdown has closed them.
    ServersShutDown,
    /// A message that the protocol does not allow at this point, with its tag.
    UnexpectedMessage(u8),
    /// The length of a message is invalid.
    Length(BadLength),
    /// A message is longer than allowed at this point; the value is its tag.
    TooLong(u8),
    /// The fields of a message do not fit its length; the value is the message's tag.
    Malformed(u8),
    /// The client may not log in, whatever its password.
    Login(LoginFault),
    /// A SASL message is malformed, for this reason.
    MalformedSasl(String),
    /// The client waited for a server for longer than `query_wait_timeout`.
    QueryWaitTimeout(Option<Box<Reason>>),
    /// A transaction block under `pool_mode = statement`.
    StatementMode,
    /// PostgreSQL rejects the value of a tracked parameter.
    InvalidParameters,
    /// The server was lost; its last ErrorResponse.
    ServerSaid(Box<ServerError>),
    /// The server rejects a setting that the client has made; the server's error.
    SettingRefused(Box<ServerError>),
    /// The server was lost without an ErrorResponse.
    ServerCrashed,
    /// pgweir has stopped using the server's host, for this reason.
    HostLeft(&'static str),
    /// The server connection was lost, for this reason, while the server may have been committing.
    OutcomeUnknown(String),
    /// The server has violated the protocol in this way.
    ServerProtocol(String),
    /// The session state of the server's last client could not be removed; the server's error.
    ServerUnclean(String),
    /// The login of the client's exclusive server failed; the server's error, or the system's.
    OwnServer(String),
    /// No server could be reached: the reason, which is given to clients until `server_login_retry` has passed, and the
    /// server's address with the system's error, if these are known.
    ServerLogin(Box<(String, Option<String>)>),
    /// The client's server is out of date, and `server_fast_close` is set or the server is exclusive to the client.
    DatabaseChanged,
    /// The listener connection of this client was lost, for this reason.
    ListenerLost(String),
    /// The notifications for a client that does not read, or is in a long transaction, take more than
    /// `notification_backlog`.
    NotificationBacklog,
    /// No login to the server is possible.
    ServerRefused {
        /// The reason, in PgBouncer's words where it has some.
        what: String,
        /// More about the reason.
        detail: String,
    },
    /// The console command does not exist, or is not possible now.
    Command(String),
    /// RESUME of a database or process that is not paused.
    NotPaused {
        /// The message, in PgBouncer's words.
        what: String,
        /// The databases that are paused by name.
        paused: Vec<String>,
    },
    /// The console supports the simple query protocol only.
    ConsoleExtended,
    /// The user may not give this console command.
    CommandNotAllowed,
    /// The configuration could not be read again: a line for each problem, with its file and line.
    ReloadFailed(String),
    /// A setting could not be changed; the text says why, and which values are valid.
    SetFailed(String),
    /// The queue of password checks is full.
    Overloaded,
    /// The client's prepared statements take more than `max_client_prepared_bytes`.
    TooManyStatements,
    /// One prepared statement alone takes more than `max_client_prepared_bytes`.
    StatementTooLong,
    /// `memory_limit` is reached.
    OutOfMemory,
    /// The messages of clients that log in take more than `login_memory`.
    LoginMemory,
    /// A table has changed so that a prepared statement no longer has the result columns that were described to the
    /// client.
    StalePlan,
    /// No prepared statement has this name, under `session_state = off`.
    NoSuchStatement,
    /// A prepared statement has this name already, under `session_state = off`.
    StatementExists,
}

impl Fault {
    /// Returns the SQLSTATE.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Startup(StartupError::Version(_)) | Self::NotSupported(_) | Self::StalePlan => {
                sqlstate::FEATURE_NOT_SUPPORTED
            }
            Self::OutOfMemory | Self::LoginMemory => sqlstate::OUT_OF_MEMORY,
            Self::NoUserName => sqlstate::INVALID_AUTHORIZATION,
            Self::NoSuchDatabase(_) => sqlstate::INVALID_CATALOG_NAME,
            Self::Login(fault) => fault.sqlstate(),
            Self::Password | Self::Sasl | Self::Trust => sqlstate::INVALID_PASSWORD,
            Self::Overloaded | Self::TooManyLogins => sqlstate::TOO_MANY_CONNECTIONS,
            Self::InvalidParameters | Self::BadReplication(_) => sqlstate::INVALID_PARAMETER_VALUE,
            Self::ServerSaid(words) => &words.code,
            Self::SettingRefused(words) => &words.code,
            Self::ServerCrashed
            | Self::HostLeft(_)
            | Self::ServerProtocol(_)
            | Self::ServerUnclean(_) => sqlstate::CONNECTION_FAILURE,
            Self::OutcomeUnknown(_) => sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
            Self::ReloadFailed(_) => sqlstate::CONFIG_FILE_ERROR,
            Self::PinTimeout(_) => sqlstate::IDLE_SESSION_TIMEOUT,
            Self::CommandCanceled => sqlstate::QUERY_CANCELED,
            Self::ListenerLost(_) | Self::TakeoverTimeout | Self::Terminated => {
                sqlstate::ADMIN_SHUTDOWN
            }
            Self::TooManyStatements | Self::StatementTooLong | Self::NotificationBacklog => {
                sqlstate::CONFIGURATION_LIMIT_EXCEEDED
            }
            _ => sqlstate::PROTOCOL_VIOLATION,
        }
    }

    /// Returns whether the error is sent to the client. Like PostgreSQL, pgweir only logs errors of peers that may not
    /// speak the protocol at all, or that disconnect before their login.
    #[must_use]
    pub fn is_sent_to_client(&self) -> bool {
        !matches!(self, Self::Startup(StartupError::Length(_)))
    }

    /// Returns whether the client has failed to prove that it is the user it claims to be. LDAP and PAM are left out:
    /// their errors don't distinguish a wrong password from a service that is down.
    #[must_use]
    pub fn is_failed_proof(&self) -> bool {
        matches!(
            self,
            Self::Password | Self::Sasl | Self::Trust | Self::Login(LoginFault::Certificate)
        )
    }

    /// Returns the error for a client that has not authenticated yet: without the address of any server.
    #[must_use]
    pub fn before_authentication(self) -> Self {
        match self {
            Self::ServerLogin(why) => Self::ServerLogin(Box::new((why.0, None))),
            Self::ServerRefused { what, .. } => Self::ServerLogin(Box::new((what, None))),
            other => other,
        }
    }

    /// Returns the side that can solve the problem.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::ServerSaid(_)
            | Self::SettingRefused(_)
            | Self::ServerCrashed
            | Self::HostLeft(_)
            | Self::OutcomeUnknown(_)
            | Self::ServerProtocol(_)
            | Self::ServerUnclean(_)
            | Self::OwnServer(_)
            | Self::ListenerLost(_)
            | Self::ServerLogin(_)
            | Self::ServerRefused { .. } => Blame::Server,
            Self::TooManyClients
            | Self::OutOfMemory
            | Self::LoginMemory
            | Self::DatabaseChanged
            | Self::TooManyClientsOfDatabase
            | Self::TooManyClientsOfUser
            | Self::ShuttingDown
            | Self::TakeoverTimeout
            | Self::ServersShutDown
            | Self::ReloadFailed(_)
            | Self::NoForcedUser => Blame::Operator,
            Self::LoginTimeoutServerDown | Self::QueryTimeoutInQueue => Blame::Server,
            Self::DatabaseDisabled(_)
            | Self::Killed
            | Self::Terminated
            | Self::SuspendTimeout
            | Self::CommandCanceled => Blame::Operator,
            Self::QueryWaitTimeout(_) | Self::DatabaseRemoved | Self::SetFailed(_) => {
                Blame::Operator
            }
            Self::Login(fault) => fault.blame(),
            Self::Overloaded => Blame::Us,
            _ => Blame::Client,
        }
    }

    /// Returns the hint, if the message alone does not suffice.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::UnsupportedParameter(name) | Self::UnsupportedOption(name) => {
                format!("Leave it out, or list \"{name}\" in ignore_startup_parameters.").into()
            }
            Self::NoSuchDatabase(_) => {
                "Add it, or a \"*\" entry, to the [databases] section.".into()
            }
            Self::Tls(TlsFault::Required) => "Connect with sslmode=require (client_tls_sslmode demands TLS).".into(),
            Self::Login(LoginFault::Banned) => "Try again later.".into(),
            Self::TooManyClients => "Raise max_client_conn, or close idle clients.".into(),
            Self::TooManyClientsOfDatabase => {
                "Raise max_db_client_connections, or close idle clients of this database.".into()
            }
            Self::TooManyClientsOfUser => {
                "Raise max_user_client_connections, or close idle clients of this user.".into()
            }
            Self::SimpleQuery => {
                "disable_pqexec is set: use the extended query protocol (with parameters).".into()
            }
            Self::TooManyLogins => {
                "The login waited for the client: try again. If many clients are slow to log in, raise \
                 max_login_clients and max_login_clients_per_address."
                    .into()
            }
            Self::PartialMessage => {
                "The rest of a message did not arrive in time: check the network, or raise partial_message_timeout."
                    .into()
            }
            Self::QueryWaitTimeout(Some(reason)) => (&*reason.hint).into(),
            Self::QueryWaitTimeout(None) => {
                "All servers of the pool were busy: see SHOW POOLS; raise pool_size or \
                                       query_wait_timeout, or end long transactions."
                    .into()
            }
            Self::StatementMode => "Use pool_mode = transaction for this database or user.".into(),
            Self::ServerSaid(words) => words.hint.as_deref()?.into(),
            Self::SettingRefused(words) => match &words.hint {
                Some(hint) => hint.into(),
                None => "The server no longer accepts a setting that this session has made: connect again.".into(),
            },
            Self::ServerCrashed | Self::HostLeft(_) => {
                "The transaction was rolled back, and can be repeated.".into()
            }
            Self::OutcomeUnknown(_) => {
                "The server may have committed it: check before you repeat it.".into()
            }
            Self::NoForcedUser => "Under auth_type = any, each database needs user=.".into(),
            Self::ListenerLost(_) => {
                "Connect and LISTEN again: notifications may have been lost meanwhile.".into()
            }
            Self::NotificationBacklog => {
                "Read notifications faster, keep transactions short, or raise notification_backlog."
                    .into()
            }
            Self::ReloadFailed(_) => "The old configuration stays in force.".into(),
            Self::ServerLogin(_) => "RECONNECT on the console tries again at once.".into(),
            Self::NotPaused { paused, .. } => match paused.as_slice() {
                [] => return None,
                names => format!("Single databases are paused: RESUME {}.", names.join(", RESUME ")).into(),
            },
            Self::PinTimeout(_) => {
                "End what the session holds when it is not needed any more (DROP, CLOSE, unlock, DISCARD), or raise \
                 pin_timeout."
                    .into()
            }
            Self::TooManyStatements | Self::StatementTooLong => {
                "Raise max_client_prepared_bytes, or close prepared statements that are not used \
                 any more."
                    .into()
            }
            Self::OutOfMemory => {
                "Raise memory_limit, or let clients close what they do not use: SHOW MEM on the console says what takes \
                 the memory."
                    .into()
            }
            Self::LoginMemory => {
                "Try again later. If many clients have passwords of more than 4 kB, raise login_memory.".into()
            }
            Self::NoSuchStatement | Self::StatementExists => {
                "With session_state = transparent this is an ERROR, and the connection stays."
                    .into()
            }
            _ => return None,
        })
    }

    /// Appends the error as an ErrorResponse.
    pub fn write(&self, severity: Severity, out: &mut Vec<u8>) {
        let held = match self {
            Self::PinTimeout(pins) => Some(format!("The session held its server: {pins}.")),
            Self::StalePlan => {
                let (code, message) = (self.sqlstate(), self.to_string());
                MessageWriter::new(out).error_by(code, &message, STALE_PLAN);
                return;
            }
            _ => None,
        };
        let detail = match self {
            Self::PinTimeout(_) => held.as_deref(),
            Self::ServerSaid(words) => words.detail.as_deref(),
            Self::SettingRefused(words) => words.detail.as_deref(),
            Self::OwnServer(why) | Self::ListenerLost(why) => Some(why.as_str()),
            Self::SetFailed(detail) => Some(detail.as_str()),
            Self::ServerRefused { detail, .. } => Some(&**detail),
            Self::ServerLogin(why) => why.1.as_deref(),
            Self::ReloadFailed(problems) => Some(problems.as_str()),
            Self::QueryWaitTimeout(Some(reason)) => Some(&*reason.detail),
            _ => None,
        };
        MessageWriter::new(out).error(
            severity,
            self.sqlstate(),
            &self.to_string(),
            detail,
            self.hint().as_deref(),
        );
    }
}

/// The SQLSTATE `insufficient_privilege`.
pub const INSUFFICIENT_PRIVILEGE: &[u8] = b"42501";

/// The function of PostgreSQL that raises `cached plan must not change result type`. Its name is the same in every
/// language of the messages.
pub const STALE_PLAN: &str = "RevalidateCachedQuery";

const STATEMENT_TOO_LONG: &str = "prepared statement is too long (max_client_prepared_bytes)";
const TOO_MANY_STATEMENTS: &str = "too many prepared statements (max_client_prepared_bytes)";

const BAD_REPLICATION: &str = "invalid value for parameter \"replication\"";
const OUTCOME_UNKNOWN: &str = "the outcome of the transaction is unknown";
const STATEMENT_MODE: &str = "transaction blocks not allowed in statement pooling mode";

const OPTIONS_SYNTAX: &str = "unsupported options startup parameter: only '-c config=val' and \
                              '--config=val' are allowed";

const LOGIN_FAILING: &str = "server login has been failing, cached error";
const TAKEOVER_TIMEOUT: &str = "terminating connection: the pooler was restarted, and this \
                                connection did not move in time (takeover_timeout)";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyStatements => f.write_str(TOO_MANY_STATEMENTS),
            Self::StatementTooLong => f.write_str(STATEMENT_TOO_LONG),
            Self::OutOfMemory => f.write_str("out of memory (memory_limit)"),
            Self::LoginMemory => f.write_str("out of memory for logins (login_memory)"),
            Self::StalePlan => f.write_str("cached plan must not change result type"),
            Self::NoSuchStatement => f.write_str("prepared statement did not exist"),
            Self::StatementExists => f.write_str("prepared statement name is already in use"),
            Self::Startup(error) => error.fmt(f),
            Self::Tls(fault) => fault.fmt(f),
            Self::NoUserName => f.write_str("no username supplied"),
            Self::BadName(what) => write!(f, "invalid {what} name"),
            Self::UnsupportedParameter(name) => write!(f, "unsupported startup parameter: {name}"),
            Self::UnsupportedOption(name) => {
                write!(f, "unsupported startup parameter in options: {name}")
            }
            Self::BadReplication(value) => write!(f, "{BAD_REPLICATION}: \"{value}\""),
            Self::OwnServer(_) => f.write_str("login failed"),
            Self::ListenerLost(_) => f.write_str("the connection that listened for it was lost"),
            Self::NotificationBacklog => f.write_str("notification_backlog"),
            Self::NotSupported(what) => write!(f, "{what} not supported yet"),
            Self::NoSuchDatabase(name) => write!(f, "no such database: {name}"),
            Self::DatabaseDisabled(name) => write!(f, "database \"{name}\" is disabled"),
            Self::SuspendTimeout => f.write_str("suspend_timeout"),
            Self::Killed => f.write_str("admin forced disconnect"),
            Self::Terminated => f.write_str("terminating connection due to administrator command"),
            Self::CommandCanceled => f.write_str("canceling statement due to user request"),
            Self::DatabaseRemoved => f.write_str("database removed"),
            Self::NoForcedUser => f.write_str("auth_type=any requires forced user"),
            Self::Password => f.write_str("password authentication failed"),
            Self::Sasl => f.write_str("SASL authentication failed"),
            Self::Trust => f.write_str("\"trust\" authentication failed"),
            Self::Login(fault) => fault.fmt(f),
            Self::ConsoleNotAllowed => f.write_str("not allowed"),
            Self::OptionsSyntax => f.write_str(OPTIONS_SYNTAX),
            Self::SimpleQuery => f.write_str("PQexec disallowed"),
            Self::TooManyClients => f.write_str("no more connections allowed (max_client_conn)"),
            Self::TooManyClientsOfDatabase => {
                f.write_str("client connections exceeded (max_db_client_connections)")
            }
            Self::TooManyClientsOfUser => {
                f.write_str("client connections exceeded (max_user_client_connections)")
            }
            Self::TooManyLogins => f.write_str("too many logins at once (max_login_clients)"),
            Self::LoginTimeout => f.write_str("client_login_timeout"),
            Self::LoginTimeoutServerDown => f.write_str("client_login_timeout (server down)"),
            Self::ClientIdle => f.write_str("client_idle_timeout"),
            Self::QueryTimeout => f.write_str("query timeout"),
            Self::QueryTimeoutInQueue => f.write_str("query_timeout"),
            Self::IdleTransaction => f.write_str("idle transaction timeout"),
            Self::PinTimeout(_) => f.write_str("pin_timeout"),
            Self::TransactionTimeout => f.write_str("transaction timeout"),
            Self::PartialMessage => f.write_str("partial_message_timeout"),
            Self::ShuttingDown => f.write_str("pooler is shutting down"),
            Self::TakeoverTimeout => f.write_str(TAKEOVER_TIMEOUT),
            Self::ServersShutDown => f.write_str("server shutting down"),
            Self::UnexpectedMessage(tag) => write!(f, "invalid frontend message type {tag}"),
            Self::Length(error) => error.fmt(f),
            Self::TooLong(tag) => write!(f, "message of type '{}' is too long", tag.escape_ascii()),
            Self::Malformed(tag) => write!(f, "malformed message of type '{}'", tag.escape_ascii()),
            Self::QueryWaitTimeout(_) => f.write_str("query_wait_timeout"),
            Self::StatementMode => f.write_str(STATEMENT_MODE),
            Self::InvalidParameters => f.write_str("invalid server parameter"),
            Self::ServerSaid(words) => f.write_str(&words.message),
            Self::SettingRefused(words) => f.write_str(&words.message),
            Self::ServerCrashed => f.write_str("server conn crashed?"),
            Self::HostLeft(why) => write!(f, "server is not used any more: {why}"),
            Self::OutcomeUnknown(why) => write!(f, "{OUTCOME_UNKNOWN}: {why}"),
            Self::ServerProtocol(what) => write!(f, "server broke the protocol: {what}"),
            Self::ServerUnclean(what) => write!(f, "server can't be cleaned: {what}"),
            Self::ServerLogin(why) => write!(f, "{LOGIN_FAILING}: {} (server_login_retry)", why.0),
            Self::DatabaseChanged => f.write_str("database configuration changed"),
            Self::ServerRefused { what, .. } => write!(f, "server login failed: {what}"),
            Self::MalformedSasl(text)
            | Self::Command(text)
            | Self::NotPaused { what: text, .. } => f.write_str(text),
            Self::ConsoleExtended => {
                f.write_str("extended query protocol not supported by admin console")
            }
            Self::CommandNotAllowed => f.write_str("admin access needed"),
            Self::Overloaded => f.write_str("too many logins at once"),
            Self::SetFailed(_) => f.write_str("SET failed"),
            Self::ReloadFailed(_) => f.write_str("RELOAD failed, see logs for additional details"),
        }
    }
}

impl From<BadMessage> for Fault {
    fn from(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Length(error) => Self::Length(error),
            BadMessage::TooLong(tag) => Self::TooLong(tag),
        }
    }
}

impl std::error::Error for Fault {}
