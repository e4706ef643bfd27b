//! TLS connections that are handed over.

use std::borrow::Cow;

use super::{
    BadFrame, TlsState,
    field::{Fields, Writer},
};
use crate::TlsFacts;

/// The TLS states of a client that is handed over, and of its server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encryption {
    /// The state of the client's connection; `None` if it is not encrypted.
    pub client: Option<TlsState>,
    /// The state of the server's connection; `None` if there is no server, or its connection is not encrypted.
    pub server: Option<TlsState>,
}

mod tag {
    pub(super) const PROTOCOL: u8 = 1;
    pub(super) const CIPHER: u8 = 2;
    pub(super) const GROUP: u8 = 3;
}

/// Writes the facts about a TLS connection that the console shows.
pub(super) fn write(facts: &TlsFacts, to: &mut Writer) {
    to.bytes(tag::PROTOCOL, facts.protocol.as_bytes())
        .bytes(tag::CIPHER, facts.cipher.as_bytes());
    if let Some(group) = &facts.group {
        to.bytes(tag::GROUP, group.as_bytes());
    }
}

/// Reads what [`write`] has written. Certificates and channel binding are not included: only a login uses them, and
/// this client's login is over.
pub(super) fn read(bytes: &[u8]) -> Result<TlsFacts, BadFrame> {
    let mut facts = TlsFacts {
        protocol: Cow::Borrowed(""),
        cipher: Cow::Borrowed(""),
        group: None,
        peer: None,
        end_point: None,
        is_agreed: false,
    };
    for field in Fields(bytes) {
        let field = field?;
        match field.tag {
            tag::PROTOCOL => facts.protocol = field.text()?.into(),
            tag::CIPHER => facts.cipher = field.text()?.into(),
            tag::GROUP => facts.group = Some(field.text()?.into()),
            _ => field.unknown()?,
        }
    }
    Ok(facts)
}
