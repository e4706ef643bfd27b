//! SCRAM-SHA-256 (RFC 5802, RFC 7677), both sides, as PostgreSQL speaks it.
//!
//! ```text
//! client                                     server
//!   n,,n=,r=NONCE                     -->              ClientExchange::first
//!                                     <--  r=NONCE+,s=SALT,i=ITERATIONS
//!                                                      ServerExchange::client_first
//!   c=biws,r=NONCE+,p=PROOF           -->              ClientExchange::finish
//!                                     <--  v=SIGNATURE
//!                                                      ServerExchange::client_final
//!   checks the signature                               ClientExchange::server_final
//! ```
//!
//! Over TLS, SCRAM-SHA-256-PLUS (RFC 5929) also proves that both sides see the same certificate: `p=tls-server-end-point,,`
//! replaces `n,,`, and the same header with the hash of the server's certificate replaces `biws`.

mod client;
mod error;
mod keys;
mod message;
mod secret;
mod server;

pub use client::{Challenge, ChannelBinding, ClientExchange};
pub use error::ScramError;
pub use keys::{ClientKeys, DeriveJob, DerivedKeys, build_secret, user_salt};
pub use secret::Secret;
pub use server::ServerExchange;

/// The mechanism's name in SASL.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The name of the mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The beginning of a message that is bound to the server's certificate.
const END_POINT_HEADER: &str = "p=tls-server-end-point,,";

/// The number of random bytes in a nonce, as in PostgreSQL. In messages these are 24 characters of Base64.
pub const NONCE_BYTES: usize = 18;

/// The number of bytes of a salt, as in PostgreSQL.
pub const SALT_BYTES: usize = 16;

/// The iteration count that PostgreSQL and PgBouncer use by default.
pub const DEFAULT_ITERATIONS: u32 = 4096;

/// The highest iteration count that a server may ask for, and that a secret may have.
///
/// A server that has not proved anything yet decides how long pgweir computes; this limit bounds the time to some
/// seconds. OWASP advises 600,000 iterations for a password hash of this kind; the limit is 16 times as high.
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// The longest message that is accepted from a client, in bytes, as in PostgreSQL.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 1024;

/// The longest message that is accepted from a server, in bytes, as in libpq.
pub const MAX_SERVER_MESSAGE_BYTES: usize = 2000;

/// The number of bytes of a SHA-256 hash, and so of each key, proof and signature.
const KEY_BYTES: usize = 32;
