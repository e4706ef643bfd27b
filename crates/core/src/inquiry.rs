//! What is to be found out about a client that logs in, by somebody who may take its time.

use std::{fmt, net::IpAddr, sync::Arc};

use pgweir_auth::{LdapOptions, PamOptions};
use zeroize::Zeroizing;

/// One question. `Debug` shows no secret.
pub enum Inquiry {
    /// The name of the system's user with this id.
    SystemUser(u32),
    /// Is this the user's password?
    Password {
        /// Who knows.
        service: Service,
        /// The user.
        user: String,
        /// What the client says is the password; never empty.
        password: Zeroizing<String>,
        /// Where the client comes from by TCP.
        address: Option<IpAddr>,
    },
}

/// Who checks passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// An LDAP server.
    Ldap(Arc<LdapOptions>),
    /// PAM.
    Pam(Arc<PamOptions>),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The name of the system's user, or why there is none.
    SystemUser(Result<String, String>),
    /// It is the password; or why it is not taken for it, for the log.
    Password(Result<(), String>),
    /// Too many questions are being answered already.
    Overloaded,
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemUser(uid) => f.debug_tuple("SystemUser").field(uid).finish(),
            Self::Password { service, user, .. } => f
                .debug_struct("Password")
                .field("service", service)
                .field("user", user)
                .finish_non_exhaustive(),
        }
    }
}
