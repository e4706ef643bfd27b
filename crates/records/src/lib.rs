//! The record layer of TLS 1.2 and 1.3, for connections whose handshake another process has made.
//!
//! rustls can't take over a connection whose handshake is complete. So the new process of an online restart uses this
//! layer instead: it encrypts and decrypts application data, and handles alerts, close_notify and new keys (KeyUpdate).
//! There are no handshakes, and no renegotiation. Keys and nonces continue where the old process stopped.
//!
//! - [`Records`]: an open connection. Bytes in, bytes out; no I/O.
//! - [`Saved`]: its state on the way to another process.
//! - `direction`: the keys of one direction. `message`: alerts and handshake messages in decrypted records.

mod direction;
mod message;
mod records;
mod saved;

#[cfg(test)]
mod tests;

pub use self::{
    direction::{Direction, Keys, Suite},
    records::{Opened, Records},
    saved::{BadState, Saved},
};

/// The version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// This side's role in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The server, towards pgweir's clients.
    Server,
    /// The client, towards PostgreSQL.
    Client,
}

/// The reason why a connection can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// A record is longer than allowed.
    TooLong,
    /// A record can't be decrypted.
    BadRecord,
    /// The kind of a record or of a message is not allowed at this point.
    Unexpected,
    /// A message is malformed.
    Malformed,
    /// The other side has sent this alert.
    Alert(u8),
    /// The keys have protected as many records as they may.
    KeysUsedUp,
    /// Nothing more can be sent, since this side has closed.
    Closed,
}

impl RecordError {
    /// Returns the alert that tells the other side about the error.
    #[must_use]
    pub fn alert(self) -> Option<u8> {
        match self {
            Self::TooLong => Some(22),
            Self::BadRecord => Some(20),
            Self::Unexpected => Some(10),
            Self::Malformed => Some(50),
            Self::KeysUsedUp => Some(80),
            Self::Alert(_) | Self::Closed => None,
        }
    }
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong => f.write_str("a TLS record is too long"),
            Self::BadRecord => f.write_str("a TLS record can't be decrypted"),
            Self::Unexpected => f.write_str("an unexpected TLS message"),
            Self::Malformed => f.write_str("a malformed TLS message"),
            Self::Alert(number) => write!(f, "the other side sent TLS alert {number}"),
            Self::KeysUsedUp => {
                f.write_str("the TLS keys have protected as many records as they may")
            }
            Self::Closed => f.write_str("the TLS connection is closed"),
        }
    }
}

impl std::error::Error for RecordError {}
