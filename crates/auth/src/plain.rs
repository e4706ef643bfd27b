//! Checks a password that the client sent in clear text.

use subtle::ConstantTimeEq;

use crate::{md5, scram::DeriveJob, userlist::Secret};

/// The result of a check.
#[derive(Debug)]
pub enum PlainCheck {
    /// The password is right.
    Accepted,
    /// The password is wrong or empty: PostgreSQL admits nobody with an empty password.
    Refused,
    /// The secret is a SCRAM secret: run this job off the event loop, then ask
    /// [`scram::Secret::is_from`](crate::scram::Secret::is_from).
    Derive(DeriveJob),
}

/// Checks the password that `user` sent against a secret.
#[must_use]
pub fn verify_plain(secret: &Secret, user: &str, password: &[u8]) -> PlainCheck {
    if password.is_empty() {
        return PlainCheck::Refused;
    }
    let equal: bool = match secret {
        Secret::Plain(expected) => expected.as_bytes().ct_eq(password).into(),
        Secret::Md5(hash) => {
            let given = md5::secret(password, user);
            hash.as_bytes().ct_eq(given.as_bytes()).into()
        }
        Secret::Scram(secret) => return PlainCheck::Derive(secret.derive_job(password)),
    };
    if equal {
        PlainCheck::Accepted
    } else {
        PlainCheck::Refused
    }
}
