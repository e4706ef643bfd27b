//! Lines for the log, in PgBouncer's form.

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
    /// The message. It never holds a secret.
    pub text: String,
}
