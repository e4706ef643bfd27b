//! One encrypted connection without its socket: bytes in, bytes out.

use std::{mem, sync::Arc};

use pgweir_core::{Endpoint, TlsFacts, TlsRole, takeover::TlsState};
use pgweir_formats::certificate;
use pgweir_records::{RecordError, Records, Role, Saved};
use rustls::{
    AlertDescription, CertificateError, Error,
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus},
};

use super::{
    context::{ALPN, Accept, Contexts},
    handover::{TrafficSecrets, caught_secrets, forget_secrets, save_rustls},
    names::{cipher_name, group_name, protocol_name},
};

/// An upper bound of the bytes that encryption adds to a record.
const RECORD_OVERHEAD: usize = 64;
/// The largest number of states before a connection accepts data: alerts and keys are sent first.
const STATES_MAX: usize = 8;
/// The estimated bytes that the TLS library keeps of a connection.
const SESSION_COST: usize = 8 * 1024;
/// The largest plaintext of a record, in bytes.
const RECORD_BYTES: usize = 16_384;

/// The reason why a connection can't go on, in OpenSSL's words where operators know them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SessionError(String);

/// One encrypted connection.
pub(crate) struct TlsSession {
    side: Side,
    /// The first secrets of a TLS 1.3 connection, by which another process can go on when keys are updated.
    secrets: Option<Box<TrafficSecrets>>,
    /// The beginning of a record whose rest has not arrived.
    partial: Vec<u8>,
    /// Plaintext that was decrypted before the core wanted it.
    plain: Vec<u8>,
    /// Whether the handshake is complete.
    established: bool,
    /// Whether the peer will send nothing more.
    ended: bool,
    /// Whether nothing more can be sent.
    failed: bool,
    /// Whether there is work that no further byte of the peer will trigger.
    pub(crate) is_due: bool,
}

enum Side {
    /// A connection whose handshake this process has made.
    Own(Own),
    /// A connection that another process has handed over.
    TakenOver(Box<Records>),
}

enum Own {
    Accept(Box<UnbufferedServerConnection>, Arc<Accept>),
    Connect(Box<UnbufferedClientConnection>),
}

/// The result of one step.
enum Turn {
    /// There may be more to do.
    More,
    /// Nothing more can be done before further bytes of the peer arrive.
    Blocked,
    /// The peer has closed.
    Ended,
}

/// Runs the same code for the connection of either side.
macro_rules! on_side {
    ($side:expr, $connection:ident => $what:expr) => {
        match $side {
            Own::Accept($connection, _) => $what,
            Own::Connect($connection) => $what,
        }
    };
}

