//! The state of a TLS connection on its way to another process: keys, sequence numbers, and the secrets from which the
//! next keys are derived.

#[cfg(test)]
mod tests;

use std::{cell::RefCell, fmt};

use pgweir_records::{Direction, Keys, Role, Saved, Suite, Version};
use rustls::{ConnectionTrafficSecrets, Error, ExtractedSecrets, KeyLog, ProtocolVersion};
use zeroize::Zeroizing;

const OF_CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const OF_SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// The traffic secrets of a TLS 1.3 connection at the end of its handshake.
pub(super) struct TrafficSecrets {
    client: Zeroizing<Vec<u8>>,
    server: Zeroizing<Vec<u8>>,
}

thread_local! {
    /// The secrets of the handshake that this thread is working on. rustls names them only to a [`KeyLog`], which it
    /// calls while it handles the connection's bytes.
    static CAUGHT: RefCell<[Option<Zeroizing<Vec<u8>>>; 2]> = const { RefCell::new([None, None]) };
}

/// Keeps the traffic secrets of the present handshake for [`caught_secrets`], and writes nothing.
#[derive(Debug)]
pub(super) struct TrafficSecretLog;

impl KeyLog for TrafficSecretLog {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let at = match label {
            OF_CLIENT => 0,
            OF_SERVER => 1,
            _ => return,
        };
        CAUGHT.with_borrow_mut(|caught| caught[at] = Some(Zeroizing::new(secret.to_vec())));
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, OF_CLIENT | OF_SERVER)
    }
}

/// Forgets the secrets of another connection.
pub(super) fn forget_secrets() {
    CAUGHT.take();
}

/// Takes the secrets that the last step of a handshake has made, if it was that step.
pub(super) fn caught_secrets() -> Option<TrafficSecrets> {
    let [client, server] = CAUGHT.take();
    Some(TrafficSecrets {
        client: client?,
        server: server?,
    })
}

impl fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrafficSecrets")
    }
}

/// Returns the state of a connection of rustls, without the bytes that were read.
///
/// # Errors
///
/// The record layer does not know the connection's cipher.
pub(super) fn save_rustls(
    role: Role,
    version: Option<ProtocolVersion>,
    extracted: ExtractedSecrets,
    secrets: Option<&TrafficSecrets>,
) -> Result<Saved, Error> {
    let version = match version {
        Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
        Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
        _ => return Err(Error::HandshakeNotComplete),
    };
    let (suite, read) = keys_of(extracted.rx)?;
    let (_, write) = keys_of(extracted.tx)?;
    let secrets = secrets.filter(|_| version == Version::Tls13);
    let of = |is_client: bool, keys: Keys| match (secrets, is_client) {
        (None, _) => keys,
        (Some(secrets), true) => Direction::find(suite, keys, &secrets.client),
        (Some(secrets), false) => Direction::find(suite, keys, &secrets.server),
    };
    Ok(Saved {
        version,
        role,
        suite,
        read: of(role == Role::Server, read),
        write: of(role == Role::Client, write),
        handshake: Vec::new(),
        partial: Vec::new(),
        plain: Vec::new(),
        has_ended: false,
    })
}

fn keys_of((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<(Suite, Keys), Error> {
    let (suite, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Suite::ChaCha20Poly1305, key, iv)
        }
        _ => {
            return Err(Error::General(
                "a cipher that can't be handed over".to_owned(),
            ));
        }
    };
    let iv = iv.as_ref().try_into();
    let iv = iv.map_err(|_| Error::General("a nonce of another length".to_owned()))?;
    let keys = Keys {
        key: Zeroizing::new(key.as_ref().to_vec()),
        iv,
        sequence,
        secret: None,
    };
    Ok((suite, keys))
}
