//! Whom we believe: certificates of servers and of clients.
//!
//! Chains are checked by webpki. It knows neither certificates of version 1, which `openssl x509 -req`
//! makes by default, nor ones that are their own authority, as PostgreSQL's manual makes them for a
//! quick start; OpenSSL takes both, so both are seen to here.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{
    certificate::X509Certificate, oid_registry::OID_PKCS1_RSAENCRYPTION, prelude::FromDer,
    x509::AlgorithmIdentifier,
};

use super::host;

/// The certificates of an authority file.
#[derive(Debug)]
pub(super) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// How far a server's certificate is looked at.
#[derive(Debug)]
pub(super) enum ServerCheck {
    /// Not at all: TLS without it keeps listeners out, but nobody in between.
    None(WebPkiSupportedAlgorithms),
    /// An authority must have signed it.
    Chain(Authorities),
    /// And it must be for the host.
    ChainAndName(Authorities),
}

/// Clients' certificates: each one that is shown is checked.
#[derive(Debug)]
pub(super) struct ClientCheck {
    pub(super) authorities: Authorities,
    pub(super) required: bool,
    /// Sent to clients, who choose by them.
    pub(super) hints: Vec<DistinguishedName>,
}

impl Authorities {
    /// # Errors
    /// Which of them is not a certificate, counted from 1.
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
                algorithms: provider.signature_verification_algorithms,
            }),
        }
    }

    /// Their names.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let names = self.certificates.iter().filter_map(|der| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            Some(DistinguishedName::from(
                certificate.subject().as_raw().to_vec(),
            ))
        });
        names.collect()
    }

    /// Has one of them signed this, for this use and for now?
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        usage: impl ExtendedKeyUsageValidator,
        now: UnixTime,
    ) -> Result<(), Error> {
        // Whoever put the certificate itself into the file trusts it.
        if self.certificates.iter().any(|known| known == end_entity) {
            return is_timely(&parse(end_entity)?, now);
        }
        let anchors: Vec<_> = self
            .certificates
            .iter()
            .filter_map(|certificate| anchor_from_trusted_cert(certificate).ok())
            .collect();
        let parsed = match EndEntityCert::try_from(end_entity) {
            Err(webpki::Error::UnsupportedCertVersion) => return self.verify_v1(end_entity, now),
            parsed => parsed.map_err(of_webpki)?,
        };
        parsed
            .verify_for_usage(
                self.algorithms.all,
                &anchors,
                intermediates,
                now,
                usage,
                None,
                None,
            )
            .map(drop)
            .map_err(of_webpki)
    }

    /// A certificate without extensions, signed by one of the file.
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

/// A certificate that is for another host.
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

/// Does the peer have the key of its certificate, of whatever version that is?
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

/// Is it this algorithm, given as the contents of its DER?
fn is_of(id: &[u8], found: &AlgorithmIdentifier<'_>) -> bool {
    // A SEQUENCE of this content; all of them are short.
    let mut der = vec![0x30, id.len() as u8];
    der.extend_from_slice(id);
    let Ok((_, expected)) = AlgorithmIdentifier::from_der(&der) else {
        return false;
    };
    let parameters_match = match (&expected.parameters, &found.parameters) {
        (Some(expected), Some(found)) => expected.as_bytes() == found.as_bytes(),
        (None, None) => true,
        // RSA's NULL may be left out.
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
        Webpki::UnknownIssuer => CertificateError::UnknownIssuer,
        Webpki::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Webpki::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(rustls::OtherError(Arc::new(other))),
    };
    error.into()
}
