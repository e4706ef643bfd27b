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
//! Over TLS, with `p=tls-server-end-point,,` for `n,,` and that with the hash of the server's certificate for
//! `biws`, both sides prove that they see the same certificate: SCRAM-SHA-256-PLUS (RFC 5929).

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

/// The mechanism, as SASL names it.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The same with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// How a message begins that is bound to the server's certificate.
const END_POINT_HEADER: &str = "p=tls-server-end-point,,";

/// Random bytes in a nonce; PostgreSQL's own number. They travel as 24 characters of Base64.
pub const NONCE_BYTES: usize = 18;

/// Bytes of a salt; PostgreSQL's own number.
pub const SALT_BYTES: usize = 16;

/// The iteration count that PostgreSQL and PgBouncer use by default.
pub const DEFAULT_ITERATIONS: u32 = 4096;

/// The highest iteration count that a server may ask of us, and that a secret may have.
///
/// A server decides how long we compute before it has proved anything; this bounds it to some
/// seconds. It is 16 times what OWASP advises for a password hash of this kind (600,000).
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// The longest message accepted from a client, in bytes; PostgreSQL's own limit.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 1024;

/// The longest message accepted from a server, in bytes; libpq's own limit.
pub const MAX_SERVER_MESSAGE_BYTES: usize = 2000;

/// Bytes of a SHA-256 hash, and so of every key, proof and signature here.
const KEY_BYTES: usize = 32;
