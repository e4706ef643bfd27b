//! Addresses of servers, and of the two ends of a connection.

use std::{fmt, net::SocketAddr};

use pgweir_config::{Database, authority};

use super::digits::push_decimal;

/// The address of a server, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A Unix socket, by its full path (`/run/postgresql/.s.PGSQL.5432`; `@name` is abstract).
    Unix(String),
    /// A host name or an address. The driver resolves it, and tries all of its addresses in turn.
    Tcp {
        /// The host name, or the address as text.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Endpoint {
    /// Returns the address of the server with this `host` and `port`; a host that begins with `/` or `@` is the folder
    /// of a Unix socket.
    #[must_use]
    pub fn of(host: &str, port: u16) -> Self {
        if host.starts_with(['/', '@']) {
            Self::Unix(format!("{}/.s.PGSQL.{port}", host.trim_end_matches('/')))
        } else {
            let host = host.to_owned();
            Self::Tcp { host, port }
        }
    }
}

impl Endpoint {
    /// Returns the servers of a database's entry, in the order of its list; none if it has no `host`.
    pub fn all_of(database: &Database) -> impl Iterator<Item = Self> {
        let hosts = database.host.iter().enumerate();
        hosts.map(|(at, host)| Self::of(host, database.port.of(at)))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => f.write_str(path),
            Endpoint::Tcp { host, port } => f.write_str(&authority(host, *port)),
        }
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket; shown as `unix`.
    Unix,
    /// TCP, version 4 or 6.
    Tcp(SocketAddr),
}

impl Address {
    /// Returns the address as the log shows it: `unix:6432` or `127.0.0.1:4711`, IPv6 in brackets. `port` stands for
    /// the port of a Unix socket.
    pub(crate) fn with_port(self, port: u16) -> String {
        match self {
            Self::Unix => format!("unix:{port}"),
            Self::Tcp(socket) => socket.to_string(),
        }
    }

    /// Appends the address in the form of [`with_port`](Self::with_port).
    pub(crate) fn push_with_port(self, port: u16, text: &mut String) {
        match self {
            Self::Tcp(SocketAddr::V4(socket)) => {
                for (at, byte) in socket.ip().octets().into_iter().enumerate() {
                    if at > 0 {
                        text.push('.');
                    }
                    push_decimal(text, u64::from(byte));
                }
                text.push(':');
                push_decimal(text, u64::from(socket.port()));
            }
            other => text.push_str(&other.with_port(port)),
        }
    }

    /// The IP address, or `unix`.
    pub(crate) fn without_port(self) -> String {
        match self {
            Self::Unix => "unix".to_owned(),
            Self::Tcp(socket) => socket.ip().to_canonical().to_string(),
        }
    }
}