impl TlsSession {
    /// Returns the estimated bytes of memory that the session takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + SESSION_COST + self.partial.capacity() + self.plain.capacity()
    }

    /// Creates a session whose handshake has not begun.
    ///
    /// # Errors
    /// When there is no TLS configuration.
    pub(crate) fn new(role: TlsRole, contexts: &Contexts) -> Result<Self, SessionError> {
        let (side, partial) = match role {
            TlsRole::Accept { early } => {
                let context = contexts.accept().ok_or_else(switched_off)?;
                let connection = UnbufferedServerConnection::new(Arc::clone(&context.config));
                let connection = connection.map_err(|error| of_rustls(&error))?;
                (
                    Own::Accept(Box::new(connection), Arc::clone(context)),
                    early,
                )
            }
            TlsRole::Connect { endpoint } => {
                let context = contexts.connect().ok_or_else(switched_off)?;
                let config = context
                    .config
                    .as_ref()
                    .map_err(|why| SessionError((*why).to_owned()))?;
                let connection =
                    UnbufferedClientConnection::new(Arc::clone(config), name_of(&endpoint)?);
                let connection = connection.map_err(|error| of_rustls(&error))?;
                (Own::Connect(Box::new(connection)), Vec::new())
            }
        };
        Ok(Self {
            side: Side::Own(side),
            secrets: None,
            partial,
            plain: Vec::new(),
            established: false,
            ended: false,
            failed: false,
            is_due: true,
        })
    }

    /// Returns whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    /// Returns whether the peer announced that it will send nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether there is something to report that no further byte of the peer will trigger.
    pub(crate) fn has_input(&self) -> bool {
        self.is_due || self.ended || !self.plain.is_empty()
    }

    /// Records that the peer's socket has ended.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns plaintext that was decrypted before the core wanted it.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.plain
    }

    /// Takes that plaintext.
    pub(crate) fn take_waiting(&mut self) -> Vec<u8> {
        mem::take(&mut self.plain)
    }

    /// Keeps plaintext until the core wants it.
    pub(crate) fn keep(&mut self, plain: &[u8]) {
        self.plain.extend_from_slice(plain);
    }

    /// Copies the beginning of a record to the start of `buffer`, before the next read. Returns its length.
    pub(crate) fn put_partial(&mut self, buffer: &mut [u8]) -> usize {
        let kept = self.partial.len();
        buffer[..kept].copy_from_slice(&self.partial);
        self.partial = Vec::new();
        kept
    }

    /// Restores the beginning of a record after nothing was read.
    pub(crate) fn restore_partial(&mut self, partial: &[u8]) {
        self.partial = partial.to_vec();
    }

    /// Processes bytes of the peer. Appends plaintext to `plain`, and bytes to be sent to `out`, even after a failure,
    /// as the peer gets an alert with the reason.
    ///
    /// # Errors
    /// When nothing more can be read from the connection.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), SessionError> {
        self.is_due = false;
        let side = match &mut self.side {
            Side::Own(side) => side,
            Side::TakenOver(records) => {
                let opened = records.open(bytes, plain, out).map_err(|error| {
                    self.failed = true;
                    of_records(error)
                })?;
                self.ended |= opened.has_ended;
                if !self.ended {
                    self.partial.extend_from_slice(&bytes[opened.consumed..]);
                }
                return Ok(());
            }
        };
        if !self.established {
            forget_secrets();
        }
        let mut at = 0;
        let outcome = loop {
            let turn = on_side!(side, connection => {
                turn(connection.process_tls_records(&mut bytes[at..]), &mut at, plain, out)
            });
            match turn {
                Ok(Turn::More) => {}
                Ok(Turn::Ended) => self.ended = true,
                Ok(Turn::Blocked) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !self.established
            && let Some(secrets) = caught_secrets()
        {
            self.secrets = Some(Box::new(secrets));
        }
        if let Err(error) = outcome {
            self.failed = true;
            append_alert(side, &mut bytes[at..], out);
            return Err(of_rustls(&error));
        }
        if !self.ended {
            self.partial.extend_from_slice(&bytes[at..]);
        }
        self.established = !on_side!(side, connection => connection.is_handshaking());
        Ok(())
    }

    /// Appends `plain`, encrypted, to `out`.
    ///
    /// # Errors
    /// When the connection can't send (any more).
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        if let Side::TakenOver(records) = &mut self.side {
            return records.seal(plain, out).map_err(|error| {
                self.failed = true;
                of_records(error)
            });
        }
        self.write(out, |sealer, room| sealer.encrypt(plain, room), plain.len())
    }

    /// Appends `close_notify`, if it can be sent.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        if self.established && !self.failed && !self.ended {
            // A peer that can't receive the message misses nothing.
            if let Side::TakenOver(records) = &mut self.side {
                let _ = records.close(out);
                return;
            }
            let _ = self.write(out, |sealer, room| sealer.close(room), 0);
        }
    }

    fn write(
        &mut self,
        out: &mut Vec<u8>,
        encrypt: impl Fn(&mut dyn Seal, &mut [u8]) -> Result<usize, EncryptError>,
        length: usize,
    ) -> Result<(), SessionError> {
        if self.failed {
            return Err(SessionError("the connection has failed before".to_owned()));
        }
        let Side::Own(side) = &mut self.side else {
            return Err(SessionError(
                "the connection came from another process".to_owned(),
            ));
        };
        let partial = &mut self.partial;
        for _ in 0..STATES_MAX {
            let mut at = 0;
            let done = on_side!(&mut *side, connection => {
                let status = connection.process_tls_records(&mut partial[..]);
                match status.state {
                    Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                        Some(sealed(out, length, |room| encrypt(&mut traffic, room)))
                    }
                    other => {
                        let status = UnbufferedStatus { discard: status.discard, state: other };
                        let mut plain = Vec::new();
                        let turn = turn(status, &mut at, &mut plain, out);
                        self.plain.extend_from_slice(&plain);
                        match turn {
                            Ok(Turn::Blocked) => Some(Err(EncryptError::EncryptExhausted)),
                            Ok(_) => None,
                            Err(_) => Some(Err(EncryptError::EncryptExhausted)),
                        }
                    }
                }
            });
            partial.drain(..at);
            match done {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => {
                    self.failed = true;
                    return Err(SessionError(error.to_string()));
                }
                None => {}
            }
        }
        self.failed = true;
        Err(SessionError("the connection accepts no data".to_owned()))
    }

    /// Returns the properties of the connection that the handshake has shown; `None` if another process has made it.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        let Side::Own(side) = &self.side else {
            return None;
        };
        Some(on_side!(side, connection => {
            let peer = connection.peer_certificates().and_then(|chain| chain.first());
            let end_point = match side {
                Own::Accept(_, context) => context.end_point.clone(),
                Own::Connect(_) => peer.and_then(|peer| certificate::end_point(peer)),
            };
            let group = connection.negotiated_key_exchange_group();
            TlsFacts {
                protocol: protocol_name(connection.protocol_version()).into(),
                cipher: cipher_name(connection.negotiated_cipher_suite().map(|suite| suite.suite())).into(),
                group: group.and_then(|group| group_name(group.name())).map(Into::into),
                peer: peer.and_then(|peer| certificate::peer(peer)).map(Box::new),
                end_point,
                is_agreed: connection.alpn_protocol() == Some(ALPN),
            }
        }))
    }

    /// Ends the session in this process, and returns its state for another one.
    ///
    /// # Errors
    /// The connection can't go on.
    pub(crate) fn save(self) -> Result<TlsState, SessionError> {
        if !self.established || self.failed {
            return Err(SessionError("the connection is not open".to_owned()));
        }
        let secrets = self.secrets.as_deref();
        let saved = match self.side {
            Side::TakenOver(records) => Ok(records.save()),
            Side::Own(Own::Accept(connection, _)) => {
                let version = connection.protocol_version();
                let extracted = connection.dangerous_into_kernel_connection();
                extracted.and_then(|(keys, _)| save_rustls(Role::Server, version, keys, secrets))
            }
            Side::Own(Own::Connect(connection)) => {
                let version = connection.protocol_version();
                let extracted = connection.dangerous_into_kernel_connection();
                extracted.and_then(|(keys, _)| save_rustls(Role::Client, version, keys, secrets))
            }
        };
        let saved = Saved {
            partial: self.partial,
            plain: self.plain,
            has_ended: self.ended,
            ..saved.map_err(|error| of_rustls(&error))?
        };
        Ok(TlsState(saved.to_bytes()))
    }

    /// Continues a session that another process has saved.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    pub(crate) fn resume(state: &TlsState) -> Result<Self, SessionError> {
        let unreadable = |error: pgweir_records::BadState| SessionError(error.to_string());
        let mut saved = Saved::from_bytes(&state.0).map_err(unreadable)?;
        let (partial, plain) = (mem::take(&mut saved.partial), mem::take(&mut saved.plain));
        let ended = saved.has_ended;
        let records = saved.resume().map_err(unreadable)?;
        Ok(Self {
            side: Side::TakenOver(Box::new(records)),
            secrets: None,
            partial,
            plain,
            established: true,
            ended,
            failed: false,
            is_due: false,
        })
    }
}

