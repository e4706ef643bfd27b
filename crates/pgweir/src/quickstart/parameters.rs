//! libpq's connection parameters in a URL: which of them pgweir uses, ignores or refuses.

use std::{env, path::Path};

use pgweir_config::{Config, ProblemKind, SslMode};

use super::UrlError;

/// The files in which distributions keep the certificates of public authorities (OpenSSL's default file).
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Parameters that pgweir ignores, each with the reason.
const IGNORED: &[(&str, &str)] = &[
    (
        "fallback_application_name",
        "each client sets its own application_name",
    ),
    ("load_balance_hosts", "the URL has one host"),
    ("sslcompression", "TLS compression is never used"),
    ("sslsni", "the host's name is always sent"),
    ("sslcertmode", "sslcert is sent if the server asks for it"),
    ("krbsrvname", "pgweir does not log in by GSSAPI"),
    ("gsslib", "pgweir does not log in by GSSAPI"),
    ("gssdelegation", "pgweir does not log in by GSSAPI"),
    (
        "min_protocol_version",
        "pgweir speaks protocol 3.0 to servers",
    ),
    (
        "max_protocol_version",
        "pgweir speaks protocol 3.0 to servers",
    ),
];
/// Parameters that would be dangerous or wrong to ignore, each with the remedy.
const REFUSED: &[(&str, &str)] = &[
    ("hostaddr", "write the address as host"),
    (
        "replication",
        "leave it out: clients ask for replication themselves",
    ),
    (
        "require_auth",
        "leave it out: pgweir can't restrict the server's method",
    ),
    (
        "requirepeer",
        "leave it out: pgweir can't check the server's user",
    ),
    ("service", "write out host, port, user and database"),
    ("servicefile", "write out host, port, user and database"),
    ("sslcrl", "use an ini file with server_tls_crl_file"),
    ("sslcrldir", "use an ini file with server_tls_crl_file"),
    ("sslkeylogfile", "leave it out: pgweir writes no TLS keys"),
    (
        "sslpassword",
        "store the key without a password, readable by you alone",
    ),
    (
        "scram_client_key",
        "use a password, or an ini file whose auth_file has SCRAM secrets",
    ),
    (
        "scram_server_key",
        "use a password, or an ini file whose auth_file has SCRAM secrets",
    ),
    ("oauth_issuer", "pgweir does not log in by OAuth"),
    ("oauth_client_id", "pgweir does not log in by OAuth"),
    ("oauth_client_secret", "pgweir does not log in by OAuth"),
    ("oauth_scope", "pgweir does not log in by OAuth"),
];
/// Parameters whose value becomes that of a setting.
const SETTINGS: &[(&str, &str)] = &[
    ("keepalives", "tcp_keepalive"),
    ("keepalives_idle", "tcp_keepidle"),
    ("keepalives_interval", "tcp_keepintvl"),
    ("keepalives_count", "tcp_keepcnt"),
    ("tcp_user_timeout", "tcp_user_timeout"),
    ("sslcert", "server_tls_cert_file"),
    ("sslkey", "server_tls_key_file"),
    ("sslnegotiation", "server_tls_negotiation"),
];

/// The parameters of a URL, except for those about where to connect.
#[derive(Default)]
pub(super) struct Parameters {
    /// Settings of `[pgbouncer]`, each with its value and the parameter that the value comes from.
    settings: Vec<(&'static str, String, &'static str)>,
    pub(super) sslmode: Option<SslMode>,
    sslrootcert: Option<String>,
    /// `channel_binding=require`.
    pub(super) needs_channel_binding: bool,
    /// Seconds, at least 2 as in libpq.
    pub(super) connect_timeout: Option<u64>,
    pub(super) passfile: Option<String>,
    application_name: Option<String>,
    client_encoding: Option<String>,
    /// `ssl_min_protocol_version` and, below, `ssl_max_protocol_version`, as indexes of [`VERSIONS`].
    tls_from: Option<usize>,
    tls_to: Option<usize>,
    /// One message for the operator about each parameter that has no effect.
    pub(super) ignored: Vec<String>,
}

/// The TLS versions that pgweir speaks, by libpq's names and by those of `server_tls_protocols`.
const VERSIONS: [(&str, &str); 2] = [("TLSv1.2", "tlsv1.2"), ("TLSv1.3", "tlsv1.3")];

