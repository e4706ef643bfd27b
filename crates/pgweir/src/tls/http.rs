//! TLS for pgweir as a client of HTTP.

use std::{hash::DefaultHasher, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use super::{TlsError, files::Files};

/// The protocol's name in TLS.
const ALPN: &[u8] = b"http/1.1";

/// Returns the configuration of a client that trusts the authorities in a file. `side` is the prefix of the setting
/// `SIDE_ca_file` that names the file.
///
/// # Errors
/// The file can't be read, or has no authority that can be used.
pub(crate) fn http_client(side: &'static str, path: &str) -> Result<Arc<ClientConfig>, TlsError> {
    let mut print = DefaultHasher::new();
    let mut files = Files {
        side,
        print: &mut print,
    };
    let mut roots = RootCertStore::empty();
    for certificate in files.certificates("ca_file", path)? {
        roots.add(certificate).map_err(|error| {
            files.wrong(
                "ca_file",
                path,
                &format!("an authority can't be used ({error})"),
            )
        })?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| files.wrong("ca_file", path, &error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}
