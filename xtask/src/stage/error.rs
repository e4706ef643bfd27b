//! The errors that end a demo or a benchmark early.

use std::fmt;

/// A failure with what to do next, or an interruption.
#[derive(Debug)]
pub(crate) enum StageError {
    /// A signal with this number has arrived.
    Interrupted(u8),
    /// Something failed.
    Failed {
        /// The operation that failed, and its error.
        what: String,
        /// Advice for the reader, if there is any.
        next: Option<String>,
    },
}

impl StageError {
    /// Creates a failure whose text needs no advice.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::Failed {
            what: what.into(),
            next: None,
        }
    }

    /// Creates a failure with advice.
    pub(crate) fn with_next(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Failed {
            what: what.into(),
            next: Some(next.into()),
        }
    }

    /// Returns 1 or, for a signal, the code that a shell reports.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => 128 + signal,
            Self::Failed { .. } => 1,
        }
    }
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(_) => f.write_str("interrupted; everything is stopped and removed"),
            Self::Failed { what, next: None } => f.write_str(what),
            Self::Failed {
                what,
                next: Some(next),
            } => write!(f, "{what}\n  next: {next}"),
        }
    }
}
