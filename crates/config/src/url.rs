//! The parts of URLs that begin with `http://` or `https://`.

use crate::value::BadValue;

/// The largest number of URLs of a list.
pub(crate) const URLS_MAX: usize = 32;

/// Parses URLs between commas. An empty text is an empty list.
///
/// # Errors
/// `parse` refuses one of the URLs, or there are too many.
pub(crate) fn parse_list<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, BadValue>,
) -> Result<Vec<T>, BadValue> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let urls: Result<Vec<_>, _> = text.split(',').map(|url| parse(url.trim())).collect();
    match urls? {
        urls if urls.len() > URLS_MAX => Err(BadValue::new(format!("at most {URLS_MAX} URLs"))),
        urls => Ok(urls),
    }
}

/// The parts of a URL after its scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlParts {
    /// A name, or an address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path without a slash at its end.
    pub(crate) path: String,
}

impl UrlParts {
    /// Parses a URL after its scheme. `port`: the port of a URL without one.
    ///
    /// # Errors
    /// The problem of the URL, as the end of a sentence whose subject is the URL.
    pub(crate) fn parse(rest: &str, port: u16) -> Result<Self, &'static str> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@');
        if !rest.bytes().all(is_plain) {
            return Err("has a user, a query, or a character that no address has");
        }
        let (host, given) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let parts = bracketed.split_once(']');
                let (host, given) = parts.ok_or("has no closing bracket")?;
                (host, given.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, given)) => (host, Some(given)),
                None => (authority, None),
            },
        };
        let port = match given {
            None => port,
            Some(given) => {
                let given = given.parse().ok().filter(|port| *port != 0);
                given.ok_or("has no port from 1 to 65535")?
            }
        };
        if host.is_empty() {
            return Err("has no host");
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            path: path.trim_end_matches('/').to_owned(),
        })
    }
}

/// Returns host and port as one text, as URLs, HTTP requests and log lines show them: an address of IPv6 stands in brackets.
#[must_use]
pub fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
