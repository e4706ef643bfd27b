//! Bytes and sockets: one event loop per worker.
//!
//! [`Driver`] is the seam: it turns what epoll says into events of the core, and carries out the
//! actions that come back. The core knows nothing of what is behind it.
//!
//! - `driver`: the loop, and which event goes where.
//! - `secure`: what is between sockets and core when a connection is encrypted.
//! - `execute`: the actions. `read`, `send`, `closing`, `connect`, `accept`: one direction each.
//! - `poller`, `table`, `mailbox`, `timers`, `listener`, `inherited`, `holder`, `options`: what they are made of.

mod accept;
mod closing;
mod connect;
mod driver;
mod execute;
pub(crate) mod holder;
mod inherited;
mod io;
mod listener;
mod mailbox;
mod options;
mod poller;
mod pooler;
mod read;
mod secure;
mod send;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use accept::Load;
pub(crate) use driver::{Driver, Surroundings};
pub(crate) use inherited::Passed;
pub(crate) use listener::{
    ListenError, ListenPlan, Listeners, addresses_of, group_id, tcp_socket, unix_path,
};
pub(crate) use mailbox::{Mailboxes, Parcel};
pub(crate) use options::{NetOptions, SocketOptions};
