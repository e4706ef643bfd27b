//! Checks at login that may block, and therefore run on threads of their own: passwords by LDAP and PAM, names of
//! system users.

use std::{fmt, net::IpAddr, sync::Arc};

use pgweir_auth::{LdapOptions, PamOptions};
use zeroize::Zeroizing;

/// One check. `Debug` shows no secret.
pub enum AuthCheck {
    /// Look up the name of the system user with this id, for `peer` authentication.
    SystemUser(u32),
    /// Check a password.
    Password {
        /// The service that checks the password.
        service: Service,
        /// The user's name.
        user: String,
        /// The password from the client; never empty.
        password: Zeroizing<String>,
        /// The client's address, if the client is connected by TCP.
        address: Option<IpAddr>,
    },
}

/// A service that checks passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// An LDAP server.
    Ldap(Arc<LdapOptions>),
    /// PAM.
    Pam(Arc<PamOptions>),
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthCheckResult {
    /// The name of the system user, or the reason why there is none.
    SystemUser(Result<String, String>),
    /// `Ok` if the password is right; else the reason, for the log.
    Password(Result<(), String>),
    /// The queue of checks is full (`auth_queue`).
    Overloaded,
}

impl fmt::Debug for AuthCheck {
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
