//! Lines for the log, in PgBouncer's form.

use crate::statement_statistics::SlowTransaction;

/// The severity of a log line, in PgBouncer's spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `DEBUG`
    Debug,
    /// `LOG`
    Log,
    /// `WARNING`
    Warning,
    /// `ERROR`
    Error,
    /// `FATAL`
    Fatal,
}

/// A line for the log.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// The severity.
    pub level: Level,
    /// The connection that the line is about, such as `C-0x1f: db/user@127.0.0.1:4711`; empty if it is about none.
    pub subject: String,
    /// The message, which never contains a secret.
    pub text: String,
    /// The parts of an audit line, for logs that a program reads.
    pub audit: Option<Box<Audit>>,
    /// The parts of a line about a slow transaction, for the same purpose.
    pub slow: Option<Box<SlowTransaction>>,
}

impl LogLine {
    /// Creates a line that is not an audit line.
    #[must_use]
    pub fn new(level: Level, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            level,
            subject: subject.into(),
            text: text.into(),
            audit: None,
            slow: None,
        }
    }
}

/// An action that is audited: its user, its origin and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// `command`, `http command` (a command that came over HTTP) or `login`.
    pub action: &'static str,
    /// The command, with secrets hidden; empty for a login.
    pub command: String,
    /// The user, as the client named it. For an HTTP command: the user and the way of authentication, such as `token
    /// 5f0c2a1b`.
    pub user: String,
    /// The database, as the client named it.
    pub database: String,
    /// The client's address.
    pub address: String,
    /// `ok`, or the reason of the failure.
    pub outcome: String,
}

impl Audit {
    /// Returns the message of the log line.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            action,
            command,
            outcome,
            ..
        } = self;
        match command.is_empty() {
            true => format!("audit: {action}: {outcome}"),
            false => format!("audit: {action} \"{command}\": {outcome}"),
        }
    }
}
