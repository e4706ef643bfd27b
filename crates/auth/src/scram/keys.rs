//! The keys that are derived from a password, and the proofs and signatures made with them (RFC 5802, 3).

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{KEY_BYTES, SALT_BYTES, Secret, message};
use crate::saslprep;

/// The keys with which a client logs in to any server that has the same [`Secret`].
///
/// A password gives them ([`DeriveJob`]), or a client's proof
/// ([`ServerExchange::client_final`](super::ServerExchange::client_final)). `Debug` shows nothing.
#[derive(Clone)]
pub struct ClientKeys {
    pub(super) client_key: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) server_key: Zeroizing<[u8; KEY_BYTES]>,
}

/// The keys that [`DeriveJob::run`] returns.
pub type DerivedKeys = ClientKeys;

impl ClientKeys {
    /// Returns the client key and the server key, which are secret, for an online restart.
    #[must_use]
    pub fn to_bytes(&self) -> [[u8; KEY_BYTES]; 2] {
        [*self.client_key, *self.server_key]
    }

    /// Creates the keys from the bytes of [`ClientKeys::to_bytes`].
    #[must_use]
    pub fn of_bytes([client_key, server_key]: [[u8; KEY_BYTES]; 2]) -> Self {
        Self {
            client_key: Zeroizing::new(client_key),
            server_key: Zeroizing::new(server_key),
        }
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKeys(..)")
    }
}

/// The slow part of a login (PBKDF2; milliseconds at 4096 iterations), to be run off the event loop.
pub struct DeriveJob {
    password: Zeroizing<Vec<u8>>,
    salt: Vec<u8>,
    iterations: u32,
}

impl DeriveJob {
    /// Creates the job. The password may consist of any bytes; the iteration count decides how long the job takes.
    #[must_use]
    pub fn new(password: &[u8], salt: Vec<u8>, iterations: u32) -> Self {
        Self {
            password: Zeroizing::new(password.to_vec()),
            salt,
            iterations,
        }
    }

    /// Derives the keys.
    #[must_use]
    pub fn run(self) -> DerivedKeys {
        let password = saslprep::prepare(&self.password);
        let mut salted = Zeroizing::new([0; KEY_BYTES]);
        pbkdf2::pbkdf2_hmac::<Sha256>(&password, &self.salt, self.iterations, &mut *salted);
        ClientKeys {
            client_key: hmac(&*salted, &[b"Client Key"]),
            server_key: hmac(&*salted, &[b"Server Key"]),
        }
    }
}

impl fmt::Debug for DeriveJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeriveJob")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// Returns the secret of the password from which `keys` were derived with this salt and iteration count.
#[must_use]
pub fn build_secret(keys: &DerivedKeys, salt: Vec<u8>, iterations: u32) -> Secret {
    Secret {
        iterations,
        salt,
        stored_key: Zeroizing::new(stored_key(&keys.client_key)),
        server_key: keys.server_key.clone(),
    }
}

/// Returns the salt of a user whose secret has none: the same salt as long as the process runs.
///
/// Users with a plain password and users who do not exist get such a salt, so that the salt does not reveal which users
/// exist. `process_key` is random and never leaves the process.
#[must_use]
pub fn user_salt(process_key: &[u8; 32], user: &str) -> [u8; SALT_BYTES] {
    let hash = hmac(process_key, &[b"salt\0", user.as_bytes()]);
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&hash[..SALT_BYTES]);
    salt
}

/// Returns a secret that no password matches, for a user who does not exist.
pub(super) fn mock_secret(process_key: &[u8; 32], user: &str, iterations: u32) -> Secret {
    Secret {
        iterations,
        salt: user_salt(process_key, user).to_vec(),
        stored_key: hmac(process_key, &[b"stored\0", user.as_bytes()]),
        server_key: hmac(process_key, &[b"server\0", user.as_bytes()]),
    }
}

/// Returns `StoredKey`: the hash of the client's key.
pub(super) fn stored_key(client_key: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    Sha256::digest(client_key).into()
}

/// Returns the proof for a client's key, or the key for a proof. Both directions are the same operation: an exclusive
/// or with the signature of the exchange under the stored key.
pub(super) fn mask(
    key_or_proof: &[u8; KEY_BYTES],
    stored_key: &[u8; KEY_BYTES],
    auth_message: &[u8],
) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut result = hmac(stored_key, &[auth_message]);
    for (byte, other) in result.iter_mut().zip(key_or_proof) {
        *byte ^= other;
    }
    result
}

/// Returns the signature that proves that the server knows `server_key`.
pub(super) fn server_signature(
    server_key: &[u8; KEY_BYTES],
    auth_message: &[u8],
) -> Zeroizing<[u8; KEY_BYTES]> {
    hmac(server_key, &[auth_message])
}

/// Returns a nonce as the text in messages.
pub(super) fn nonce_text(nonce: &[u8; super::NONCE_BYTES]) -> String {
    message::encode(nonce)
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3. Its nonces are not of our making, so it is checked
    /// here and not through an exchange.
    #[test]
    fn the_example_of_rfc_7677() {
        let salt = message::decode(b"W22ZaJ0SNY7soEsUEjb6gQ==").expect("Base64");
        let keys = DeriveJob::new(b"pencil", salt, 4096).run();
        let auth_message = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = mask(
            &keys.client_key,
            &stored_key(&keys.client_key),
            auth_message,
        );
        let signature = server_signature(&keys.server_key, auth_message);
        assert_eq!(
            message::encode(&*proof),
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(
            message::encode(&*signature),
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }
}
