//! Secrets of users: passwords, or values derived from passwords.

use std::fmt;

use zeroize::Zeroizing;

use crate::{
    md5,
    scram::{self, DeriveJob},
};

/// The secret of a user. `Debug` shows the kind only.
#[derive(Clone)]
pub enum Secret {
    /// The password itself. An empty one admits nobody.
    Plain(Zeroizing<String>),
    /// `md5` and 32 hex digits. Anyone who has it can log in by md5, so it is a password too.
    Md5(Zeroizing<String>),
    /// The keys by which SCRAM-SHA-256 checks a password.
    Scram(scram::Secret),
}

impl Secret {
    /// Determines the kind of secret by its form, as PgBouncer and PostgreSQL do: a text that is neither a complete md5
    /// secret nor a complete SCRAM secret is a plain password.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if md5::is_secret(text) {
            return Self::Md5(Zeroizing::new(text.to_owned()));
        }
        match scram::Secret::parse(text) {
            Some(secret) => Self::Scram(secret),
            None => Self::Plain(Zeroizing::new(text.to_owned())),
        }
    }

    /// Returns whether this is the empty password, which admits nobody by any password method.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(password) if password.is_empty())
    }

    /// Returns the work that turns a plain password into SCRAM keys, for either side of an exchange. `None` if this is
    /// no plain password, or the empty one.
    #[must_use]
    pub fn derive_job(&self, salt: Vec<u8>, iterations: u32) -> Option<DeriveJob> {
        match self {
            Self::Plain(password) if !password.is_empty() => {
                Some(DeriveJob::new(password.as_bytes(), salt, iterations))
            }
            _ => None,
        }
    }

    /// Returns whether a plain password looks like a damaged secret, for example one in which a shell has expanded
    /// `$4096`.
    pub(super) fn looks_damaged(&self) -> bool {
        let Self::Plain(text) = self else {
            return false;
        };
        let is_hex = |b: u8| b.is_ascii_hexdigit();
        text.starts_with("SCRAM-SHA-256")
            || text
                .strip_prefix("md5")
                .is_some_and(|rest| rest.len() >= 24 && rest.bytes().all(is_hex))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Md5(_) => "Md5(..)",
            Self::Scram(_) => "Scram(..)",
        })
    }
}
