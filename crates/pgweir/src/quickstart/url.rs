//! `postgres://` URLs, in libpq's form.

use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use super::parameters::Parameters;

/// Both spellings of the scheme.
pub(super) const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The reason why a URL can't be used. No variant contains a part of the URL that may be secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum UrlError {
    /// `%` without two hexadecimal digits, a NUL, or bytes that are not UTF-8.
    #[error("the URL's {0} is not percent-encoded text")]
    Encoding(&'static str),
    /// Not 1 to 65535.
    #[error("the URL's port must be a number from 1 to 65535")]
    Port,
    /// `[` without `]`, or with something else than the port after it.
    #[error("the URL's IPv6 address must stand alone between [ and ]")]
    Brackets,
    /// Several hosts.
    #[error(
        "the URL names several hosts or ports: name the primary alone, since pgweir does not look for it \
         (an ini file with host=a,b spreads connections over all of them)"
    )]
    Hosts,
    /// The parameter does not exist in libpq.
    #[error("the URL's parameter \"{0}\" is unknown to PostgreSQL's clients (libpq): leave it out")]
    Parameter(String),
    /// pgweir does not support the parameter. The second field is advice.
    #[error("the URL's parameter \"{0}\" can't be used here: {1}")]
    Refused(String, &'static str),
    /// The parameter has an invalid value. The last field lists valid ones.
    #[error("the URL's parameter \"{0}\" can't be \"{1}\": it must be {2}")]
    Value(String, String, &'static str),
    /// The setting that corresponds to the parameter does not accept the value.
    #[error("the URL's parameter \"{0}\" can't be \"{1}\": {2}")]
    Setting(String, String, String),
    /// No authorities are found to check the server's certificate with.
    #[error(
        "the certificates of public authorities are not installed on this machine: install ca-certificates, or \
         name the server's authority by sslrootcert=FILE"
    )]
    NoSystemRoots,
    /// The mode does not exist in libpq.
    #[error(
        "sslmode \"{0}\" is unknown: valid modes are disable, allow, prefer, require, verify-ca and verify-full"
    )]
    SslMode(String),
}

/// The contents of a URL.
#[derive(Default)]
pub(super) struct Url {
    pub(super) user: Option<String>,
    pub(super) password: Option<Zeroizing<String>>,
    /// A name, an address, or the folder of a Unix socket.
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) dbname: Option<String>,
    pub(super) parameters: Parameters,
}

/// The pieces of a URL, still percent-encoded.
struct Pieces<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    password: Option<&'a str>,
    host_and_port: &'a str,
    /// The path with its leading `/`.
    path: &'a str,
    query: Option<&'a str>,
}

