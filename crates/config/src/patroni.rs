//! The type of the setting `patroni`: the addresses of Patroni's REST API.

use std::fmt;

use crate::{
    url::{UrlParts, authority, parse_list},
    value::{BadValue, Value},
};

const EXPECTED: &str = "http://HOST:PORT or https://HOST:PORT, or a list of these";

/// The port of Patroni's REST API.
const PORT: u16 = 8008;

/// The addresses of the REST API of a Patroni cluster. Each member of the cluster has one; none is set by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatroniUrls(Vec<PatroniUrl>);

/// The address of the REST API of one member of a Patroni cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatroniUrl {
    /// Whether the address begins with `https://`.
    pub is_tls: bool,
    /// A name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The URL's part before `/cluster`, without a slash at its end.
    pub path: String,
}

impl PatroniUrls {
    /// Returns the addresses.
    #[must_use]
    pub fn urls(&self) -> &[PatroniUrl] {
        &self.0
    }

    /// Returns whether there is an address.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether one of the addresses begins with `https://`.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        self.0.iter().any(|url| url.is_tls)
    }
}

impl PatroniUrl {
    /// Returns host and port, as an HTTP request names them.
    #[must_use]
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    fn parse(text: &str) -> Result<Self, BadValue> {
        let wrong = |why: &str| BadValue::new(format!("{EXPECTED} (\"{text}\" {why})"));
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("does not begin with http:// or https://")),
        };
        let UrlParts { host, port, path } = UrlParts::parse(rest, PORT).map_err(wrong)?;
        Ok(Self {
            is_tls,
            host,
            port,
            path,
        })
    }
}

impl fmt::Display for PatroniUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.is_tls {
            true => "https",
            false => "http",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl fmt::Display for PatroniUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&urls.join(","))
    }
}

impl Value for PatroniUrls {
    const KIND: &'static str = "URL, or a list of URLs";

    fn parse(text: &str) -> Result<Self, BadValue> {
        parse_list(text, PatroniUrl::parse).map(Self)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::URLS_MAX;

    #[test]
    fn addresses_of_the_rest_api() {
        for (text, shown) in [
            ("", ""),
            ("http://pg1", "http://pg1:8008"),
            (
                "http://pg1:1, https://[::1]/p/",
                "http://pg1:1,https://[::1]:8008/p",
            ),
        ] {
            let urls = PatroniUrls::parse(text).unwrap();
            assert_eq!(urls.show(), shown, "{text}");
            assert_eq!(urls.needs_tls(), text.contains("https"));
            assert_eq!(urls.is_set(), !text.is_empty());
        }
        let many = vec!["http://a"; URLS_MAX + 1].join(",");
        for text in ["pg1:8008", "http://a,", "https://u:p@a", "ftp://a", &many] {
            assert!(PatroniUrls::parse(text).is_err(), "{text}");
        }
    }
}