/// Appends what is left to be sent after a failure, up to the alert with the reason. `bytes` are the bytes that could not be
/// parsed: the deframer remembers its position in them.
fn append_alert(side: &mut Own, bytes: &mut [u8], out: &mut Vec<u8>) {
    let (mut at, mut plain) = (0, Vec::new());
    loop {
        let start = out.len();
        let next = on_side!(&mut *side, connection => {
            turn(connection.process_tls_records(&mut bytes[at..]), &mut at, &mut plain, out)
        });
        // After the alert, rustls would parse the same bytes again, and fail again.
        if !matches!(next, Ok(Turn::More)) || is_alert(&out[start..]) {
            return;
        }
    }
}

/// Returns whether this is the record of an alert. TLS 1.3 hides the type of an encrypted record, but no other message of a
/// handshake is as short as an alert.
fn is_alert(record: &[u8]) -> bool {
    const ALERT: u8 = 21;
    const APPLICATION_DATA: u8 = 23;
    // The header, the alert, its type, and the tag of the cipher.
    const ENCRYPTED_LEN: usize = 5 + 2 + 1 + 16;
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == ENCRYPTED_LEN,
        _ => false,
    }
}

/// Handles one state of a connection.
fn turn<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    at: &mut usize,
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Turn, Error> {
    *at += status.discard;
    Ok(match status.state? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                *at += record.discard;
                plain.extend_from_slice(record.payload);
            }
            Turn::More
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let start = out.len();
            if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
                out.resize(start + needs.required_size, 0);
                let written = data.encode(&mut out[start..]).unwrap_or(0);
                out.truncate(start + written);
            }
            Turn::More
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Turn::More
        }
        ConnectionState::PeerClosed => Turn::Ended,
        ConnectionState::WriteTraffic(_)
        | ConnectionState::BlockedHandshake
        | ConnectionState::Closed => Turn::Blocked,
        // Early data is not allowed, and pgweir does not request other, future states.
        _ => return Err(Error::General("unexpected state".to_owned())),
    })
}

