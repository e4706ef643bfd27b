//! The ways to log in.

use std::sync::Arc;

use crate::{LdapOptions, PamOptions};

/// How a client has to prove who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// It need not, but the user must be known.
    Trust,
    /// It can't.
    Reject,
    /// By an md5 hash, or by SCRAM where the user's secret is a SCRAM one.
    Md5,
    /// By SCRAM-SHA-256.
    ScramSha256,
    /// By its password in clear text.
    Password,
    /// By the name in its TLS certificate.
    Cert,
    /// By the name of the system's user at the other end of a Unix socket.
    Peer,
    /// By its password, which an LDAP server checks.
    Ldap(Arc<LdapOptions>),
    /// By its password, which PAM checks.
    Pam(Arc<PamOptions>),
}
