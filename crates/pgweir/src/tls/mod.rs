//! TLS on both sides. Files and settings become contexts, contexts create sessions.
//!
//! - `names`: OpenSSL's names of protocols, ciphers and curves, and which of them are supported.
//! - `files`: certificates, keys and authorities.
//! - `context`: the contexts, replaced as a whole when settings or files change.
//! - `http`: the configuration of a client of HTTP.
//! - `verify`: checks of certificates. The crate `formats` reads their contents.
//! - `session`: one encrypted connection: bytes in, bytes out. `handover`: its state on the way to another process.

mod context;
mod files;
mod handover;
mod http;
mod names;
mod session;
mod verify;

pub(crate) use context::{Contexts, TlsError};
pub(crate) use http::http_client;
pub(crate) use pgweir_formats::certificate::peer as peer_certificate;
pub(crate) use session::{SessionError, TlsSession};
