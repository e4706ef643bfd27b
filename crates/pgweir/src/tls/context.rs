//! TLS contexts: built from settings and files, and replaced as a whole when these change.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use pgweir_config::{AuthType, Settings, SslMode, TlsNegotiation};
use pgweir_core::{ServerTls, TlsTerms};
use pgweir_formats::certificate;
use rustls::{
    CertificateError, ClientConfig, Error, InconsistentKeys, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::CertificateDer,
    server::NoServerSessionStorage,
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{
    files::Files,
    handover::TrafficSecretLog,
    names::{ciphers, ciphers_13, groups, protocols},
    verify::{Authorities, ClientCheck, ServerCheck},
};

/// The protocol name in ALPN, for both sides.
pub(super) const ALPN: &[u8] = b"postgresql";
/// The protocol name of HTTP in ALPN.
const ALPN_HTTP: &[u8] = b"http/1.1";
/// The number of servers whose TLS sessions are remembered for resumption.
const SESSIONS_KEPT: usize = 256;
/// The groups for the key exchange with servers. The first is the only one that PostgreSQL up to 17 accepts by default
/// (`ssl_ecdh_curve`): another first group would cost one more round trip.
const SERVER_GROUPS: &str = "prime256v1:X25519:secp384r1:X25519MLKEM768";

/// The reason why TLS settings can't be used: the setting, the file, and the problem.
#[derive(Debug, thiserror::Error)]
#[error("TLS setup failed: {text}")]
pub(crate) struct TlsError {
    /// The setting that is wrong or incomplete.
    pub(crate) key: String,
    text: String,
}

impl TlsError {
    pub(super) fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
        }
    }
}

/// The TLS contexts of both sides.
#[derive(Clone, Default)]
pub(crate) struct Contexts {
    accept: Option<Arc<Accept>>,
    connect: Option<Arc<Connect>>,
}

/// The context for connections from clients.
pub(super) struct Accept {
    pub(super) config: Arc<ServerConfig>,
    /// The configuration for HTTP.
    http: Arc<ServerConfig>,
    /// The hash of pgweir's certificate, for channel binding.
    pub(super) end_point: Option<Box<[u8]>>,
    print: u64,
    required: bool,
}

/// The context for connections to servers.
pub(super) struct Connect {
    /// The configuration, or the reason why there can't be any, whatever the server answers.
    pub(super) config: Result<Arc<ClientConfig>, &'static str>,
    terms: ServerTls,
}

/// The TLS settings of one side.
struct SideSettings<'a> {
    side: &'static str,
    mode: SslMode,
    key_file: &'a Option<String>,
    cert_file: &'a Option<String>,
    ca_file: &'a Option<String>,
    crl_file: &'a Option<String>,
    protocols: &'a str,
    ciphers: &'a str,
    ciphers_13: &'a Option<String>,
    curves: &'a str,
}

impl Contexts {
    /// Reads the files that the settings name. Parts that have not changed are taken from `before`. Messages for the
    /// operator are added to `notes`.
    ///
    /// # Errors
    /// The first problem.
    pub(crate) fn load(
        settings: &Settings,
        before: &Self,
        notes: &mut Vec<String>,
    ) -> Result<Self, TlsError> {
        let (auth_type, mode) = (settings.auth_type, settings.client_tls_sslmode);
        if auth_type == AuthType::Cert && mode != SslMode::VerifyFull {
            let what = format!(
                "auth_type=cert requires client_tls_sslmode=verify-full (it is {mode}): without a \
                 certificate nobody could log in"
            );
            return Err(TlsError::new("auth_type", what));
        }
        let accept = match settings.client_tls_sslmode {
            SslMode::Disable => None,
            _ => Some(Arc::new(Accept::load(settings, notes)?)),
        };
        let connect = match settings.server_tls_sslmode {
            SslMode::Disable => None,
            _ => Some(Arc::new(Connect::load(settings, notes)?)),
        };
        Ok(Self {
            accept: kept(accept, &before.accept, |accept| accept.print),
            connect: kept(connect, &before.connect, |connect| connect.terms.print),
        })
    }

