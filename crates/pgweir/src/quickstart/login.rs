//! The login to the server at the start with a URL, before pgweir accepts clients: a wrong URL or password ends the start.

use std::{
    io::{self, Read, Write},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use pgweir_core::{
    Endpoint, TlsRole,
    backend::{Credentials, LoginError, Progress, ServerLogin, TlsAnswer},
    session::TrackedNames,
};

use super::reach::{self, Stream};
use crate::tls::{Contexts, SessionError, TlsSession};

/// The largest number of bytes of one read, including the beginning of a TLS record from earlier reads.
const BUFFER_BYTES: usize = 64 * 1024;
/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A login to try once.
#[derive(Debug)]
pub(crate) struct FirstLogin {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) credentials: Credentials,
    pub(super) tls: Contexts,
    /// `channel_binding=require`.
    pub(super) needs_channel_binding: bool,
    /// The time for the look-up of the host, the connection and the login together.
    pub(super) patience: Duration,
    /// The source of the password, for the error message.
    pub(super) password_source: String,
}

/// The reason why the first login failed.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("{0}")]
    Reach(#[source] io::Error),
    #[error("{0}")]
    Login(LoginError),
    #[error("TLS handshake failed: {0}")]
    Handshake(#[from] SessionError),
    #[error("the connection was lost at login: {0}")]
    Lost(#[source] io::Error),
    #[error("the server closed the connection at login")]
    Closed,
    #[error("the server did not answer within {0} seconds")]
    Silent(u64),
    #[error("the login is not bound to the TLS connection, as channel_binding=require asks for")]
    NotBound,
}

impl From<LoginError> for Cause {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

/// The first login failed. The message has the server's error and advice.
#[derive(Debug, thiserror::Error)]
#[error("cannot log in to {place} as user \"{user}\", database \"{database}\": {cause}{remedy}")]
pub(crate) struct FirstLoginError {
    place: String,
    user: String,
    database: String,
    cause: Cause,
    /// Advice that begins with a colon, or nothing.
    remedy: String,
}

impl FirstLogin {
    /// Logs in and out again.
    ///
    /// # Errors
    /// When the server can't be reached, refuses the login, or does not answer in time.
    pub(crate) fn run(self) -> Result<(), Box<FirstLoginError>> {
        let place = Endpoint::of(&self.host, self.port).to_string();
        let (user, database) = (
            self.credentials.user.clone(),
            self.credentials.database.clone(),
        );
        let (source, patience) = (self.password_source.clone(), self.patience);
        let (done, outcome) = mpsc::channel();
        // The look-up of the host can't be interrupted: after a timeout, the thread goes on until the process ends.
        let login = thread::Builder::new().name("first login".to_owned());
        let started = login.spawn(move || drop(done.send(self.attempt())));
        let outcome = match started {
            Ok(_) => outcome
                .recv_timeout(patience)
                .unwrap_or(Err(Cause::Silent(patience.as_secs()))),
            Err(error) => Err(Cause::Reach(error)),
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

    fn attempt(self) -> Result<(), Cause> {
        let stream = reach::connect(&self.host, self.port, self.patience).map_err(Cause::Reach)?;
        let endpoint = Arc::new(Endpoint::of(&self.host, self.port));
        let names = TrackedNames::new(&[]);
        let mut talk = Talk {
            stream,
            tls: None,
            login: ServerLogin::new(self.credentials, &names),
            names,
            out: Vec::new(),
        };
        let asks_for_tls = match *endpoint {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp { .. } => self.tls.terms().servers,
        };
        match asks_for_tls {
            None => talk.login.start(rand::random(), &mut talk.out),
            Some(terms) if terms.direct => {
                talk.login.await_tls(rand::random());
                talk.handshake(&endpoint, &self.tls)?;
            }
            Some(terms) => {
                talk.login
                    .ask_for_tls(rand::random(), terms.required, &mut talk.out);
                talk.send()?;
                let mut answer = [0];
                // Reads only one byte: further bytes before TLS would not be encrypted.
                talk.stream.read_exact(&mut answer).map_err(lost)?;
                talk.login.push(&answer);
                if talk.login.tls_answer(&mut talk.out)? == TlsAnswer::Yes {
                    talk.handshake(&endpoint, &self.tls)?;
                }
            }
        }
        talk.log_in()?;
        if self.needs_channel_binding && !talk.login.is_bound() {
            return Err(Cause::NotBound);
        }
        // The login has succeeded. Whether the server receives the last message does not matter.
        talk.out.extend_from_slice(TERMINATE);
        let _ = talk.send();
        Ok(())
    }
}

/// A login in progress.
struct Talk {
    stream: Stream,
    tls: Option<TlsSession>,
    login: ServerLogin,
    names: TrackedNames,
    /// Bytes to be sent, before encryption.
    out: Vec<u8>,
}

impl Talk {
    fn handshake(&mut self, endpoint: &Arc<Endpoint>, contexts: &Contexts) -> Result<(), Cause> {
        let role = TlsRole::Connect {
            endpoint: Arc::clone(endpoint),
        };
        let tls = self.tls.insert(TlsSession::new(role, contexts)?);
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        tls.receive(&mut [], &mut plain, &mut out)?;
        self.stream.write_all(&out).map_err(lost)?;
        while self.tls.as_ref().is_some_and(|tls| !tls.is_established()) {
            plain.extend_from_slice(&self.read()?);
        }
        if let Some(tls) = &self.tls {
            self.login.secured(&tls.facts(), &mut self.out)?;
        }
        self.login.push(&plain);
        Ok(())
    }

    fn log_in(&mut self) -> Result<(), Cause> {
        loop {
            self.send()?;
            while let Some(progress) = self.login.step(&self.names, &mut self.out)? {
                match progress {
                    Progress::Derive(job) => self.login.derived(&job.run(), &mut self.out)?,
                    Progress::Ready { .. } => return Ok(()),
                    Progress::Wait | Progress::Send | Progress::QueryFailed(_) => {}
                }
            }
            self.send()?;
            let bytes = self.read()?;
            self.login.push(&bytes);
        }
    }

    /// Waits for the server's next bytes, decrypted.
    fn read(&mut self) -> Result<Vec<u8>, Cause> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let kept = self
            .tls
            .as_mut()
            .map_or(0, |tls| tls.put_partial(&mut buffer));
        let count = self.stream.read(&mut buffer[kept..]).map_err(lost)?;
        if count == 0 {
            return Err(Cause::Closed);
        }
        buffer.truncate(kept + count);
        let Some(tls) = &mut self.tls else {
            return Ok(buffer);
        };
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let outcome = tls.receive(&mut buffer, &mut plain, &mut out);
        // After a failure, `out` has the alert for the server. An error of the write matters only without another one.
        let sent = self.stream.write_all(&out);
        outcome?;
        sent.map_err(lost)?;
        Ok(plain)
    }

    fn send(&mut self) -> Result<(), Cause> {
        if self.out.is_empty() {
            return Ok(());
        }
        let plain = std::mem::take(&mut self.out);
        let sent = match &mut self.tls {
            None => self.stream.write_all(&plain),
            Some(tls) => {
                let mut sealed = Vec::new();
                tls.seal(&plain, &mut sealed)?;
                self.stream.write_all(&sealed)
            }
        };
        sent.map_err(lost)
    }
}

fn lost(error: io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Cause::Closed,
        _ => Cause::Lost(error),
    }
}

/// Returns advice after a colon, or nothing.
fn remedy(cause: &Cause, password_source: &str) -> String {
    let what = match cause {
        Cause::Reach(error) => reach::hint(error),
        Cause::Silent(_) => {
            "is it PostgreSQL that listens there, and is there a firewall in between?"
        }
        Cause::Login(LoginError::Refused(words)) => match words.code.as_str() {
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
        Cause::Login(LoginError::Tls("server refused SSL")) => {
            "the URL's sslmode demands TLS, which the server does not support"
        }
        Cause::Login(_) | Cause::Lost(_) | Cause::Closed => "is it PostgreSQL that listens there?",
        Cause::Handshake(_) => {
            "set sslrootcert=FILE to the certificate of the server's authority (sslmode=require needs none)"
        }
        Cause::NotBound => "the server must support TLS and SCRAM-SHA-256-PLUS",
    };
    format!(": {what}")
}
