//! What a client believes its session to be, what a server really holds, and the messages that
//! make up the difference.
//!
//! So far: the parameters that PgBouncer tracks in transaction mode, and the prepared statements of
//! the extended protocol.

pub mod certificates;
mod names;
mod quote;
pub mod scan;
mod shape;
mod statement;
mod tracked;

pub use names::{BindingId, Bindings, Names};
pub use shape::Shape;
pub use statement::{NO_SUCH_NAME, RESERVED, Statement, Statements};
pub use tracked::{Tracked, TrackedNames};
