//! The keys of one direction of a connection.

use std::fmt;

use aws_lc_rs::{
    aead::{
        self, AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
    },
    hkdf,
};
use zeroize::Zeroizing;

use crate::{RecordError, Version};

/// The bytes of a nonce.
pub(crate) const NONCE: usize = 12;
/// The bytes of the authentication tag.
pub(crate) const TAG: usize = 16;
/// The bytes of the nonce that each record of AES-GCM in TLS 1.2 contains.
pub(crate) const EXPLICIT: usize = 8;
/// The largest number of records that AES-GCM may protect with one key, as in rustls (RFC 8446, 5.5).
const GCM_RECORDS: u64 = 1 << 24;
/// The largest number of updates of keys that [`Direction::find`] tries.
const UPDATES_MAX: usize = 4096;

/// The cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// AES with 128 bits in Galois/counter mode.
    Aes128Gcm,
    /// AES with 256 bits in Galois/counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305,
}

impl Suite {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// Returns the hash by which TLS 1.3 derives keys.
    fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Self::Aes256Gcm => hkdf::HKDF_SHA384,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    /// Returns the bytes of a traffic secret.
    pub(crate) fn secret_len(self) -> usize {
        match self {
            Self::Aes256Gcm => 48,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns the bytes of a key.
    #[must_use]
    pub fn key_len(self) -> usize {
        self.algorithm().key_len()
    }

    /// Returns whether each record begins with a part of its nonce.
    pub(crate) fn has_explicit_nonce(self, version: Version) -> bool {
        version == Version::Tls12 && self != Self::ChaCha20Poly1305
    }

    fn records_max(self) -> u64 {
        match self {
            Self::ChaCha20Poly1305 => u64::MAX,
            Self::Aes128Gcm | Self::Aes256Gcm => GCM_RECORDS,
        }
    }
}

/// The keys of one direction as they are handed over.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The cipher's key.
    pub key: Zeroizing<Vec<u8>>,
    /// The part of the nonce that all records share.
    pub iv: [u8; NONCE],
    /// The number of the next record.
    pub sequence: u64,
    /// The traffic secret of TLS 1.3, from which the next keys are derived.
    pub secret: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All fields but the number are secret.
        f.debug_struct("Keys")
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// One direction of a connection.
pub struct Direction {
    suite: Suite,
    keys: Keys,
    cipher: LessSafeKey,
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction")
            .field("suite", &self.suite)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// A length for HKDF.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Direction {
    /// Creates a direction. Returns `None` if the key or the secret has another length than the cipher's.
    #[must_use]
    pub fn new(suite: Suite, keys: Keys) -> Option<Self> {
        let fits = keys
            .secret
            .as_ref()
            .is_none_or(|secret| secret.len() == suite.secret_len());
        let key = UnboundKey::new(suite.algorithm(), &keys.key).ok()?;
        fits.then(|| Self {
            suite,
            keys,
            cipher: LessSafeKey::new(key),
        })
    }

    /// Adds the traffic secret to keys that a TLS 1.3 connection uses: `first` is the secret at the end of the
    /// handshake, and the keys may have been updated since. Without a secret that fits, keys can't be updated any more.
    #[must_use]
    pub fn find(suite: Suite, keys: Keys, first: &[u8]) -> Keys {
        let mut secret = Zeroizing::new(first.to_vec());
        for _ in 0..UPDATES_MAX {
            match derived(suite, &secret) {
                Some(at) if at.0 == keys.key && at.1 == keys.iv => {
                    return Keys {
                        secret: Some(secret),
                        ..keys
                    };
                }
                Some(_) => {}
                None => break,
            }
            match next_secret(suite, &secret) {
                Some(next) => secret = next,
                None => break,
            }
        }
        keys
    }

    /// Returns the keys, for a handover.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns whether the keys must not protect another record.
    pub(crate) fn is_used_up(&self) -> bool {
        self.keys.sequence >= self.suite.records_max()
    }

    /// Replaces the keys by those that follow in TLS 1.3.
    pub(crate) fn update(&mut self) -> Result<(), RecordError> {
        let secret = self.keys.secret.as_ref().ok_or(RecordError::KeysUsedUp)?;
        let next = next_secret(self.suite, secret).ok_or(RecordError::KeysUsedUp)?;
        let (key, iv) = derived(self.suite, &next).ok_or(RecordError::KeysUsedUp)?;
        let keys = Keys {
            key,
            iv,
            sequence: 0,
            secret: Some(next),
        };
        *self = Self::new(self.suite, keys).ok_or(RecordError::KeysUsedUp)?;
        Ok(())
    }

    /// Returns the nonce of the next record, and its number, which is then used up.
    fn next(&mut self) -> Result<([u8; NONCE], u64), RecordError> {
        let number = self.keys.sequence;
        self.keys.sequence = number.checked_add(1).ok_or(RecordError::KeysUsedUp)?;
        let mut nonce = self.keys.iv;
        for (byte, of_number) in nonce[NONCE - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Ok((nonce, number))
    }

    /// Encrypts the bytes from `start` on, and appends the tag. Returns the nonce for the record's header.
    pub(crate) fn seal(
        &mut self,
        additional: impl FnOnce(u64) -> Additional,
        nonce: [u8; NONCE],
        bytes: &mut [u8],
    ) -> Result<[u8; TAG], RecordError> {
        let number = self.keys.sequence - 1;
        let additional = additional(number);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(additional.bytes()), bytes)
            .map_err(|_| RecordError::BadRecord)?;
        let mut out = [0; TAG];
        out.copy_from_slice(tag.as_ref());
        Ok(out)
    }

    /// Takes the nonce of the next record to be sealed.
    pub(crate) fn take_nonce(&mut self) -> Result<[u8; NONCE], RecordError> {
        self.next().map(|(nonce, _)| nonce)
    }

    /// Decrypts a record's bytes in place, and returns the length of the plaintext. `explicit` is the part of the nonce
    /// that the record contains.
    pub(crate) fn open(
        &mut self,
        additional: impl FnOnce(u64) -> Additional,
        explicit: Option<[u8; EXPLICIT]>,
        bytes: &mut [u8],
    ) -> Result<usize, RecordError> {
        let (mut nonce, number) = self.next()?;
        if let Some(explicit) = explicit {
            nonce[..NONCE - EXPLICIT].copy_from_slice(&self.keys.iv[..NONCE - EXPLICIT]);
            nonce[NONCE - EXPLICIT..].copy_from_slice(&explicit);
        }
        let additional = additional(number);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = self
            .cipher
            .open_in_place(nonce, Aad::from(additional.bytes()), bytes)
            .map_err(|_| RecordError::BadRecord)?;
        Ok(plain.len())
    }
}

/// Returns the additional data that a record's tag protects: the record's header, in TLS 1.2 with its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Additional {
    bytes: [u8; 13],
    len: usize,
}

impl Additional {
    pub(crate) fn tls12(number: u64, kind: u8, len: usize) -> Self {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..11].copy_from_slice(&[kind, 3, 3]);
        bytes[11..].copy_from_slice(&(len as u16).to_be_bytes());
        Self { bytes, len: 13 }
    }

