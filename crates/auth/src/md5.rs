//! The md5 method, as in "Password Authentication" of the PostgreSQL manual.
//!
//! The secret is `md5` followed by the hex MD5 of password and user name; the answer to a salt
//! is `md5` followed by the hex MD5 of the secret's hex digits and the salt.

use std::fmt::Write as _;

use ::md5::{Digest, Md5};
use zeroize::Zeroizing;

/// The prefix of an md5 secret, and of an md5 response.
const PREFIX: &str = "md5";

/// The length of a secret in bytes: the prefix and 32 hex digits.
const SECRET_BYTES: usize = PREFIX.len() + 32;

/// Returns the md5 secret of `password` for `user`: `md5` and 32 lower-case hex digits.
#[must_use]
pub fn secret(password: impl AsRef<[u8]>, user: &str) -> Zeroizing<String> {
    Zeroizing::new(hex_digest(&[password.as_ref(), user.as_bytes()]))
}

/// Returns the client's response to the server's `salt`; `secret` is an md5 secret ([`secret()`]).
#[must_use]
pub fn response(secret: &str, salt: [u8; 4]) -> String {
    let digits = secret.strip_prefix(PREFIX).unwrap_or(secret);
    hex_digest(&[digits.as_bytes(), &salt])
}

/// Returns whether `text` has the form of an md5 secret. PostgreSQL accepts lower-case digits only.
pub(crate) fn is_secret(text: &str) -> bool {
    text.len() == SECRET_BYTES
        && text.strip_prefix(PREFIX).is_some_and(|digits| {
            digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
}

fn hex_digest(parts: &[&[u8]]) -> String {
    let mut hasher = Md5::new();
    for part in parts {
        hasher.update(part);
    }
    let mut text = String::with_capacity(SECRET_BYTES);
    text.push_str(PREFIX);
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
