//! An open connection.

use crate::{
    RecordError, Role, Saved, Version,
    direction::{Additional, Direction, EXPLICIT, NONCE, TAG},
    message::{self, ALERT, APPLICATION_DATA, Alert, HANDSHAKE, KEYS_UPDATED, Request},
};

/// The bytes before a record's content.
const HEADER: usize = 5;
/// The longest plaintext of a record.
const PLAIN_MAX: usize = 1 << 14;
/// The bytes that encryption may add in TLS 1.2 and in TLS 1.3.
const EXPANSION: [usize; 2] = [2048, 256];
/// The alert close_notify, a warning.
const CLOSE: [u8; 2] = [1, 0];
/// The level of alerts that end a connection.
const FATAL: u8 = 2;

/// An open connection without its socket.
#[derive(Debug)]
pub struct Records {
    version: Version,
    role: Role,
    read: Direction,
    write: Direction,
    /// The beginning of a message of the handshake whose rest has not arrived.
    handshake: Vec<u8>,
    has_closed: bool,
}

/// The result of [`Records::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// The bytes of whole records that were processed.
    pub consumed: usize,
    /// Whether the other side will send nothing more.
    pub has_ended: bool,
}

impl Records {
    /// Creates a connection from its keys and the beginning of a message.
    #[must_use]
    pub fn new(
        version: Version,
        role: Role,
        read: Direction,
        write: Direction,
        handshake: Vec<u8>,
    ) -> Self {
        Self {
            version,
            role,
            read,
            write,
            handshake,
            has_closed: false,
        }
    }

    /// Returns the state for another process. This process must neither send nor receive any more.
    #[must_use]
    pub fn save(self) -> Saved {
        Saved {
            version: self.version,
            role: self.role,
            suite: self.read.suite(),
            read: self.read.keys().clone(),
            write: self.write.keys().clone(),
            handshake: self.handshake,
            partial: Vec::new(),
            plain: Vec::new(),
            has_ended: false,
        }
    }

