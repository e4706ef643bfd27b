//! What is to be found out about a client that logs in, by somebody who may take its time.

use std::fmt;

/// One question. `Debug` shows no secret.
pub enum Inquiry {
    /// The name of the system's user with this id.
    SystemUser(u32),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The name of the system's user, or why there is none.
    SystemUser(Result<String, String>),
    /// Too many questions are being answered already.
    Overloaded,
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemUser(uid) => f.debug_tuple("SystemUser").field(uid).finish(),
        }
    }
}