impl Parameters {
    /// Takes a parameter that is not about where to connect.
    ///
    /// # Errors
    /// When libpq has no such parameter or value, or when pgweir does not support the parameter and must not ignore it.
    pub(super) fn set(&mut self, key: &str, value: String) -> Result<(), UrlError> {
        let unknown = |value: String, known| UrlError::Value(key.to_owned(), value, known);
        match key {
            "sslmode" => self.sslmode = Some(sslmode(value)?),
            // libpq accepts JDBC's spelling.
            "ssl" if value == "true" => self.sslmode = Some(SslMode::Require),
            "requiressl" if value == "1" => self.sslmode = Some(SslMode::Require),
            "requiressl" if value == "0" => {}
            "sslrootcert" => self.sslrootcert = Some(value).filter(|path| !path.is_empty()),
            "channel_binding" => match value.as_str() {
                "prefer" => {}
                "require" => self.needs_channel_binding = true,
                "disable" => {
                    self.ignore(
                        key,
                        "pgweir uses channel binding wherever the server offers it",
                    );
                }
                _ => return Err(unknown(value, "disable, prefer or require")),
            },
            "connect_timeout" => match value.parse::<i32>() {
                Ok(seconds @ 1..) => {
                    self.connect_timeout = Some(seconds.max(2).unsigned_abs().into())
                }
                Ok(_) => {}
                Err(_) => return Err(unknown(value, "a number of seconds")),
            },
            "gssencmode" => match value.as_str() {
                "disable" | "prefer" => {}
                _ => {
                    return Err(UrlError::Refused(
                        key.to_owned(),
                        "use sslmode=require: pgweir supports TLS only",
                    ));
                }
            },
            "target_session_attrs" if value != "any" => {
                return Err(UrlError::Refused(
                    key.to_owned(),
                    "name the host that clients shall reach",
                ));
            }
            "target_session_attrs" => {}
            "ssl_min_protocol_version" => {
                self.tls_from = tls_version(&value).map_err(|known| unknown(value, known))?
            }
            "ssl_max_protocol_version" => {
                self.tls_to = tls_version(&value).map_err(|known| unknown(value.clone(), known))?;
                if self.tls_to.is_none() && !value.is_empty() {
                    return Err(UrlError::Refused(
                        key.to_owned(),
                        "pgweir speaks TLSv1.2 and TLSv1.3",
                    ));
                }
            }
            "options" if value.starts_with("endpoint=") || value.starts_with("project=") => {
                self.ignore(key, "the host's name selects the endpoint, by SNI");
            }
            "options" => self.ignore(
                key,
                "clients send their own options, which pgweir applies to their servers",
            ),
            "application_name" => self.application_name = Some(value),
            // In libpq, `auto` takes the encoding from the terminal's locale; pgweir has no terminal.
            "client_encoding" => self.client_encoding = Some(value).filter(|name| name != "auto"),
            "passfile" => self.passfile = Some(value).filter(|path| !path.is_empty()),
            _ => return self.set_by_table(key, value),
        }
        Ok(())
    }

