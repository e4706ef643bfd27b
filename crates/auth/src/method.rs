//! The methods of authentication.

use std::sync::Arc;

use crate::{LdapOptions, PamOptions};

/// The way in which a client has to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// No proof is needed, but the user must be known.
    Trust,
    /// The login is rejected.
    Reject,
    /// An md5 hash, or SCRAM if the user's secret is a SCRAM one.
    Md5,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// The password in clear text.
    Password,
    /// The name in the TLS certificate.
    Cert,
    /// The name of the system user at the other end of a Unix socket.
    Peer,
    /// The password, which an LDAP server checks.
    Ldap(Arc<LdapOptions>),
    /// The password, which PAM checks.
    Pam(Arc<PamOptions>),
}
