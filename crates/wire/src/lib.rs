//! PostgreSQL's wire protocol, versions 3.0 and 3.2: bytes to messages and back.
//!
//! The crate has no state and no sockets, and parsing does not allocate: parsed values borrow from the input. The
//! source of all rules is the chapter "Frontend/Backend Protocol" of PostgreSQL's manual.

mod body;
mod header;
mod message;
mod report;
pub mod sqlstate;
mod startup;
pub mod tag;

pub use body::{Body, Malformed};
pub use header::{BadLength, HEADER_LEN, Header};
pub use message::{Authentication, MessageWriter};
pub use report::{Report, Severity};
pub use startup::{
    LATEST, ProtocolVersion, Startup, StartupError, StartupParameters, cancel_request,
    is_cancel_request, ssl_request, startup_packet,
};
