//! TLS on both sides: files and settings become contexts, contexts make sessions.
//!
//! - `names`: OpenSSL's spelling of protocols, ciphers and curves, and what of it we can speak.
//! - `files`: certificates, keys and authorities.
//! - `context`: what connections are encrypted with; replaced whole when settings or files change.
//! - `verify`: whom we believe. `certificate`: what a certificate says.
//! - `session`: one connection: bytes in, bytes out.

mod certificate;
mod context;
mod files;
mod host;
mod names;
mod session;
mod verify;

pub(crate) use context::{Contexts, TlsError};
pub(crate) use session::{SessionError, TlsSession};
