//! The consequences of a failed login to a server for clients.

use pgweir_wire::sqlstate::CANNOT_CONNECT_NOW;

use super::LoginError;
use crate::{
    base::fault::Fault,
    shared::pool::{Failure, HostLogin},
};

impl HostLogin {
    /// Returns the state of the host that a failed login shows. `failure`: the consequences for clients.
    #[must_use]
    pub fn of(error: &LoginError, failure: &Failure) -> Self {
        match error {
            LoginError::Refused(words) if words.code == CANNOT_CONNECT_NOW => Self::Unavailable,
            _ if failure.refusal.is_some() => Self::Refused,
            _ => Self::Unreachable,
        }
    }
}

impl Failure {
    /// The server has refused the login, or is not a PostgreSQL server.
    #[must_use]
    pub fn of(error: &LoginError) -> Self {
        match error {
            LoginError::Refused(words) if words.code == CANNOT_CONNECT_NOW => {
                Self::unreachable(&words.message)
            }
            // Either an attacker intercepts the connection, or the server's certificates are being replaced: pgweir
            // tries again.
            LoginError::Tls(what) => Self::unreachable(what),
            LoginError::Refused(words) if words.code.len() == 5 && !words.message.is_empty() => {
                Self {
                    text: words.message.clone(),
                    refusal: Some(Fault::ServerSaid(Box::new(words.clone()))),
                    detail: None,
                }
            }
            other => {
                let what = match other {
                    // PgBouncer's message for all of these.
                    LoginError::NoPassword(_) => "wrong password type".to_owned(),
                    LoginError::Refused(_) => "the server gave no reason".to_owned(),
                    other => other.to_string(),
                };
                let refusal = Fault::ServerRefused {
                    what,
                    detail: other.to_string(),
                };
                Self {
                    text: refusal.to_string(),
                    refusal: Some(refusal),
                    detail: None,
                }
            }
        }
    }
}
