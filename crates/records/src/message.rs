//! The contents of decrypted records other than application data: alerts and handshake messages.

use crate::{RecordError, Role, Version};

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const WARNING: u8 = 1;

const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// The longest message of a handshake that may arrive: a ticket of TLS 1.3.
const MESSAGE_MAX: usize = 1 << 16;
/// The bytes before a handshake message's body.
const HEADER: usize = 4;

/// The message KeyUpdate that does not ask the peer to change its keys.
pub(crate) const KEYS_UPDATED: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

/// The effect of an alert that is no error.
pub(crate) enum Alert {
    /// The other side will send nothing more.
    Close,
    /// The alert has no effect.
    Ignore,
}

/// Reads an alert.
pub(crate) fn alert(bytes: &[u8], version: Version) -> Result<Alert, RecordError> {
    match *bytes {
        [_, CLOSE_NOTIFY] => Ok(Alert::Close),
        [_, USER_CANCELED] => Ok(Alert::Ignore),
        [WARNING, NO_RENEGOTIATION] if version == Version::Tls12 => Ok(Alert::Ignore),
        [_, number] => Err(RecordError::Alert(number)),
        _ => Err(RecordError::Malformed),
    }
}

/// The request in a message of the handshake protocol that arrives after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The peer changes its keys; `true` asks this side to change its own, too.
    NewKeys(bool),
    /// The message is ignored.
    Nothing,
}

/// Takes the next whole message out of the handshake's bytes; `None` if the rest has not arrived.
pub(crate) fn next(
    bytes: &mut Vec<u8>,
    version: Version,
    role: Role,
) -> Result<Option<Request>, RecordError> {
    let Some(&[kind, a, b, c]) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    if len > MESSAGE_MAX {
        return Err(RecordError::TooLong);
    }
    let request = match (version, role, kind) {
        (Version::Tls13, _, KEY_UPDATE) => {
            let Some(&asks) = bytes.get(HEADER) else {
                return Ok(None);
            };
            match (len, asks) {
                (1, 0 | 1) => Request::NewKeys(asks == 1),
                _ => return Err(RecordError::Malformed),
            }
        }
        (Version::Tls13, Role::Client, NEW_SESSION_TICKET) => Request::Nothing,
        (Version::Tls12, Role::Client, HELLO_REQUEST) if len == 0 => Request::Nothing,
        _ => return Err(RecordError::Unexpected),
    };
    if bytes.len() < HEADER + len {
        return Ok(None);
    }
    bytes.drain(..HEADER + len);
    // New keys must not begin in the middle of a record.
    if matches!(request, Request::NewKeys(_)) && !bytes.is_empty() {
        return Err(RecordError::Unexpected);
    }
    Ok(Some(request))
}
