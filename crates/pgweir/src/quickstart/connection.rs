//! A blocking connection to a server or a console, with TLS and all methods of login.

use std::{
    io::{self, Read, Write},
    sync::Arc,
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

/// The address of a server, and the credentials for it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// A name, an address, or the folder of a Unix socket.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Contexts,
    /// `channel_binding=require`.
    pub(crate) needs_channel_binding: bool,
}

/// The reason why a connection could not be opened, or was lost.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The server can't be reached.
    #[error("{0}")]
    Reach(#[source] io::Error),
    /// The login failed.
    #[error("{0}")]
    Login(LoginError),
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Handshake(#[from] SessionError),
    /// The connection broke.
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server did not answer in time.
    #[error("the server did not answer within {0} seconds")]
    Silent(u64),
    /// The server did not answer a message in time.
    #[error("the server does not answer")]
    NoAnswer,
    /// The server does not support channel binding, which was demanded.
    #[error("the login is not bound to the TLS connection, as channel_binding=require asks for")]
    NotBound,
}

impl From<LoginError> for ConnectionError {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

/// A connection, blocking.
pub(crate) struct Connection {
    stream: Stream,
    tls: Option<TlsSession>,
    login: ServerLogin,
    names: TrackedNames,
    /// Bytes to be sent, before encryption.
    out: Vec<u8>,
}

impl Connection {
    /// Connects and logs in. Each wait for the server ends after `patience`, which holds for the whole connection.
    ///
    /// # Errors
    /// When the server can't be reached, refuses the login, or does not answer in time.
    pub(crate) fn open(target: Target, patience: Duration) -> Result<Self, ConnectionError> {
        let stream =
            reach::connect(&target.host, target.port, patience).map_err(ConnectionError::Reach)?;
        stream.limit(patience).map_err(ConnectionError::Reach)?;
        let names = TrackedNames::new(&[]);
        let mut connection = Self {
            stream,
            tls: None,
            login: ServerLogin::new(target.credentials, &names),
            names,
            out: Vec::new(),
        };
        connection.secure(
            &Arc::new(Endpoint::of(&target.host, target.port)),
            &target.tls,
        )?;
        connection.log_in()?;
        if target.needs_channel_binding && !connection.login.is_bound() {
            return Err(ConnectionError::NotBound);
        }
        Ok(connection)
    }

    /// Agrees with the server on TLS, and begins the login.
    fn secure(&mut self, endpoint: &Arc<Endpoint>, tls: &Contexts) -> Result<(), ConnectionError> {
        let asks_for_tls = match **endpoint {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp { .. } => tls.terms().servers,
        };
        match asks_for_tls {
            None => self.login.start(rand::random(), &mut self.out),
            Some(terms) if terms.direct => {
                self.login.await_tls(rand::random());
                self.handshake(endpoint, tls)?;
            }
            Some(terms) => {
                self.login
                    .ask_for_tls(rand::random(), terms.required, &mut self.out);
                self.flush()?;
                let mut answer = [0];
                // Reads only one byte: further bytes before TLS would not be encrypted.
                self.stream.read_exact(&mut answer).map_err(lost)?;
                self.login.push(&answer);
                if self.login.tls_answer(&mut self.out)? == TlsAnswer::Yes {
                    self.handshake(endpoint, tls)?;
                }
            }
        }
        Ok(())
    }

    /// Sends bytes to the server.
    ///
    /// # Errors
    /// When the connection is lost.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.out.extend_from_slice(bytes);
        self.flush()
    }

    fn handshake(
        &mut self,
        endpoint: &Arc<Endpoint>,
        contexts: &Contexts,
    ) -> Result<(), ConnectionError> {
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
        if let Some(facts) = self.tls.as_ref().and_then(TlsSession::facts) {
            self.login.secured(&facts, &mut self.out)?;
        }
        self.login.push(&plain);
        Ok(())
    }

    fn log_in(&mut self) -> Result<(), ConnectionError> {
        loop {
            self.flush()?;
            while let Some(progress) = self.login.step(&self.names, &mut self.out)? {
                match progress {
                    Progress::Derive(job) => self.login.derived(&job.run(), &mut self.out)?,
                    Progress::Ready { .. } => return Ok(()),
                    Progress::Wait | Progress::Send | Progress::QueryFailed(..) => {}
                }
            }
            self.flush()?;
            let bytes = self.read()?;
            self.login.push(&bytes);
        }
    }

    /// Waits for the server's next bytes, decrypted.
    ///
    /// # Errors
    /// When the connection is lost, or the server does not answer in time.
    pub(crate) fn read(&mut self) -> Result<Vec<u8>, ConnectionError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let kept = self
            .tls
            .as_mut()
            .map_or(0, |tls| tls.put_partial(&mut buffer));
        let count = self.stream.read(&mut buffer[kept..]).map_err(lost)?;
        if count == 0 {
            return Err(ConnectionError::Closed);
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

    fn flush(&mut self) -> Result<(), ConnectionError> {
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

fn lost(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ConnectionError::NoAnswer,
        io::ErrorKind::UnexpectedEof => ConnectionError::Closed,
        _ => ConnectionError::Lost(error),
    }
}