    pub(crate) fn tls13(len: usize) -> Self {
        let mut bytes = [0; 13];
        bytes[..3].copy_from_slice(&[crate::message::APPLICATION_DATA, 3, 3]);
        bytes[3..5].copy_from_slice(&(len as u16).to_be_bytes());
        Self { bytes, len: 5 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Computes HKDF-Expand-Label (RFC 8446, 7.1), with an empty context.
fn expand(suite: Suite, secret: &[u8], label: &[u8], len: usize) -> Option<Zeroizing<Vec<u8>>> {
    let prefix = b"tls13 ";
    let lens = [
        &(len as u16).to_be_bytes()[..],
        &[(prefix.len() + label.len()) as u8],
    ]
    .concat();
    let mut bytes = Zeroizing::new(vec![0; len]);
    hkdf::Prk::new_less_safe(suite.hkdf(), secret)
        .expand(&[&lens, prefix, label, &[0]], Length(len))
        .and_then(|made| made.fill(&mut bytes))
        .ok()?;
    Some(bytes)
}

fn next_secret(suite: Suite, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    expand(suite, secret, b"traffic upd", suite.secret_len())
}

/// Returns the key and the shared part of the nonce of a traffic secret.
fn derived(suite: Suite, secret: &[u8]) -> Option<(Zeroizing<Vec<u8>>, [u8; NONCE])> {
    let key = expand(suite, secret, b"key", suite.key_len())?;
    let iv = expand(suite, secret, b"iv", NONCE)?;
    Some((key, <[u8; NONCE]>::try_from(&iv[..]).ok()?))
}
