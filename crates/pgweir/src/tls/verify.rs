//! Checks the certificates of servers and clients.
//!
//! webpki checks the chains. webpki supports neither certificates of version 1, which `openssl x509 -req` creates by
//! default, nor self-signed ones, which PostgreSQL's manual creates for a quick start. OpenSSL accepts both, so this
//! module checks both.

use std::sync::Arc;

use pgweir_formats::certificate::host;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyUsage,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};
use x509_parser::{
    certificate::X509Certificate, oid_registry::OID_PKCS1_RSAENCRYPTION, prelude::FromDer,
    x509::AlgorithmIdentifier,
};

/// The certificates of an authority file.
#[derive(Debug)]
pub(super) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    /// The lists of revoked certificates; without any, no certificate is looked up.
    revoked: Vec<CertRevocationList<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The thoroughness with which a server's certificate is checked.
#[derive(Debug)]
pub(super) enum ServerCheck {
    /// No check: TLS without a check protects against eavesdroppers, but not against a man in the middle.
    None(WebPkiSupportedAlgorithms),
    /// The certificate must be signed by an authority.
    Chain(Authorities),
    /// The certificate must be signed by an authority, and must be for the host.
    ChainAndName(Authorities),
}

/// The check of clients' certificates: each certificate that a client shows is checked.
#[derive(Debug)]
pub(super) struct ClientCheck {
    pub(super) authorities: Authorities,
    pub(super) required: bool,
    /// The names of authorities that are sent to clients, which choose a certificate by them.
    pub(super) hints: Vec<DistinguishedName>,
}

impl Authorities {
    /// # Errors
    /// The number of the entry that is not a certificate, counted from 1.
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
    ) -> Result<Self, usize> {
        let bad = certificates
            .iter()
            .position(|certificate| anchor_from_trusted_cert(certificate).is_err());
        match bad {
            Some(index) => Err(index + 1),
            None => Ok(Self {
                certificates,
                revoked: Vec::new(),
                algorithms: provider.signature_verification_algorithms,
            }),
        }
    }

    /// Looks certificates up in these lists. As in PostgreSQL, each certificate of a chain needs a list of its issuer that
    /// has not expired.
    pub(super) fn with_revoked(self, revoked: Vec<CertRevocationList<'static>>) -> Self {
        Self { revoked, ..self }
    }

    /// Returns the names of the authorities.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let names = self.certificates.iter().filter_map(|der| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            Some(DistinguishedName::from(
                certificate.subject().as_raw().to_vec(),
            ))
        });
        names.collect()
    }

    /// Checks that an authority has signed the certificate for this use, and that it is valid now.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        usage: impl ExtendedKeyUsageValidator,
        now: UnixTime,
    ) -> Result<(), Error> {
        // A certificate that is in the file itself is trusted.
        if self.certificates.iter().any(|known| known == end_entity) {
            return is_timely(&parse(end_entity)?, now);
        }
        let anchors: Vec<_> = self
            .certificates
            .iter()
            .filter_map(|certificate| anchor_from_trusted_cert(certificate).ok())
            .collect();
        let parsed = match EndEntityCert::try_from(end_entity) {
            // Lists of revoked certificates can't be searched for these certificates.
            Err(webpki::Error::UnsupportedCertVersion) if !self.revoked.is_empty() => {
                return Err(CertificateError::UnknownRevocationStatus.into());
            }
            Err(webpki::Error::UnsupportedCertVersion) => return self.verify_v1(end_entity, now),
            parsed => parsed.map_err(of_webpki)?,
        };
        let lists: Vec<_> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        parsed
            .verify_for_usage(
                self.algorithms.all,
                &anchors,
                intermediates,
                now,
                usage,
                revocation,
                None,
            )
            .map(drop)
            .map_err(of_webpki)
    }

    /// Checks a certificate without extensions that an authority of the file has signed.
    fn verify_v1(&self, end_entity: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let certificate = parse(end_entity)?;
        is_timely(&certificate, now)?;
        let issuers = self
            .certificates
            .iter()
            .filter_map(|der| parse(der).ok())
            .filter(|issuer| issuer.subject().as_raw() == certificate.issuer().as_raw());
        for issuer in issuers {
            is_timely(&issuer, now)?;
            let signed = self.algorithms.all.iter().any(|algorithm| {
                is_of(
                    algorithm.signature_alg_id().as_ref(),
                    &certificate.signature_algorithm,
                ) && is_signed_by(
                    *algorithm,
                    &issuer,
                    certificate.tbs_certificate.as_ref(),
                    &certificate.signature_value.data,
                )
            });
            if signed {
                return Ok(());
            }
        }
        Err(CertificateError::UnknownIssuer.into())
    }
}