impl Url {
    /// Parses a URL that begins with one of the [`SCHEMES`].
    ///
    /// # Errors
    /// When the URL is malformed, or has a parameter that pgweir does not support.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        Self::parse_over(text, Parameters::default())
    }

    /// Parses a URL whose parameters override those that are given.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) fn parse_over(text: &str, parameters: Parameters) -> Result<Self, UrlError> {
        let pieces = split(text);
        let user = pieces
            .user
            .map(|user| decode(user, "user"))
            .transpose()?
            .filter(|user| !user.is_empty());
        let mut url = Self {
            user,
            parameters,
            ..Self::default()
        };
        if let Some(password) = pieces.password {
            url.set_password(password)?;
        }
        url.set_host_and_port(pieces.host_and_port)?;
        let dbname = pieces.path.trim_start_matches('/');
        if !dbname.is_empty() {
            url.dbname = Some(decode(dbname, "database")?);
        }
        for parameter in pieces
            .query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter(|one| !one.is_empty())
        {
            url.set_parameter(parameter)?;
        }
        Ok(url)
    }

    fn set_host_and_port(&mut self, text: &str) -> Result<(), UrlError> {
        if text.contains(',') {
            return Err(UrlError::Hosts);
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, behind) = rest.split_once(']').ok_or(UrlError::Brackets)?;
                match behind.strip_prefix(':') {
                    Some(port) => (address, Some(port)),
                    None if behind.is_empty() => (address, None),
                    None => return Err(UrlError::Brackets),
                }
            }
            None => text
                .split_once(':')
                .map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if !host.is_empty() {
            self.host = Some(decode(host, "host")?);
        }
        match port.filter(|port| !port.is_empty()) {
            Some(port) => self.set_port(port),
            None => Ok(()),
        }
    }

    /// Sets a parameter after the `?`. As in libpq, it overrides the rest of the URL.
    fn set_parameter(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (key, raw) = parameter.split_once('=').unwrap_or((parameter, ""));
        let key = decode(key, "parameter")?;
        match key.as_str() {
            "password" => self.set_password(raw)?,
            "host" => self.host = Some(decode(raw, "host")?).filter(|host| !host.is_empty()),
            "port" => self.set_port(&decode(raw, "port")?)?,
            "user" => self.user = Some(decode(raw, "user")?).filter(|user| !user.is_empty()),
            "dbname" => {
                self.dbname = Some(decode(raw, "database")?).filter(|name| !name.is_empty())
            }
            _ => self.parameters.set(&key, decode(raw, "parameter")?)?,
        }
        if self.host.as_ref().is_some_and(|host| host.contains(',')) {
            Err(UrlError::Hosts)
        } else {
            Ok(())
        }
    }

    fn set_port(&mut self, text: &str) -> Result<(), UrlError> {
        if text.contains(',') {
            return Err(UrlError::Hosts);
        }
        self.port = Some(
            text.parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or(UrlError::Port)?,
        );
        Ok(())
    }

    fn set_password(&mut self, raw: &str) -> Result<(), UrlError> {
        let password = Zeroizing::new(decode(raw, "password")?);
        self.password = Some(password).filter(|password| !password.is_empty());
        Ok(())
    }
}

/// Returns the URL without its password.
pub(super) fn without_password(text: &str) -> String {
    let Pieces {
        scheme,
        user,
        host_and_port,
        path,
        query,
        ..
    } = split(text);
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let is_password = |parameter: &str| {
        let key = parameter.split_once('=').map_or(parameter, |(key, _)| key);
        decode(key, "parameter").as_deref() == Ok("password")
    };
    let kept: Vec<_> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|one| !is_password(one))
        .collect();
    let query = if kept.is_empty() {
        String::new()
    } else {
        format!("?{}", kept.join("&"))
    };
    format!("{scheme}{user}{host_and_port}{path}{query}")
}

fn split(text: &str) -> Pieces<'_> {
    let start = SCHEMES
        .iter()
        .find(|scheme| text.starts_with(**scheme))
        .map_or(0, |scheme| scheme.len());
    let (scheme, rest) = text.split_at(start);
    // As in libpq: user and password end at the first `@` that comes before any `/`.
    let login = rest
        .find(['@', '/'])
        .filter(|at| rest[*at..].starts_with('@'));
    let (login, rest) = login.map_or((None, rest), |at| (Some(&rest[..at]), &rest[at + 1..]));
    let (user, password) = match login.map(|login| login.split_once(':').ok_or(login)) {
        None => (None, None),
        Some(Ok((user, password))) => (Some(user), Some(password)),
        Some(Err(user)) => (Some(user), None),
    };
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (host_and_port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Pieces {
        scheme,
        user,
        password,
        host_and_port,
        path,
        query,
    }
}