    /// Returns the properties of the contexts that the core needs.
    pub(crate) fn terms(&self) -> TlsTerms {
        TlsTerms {
            clients: self.accept.is_some(),
            demanded: self.accept.as_ref().is_some_and(|accept| accept.required),
            servers: self.connect.as_ref().map(|connect| connect.terms),
        }
    }

    /// Returns the configuration for HTTP connections, and whether they must be encrypted.
    pub(crate) fn http(&self) -> Option<(Arc<ServerConfig>, bool)> {
        let accept = self.accept.as_ref()?;
        Some((Arc::clone(&accept.http), accept.required))
    }

    pub(super) fn accept(&self) -> Option<&Arc<Accept>> {
        self.accept.as_ref()
    }

    pub(super) fn connect(&self) -> Option<&Arc<Connect>> {
        self.connect.as_ref()
    }
}

impl Accept {
    fn load(settings: &Settings, notes: &mut Vec<String>) -> Result<Self, TlsError> {
        let tls_settings = SideSettings {
            side: "client_tls",
            mode: settings.client_tls_sslmode,
            key_file: &settings.client_tls_key_file,
            cert_file: &settings.client_tls_cert_file,
            ca_file: &settings.client_tls_ca_file,
            crl_file: &settings.client_tls_crl_file,
            protocols: &settings.client_tls_protocols,
            ciphers: &settings.client_tls_ciphers,
            ciphers_13: &settings.client_tls13_ciphers,
            curves: &settings.client_tls_ecdhcurve,
        };
        let mut print = tls_settings.print();
        let (provider, versions) = tls_settings.provider(notes)?;
        if versions.is_empty() {
            return Err(
                tls_settings.wrong("protocols", "none of them is spoken (tlsv1.2, tlsv1.3)")
            );
        }
        let mut files = Files {
            side: tls_settings.side,
            print: &mut print,
        };
        let Some((chain, key)) = tls_settings.identity(&provider, &mut files)? else {
            return Err(TlsError::new(
                "client_tls_sslmode",
                "to allow TLS connections from clients, client_tls_key_file and client_tls_cert_file must be set",
            ));
        };
        let authorities = tls_settings.authorities(&provider, &mut files)?;
        if tls_settings.mode.verifies() && authorities.is_none() {
            let what = format!(
                "client_tls_sslmode = {} needs client_tls_ca_file",
                tls_settings.mode
            );
            return Err(TlsError::new("client_tls_sslmode", what));
        }
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|_| {
                tls_settings.wrong("ciphers", "no cipher of a protocol version that is allowed")
            })?;
        let builder = match authorities {
            Some(authorities) => builder.with_client_cert_verifier(Arc::new(ClientCheck {
                hints: authorities.hints(),
                authorities,
                required: tls_settings.mode.verifies(),
            })),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| {
            let what = format!("no key for session tickets: {error}");
            TlsError::new("client_tls_sslmode", what)
        })?;
        let mut http = config.clone();
        http.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(TrafficSecretLog);
        Ok(Self {
            config: Arc::new(config),
            http: Arc::new(http),
            end_point: chain
                .first()
                .and_then(|first| certificate::end_point(first)),
            print: print.finish(),
            required: tls_settings.mode.is_required(),
        })
    }
}

