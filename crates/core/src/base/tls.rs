//! TLS as the core uses it: the configured settings, and the facts about established sessions. The driver does the
//! encryption.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::Endpoint;

/// The TLS settings of a configuration, with its files read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsTerms {
    /// Whether TLS is offered to clients: `client_tls_sslmode` allows it, and there is a certificate.
    pub clients: bool,
    /// Whether clients that connect by TCP must use TLS.
    pub demanded: bool,
    /// The settings for TLS with servers; `None` if `server_tls_sslmode` disables it.
    pub servers: Option<ServerTls>,
}

/// TLS with servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// A hash of the settings and files, by which changes are noticed.
    pub print: u64,
    /// Whether servers that refuse TLS are not used.
    pub required: bool,
    /// Whether the handshake begins at once, without an SSLRequest (`sslnegotiation=direct`), which PostgreSQL 17 and
    /// later accept.
    pub direct: bool,
}

/// This process's role in a handshake.
#[derive(Debug, Clone)]
pub enum TlsRole {
    /// The server's role, towards a client.
    Accept {
        /// The bytes of the client's handshake that were read already.
        early: Vec<u8>,
    },
    /// The client's role, towards a server.
    Connect {
        /// The server's address, with the host name that its certificate must have.
        endpoint: Arc<Endpoint>,
    },
}

/// The facts about a connection's TLS session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// The protocol's version, such as `TLSv1.3`.
    pub protocol: Cow<'static, str>,
    /// The cipher, in OpenSSL's spelling.
    pub cipher: Cow<'static, str>,
    /// The group of the key exchange, in OpenSSL's spelling.
    pub group: Option<Cow<'static, str>>,
    /// The peer's certificate. A client's certificate was verified.
    pub peer: Option<Box<PeerCertificate>>,
    /// The hash of the server's certificate (this process's own, towards clients), for `tls-server-end-point`.
    pub end_point: Option<Box<[u8]>>,
    /// Whether both sides have agreed by ALPN on PostgreSQL's protocol.
    pub is_agreed: bool,
}

/// The names in a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The last common name of the subject.
    pub common_name: Option<String>,
    /// The subject in the form of RFC 2253: `CN=ann,O=Works`.
    pub subject: String,
    /// The DNS names among the subject's alternative names.
    pub dns_names: Vec<String>,
}

impl fmt::Display for TlsFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.cipher)?;
        match &self.group {
            Some(group) => write!(f, "/ECDH={group}"),
            None => Ok(()),
        }
    }
}

/// The reason why a client's TLS is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// The client asked for this kind of encryption, and has sent more bytes before it had the answer.
    EarlyData(&'static str),
    /// The client began with a TLS handshake, but did not name PostgreSQL's protocol by ALPN.
    NoAlpn,
    /// The client did not ask for TLS, and `client_tls_sslmode` demands it.
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

/// Returns the facts as the log and the console show them; empty without TLS.
pub(crate) fn shown(facts: Option<&TlsFacts>) -> String {
    facts.map(ToString::to_string).unwrap_or_default()
}
