//! Why a client may not log in, where its password is not in question.

use std::fmt;

use pgweir_wire::sqlstate;

use super::Blame;
use crate::inquiry::Service;

/// Why a client may not log in, in PgBouncer's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFault {
    /// There is no such user.
    NoSuchUser,
    /// What looks users up is not configured as it should be; the log says how.
    Misconfigured,
    /// The database is disabled that could tell who it is.
    AuthDatabaseDisabled(String),
    /// No rule of the HBA file fits it.
    NoMethod,
    /// A rule of the HBA file rejects it.
    Rejected,
    /// The system's user at the other end of its Unix socket is another one.
    Peer,
    /// Somebody else who was asked doesn't take its password.
    Service(Service),
    /// Its TLS certificate is missing, or another one's.
    Certificate,
}

impl LoginFault {
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            Self::Misconfigured | Self::AuthDatabaseDisabled(_) => sqlstate::PROTOCOL_VIOLATION,
            Self::Service(_) => sqlstate::INVALID_PASSWORD,
            _ => sqlstate::INVALID_AUTHORIZATION,
        }
    }

    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Misconfigured | Self::AuthDatabaseDisabled(_) => Blame::Operator,
            _ => Blame::Client,
        }
    }
}

impl fmt::Display for LoginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchUser => "no such user",
            Self::Misconfigured => "bouncer config error",
            Self::AuthDatabaseDisabled(name) => {
                return write!(f, "authentication database \"{name}\" is disabled");
            }
            Self::NoMethod => "no authentication method is found",
            Self::Rejected => "login rejected",
            Self::Peer => "unix socket login rejected",
            Self::Service(Service::Ldap(_)) => "LDAP authentication failed",
            Self::Service(Service::Pam(_)) => "PAM authentication failed",
            Self::Certificate => "certificate authentication failed",
        })
    }
}
