//! Checks what a client sent as proof of its password: the password itself, or an md5 response.

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

/// Returns whether `response` is the right md5 response of `user` to pgweir's `salt`.
///
/// A SCRAM secret, which md5 can't check, and an empty password never match.
#[must_use]
pub fn verify_md5(secret: &Secret, user: &str, salt: [u8; 4], response: &[u8]) -> bool {
    let expected = match secret {
        Secret::Plain(password) if password.is_empty() => return false,
        Secret::Plain(password) => md5::response(&md5::secret(password.as_str(), user), salt),
        Secret::Md5(hash) => md5::response(hash, salt),
        Secret::Scram(_) => return false,
    };
    expected.as_bytes().ct_eq(response).into()
}