/// Writes into an open connection of either side.
trait Seal {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError>;
    fn close(&mut self, room: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<Data> Seal for rustls::unbuffered::WriteTraffic<'_, Data> {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError> {
        rustls::unbuffered::WriteTraffic::encrypt(self, plain, room)
    }

    fn close(&mut self, room: &mut [u8]) -> Result<usize, EncryptError> {
        self.queue_close_notify(room)
    }
}

/// Appends the output of `encrypt` for this amount of plaintext.
fn sealed(
    out: &mut Vec<u8>,
    length: usize,
    mut encrypt: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), EncryptError> {
    let start = out.len();
    let mut room = length + (length / RECORD_BYTES + 1) * RECORD_OVERHEAD;
    loop {
        out.resize(start + room, 0);
        match encrypt(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size;
            }
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        }
    }
}

/// Returns the name that a server's certificate should have. Unless it is an address, the name is also sent to the
/// server.
fn name_of(endpoint: &Endpoint) -> Result<ServerName<'static>, SessionError> {
    match endpoint {
        Endpoint::Tcp { host, .. } => ServerName::try_from(host.clone())
            .map_err(|_| SessionError(format!("\"{host}\" can't be in a certificate"))),
        Endpoint::Unix(_) => Err(SessionError("a Unix socket needs no TLS".to_owned())),
    }
}

fn switched_off() -> SessionError {
    SessionError("RELOAD has disabled TLS meanwhile".to_owned())
}

fn of_records(error: RecordError) -> SessionError {
    SessionError(match error {
        RecordError::Alert(number) => {
            let alert = AlertDescription::from(number);
            format!("the other side says: {}", alert_name(alert))
        }
        other => other.to_string(),
    })
}

fn of_rustls(error: &Error) -> SessionError {
    SessionError(match error {
        Error::InvalidCertificate(why) => format!("certificate verify failed: {}", reason(why)),
        Error::AlertReceived(alert) => format!("the other side says: {}", alert_name(*alert)),
        Error::NoCertificatesPresented => "peer did not return a certificate".to_owned(),
        Error::PeerIncompatible(why) => format!("no common TLS parameters: {why:?}"),
        Error::NoApplicationProtocol => "no application protocol in common (ALPN)".to_owned(),
        other => other.to_string(),
    })
}

fn reason(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "unable to get local issuer certificate".to_owned(),
        CertificateError::Revoked => "certificate revoked".to_owned(),
        CertificateError::UnknownRevocationStatus => "unable to get certificate CRL".to_owned(),
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => "CRL has expired".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid".to_owned()
        }
        CertificateError::BadSignature => "certificate signature failure".to_owned(),
        CertificateError::InvalidPurpose => "unsuitable certificate purpose".to_owned(),
        CertificateError::Other(other) => other.0.to_string(),
        other => format!("{other:?}"),
    }
}

fn alert_name(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => "unknown ca".to_owned(),
        AlertDescription::CertificateRequired => "certificate required".to_owned(),
        AlertDescription::BadCertificate => "bad certificate".to_owned(),
        AlertDescription::CertificateExpired => "certificate expired".to_owned(),
        AlertDescription::HandshakeFailure => "handshake failure".to_owned(),
        AlertDescription::ProtocolVersion => "protocol version".to_owned(),
        AlertDescription::NoApplicationProtocol => "no application protocol".to_owned(),
        other => format!("{other:?}"),
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSession")
            .field("established", &self.established)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