impl ServerCheck {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        match self {
            Self::None(algorithms) => algorithms,
            Self::Chain(authorities) | Self::ChainAndName(authorities) => &authorities.algorithms,
        }
    }
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self {
            Self::None(_) => {}
            Self::Chain(authorities) => {
                authorities.verify(end_entity, intermediates, KeyUsage::server_auth(), now)?;
            }
            Self::ChainAndName(authorities) => {
                authorities.verify(end_entity, intermediates, KeyUsage::server_auth(), now)?;
                let host = name.to_str();
                host::check(&parse(end_entity)?, &host).map_err(|instead| {
                    CertificateError::Other(rustls::OtherError(Arc::new(WrongName {
                        host: host.clone().into_owned(),
                        instead,
                    })))
                })?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(self.algorithms(), message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(self.algorithms(), message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

impl ClientCertVerifier for ClientCheck {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.authorities
            .verify(end_entity, intermediates, KeyUsage::client_auth(), now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(&self.authorities.algorithms, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(&self.authorities.algorithms, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.algorithms.supported_schemes()
    }
}

/// The certificate is for another host.
#[derive(Debug)]
struct WrongName {
    host: String,
    instead: String,
}

impl std::fmt::Display for WrongName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, instead } = self;
        write!(
            f,
            "server certificate for \"{instead}\" does not match host name \"{host}\""
        )
    }
}

impl std::error::Error for WrongName {}

/// Checks that the peer has the key of its certificate, of whatever version.
fn verify_signature(
    algorithms: &WebPkiSupportedAlgorithms,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let known = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme);
    let (_, candidates) = known.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let certificate = parse(certificate)?;
    let is_valid = candidates
        .iter()
        .any(|algorithm| is_signed_by(*algorithm, &certificate, message, signed.signature()));
    match is_valid {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

fn is_signed_by(
    algorithm: &dyn SignatureVerificationAlgorithm,
    signer: &X509Certificate<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let key = signer.public_key();
    is_of(algorithm.public_key_alg_id().as_ref(), &key.algorithm)
        && algorithm
            .verify_signature(&key.subject_public_key.data, message, signature)
            .is_ok()
}

/// Returns whether the algorithm is `id`, given as the contents of its DER.
fn is_of(id: &[u8], found: &AlgorithmIdentifier<'_>) -> bool {
    // A SEQUENCE with this content; all of them are short.
    let mut der = vec![0x30, id.len() as u8];
    der.extend_from_slice(id);
    let Ok((_, expected)) = AlgorithmIdentifier::from_der(&der) else {
        return false;
    };
    let parameters_match = match (&expected.parameters, &found.parameters) {
        (Some(expected), Some(found)) => expected.as_bytes() == found.as_bytes(),
        (None, None) => true,
        // The NULL of RSA may be omitted.
        _ => expected
            .algorithm
            .to_id_string()
            .starts_with(&OID_PKCS1_RSAENCRYPTION.to_id_string()[..18]),
    };
    expected.algorithm == found.algorithm && parameters_match
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let parsed = X509Certificate::from_der(der);
    let (_, certificate) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    Ok(certificate)
}

fn is_timely(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

fn of_webpki(error: webpki::Error) -> Error {
    use webpki::Error as Webpki;
    let error = match error {
        Webpki::BadDer | Webpki::BadDerTime => CertificateError::BadEncoding,
        Webpki::CertExpired { .. } => CertificateError::Expired,
        Webpki::CertNotValidYet { .. } => CertificateError::NotValidYet,
        Webpki::CertRevoked => CertificateError::Revoked,
        Webpki::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        Webpki::CrlExpired { .. } => CertificateError::ExpiredRevocationList,
        Webpki::UnknownIssuer => CertificateError::UnknownIssuer,
        Webpki::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Webpki::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(rustls::OtherError(Arc::new(other))),
    };
    error.into()
}
