//! The reason why the last login to a server failed, and the errors that clients get for it.

use pgweir_wire::sqlstate;

use crate::base::fault::Fault;

/// The reason why a login to a server failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The reason, for clients that log in before the next attempt.
    pub text: String,
    /// The error for waiting clients, if the server has refused the login. `None` if the server could not be reached,
    /// or is starting up: then the clients go on waiting.
    pub refusal: Option<Fault>,
    /// The server's address and the system's error, if it could not be reached.
    pub detail: Option<String>,
}

impl Failure {
    /// Returns whether the server says that the database does not exist.
    #[must_use]
    pub fn lacks_database(&self) -> bool {
        matches!(&self.refusal, Some(Fault::ServerSaid(words)) if words.code == sqlstate::INVALID_CATALOG_NAME)
    }

    /// Returns whether the next login will fail, too: the user may not log in, or the database does not exist. After
    /// any other refusal (too many connections, an error of a login trigger) the next login may succeed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        const INVALID_AUTHORIZATION: &str = "28";
        match &self.refusal {
            Some(Fault::ServerSaid(words)) => {
                words.code.starts_with(INVALID_AUTHORIZATION) || self.lacks_database()
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Creates the failure of a login to a server that could not be reached, or is starting up.
    #[must_use]
    pub fn unreachable(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            refusal: None,
            detail: None,
        }
    }

    /// Adds the server's address and the system's error.
    #[must_use]
    pub fn with_detail(self, detail: String) -> Self {
        Self {
            detail: Some(detail),
            ..self
        }
    }

    /// Returns the error for clients that log in before the next attempt.
    #[must_use]
    pub fn cached(&self) -> Fault {
        Fault::ServerLogin(Box::new((self.text.clone(), self.detail.clone())))
    }

    /// Returns the error for clients that are logging in to a pool that has never had a server. Clients that are logged
    /// in go on waiting.
    #[must_use]
    pub fn at_login(&self) -> Option<Fault> {
        self.detail.clone().map(|detail| Fault::ServerRefused {
            what: self.text.clone(),
            detail,
        })
    }
}
