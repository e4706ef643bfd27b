//! The state of a connection on its way to another process.

use std::fmt;

use zeroize::Zeroizing;

use crate::{Direction, Keys, Records, Role, Suite, Version, direction::NONCE};

/// The largest number of bytes of a field: plaintext that was decrypted before the core wanted it.
const FIELD_MAX: usize = 1 << 24;

/// The state of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Saved {
    /// The version of TLS.
    pub version: Version,
    /// This side's role in the handshake.
    pub role: Role,
    /// The cipher.
    pub suite: Suite,
    /// The keys for receiving.
    pub read: Keys,
    /// The keys for sending.
    pub write: Keys,
    /// The beginning of a message of the handshake.
    pub handshake: Vec<u8>,
    /// The beginning of a record.
    pub partial: Vec<u8>,
    /// Plaintext that was decrypted and not used yet.
    pub plain: Vec<u8>,
    /// Whether the other side will send nothing more.
    pub has_ended: bool,
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The plaintext may be secret, too.
        f.debug_struct("Saved")
            .field("version", &self.version)
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

/// The bytes are not a state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadState;

impl fmt::Display for BadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the state of a TLS connection can't be read")
    }
}

impl std::error::Error for BadState {}

impl Saved {
    /// Creates the connection of this state. Before that, the caller takes `partial`, `plain` and `has_ended` out.
    ///
    /// # Errors
    ///
    /// A key does not fit the cipher.
    pub fn resume(self) -> Result<Records, BadState> {
        let read = Direction::new(self.suite, self.read).ok_or(BadState)?;
        let write = Direction::new(self.suite, self.write).ok_or(BadState)?;
        Ok(Records::new(
            self.version,
            self.role,
            read,
            write,
            self.handshake,
        ))
    }

    /// Returns the state as bytes, for a process of the same version.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let kept = self.handshake.len() + self.partial.len() + self.plain.len();
        // The buffer is large enough from the beginning: a vector that grows leaves copies of its bytes behind.
        let mut to = Zeroizing::new(Vec::with_capacity(kept + 512));
        to.extend_from_slice(&[
            u8::from(self.version == Version::Tls13),
            u8::from(self.role == Role::Client),
            match self.suite {
                Suite::Aes128Gcm => 0,
                Suite::Aes256Gcm => 1,
                Suite::ChaCha20Poly1305 => 2,
            },
            u8::from(self.has_ended),
        ]);
        for keys in [&self.read, &self.write] {
            to.extend_from_slice(&keys.sequence.to_be_bytes());
            to.extend_from_slice(&keys.iv);
            put(&mut to, &keys.key);
            put(&mut to, keys.secret.as_ref().map_or(&[], |secret| secret));
        }
        for field in [&self.handshake, &self.partial, &self.plain] {
            put(&mut to, field);
        }
        to
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    ///
    /// The bytes are not a state.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadState> {
        let mut from = Reader(bytes);
        let [is_13, is_client, suite, has_ended] = from.array()?;
        let saved = Self {
            version: match flag(is_13)? {
                true => Version::Tls13,
                false => Version::Tls12,
            },
            role: match flag(is_client)? {
                true => Role::Client,
                false => Role::Server,
            },
            suite: match suite {
                0 => Suite::Aes128Gcm,
                1 => Suite::Aes256Gcm,
                2 => Suite::ChaCha20Poly1305,
                _ => return Err(BadState),
            },
            has_ended: flag(has_ended)?,
            read: from.keys()?,
            write: from.keys()?,
            handshake: from.field()?.to_vec(),
            partial: from.field()?.to_vec(),
            plain: from.field()?.to_vec(),
        };
        match from.0.is_empty() {
            true => Ok(saved),
            false => Err(BadState),
        }
    }
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    to.extend_from_slice(bytes);
}

fn flag(byte: u8) -> Result<bool, BadState> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(BadState),
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadState> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(BadState)?;
        self.0 = rest;
        Ok(*array)
    }

    fn field(&mut self) -> Result<&'b [u8], BadState> {
        let len = u32::from_be_bytes(self.array()?) as usize;
        if len > FIELD_MAX {
            return Err(BadState);
        }
        let (field, rest) = self.0.split_at_checked(len).ok_or(BadState)?;
        self.0 = rest;
        Ok(field)
    }

    fn keys(&mut self) -> Result<Keys, BadState> {
        let sequence = u64::from_be_bytes(self.array()?);
        let iv: [u8; NONCE] = self.array()?;
        let key = Zeroizing::new(self.field()?.to_vec());
        let secret = self.field()?;
        Ok(Keys {
            key,
            iv,
            sequence,
            secret: (!secret.is_empty()).then(|| Zeroizing::new(secret.to_vec())),
        })
    }
}
