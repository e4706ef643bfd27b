//! What is known of a connection's encryption. The encryption itself is the driver's work.

use std::{fmt, sync::Arc};

use crate::Endpoint;

/// What a configuration's TLS settings and files come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsTerms {
    /// Clients may have TLS: there is a certificate to show them.
    pub clients: bool,
    /// Clients that come by TCP must.
    pub demanded: bool,
    /// TLS is tried with servers, on these terms.
    pub servers: Option<ServerTls>,
}

/// How TLS is spoken with servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// Other settings or files have another number.
    pub print: u64,
    /// A server that doesn't is none.
    pub required: bool,
    /// It begins at once, without a question: as of PostgreSQL 17.
    pub direct: bool,
}

/// Which part we play in a handshake.
#[derive(Debug, Clone)]
pub enum TlsRole {
    /// The server's, towards a client.
    Accept {
        /// What was read already of the client's handshake.
        early: Vec<u8>,
    },
    /// The client's, towards a server.
    Connect {
        /// Where the server is, by the name that its certificate should have.
        endpoint: Arc<Endpoint>,
    },
}

/// What is known of a connection since its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// Such as `TLSv1.3`.
    pub protocol: &'static str,
    /// As OpenSSL spells it.
    pub cipher: &'static str,
    /// The group of the key exchange, as OpenSSL spells it.
    pub group: Option<&'static str>,
    /// The certificate that the peer has shown. A client's was verified.
    pub peer: Option<Box<PeerCertificate>>,
    /// The hash of the server's certificate (ours towards clients), for `tls-server-end-point`.
    pub end_point: Option<Box<[u8]>>,
    /// Both sides agree by ALPN to speak PostgreSQL's protocol.
    pub is_agreed: bool,
}

/// Whom a certificate names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The last common name of its subject.
    pub common_name: Option<String>,
    /// Its subject as RFC 2253 writes it: `CN=ann,O=Works`.
    pub subject: String,
    /// Other DNS names that it is for.
    pub dns_names: Vec<String>,
}

impl fmt::Display for TlsFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.cipher)?;
        match self.group {
            Some(group) => write!(f, "/ECDH={group}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a client's encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// It asked for this kind of encryption, and has said more before it had an answer.
    EarlyData(&'static str),
    /// It begins with TLS, and does not say for which protocol.
    NoAlpn,
    /// `client_tls_sslmode` demands it.
    Required,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarlyData(kind) => write!(f, "received unencrypted data after {kind} request"),
            Self::NoAlpn => f.write_str(
                "received direct SSL connection request without ALPN protocol negotiation extension",
            ),
            Self::Required => f.write_str("SSL required"),
        }
    }
}

/// Facts for the log and the console: empty is no TLS.
pub(crate) fn shown(facts: Option<&TlsFacts>) -> String {
    facts.map(ToString::to_string).unwrap_or_default()
}
