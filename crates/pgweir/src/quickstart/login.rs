//! The login to the server at the start with a URL, before pgweir accepts clients: a wrong URL or password ends the start.

use std::{sync::mpsc, thread, time::Duration};

use pgweir_core::{Endpoint, backend::LoginError};

use super::{
    connection::{Connection, ConnectionError, Target},
    reach,
};

/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A login to try once.
#[derive(Debug)]
pub(crate) struct FirstLogin {
    pub(super) target: Target,
    /// The time for the look-up of the host, the connection and the login together.
    pub(super) patience: Duration,
    /// The source of the password, for the error message.
    pub(super) password_source: String,
}

/// The first login failed. The message has the server's error and advice.
#[derive(Debug, thiserror::Error)]
#[error("cannot log in to {place} as user \"{user}\", database \"{database}\": {cause}{remedy}")]
pub(crate) struct FirstLoginError {
    place: String,
    user: String,
    database: String,
    cause: ConnectionError,
    /// Advice that begins with a colon, or nothing.
    remedy: String,
}

impl FirstLogin {
    /// Logs in and out again.
    ///
    /// # Errors
    /// When the server can't be reached, refuses the login, or does not answer in time.
    pub(crate) fn run(self) -> Result<(), Box<FirstLoginError>> {
        let place = Endpoint::of(&self.target.host, self.target.port).to_string();
        let (user, database) = (
            self.target.credentials.user.clone(),
            self.target.credentials.database.clone(),
        );
        let (source, patience) = (self.password_source.clone(), self.patience);
        let (done, outcome) = mpsc::channel();
        // The look-up of the host can't be interrupted: after a timeout, the thread goes on until the process ends.
        let login = thread::Builder::new().name("first login".to_owned());
        let started = login.spawn(move || drop(done.send(self.attempt())));
        let outcome = match started {
            Ok(_) => outcome
                .recv_timeout(patience)
                .unwrap_or(Err(ConnectionError::Silent(patience.as_secs()))),
            Err(error) => Err(ConnectionError::Reach(error)),
        };
        outcome.map_err(|cause| {
            Box::new(FirstLoginError {
                remedy: remedy(&cause, &source),
                place,
                user,
                database,
                cause,
            })
        })
    }

    fn attempt(self) -> Result<(), ConnectionError> {
        let opened = Connection::open(self.target, self.patience);
        let mut connection = opened.map_err(|error| match error {
            ConnectionError::NoAnswer => ConnectionError::Silent(self.patience.as_secs()),
            error => error,
        })?;
        // The login has succeeded. Whether the server receives the last message does not matter.
        let _ = connection.send(TERMINATE);
        Ok(())
    }
}

/// Returns advice after a colon, or nothing.
fn remedy(cause: &ConnectionError, password_source: &str) -> String {
    let what = match cause {
        ConnectionError::Reach(error) => reach::hint(error),
        ConnectionError::Silent(_) | ConnectionError::NoAnswer => {
            "is it PostgreSQL that listens there, and is there a firewall in between?"
        }
        ConnectionError::Login(LoginError::Refused(words)) => match words.code.as_str() {
            "28P01" => return format!(": the password came from {password_source}"),
            "28000" if words.message.contains("no encryption") => {
                "the server wants TLS: add sslmode=require to the URL"
            }
            "28000" => "check pg_hba.conf on the server, and that the role has LOGIN",
            "3D000" => "name an existing database in the URL (psql -l lists them)",
            "53300" => {
                "the server has reached max_connections: close connections, or raise max_connections"
            }
            "57P03" => "start pgweir again when the server is up",
            _ => {
                return words
                    .hint
                    .as_ref()
                    .map(|hint| format!(": {hint}"))
                    .unwrap_or_default();
            }
        },
        ConnectionError::Login(LoginError::Tls("server refused SSL")) => {
            "the URL's sslmode demands TLS, which the server does not support"
        }
        ConnectionError::Login(_) | ConnectionError::Lost(_) | ConnectionError::Closed => {
            "is it PostgreSQL that listens there?"
        }
        ConnectionError::Handshake(_) => {
            "set sslrootcert=FILE to the certificate of the server's authority (sslmode=require needs none)"
        }
        ConnectionError::NotBound => "the server must support TLS and SCRAM-SHA-256-PLUS",
    };
    format!(": {what}")
}
