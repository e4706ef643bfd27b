//! PostgreSQL's wire protocol, versions 3.0 and 3.2: bytes to messages and back.
//!
//! No state, no socket, and no allocation on the way in: what is parsed borrows from the bytes
//! that hold it. The source of all rules is PostgreSQL's manual, chapter "Frontend/Backend
//! Protocol".

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
    LATEST, ProtocolVersion, Startup, StartupError, StartupParameters, cancel_request, ssl_request,
    startup_packet,
};
