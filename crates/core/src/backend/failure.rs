//! What a failed login of ours means for clients.

use pgweir_wire::sqlstate;

use super::LoginError;
use crate::fault::Fault;

/// Why a login to a server failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In words, as clients are told that come before the next try.
    pub text: String,
    /// What those are told that wait: the server has said no. `None` if it could not be reached, or
    /// asked for patience: then they go on waiting.
    pub refusal: Option<Fault>,
    /// The server's address and the system's error, if it could not be reached.
    pub detail: Option<String>,
}

/// PostgreSQL's `cannot_connect_now`: it starts, or recovers, and asks for patience.
const CANNOT_CONNECT_NOW: &str = "57P03";

impl Failure {
    /// Is there no such database?
    #[must_use]
    pub fn lacks_database(&self) -> bool {
        matches!(&self.refusal, Some(Fault::ServerSaid(words)) if words.code == sqlstate::INVALID_CATALOG_NAME)
    }

    /// It could not be reached, or asked for patience.
    #[must_use]
    pub fn unreachable(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            refusal: None,
            detail: None,
        }
    }

    /// The same, with the server's address and the system's error.
    #[must_use]
    pub fn with_detail(self, detail: String) -> Self {
        Self {
            detail: Some(detail),
            ..self
        }
    }

    /// What clients are told that log in before the next try.
    #[must_use]
    pub fn cached(&self) -> Fault {
        Fault::ServerLogin(Box::new((self.text.clone(), self.detail.clone())))
    }

    /// What clients are told that log in to a pool that has never had a server; the others go on waiting.
    #[must_use]
    pub fn at_login(&self) -> Option<Fault> {
        self.detail.clone().map(|detail| Fault::ServerRefused {
            what: self.text.clone(),
            detail,
        })
    }

    /// It said no, or is none.
    #[must_use]
    pub fn of(error: &LoginError) -> Self {
        match error {
            LoginError::Refused(words) if words.code == CANNOT_CONNECT_NOW => {
                Self::unreachable(&words.message)
            }
            // Somebody may be in between, or it is set up anew: it is asked again.
            LoginError::Tls(what) => Self::unreachable(what),
            LoginError::Refused(words) if words.code.len() == 5 && !words.message.is_empty() => {
                Self {
                    text: words.message.clone(),
                    refusal: Some(Fault::ServerSaid(words.clone())),
                    detail: None,
                }
            }
            other => {
                let what = match other {
                    // PgBouncer's words for all of these.
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