impl Connect {
    fn load(settings: &Settings, notes: &mut Vec<String>) -> Result<Self, TlsError> {
        let tls_settings = SideSettings {
            side: "server_tls",
            mode: settings.server_tls_sslmode,
            key_file: &settings.server_tls_key_file,
            cert_file: &settings.server_tls_cert_file,
            ca_file: &settings.server_tls_ca_file,
            crl_file: &settings.server_tls_crl_file,
            protocols: &settings.server_tls_protocols,
            ciphers: &settings.server_tls_ciphers,
            ciphers_13: &settings.server_tls13_ciphers,
            curves: SERVER_GROUPS,
        };
        let mut print = tls_settings.print();
        settings.server_tls_negotiation.hash(&mut print);
        let (provider, versions) = tls_settings.provider(notes)?;
        let mut files = Files {
            side: tls_settings.side,
            print: &mut print,
        };
        let identity = tls_settings.identity(&provider, &mut files)?;
        let authorities = tls_settings.authorities(&provider, &mut files)?;
        let check = match (tls_settings.mode, authorities) {
            (SslMode::VerifyCa, Some(authorities)) => ServerCheck::Chain(authorities),
            (SslMode::VerifyFull, Some(authorities)) => ServerCheck::ChainAndName(authorities),
            (SslMode::VerifyCa | SslMode::VerifyFull, None) => {
                let what = format!(
                    "server_tls_sslmode = {} needs server_tls_ca_file",
                    tls_settings.mode
                );
                return Err(TlsError::new("server_tls_sslmode", what));
            }
            _ => ServerCheck::None(provider.signature_verification_algorithms),
        };
        let terms = ServerTls {
            print: print.finish(),
            required: tls_settings.mode.is_required(),
            direct: settings.server_tls_negotiation == TlsNegotiation::Direct,
        };
        if terms.direct && !terms.required {
            let what = "server_tls_negotiation = direct needs server_tls_sslmode = require, verify-ca or verify-full";
            return Err(TlsError::new("server_tls_negotiation", what));
        }
        if versions.is_empty() {
            // As in PgBouncer, the problem appears when a server agrees to TLS.
            return Ok(Self {
                config: Err(
                    "server_tls_protocols has no version that is spoken (tlsv1.2, tlsv1.3)",
                ),
                terms,
            });
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|_| {
                tls_settings.wrong("ciphers", "no cipher of a protocol version that is allowed")
            })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check));
        let mut config = match identity {
            Some((_, key)) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_KEPT);
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(TrafficSecretLog);
        Ok(Self {
            config: Ok(Arc::new(config)),
            terms,
        })
    }
}

