//! The types that all other modules use: ids, times, addresses, errors, counters, and the facts about TLS and memory.
//!
//! A module of this folder imports no module from outside of it.

pub(crate) mod address;
pub(crate) mod auth_check;
pub(crate) mod conditions;
pub mod digits;
pub(crate) mod exclusive_server;
pub mod fault;
pub(crate) mod inbox;
pub mod memory;
pub mod pin;
pub(crate) mod progress;
pub mod stats;
pub(crate) mod time;
pub(crate) mod tls;
pub(crate) mod token;
