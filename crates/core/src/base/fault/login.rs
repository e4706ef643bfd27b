//! The reasons why a client may not log in, other than a wrong password, and the result that a failed login is counted
//! under.

use std::fmt;

use pgweir_wire::sqlstate;

use super::{Blame, Fault};
use crate::base::{auth_check::Service, stats::LoginResult};

/// The reason why a client may not log in. `Display` gives PgBouncer's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFault {
    /// `auth_query` or another source of users is misconfigured; the log has the details.
    Misconfigured,
    /// The database that `auth_query` runs in is disabled.
    AuthDatabaseDisabled(String),
    /// No rule of the HBA file matches the client.
    NoMethod,
    /// A rule of the HBA file rejects the client.
    Rejected,
    /// `peer`: the system user at the other end of the Unix socket may not log in as this user.
    Peer,
    /// LDAP or PAM rejects the password.
    Service(Service),
    /// The client has no TLS certificate, or one of another user.
    Certificate,
    /// Too many logins of this user from this address have failed (`auth_failure_limit`).
    Banned,
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
            Self::Banned => "too many failed logins (auth_failure_limit)",
        })
    }
}

impl Fault {
    /// Returns the result of a login that failed for this reason. PgBouncer's SQLSTATE for several of these reasons is that
    /// of a violated protocol, so the SQLSTATE alone does not tell.
    #[must_use]
    pub fn login_result(&self) -> LoginResult {
        match self {
            Self::TooManyClients | Self::TooManyClientsOfDatabase | Self::TooManyClientsOfUser => {
                return LoginResult::TooMany;
            }
            Self::LoginTimeout => return LoginResult::Other,
            _ => {}
        }
        match (self.sqlstate().get(..2), self.blame()) {
            (Some("28"), _) => LoginResult::Denied,
            (Some("3D"), _) => LoginResult::NoDatabase,
            (Some("53"), _) => LoginResult::TooMany,
            (_, Blame::Server) => LoginResult::NoServer,
            (Some("08"), Blame::Client) => LoginResult::Protocol,
            _ => LoginResult::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_logins_are_counted_by_their_reason() {
        let unreachable = Fault::ServerLogin(Box::new(("connect failed".to_owned(), None)));
        for (fault, result) in [
            (Fault::Password, LoginResult::Denied),
            (
                Fault::NoSuchDatabase("x".to_owned()),
                LoginResult::NoDatabase,
            ),
            (Fault::TooManyClients, LoginResult::TooMany),
            (unreachable, LoginResult::NoServer),
            (Fault::UnexpectedMessage(b'x'), LoginResult::Protocol),
            (Fault::LoginTimeout, LoginResult::Other),
            (Fault::ShuttingDown, LoginResult::Other),
        ] {
            assert_eq!(fault.login_result(), result, "{fault}");
        }
    }
}