    /// Decrypts the whole records at the beginning of `bytes`. Appends their plaintext to `plain`, and the bytes to be
    /// sent to `out`.
    ///
    /// # Errors
    ///
    /// The connection can't go on; `out` has the alert.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Opened, RecordError> {
        let mut opened = Opened::default();
        let outcome = self.open_all(bytes, plain, &mut opened);
        let outcome = outcome.and_then(|wants_keys| match wants_keys && !opened.has_ended {
            true => self.send_new_keys(out),
            false => Ok(()),
        });
        if let Err(error) = outcome {
            self.fail(error, out);
            return Err(error);
        }
        Ok(opened)
    }

    /// Returns whether the other side asks for new keys.
    fn open_all(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        opened: &mut Opened,
    ) -> Result<bool, RecordError> {
        let mut wants_keys = false;
        while !opened.has_ended
            && let Some((kind, range)) = self.next_record(&bytes[opened.consumed..])?
        {
            let record = &mut bytes[opened.consumed..][range.clone()];
            opened.consumed += range.end;
            let (kind, content) = self.decrypt(kind, record)?;
            match kind {
                // A message of the handshake must not be interrupted.
                HANDSHAKE if content.is_empty() => return Err(RecordError::Unexpected),
                HANDSHAKE => {
                    self.handshake.extend_from_slice(content);
                    wants_keys |= self.take_messages()?;
                }
                _ if !self.handshake.is_empty() => return Err(RecordError::Unexpected),
                APPLICATION_DATA => plain.extend_from_slice(content),
                ALERT => match message::alert(content, self.version)? {
                    Alert::Close => opened.has_ended = true,
                    Alert::Ignore => {}
                },
                _ => return Err(RecordError::Unexpected),
            }
        }
        Ok(wants_keys)
    }

    /// Finds the first record: its kind, and the place of its content. Returns `None` if the rest has not arrived.
    fn next_record(
        &self,
        bytes: &[u8],
    ) -> Result<Option<(u8, std::ops::Range<usize>)>, RecordError> {
        let Some(&[kind, major, _, a, b]) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let is_known = match self.version {
            Version::Tls12 => matches!(kind, ALERT | HANDSHAKE | APPLICATION_DATA),
            Version::Tls13 => kind == APPLICATION_DATA,
        };
        if !is_known || major != 3 {
            return Err(RecordError::Unexpected);
        }
        let len = usize::from(u16::from_be_bytes([a, b]));
        if len > PLAIN_MAX + EXPANSION[usize::from(self.version == Version::Tls13)] {
            return Err(RecordError::TooLong);
        }
        let end = HEADER + len;
        Ok((bytes.len() >= end).then_some((kind, HEADER..end)))
    }

    /// Decrypts a record in place. Returns its kind and its content.
    fn decrypt<'b>(
        &mut self,
        kind: u8,
        record: &'b mut [u8],
    ) -> Result<(u8, &'b [u8]), RecordError> {
        let (explicit, sealed) = match self.read.suite().has_explicit_nonce(self.version) {
            false => (None, record),
            true => {
                let split = record.split_first_chunk_mut::<EXPLICIT>();
                let (explicit, sealed) = split.ok_or(RecordError::BadRecord)?;
                (Some(*explicit), sealed)
            }
        };
        let len = sealed.len();
        let plain_len = len.checked_sub(TAG).ok_or(RecordError::BadRecord)?;
        let version = self.version;
        let additional = |number| match version {
            Version::Tls12 => Additional::tls12(number, kind, plain_len),
            Version::Tls13 => Additional::tls13(len),
        };
        let opened = self.read.open(additional, explicit, sealed)?;
        let plain = &sealed[..opened];
        let (kind, content) = match version {
            Version::Tls12 => (kind, plain),
            // The kind is the last byte that is not zero.
            Version::Tls13 => {
                let at = plain.iter().rposition(|&byte| byte != 0);
                let at = at.ok_or(RecordError::Unexpected)?;
                (plain[at], &plain[..at])
            }
        };
        match content.len() > PLAIN_MAX {
            true => Err(RecordError::TooLong),
            false => Ok((kind, content)),
        }
    }

    /// Handles the whole messages of the handshake. Returns whether the other side asks for new keys.
    fn take_messages(&mut self) -> Result<bool, RecordError> {
        let mut wants_keys = false;
        while let Some(request) = message::next(&mut self.handshake, self.version, self.role)? {
            if let Request::NewKeys(asks) = request {
                self.read.update()?;
                wants_keys |= asks;
            }
        }
        Ok(wants_keys)
    }

    fn send_new_keys(&mut self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        if self.has_closed {
            return Ok(());
        }
        self.seal_one(HANDSHAKE, &KEYS_UPDATED, out)?;
        self.write.update()
    }

    /// Appends `plain`, encrypted, to `out`.
    ///
    /// # Errors
    /// Nothing more can be sent.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        if self.has_closed {
            return Err(RecordError::Closed);
        }
        for piece in plain.chunks(PLAIN_MAX) {
            if self.write.is_used_up() {
                match self.version {
                    Version::Tls12 => return Err(RecordError::KeysUsedUp),
                    Version::Tls13 => self.send_new_keys(out)?,
                }
            }
            self.seal_one(APPLICATION_DATA, piece, out)?;
        }
        Ok(())
    }

    /// Appends one record of any kind, as only a peer's TLS makes it. For tests.
    ///
    /// # Errors
    ///
    /// Nothing more can be sent.
    pub fn seal_kind(
        &mut self,
        kind: u8,
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        self.seal_one(kind, content, out)
    }

    /// Appends `close_notify` to `out`, if this side has not closed before.
    ///
    /// # Errors
    /// Nothing more can be sent.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        match std::mem::replace(&mut self.has_closed, true) {
            true => Ok(()),
            false => self.seal_one(ALERT, &CLOSE, out),
        }
    }

    fn fail(&mut self, error: RecordError, out: &mut Vec<u8>) {
        if let (Some(alert), false) = (error.alert(), self.has_closed) {
            // The connection has failed already; without an alert, the other side notices the end of the connection.
            let _ = self.seal_one(ALERT, &[FATAL, alert], out);
        }
        self.has_closed = true;
    }

    fn seal_one(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let nonce = self.write.take_nonce()?;
        let explicit = self.write.suite().has_explicit_nonce(self.version);
        let is_13 = self.version == Version::Tls13;
        let len = plain.len() + usize::from(is_13) + TAG + if explicit { EXPLICIT } else { 0 };
        let outer = if is_13 { APPLICATION_DATA } else { kind };
        out.reserve(HEADER + len);
        out.extend_from_slice(&[outer, 3, 3]);
        out.extend_from_slice(&(len as u16).to_be_bytes());
        if explicit {
            out.extend_from_slice(&nonce[NONCE - EXPLICIT..]);
        }
        let start = out.len();
        out.extend_from_slice(plain);
        if is_13 {
            out.push(kind);
        }
        let additional = |number| match is_13 {
            true => Additional::tls13(len),
            false => Additional::tls12(number, kind, plain.len()),
        };
        let tag = self.write.seal(additional, nonce, &mut out[start..])?;
        out.extend_from_slice(&tag);
        Ok(())
    }
}