    fn set_by_table(&mut self, key: &str, value: String) -> Result<(), UrlError> {
        let of = |table: &'static [(&'static str, &'static str)]| {
            table.iter().find(|(name, _)| *name == key)
        };
        if let Some((name, setting)) = of(SETTINGS) {
            // Here 0 stands for the system's default, in libpq any negative number, too.
            let value = if value.starts_with('-') {
                "0".to_owned()
            } else {
                value
            };
            self.settings.push((setting, value, name));
        } else if let Some((_, why)) = of(IGNORED) {
            self.ignore(key, why);
        } else if let Some((_, remedy)) = of(REFUSED) {
            return Err(UrlError::Refused(key.to_owned(), remedy));
        } else {
            return Err(UrlError::Parameter(key.to_owned()));
        }
        Ok(())
    }

    fn ignore(&mut self, key: &str, why: &str) {
        self.ignored
            .push(format!("the URL's parameter \"{key}\" is ignored: {why}"));
    }

    /// Returns the configuration with the parameters applied.
    ///
    /// # Errors
    /// When a value is invalid, or when no authorities are found.
    pub(super) fn apply(&mut self, mut config: Config) -> Result<Config, UrlError> {
        if let Some(mode) = self.tls_mode()? {
            config.settings.server_tls_sslmode = mode;
        }
        config.settings.server_tls_ca_file =
            self.authorities(config.settings.server_tls_sslmode)?;
        if let (from, to) = (
            self.tls_from.unwrap_or(0),
            self.tls_to.unwrap_or(VERSIONS.len() - 1),
        ) && (self.tls_from.is_some() || self.tls_to.is_some())
        {
            let allowed = VERSIONS.get(from..=to).unwrap_or_default();
            let allowed: Vec<_> = allowed.iter().map(|(_, name)| *name).collect();
            if allowed.is_empty() {
                return Err(UrlError::Refused(
                    "ssl_min_protocol_version".to_owned(),
                    "make it no higher than ssl_max_protocol_version",
                ));
            }
            self.settings.push((
                "server_tls_protocols",
                allowed.join(","),
                "ssl_min_protocol_version",
            ));
        }
        if let Some(seconds) = self.connect_timeout {
            self.settings.push((
                "server_connect_timeout",
                seconds.to_string(),
                "connect_timeout",
            ));
        }
        for (setting, value, name) in &self.settings {
            let (changed, _) = config
                .with_setting(setting, value)
                .map_err(|error| wrong(name, value, &error))?;
            config = changed;
        }
        for entry in config.databases.values_mut().chain(&mut config.fallback) {
            entry.application_name.clone_from(&self.application_name);
            entry.client_encoding.clone_from(&self.client_encoding);
        }
        Ok(config)
    }

    /// Returns `sslmode`, adjusted to the other parameters as in libpq.
    fn tls_mode(&mut self) -> Result<Option<SslMode>, UrlError> {
        let is_system = self.sslrootcert.as_deref() == Some("system");
        Ok(match self.sslmode {
            Some(SslMode::VerifyFull) | None if is_system => Some(SslMode::VerifyFull),
            Some(_) if is_system => {
                return Err(UrlError::Refused(
                    "sslrootcert".to_owned(),
                    "\"system\" needs sslmode=verify-full",
                ));
            }
            Some(SslMode::Require) if self.sslrootcert.is_some() => Some(SslMode::VerifyCa),
            // The system's authorities sign certificates for everybody: only the check of the name makes them safe.
            Some(SslMode::VerifyCa) if self.sslrootcert.is_none() && own_roots().is_none() => {
                self.ignored.push("sslmode=verify-ca without sslrootcert is taken for verify-full, by the system's authorities".to_owned());
                Some(SslMode::VerifyFull)
            }
            None | Some(SslMode::Disable | SslMode::Allow | SslMode::Prefer)
                if self.needs_channel_binding =>
            {
                Some(SslMode::Require)
            }
            given => given,
        })
    }

    /// Returns the file with the authorities, if the mode needs one.
    fn authorities(&self, mode: SslMode) -> Result<Option<String>, UrlError> {
        match self.sslrootcert.as_deref() {
            _ if !mode.verifies() => Ok(None),
            Some("system") => system_roots().map(Some),
            Some(path) => Ok(Some(path.to_owned())),
            None => own_roots().map_or_else(system_roots, Ok).map(Some),
        }
    }
}

/// Returns `~/.postgresql/root.crt`, libpq's first choice, if it exists.
fn own_roots() -> Option<String> {
    let path = env::home_dir()?.join(".postgresql/root.crt");
    path.exists().then(|| path.to_str().map(str::to_owned))?
}

fn system_roots() -> Result<String, UrlError> {
    let named = env::var("SSL_CERT_FILE").ok();
    let known = SYSTEM_ROOTS.iter().map(|path| (*path).to_owned());
    named
        .into_iter()
        .chain(known)
        .find(|path| Path::new(path).exists())
        .ok_or(UrlError::NoSystemRoots)
}

fn wrong(name: &str, value: &str, error: &ProblemKind) -> UrlError {
    UrlError::Setting(name.to_owned(), value.to_owned(), error.to_string())
}

/// Returns the index of a TLS version in [`VERSIONS`], or `None` for an older version or no bound.
fn tls_version(name: &str) -> Result<Option<usize>, &'static str> {
    let same = |known: &&str| known.eq_ignore_ascii_case(name);
    if ["", "TLSv1", "TLSv1.1"].iter().any(same) {
        return Ok(None);
    }
    let at = VERSIONS.iter().position(|(known, _)| same(known));
    at.map(Some).ok_or("TLSv1.2 or TLSv1.3")
}

fn sslmode(mode: String) -> Result<SslMode, UrlError> {
    match mode.as_str() {
        "disable" => Ok(SslMode::Disable),
        "allow" => Ok(SslMode::Allow),
        "prefer" => Ok(SslMode::Prefer),
        "require" => Ok(SslMode::Require),
        "verify-ca" => Ok(SslMode::VerifyCa),
        "verify-full" => Ok(SslMode::VerifyFull),
        _ => Err(UrlError::SslMode(mode)),
    }
}
