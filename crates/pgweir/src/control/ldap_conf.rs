//! The TLS options of `ldap.conf`, as libldap reads them: from the file that `LDAPCONF` names, or from
//! `/etc/ldap/ldap.conf`. Environment variables (`LDAPTLS_CACERT`, ...) override the file.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use pgweir_formats::ldap_conf::{LdapConf, OPTIONS};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

const USUAL: &str = "/etc/ldap/ldap.conf";
/// The files in which distributions keep the certificates of public authorities.
const AUTHORITIES: [&str; 2] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// The LDAP servers to trust.
pub(super) enum Trust {
    /// Any server.
    Anybody,
    /// Servers with a valid certificate.
    Verified(Arc<ClientConfig>),
}

/// Reads the file and the environment.
///
/// # Errors
/// When a file that `LDAPCONF` names can't be read.
pub(super) fn load() -> Result<LdapConf, String> {
    let named = env::var_os("LDAPCONF").map(PathBuf::from);
    let path = named.as_deref().unwrap_or(Path::new(USUAL));
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(_) if named.is_none() => String::new(),
        Err(error) => {
            return Err(format!(
                "{}: cannot be read: {error} (LDAPCONF names it)",
                path.display()
            ));
        }
    };
    let mut conf = LdapConf::parse(&text);
    for option in OPTIONS {
        if let Ok(value) = env::var(format!("LDAP{option}")) {
            conf.set(option, &value);
        }
    }
    Ok(conf)
}

/// Returns the servers to trust.
///
/// # Errors
/// When no certificate of an authority is found.
pub(super) fn trust(conf: &LdapConf) -> Result<Trust, String> {
    if conf.accepts_any_certificate {
        return Ok(Trust::Anybody);
    }
    let mut roots = RootCertStore::empty();
    for file in files(conf) {
        let certificates = CertificateDer::pem_file_iter(&file)
            .map_err(|error| format!("{}: no certificates: {error}", file.display()))?;
        roots.add_parsable_certificates(certificates.flatten());
    }
    if roots.is_empty() {
        return Err(
                "no certificate of an authority to check LDAP servers with: set TLS_CACERT in ldap.conf"
                    .to_owned(),
            );
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Trust::Verified(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    )))
}

fn files(conf: &LdapConf) -> Vec<PathBuf> {
    let folder = conf
        .ca_folder
        .as_ref()
        .and_then(|folder| fs::read_dir(folder).ok());
    let of_folder = folder
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let files: Vec<PathBuf> = conf
        .ca_file
        .clone()
        .into_iter()
        .chain(of_folder.filter(|path| path.is_file()))
        .collect();
    match files.is_empty() {
        false => files,
        true => AUTHORITIES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .into_iter()
            .collect(),
    }
}
