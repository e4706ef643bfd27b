//! Reads certificates, keys and authorities in PEM format.

use std::{fs, hash::Hasher, path::Path};

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject,
};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use super::TlsError;
use crate::setting_errors::{FileAccess, remedy};

/// Reads files, and remembers their contents.
pub(super) struct Files<'a> {
    /// The prefix of the settings: `client_tls` or `server_tls`.
    pub(super) side: &'static str,
    pub(super) print: &'a mut dyn Hasher,
}

impl Files<'_> {
    /// Returns the certificates of a file, at least one.
    pub(super) fn certificates(
        &mut self,
        key: &str,
        path: &str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let bytes = self.read(key, path)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let found =
            found.map_err(|error| self.wrong(key, path, &format!("not a PEM file ({error})")))?;
        if found.is_empty() {
            return Err(self.wrong(
                key,
                path,
                "there is no certificate in it (-----BEGIN CERTIFICATE-----)",
            ));
        }
        Ok(found)
    }

    /// Returns the lists of revoked certificates of a file, at least one.
    pub(super) fn revoked(
        &mut self,
        path: &str,
    ) -> Result<Vec<CertRevocationList<'static>>, TlsError> {
        let bytes = self.read("crl_file", path)?;
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
        let lists = lists
            .map_err(|error| self.wrong("crl_file", path, &format!("not a PEM file ({error})")))?;
        if lists.is_empty() {
            let what = "there is no list of revoked certificates in it (-----BEGIN X509 CRL-----)";
            return Err(self.wrong("crl_file", path, what));
        }
        let parsed: Result<Vec<_>, _> = lists
            .iter()
            .map(|list| OwnedCertRevocationList::from_der(list).map(CertRevocationList::from))
            .collect();
        parsed.map_err(|error| self.wrong("crl_file", path, &format!("it can't be used ({error})")))
    }

    /// Returns the private key of a file.
    pub(super) fn key(&mut self, path: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let bytes = zeroize::Zeroizing::new(self.read("key_file", path)?);
        let encrypted = b"ENCRYPTED";
        let is_encrypted = bytes
            .windows(encrypted.len())
            .any(|window| window == encrypted);
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
            let what = match is_encrypted {
                true => "the key is encrypted with a password, for which pgweir can't ask: store it without one",
                false => "there is no private key in it (-----BEGIN PRIVATE KEY-----)",
            };
            self.wrong("key_file", path, what)
        })
    }

    pub(super) fn wrong(&self, key: &str, path: &str, what: &str) -> TlsError {
        let key = format!("{}_{key}", self.side);
        let text = format!("{key}: {path}: {what}");
        TlsError::new(key, text)
    }

    fn read(&mut self, key: &str, path: &str) -> Result<Vec<u8>, TlsError> {
        let bytes = fs::read(Path::new(path)).map_err(|error| {
            let text = error.to_string();
            // Uses the C library's wording.
            let text = text.split(" (os error").next().unwrap_or_default();
            let what = format!("{text}{}", remedy(&error, FileAccess::Read));
            self.wrong(key, path, &what)
        })?;
        self.print.write(path.as_bytes());
        self.print.write(&bytes);
        self.print.write_usize(bytes.len());
        Ok(bytes)
    }
}
