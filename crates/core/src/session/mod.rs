//! What a client believes its session to be, what a server really holds, and the messages that
//! make up the difference.
//!
//! So far: the parameters that PgBouncer tracks in transaction mode.

mod quote;
mod tracked;

pub use tracked::{Tracked, TrackedNames};
