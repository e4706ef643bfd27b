//! TLS for pgweir as a client of HTTP.

use std::{hash::DefaultHasher, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use super::{TlsError, files::Files};

/// The protocol's name in TLS.
const ALPN: &[u8] = b"http/1.1";

/// Returns the configuration of a client that trusts the authorities in the file `path`. `own`: the files of the
/// client's certificate and of its key. `side` is the prefix of the settings `SIDE_ca_file`, `SIDE_cert_file` and
/// `SIDE_key_file` that name the files.
///
/// # Errors
/// A file can't be read, or has nothing that can be used.
pub(crate) fn http_client(
    side: &'static str,
    path: &str,
    own: Option<(&str, &str)>,
) -> Result<Arc<ClientConfig>, TlsError> {
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
    let builder = builder.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = files.certificates("cert_file", certificate)?;
            let secret = files.key(key)?;
            let config = builder.with_client_auth_cert(chain, secret);
            config.map_err(|error| {
                let what = format!("it can't be used with the key in {key} ({error})");
                files.wrong("cert_file", certificate, &what)
            })?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}
