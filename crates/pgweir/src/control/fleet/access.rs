//! The addresses of etcd, its CA certificates, and the node's certificate and password: `fleet_etcd` and the settings
//! of its files.

use std::{fmt, io, path::Path};

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use pgweir_config::Settings;
use zeroize::Zeroizing;

use crate::control::reload::read;

/// The members of etcd, and the TLS options, user and password for connections to them.
#[derive(Clone, Default)]
pub(crate) struct FleetAccess {
    pub(super) urls: Vec<String>,
    tls: Option<TlsOptions>,
    user: Option<(String, Zeroizing<String>)>,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetAccessError {
    /// A file can't be read.
    #[error("{0}: {1}: cannot be read: {2}")]
    File(&'static str, String, #[source] io::Error),
    /// `fleet_etcd_auth_file` does not have the form `USER:PASSWORD`.
    #[error("fleet_etcd_auth_file: {0}: expected one line: USER:PASSWORD")]
    AuthForm(String),
}

impl FleetAccessError {
    /// Returns the setting that caused the error.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::File(key, ..) => key,
            Self::AuthForm(_) => "fleet_etcd_auth_file",
        }
    }
}

impl FleetAccess {
    /// Reads the files.
    ///
    /// # Errors
    /// The first problem.
    pub(crate) fn load(settings: &Settings) -> Result<Self, FleetAccessError> {
        let file = |key: &'static str, path: &Option<String>| {
            let Some(path) = path else { return Ok(None) };
            let text = read(Path::new(path)).map(Zeroizing::new);
            text.map(Some)
                .map_err(|error| FleetAccessError::File(key, path.clone(), error))
        };
        let ca = file("fleet_etcd_tls_ca_file", &settings.fleet_etcd_tls_ca_file)?;
        let certificate = file(
            "fleet_etcd_tls_cert_file",
            &settings.fleet_etcd_tls_cert_file,
        )?;
        let key = file("fleet_etcd_tls_key_file", &settings.fleet_etcd_tls_key_file)?;
        let tls = ca.map(|ca| {
            let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca.as_bytes()));
            match certificate.zip(key) {
                Some((certificate, key)) => {
                    tls.identity(Identity::from_pem(certificate.as_bytes(), key.as_bytes()))
                }
                None => tls,
            }
        });
        let text = file("fleet_etcd_auth_file", &settings.fleet_etcd_auth_file)?;
        let user = text.map(|text| {
            let wrong = || {
                let path = settings.fleet_etcd_auth_file.clone();
                FleetAccessError::AuthForm(path.unwrap_or_default())
            };
            let line = text.trim();
            let parts = line.split_once(':').filter(|_| line.lines().count() == 1);
            let (user, password) = parts
                .filter(|(user, _)| !user.is_empty())
                .ok_or_else(wrong)?;
            Ok((user.to_owned(), Zeroizing::new(password.to_owned())))
        });
        Ok(Self {
            urls: settings.fleet_etcd.urls().to_vec(),
            tls,
            user: user.transpose()?,
        })
    }

    /// Returns the options of a connection.
    pub(in crate::control) fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.user {
            options = options.with_user(user.clone(), password.to_string());
        }
        match &self.tls {
            Some(tls) => options.with_tls(tls.clone()),
            None => options,
        }
    }
}

impl fmt::Debug for FleetAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetAccess({:?})", self.urls)
    }
}
