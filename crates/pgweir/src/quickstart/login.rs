//! The first login: shows that a URL leads to a database before clients are let in.

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

/// The most bytes that are read at once, what was kept of a TLS record included.
const BUFFER_BYTES: usize = 64 * 1024;
/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A login to be tried once.
#[derive(Debug)]
pub(crate) struct FirstLogin {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) credentials: Credentials,
    pub(super) tls: Contexts,
    /// `channel_binding=require`.
    pub(super) needs_channel_binding: bool,
    /// For all of it: names, connection and login.
    pub(super) patience: Duration,
    /// Where the password comes from.
    pub(super) password_source: String,
}

/// Why the first login failed.
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

/// The first login failed: the server's words, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("cannot log in to {place} as user \"{user}\", database \"{database}\": {cause}{remedy}")]
pub(crate) struct FirstLoginError {
    place: String,
    user: String,
    database: String,
    cause: Cause,
    /// Begins with a colon, if there is one.
    remedy: String,
}

impl FirstLogin {
    /// Logs in, and out again.
    ///
    /// # Errors
    /// The server can't be reached, refuses the login, or does not answer in time.
    pub(crate) fn run(self) -> Result<(), Box<FirstLoginError>> {
        let place = Endpoint::of(&self.host, self.port).to_string();
        let (user, database) = (
            self.credentials.user.clone(),
            self.credentials.database.clone(),
        );
        let (source, patience) = (self.password_source.clone(), self.patience);
        let (done, outcome) = mpsc::channel();
        // A name server may take longer than we have patience: the thread ends with the process then.
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
                // One byte: whatever else comes before TLS would not be encrypted.
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
        // It was let in: how it leaves is nobody's concern.
        talk.out.extend_from_slice(TERMINATE);
        let _ = talk.send();
        Ok(())
    }
}

/// A login under way.
struct Talk {
    stream: Stream,
    tls: Option<TlsSession>,
    login: ServerLogin,
    names: TrackedNames,
    /// What is to be sent, not encrypted.
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
        // Also if it failed: the server is told why. That it may be gone is no news then.
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

/// What to do about it, after a colon.
fn remedy(cause: &Cause, password_source: &str) -> String {
    let what = match cause {
        Cause::Reach(error) => reach::hint(error),
        Cause::Silent(_) => {
            "is it PostgreSQL that listens there, and is there a firewall in between?"
        }
        Cause::Login(LoginError::Refused(words)) => match words.code.as_str() {
            "28P01" => return format!(": the password is that of {password_source}"),
            "28000" if words.message.contains("no encryption") => {
                "the server wants TLS: add sslmode=require to the URL"
            }
            "28000" => "pg_hba.conf on the server and the role's LOGIN say who may log in",
            "3D000" => "name a database in the URL that exists (psql -l lists them)",
            "53300" => {
                "the server has no connection to spare: end some, or raise its max_connections"
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
            "the server speaks no TLS, which the URL's sslmode demands"
        }
        Cause::Login(_) | Cause::Lost(_) | Cause::Closed => "is it PostgreSQL that listens there?",
        Cause::Handshake(_) => {
            "sslrootcert=FILE names the authority that vouches for the server (sslmode=require asks for none)"
        }
        Cause::NotBound => "the server has to offer TLS and SCRAM-SHA-256-PLUS",
    };
    format!(": {what}")
}
