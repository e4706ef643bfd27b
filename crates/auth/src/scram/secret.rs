//! The secret that a server stores instead of a password.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    Challenge, ClientKeys, DeriveJob, KEY_BYTES, MAX_ITERATIONS, MECHANISM, keys, message,
};

/// The secret that a server stores instead of a password. The secret is enough to check a login, but not to log in.
///
/// `Debug` shows no key.
#[derive(Clone)]
pub struct Secret {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) server_key: Zeroizing<[u8; KEY_BYTES]>,
}

impl Secret {
    /// Parses PostgreSQL's text form, `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
    ///
    /// Returns `None` if the text is incomplete, or the iteration count is 0 or above [`MAX_ITERATIONS`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = message::parse_iterations(iterations.as_bytes())?;
        let salt = message::decode(salt.as_bytes())?;
        if iterations > MAX_ITERATIONS || salt.is_empty() {
            return None;
        }
        Some(Self {
            iterations,
            salt,
            stored_key: Zeroizing::new(message::decode_key(stored_key.as_bytes())?),
            server_key: Zeroizing::new(message::decode_key(server_key.as_bytes())?),
        })
    }

    /// Returns PostgreSQL's text form. The type has no `Display`, so that no log line shows a secret by accident.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "{MECHANISM}${}:{}${}:{}",
            self.iterations,
            message::encode(&self.salt),
            message::encode(&*self.stored_key),
            message::encode(&*self.server_key),
        ))
    }

    /// Returns the salt of the password.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns the iteration count.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Returns the job that derives keys from `password`, for [`is_from`](Self::is_from) to check.
    #[must_use]
    pub fn derive_job(&self, password: &[u8]) -> DeriveJob {
        DeriveJob::new(password, self.salt.clone(), self.iterations)
    }

    /// Returns whether this secret belongs to the password from which `keys` were derived.
    #[must_use]
    pub fn is_from(&self, keys: &ClientKeys) -> bool {
        let stored_key = keys::stored_key(&keys.client_key);
        let equal = stored_key.ct_eq(&*self.stored_key)
            & keys.server_key.as_slice().ct_eq(self.server_key.as_slice());
        equal.into()
    }

    /// Returns whether keys of this secret can answer a server's challenge. If the server has the same password with
    /// another salt, the keys can't answer: the userlist should contain the server's own secret.
    #[must_use]
    pub fn answers(&self, challenge: &Challenge) -> bool {
        self.salt == challenge.salt && self.iterations == challenge.iterations
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