impl SideSettings<'_> {
    fn wrong(&self, key: &str, what: &str) -> TlsError {
        let key = format!("{}_{key}", self.side);
        let text = format!("{key}: {what}");
        TlsError::new(key, text)
    }

    /// Returns the allowed protocols, ciphers and groups.
    fn provider(
        &self,
        notes: &mut Vec<String>,
    ) -> Result<
        (
            CryptoProvider,
            Vec<&'static rustls::SupportedProtocolVersion>,
        ),
        TlsError,
    > {
        let side = self.side;
        let mut note = |key: &str, note: Option<String>| {
            notes.extend(note.map(|note| format!("{side}_{key}: {note}")));
        };
        let chosen = protocols(self.protocols)
            .map_err(|word| self.wrong("protocols", &format!("unknown protocol \"{word}\"")))?;
        note("protocols", chosen.note);
        let mut versions = chosen.items;
        let key_13 = "13_ciphers";
        let new = ciphers_13(self.ciphers_13.as_deref().unwrap_or_default());
        let new = new.map_err(|word| {
            let key = format!("{side}{key_13}");
            let text = format!(
                "failed to set the TLSv1.3 cipher suites: {key}: unknown cipher \"{word}\""
            );
            TlsError::new(key, text)
        })?;
        notes.extend(new.note.map(|note| format!("{side}{key_13}: {note}")));
        let old = ciphers(self.ciphers);
        if old.is_empty() {
            versions.retain(|version| version.version == rustls::ProtocolVersion::TLSv1_3);
            let what = "none of them is available for TLS 1.2 (ECDHE with AES-GCM or CHACHA20)";
            match versions.is_empty() {
                true => return Err(self.wrong("ciphers", what)),
                false => notes.push(format!("{side}_ciphers: {what}: only TLS 1.3 is spoken")),
            }
        }
        let groups = groups(self.curves)
            .map_err(|word| self.wrong("ecdhcurve", &format!("unknown curve \"{word}\"")))?;
        if groups.items.is_empty() {
            return Err(self.wrong(
                "ecdhcurve",
                "none of them is available (X25519, prime256v1, secp384r1)",
            ));
        }
        notes.extend(groups.note.map(|note| format!("{side}_ecdhcurve: {note}")));
        let provider = CryptoProvider {
            cipher_suites: new.items.into_iter().chain(old).collect(),
            kx_groups: groups.items,
            ..aws_lc_rs::default_provider()
        };
        Ok((provider, versions))
    }

    /// Returns the certificate and the key, if there are any.
    fn identity(
        &self,
        provider: &CryptoProvider,
        files: &mut Files<'_>,
    ) -> Result<Option<(Vec<CertificateDer<'static>>, CertifiedKey)>, TlsError> {
        let (Some(cert_file), Some(key_file)) = (self.cert_file, self.key_file) else {
            return match (self.cert_file, self.key_file) {
                (Some(_), None) => {
                    Err(self.wrong("cert_file", &format!("needs {}_key_file", self.side)))
                }
                (None, Some(_)) => {
                    Err(self.wrong("key_file", &format!("needs {}_cert_file", self.side)))
                }
                _ => Ok(None),
            };
        };
        let chain = files.certificates("cert_file", cert_file)?;
        let key = files.key(key_file)?;
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| {
                files.wrong(
                    "key_file",
                    key_file,
                    &format!("the key can't be used ({error})"),
                )
            })?;
        let certified = CertifiedKey::new(chain.clone(), key);
        match certified.keys_match() {
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let what = format!("it is not the key of the certificate in {cert_file}");
                Err(files.wrong("key_file", key_file, &what))
            }
            Err(Error::InvalidCertificate(CertificateError::BadEncoding))
                if certificate::peer(&chain[0]).is_none() =>
            {
                Err(files.wrong("cert_file", cert_file, "the certificate is damaged"))
            }
            // A certificate of version 1 can't be checked.
            _ => Ok(Some((chain, certified))),
        }
    }

    fn authorities(
        &self,
        provider: &CryptoProvider,
        files: &mut Files<'_>,
    ) -> Result<Option<Authorities>, TlsError> {
        let Some(path) = self.ca_file else {
            return match self.crl_file {
                Some(_) => {
                    let what = format!("it needs {}_ca_file", self.side);
                    Err(self.wrong("crl_file", &what))
                }
                None => Ok(None),
            };
        };
        let certificates = files.certificates("ca_file", path)?;
        let revoked = match self.crl_file {
            Some(path) => files.revoked(path)?,
            None => Vec::new(),
        };
        match Authorities::new(certificates, provider) {
            Ok(authorities) => Ok(Some(authorities.with_revoked(revoked))),
            Err(at) => Err(files.wrong("ca_file", path, &format!("certificate {at} is damaged"))),
        }
    }

    /// Returns a hash of everything that is not in files.
    fn print(&self) -> DefaultHasher {
        let mut print = DefaultHasher::new();
        self.mode.hash(&mut print);
        (self.key_file, self.cert_file, self.ca_file).hash(&mut print);
        (self.protocols, self.ciphers, self.ciphers_13, self.curves).hash(&mut print);
        print
    }
}

/// Returns the old context if the new one equals it, so that sessions can still be resumed.
fn kept<T>(new: Option<Arc<T>>, old: &Option<Arc<T>>, print: impl Fn(&T) -> u64) -> Option<Arc<T>> {
    let new = new?;
    match old {
        Some(old) if print(old) == print(&new) => Some(Arc::clone(old)),
        _ => Some(new),
    }
}

impl PartialEq for Contexts {
    fn eq(&self, other: &Self) -> bool {
        let print = |of: &Self| {
            (
                of.accept.as_ref().map(|accept| accept.print),
                of.connect.as_ref().map(|connect| connect.terms.print),
            )
        };
        print(self) == print(other)
    }
}

impl Eq for Contexts {}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contexts")
            .field("accept", &self.accept.is_some())
            .field("connect", &self.connect.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use rustls::NamedGroup;

    use super::*;

    #[test]
    fn servers_are_offered_first_what_they_accept() {
        let settings = Settings {
            server_tls_sslmode: SslMode::Require,
            ..Settings::default()
        };
        let connect = Connect::load(&settings, &mut Vec::new()).expect("no files are needed");
        let config = connect.config.expect("there is a version");
        let groups = &config.crypto_provider().kx_groups;
        assert_eq!(groups[0].name(), NamedGroup::secp256r1);
        assert!(groups.len() > 1);
    }
}
