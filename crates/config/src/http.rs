//! The addresses at which pgweir answers HTTP requests: the settings `http_listen` and `http_tls`.

use std::fmt;

use crate::{
    url::authority,
    value::{BadValue, Value},
};

/// The right form, as the end of "expected ...".
const EXPECTED: &str =
    "a list of ADDRESS:PORT and absolute paths of Unix sockets, such as 127.0.0.1:9127";

/// An address to listen on for HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HttpAddress {
    /// TCP.
    Tcp {
        /// A name, an address without brackets, or `*` for all addresses.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(String),
}

/// All addresses to listen on for HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpListen(Vec<HttpAddress>);

impl HttpListen {
    /// Returns the addresses, each once.
    #[must_use]
    pub fn addresses(&self) -> &[HttpAddress] {
        &self.0
    }
}

impl HttpAddress {
    fn parse(text: &str) -> Result<Self, BadValue> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.to_owned()));
        }
        let wrong = |why: &str| BadValue::new(format!("{EXPECTED} (\"{text}\" {why})"));
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let port = port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("has no port from 1 to 65535"))?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(address) => address,
            None if host.contains([':', '[', ']']) => {
                return Err(wrong("needs brackets around its IPv6 address"));
            }
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("has no address; * is all"));
        }
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => f.write_str(&authority(host, *port)),
            Self::Unix(path) => f.write_str(path),
        }
    }
}

impl Value for HttpListen {
    const KIND: &'static str = "list";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let items = text.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty());
        let mut addresses = Vec::new();
        for address in items.map(HttpAddress::parse) {
            let address = address?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self(addresses))
    }

    fn show(&self) -> String {
        let items: Vec<_> = self.0.iter().map(HttpAddress::to_string).collect();
        items.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shown_as_they_are_written() {
        for text in [
            "",
            "127.0.0.1:9127",
            "[::1]:9127",
            "*:9127",
            "metrics.example:80,/run/pgweir/http.sock",
        ] {
            assert_eq!(HttpListen::parse(text).unwrap().show(), text);
        }
        let twice = HttpListen::parse(" a:1 , b:2,a:1,").unwrap();
        assert_eq!(twice.show(), "a:1,b:2");
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in [
            "9127",
            "host",
            "host:",
            "host:0",
            "host:65536",
            ":9127",
            "::1:9127",
            "[::1]",
            "[::1:9127",
            "a:1,b",
        ] {
            let bad = HttpListen::parse(text).unwrap_err();
            assert!(
                bad.expected.starts_with(EXPECTED),
                "{text}: {}",
                bad.expected
            );
        }
    }
}
