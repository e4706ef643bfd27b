//! The certificates and the authorization for requests to Patroni's REST API: `patroni_tls_ca_file`, `patroni_tls_cert_file`,
//! `patroni_tls_key_file` and `patroni_auth_file`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::header::HeaderValue;
use pgweir_config::{Config, Settings};
use rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::{
    control::reload::read,
    setting_errors::{FileAccess, remedy},
    tls::{TlsError, http_client},
};

/// The TLS settings and the authorization for requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// The TLS settings, if `patroni_tls_ca_file` is set.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// The value of the header `Authorization`. `Debug` does not print it.
    pub(super) authorization: Option<HeaderValue>,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// A file with authorities, a certificate or a key can't be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// `patroni_auth_file` can't be read.
    #[error("patroni_auth_file: {0}: cannot be read: {1}{hint}", hint = remedy(.1, FileAccess::Read))]
    AuthFile(PathBuf, #[source] io::Error),
    /// `patroni_auth_file` has neither a bearer token nor a user and a password.
    #[error("patroni_auth_file: {0}: expected one line: \"Bearer TOKEN\" or \"USER:PASSWORD\"")]
    AuthForm(PathBuf),
    /// A URL begins with `https`, and no authorities are set.
    #[error(
        "database {0}: patroni has an https URL, which needs patroni_tls_ca_file: the certificate authority of Patroni's REST API"
    )]
    NoAuthorities(String),
    /// One of the two settings for a client certificate is set, and the other is not.
    #[error(
        "{0} is set, but not {1}: a client certificate for Patroni's REST API needs both, and patroni_tls_ca_file"
    )]
    Incomplete(&'static str, &'static str),
}

impl AccessError {
    /// Returns the setting that caused the error; `None` if it is a setting of a database.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Tls(error) => Some(&error.key),
            Self::AuthFile(..) | Self::AuthForm(_) => Some("patroni_auth_file"),
            Self::NoAuthorities(_) => None,
            Self::Incomplete(key, _) => Some(key),
        }
    }
}

impl Access {
    /// Reads the files.
    ///
    /// # Errors
    /// The first problem.
    pub(crate) fn load(config: &Config) -> Result<Self, AccessError> {
        let settings: &Settings = &config.settings;
        let own = own_certificate(settings)?;
        let tls = settings.patroni_tls_ca_file.as_deref();
        let tls = tls
            .map(|path| http_client("patroni_tls", path, own))
            .transpose()?;
        let mut databases = config.databases.values().chain(&config.fallback);
        let needs = databases.find(|database| database.patroni.needs_tls());
        if let (None, Some(database)) = (&tls, needs) {
            return Err(AccessError::NoAuthorities(database.name.clone()));
        }
        let path = settings.patroni_auth_file.as_deref().map(Path::new);
        let authorization = path.map(authorization).transpose()?;
        Ok(Self { tls, authorization })
    }
}

/// Returns the files of the client certificate and its key, if they are set.
fn own_certificate(settings: &Settings) -> Result<Option<(&str, &str)>, AccessError> {
    let (certificate, key) = ("patroni_tls_cert_file", "patroni_tls_key_file");
    let files = (
        &settings.patroni_tls_cert_file,
        &settings.patroni_tls_key_file,
    );
    match files {
        (None, None) => Ok(None),
        (Some(_), None) => Err(AccessError::Incomplete(certificate, key)),
        (None, Some(_)) => Err(AccessError::Incomplete(key, certificate)),
        (Some(_), Some(_)) if settings.patroni_tls_ca_file.is_none() => {
            Err(AccessError::Incomplete(certificate, "patroni_tls_ca_file"))
        }
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
    }
}

fn authorization(path: &Path) -> Result<HeaderValue, AccessError> {
    let text = read(path).map_err(|error| AccessError::AuthFile(path.to_owned(), error))?;
    let text = Zeroizing::new(text);
    header(&text).ok_or_else(|| AccessError::AuthForm(path.to_owned()))
}

/// Returns the value of the header for the text of the file.
fn header(text: &str) -> Option<HeaderValue> {
    let line = text.trim();
    if line.lines().count() != 1 {
        return None;
    }
    let value = match line.strip_prefix("Bearer ") {
        Some(token) if token.trim().is_empty() => return None,
        Some(_) => Zeroizing::new(line.to_owned()),
        None => {
            let (user, _) = line.split_once(':')?;
            if user.is_empty() {
                return None;
            }
            let encoded = Zeroizing::new(BASE64_STANDARD.encode(line));
            Zeroizing::new(format!("Basic {}", &**encoded))
        }
    };
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_passwords() {
        for (text, expect) in [
            ("Bearer abc\n", Some("Bearer abc")),
            ("user:pass\n", Some("Basic dXNlcjpwYXNz")),
            ("user:\n", Some("Basic dXNlcjo=")),
            ("", None),
            ("Bearer \n", None),
            (":pass", None),
            ("abc", None),
            ("Bearer a\nBearer b", None),
            ("Bearer a\u{1}b", None),
        ] {
            let found = header(text);
            let shown = found.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(shown, expect, "{text:?}");
            assert!(!format!("{found:?}").contains("abc"));
        }
    }
}