fn decode(text: &str, what: &'static str) -> Result<String, UrlError> {
    let hexadecimal = |digits: &str| {
        digits.len() >= 2
            && digits
                .bytes()
                .take(2)
                .all(|digit| digit.is_ascii_hexdigit())
    };
    if !text.split('%').skip(1).all(hexadecimal) {
        return Err(UrlError::Encoding(what));
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| UrlError::Encoding(what))?;
    if decoded.contains('\0') {
        Err(UrlError::Encoding(what))
    } else {
        Ok(decoded.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a URL as `user:password@host:port/dbname`, with `-` for missing parts.
    fn check(text: &str, expected: &str) {
        let shown = match Url::parse(text) {
            Err(error) => error.to_string(),
            Ok(url) => {
                let or = |text: Option<&str>| text.unwrap_or("-").to_owned();
                format!(
                    "{}:{}@{}:{}/{}",
                    or(url.user.as_deref()),
                    or(url.password.as_ref().map(|password| password.as_str())),
                    or(url.host.as_deref()),
                    or(url.port.map(|port| port.to_string()).as_deref()),
                    or(url.dbname.as_deref()),
                )
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn urls_of_libpq_are_understood() {
        check("postgres://", "-:-@-:-/-");
        check("postgresql:///shop", "-:-@-:-/shop");
        check("postgres://app@db", "app:-@db:-/-");
        check(
            "postgres://app:secret@db:5433/shop",
            "app:secret@db:5433/shop",
        );
        check("postgres://app:@db", "app:-@db:-/-");
        check("postgres://a%40b:p%3A%2f@db/s%20p", "a@b:p:/@db:-/s p");
        check("postgres://app:a?b@db/shop", "app:a?b@db:-/shop");
        check("postgres://db:5433/a@b", "-:-@db:5433/a@b");
        check("postgres://[::1]:5433/shop", "-:-@::1:5433/shop");
        check("postgres://[2001:db8::1]", "-:-@2001:db8::1:-/-");
        check(
            "postgres://%2Frun%2Fpostgresql/shop",
            "-:-@/run/postgresql:-/shop",
        );
        check(
            "postgres:///shop?host=/run&port=5433&user=app",
            "app:-@/run:5433/shop",
        );
        check(
            "postgres://x:y@db/shop?password=z&dbname=other&sslmode=prefer",
            "x:z@db:-/other",
        );
        check("postgres://db?dbname=shop", "-:-@db:-/shop");
    }

    const HOSTS: &str = "the URL names several hosts or ports: name the primary alone, since pgweir does not look for \
                         it (an ini file with host=a,b spreads connections over all of them)";

    #[test]
    fn others_are_refused_with_a_reason() {
        check(
            "postgres://db:0",
            "the URL's port must be a number from 1 to 65535",
        );
        check(
            "postgres://db:x",
            "the URL's port must be a number from 1 to 65535",
        );
        check("postgres://a,b/shop", HOSTS);
        check(
            "postgres://[::1",
            "the URL's IPv6 address must stand alone between [ and ]",
        );
        check(
            "postgres://[::1]x",
            "the URL's IPv6 address must stand alone between [ and ]",
        );
        check(
            "postgres://a%4/b",
            "the URL's host is not percent-encoded text",
        );
        check(
            "postgres://a:%00@b",
            "the URL's password is not percent-encoded text",
        );
        check(
            "postgres://a%ff@b",
            "the URL's user is not percent-encoded text",
        );
        check("postgres://a:1,b:2/shop", HOSTS);
        check("postgres://a/shop?port=1,2", HOSTS);
        check(
            "postgres://b?conect_timeout=3",
            "the URL's parameter \"conect_timeout\" is unknown to PostgreSQL's clients (libpq): leave it out",
        );
        check(
            "postgres://b?target_session_attrs=read-write",
            "the URL's parameter \"target_session_attrs\" can't be used here: name the host that clients shall reach",
        );
        check(
            "postgres://b?channel_binding=yes",
            "the URL's parameter \"channel_binding\" can't be \"yes\": it must be disable, prefer or require",
        );
        check(
            "postgres://b?sslpassword=secret",
            "the URL's parameter \"sslpassword\" can't be used here: store the key without a password, readable by \
             you alone",
        );
    }

    #[test]
    fn the_password_is_gone_and_nothing_else() {
        for (text, expected) in [
            (
                "postgres://app:secret@db:5433/shop?sslmode=disable",
                "postgres://app@db:5433/shop?sslmode=disable",
            ),
            (
                "postgresql://app@db/shop?password=secret&port=1",
                "postgresql://app@db/shop?port=1",
            ),
            (
                "postgres://app:se?cr@[::1]/x?pass%77ord=secret",
                "postgres://app@[::1]/x",
            ),
        ] {
            assert_eq!(without_password(text), expected);
        }
    }
}
