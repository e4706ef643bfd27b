//! The contents of certificates that pgweir uses: names, and the hash for channel binding.

pub mod host;

use pgweir_core::PeerCertificate;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    objects::{oid_registry, oid2abbrev},
    prelude::FromDer,
    signature_algorithm::RsaSsaPssParams,
    x509::{AlgorithmIdentifier, X509Name},
};

/// Returns the identity that a certificate names.
#[must_use]
pub fn peer(der: &[u8]) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(PeerCertificate {
        common_name: common_name(&certificate).map(str::to_owned),
        subject: rfc2253(certificate.subject()),
        dns_names: dns_names(&certificate).map(str::to_owned).collect(),
    })
}

/// Returns the common name of the subject. A name with a NUL byte is ignored, since it is meant to be misread, and so are
/// several names, since programs differ on which of them counts.
fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?;
    if names.next().is_some() {
        return None;
    }
    name.as_str().ok().filter(|name| !name.contains('\0'))
}

/// Returns the DNS names of the certificate.
fn dns_names<'a>(certificate: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    alternatives(certificate).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    })
}

/// Returns the subject's alternative names.
fn alternatives<'a>(
    certificate: &'a X509Certificate<'_>,
) -> impl Iterator<Item = &'a GeneralName<'a>> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    extension
        .into_iter()
        .flat_map(|extension| &extension.value.general_names)
}

/// Returns the hash of a server's certificate for `tls-server-end-point` (RFC 5929), with the hash function of the
/// certificate's signature, but SHA-256 in place of MD5 and SHA-1. `None` if the signature has no hash function.
#[must_use]
pub fn end_point(der: &[u8]) -> Option<Box<[u8]>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(match hash_of(&certificate.signature_algorithm)? {
        224 => Sha224::digest(der).as_slice().into(),
        256 => Sha256::digest(der).as_slice().into(),
        384 => Sha384::digest(der).as_slice().into(),
        _ => Sha512::digest(der).as_slice().into(),
    })
}

/// Returns the number of bits of the hash function in a signature.
fn hash_of(algorithm: &AlgorithmIdentifier<'_>) -> Option<u32> {
    match algorithm.algorithm.to_id_string().as_str() {
        // RSA: MD5, SHA-1, SHA-2; ECDSA: SHA-1, SHA-2; then the hashes themselves.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" => Some(256),
        "1.3.14.3.2.26" => Some(256),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" | "2.16.840.1.101.3.4.2.4" => Some(224),
        "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" | "2.16.840.1.101.3.4.2.1" => Some(256),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => Some(384),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => Some(512),
        // RSASSA-PSS: the hash function in its parameters, SHA-1 by default.
        "1.2.840.113549.1.1.10" => {
            let parameters = algorithm.parameters.as_ref()?;
            let parameters = RsaSsaPssParams::try_from(parameters).ok()?;
            match parameters.hash_algorithm() {
                Some(hash) => hash_of(hash),
                None => Some(256),
            }
        }
        _ => None,
    }
}

/// Formats a name with the most specific part first, as in an ident map.
fn rfc2253(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (index, part) in parts.into_iter().rev().enumerate() {
        for (at, attribute) in part.iter().enumerate() {
            match (index, at) {
                (0, 0) => {}
                (_, 0) => text.push(','),
                _ => text.push('+'),
            }
            match oid2abbrev(attribute.attr_type(), oid_registry()) {
                Ok(abbreviation) => text.push_str(abbreviation),
                Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
            }
            text.push('=');
            let value = attribute.as_str().unwrap_or("?");
            for letter in value.chars() {
                if matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
                    text.push('\\');
                }
                text.push(if letter.is_control() { '?' } else { letter });
            }
        }
    }
    text
}
