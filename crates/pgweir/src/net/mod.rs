//! Network I/O: one event loop per worker.
//!
//! [`Driver`] connects epoll or io_uring with the core: it turns the kernel's events into events of the core, and carries
//! out the actions that come back. The core does not depend on this module.
//!
//! - `driver`: the event loop, which distributes the events.
//! - `secure`: the layer between sockets and core for encrypted connections.
//! - `execute`: carries out the core's actions. `accept` and `connect`: new connections. `read` and `send`: their bytes.
//!   `closing`: connections that end. `logins`: logins and disconnects, which wait until queries have been served.
//! - `poller`: either `epoll`, or `ring` (io_uring) with its `queue`, `buffers` and `request`. `receive`: bytes that a
//!   ring has received; `fall_back`: from io_uring to epoll.
//! - `heap`: the memory that the sockets take, and the return of freed memory to the system.
//! - `table`, `mailbox`, `timers`, `listener`, `inherited`, `port_owner`, `options`: the parts of the driver.

mod accept;
mod busy_meter;
mod closing;
mod connect;
mod driver;
mod epoll;
mod execute;
mod fall_back;
mod heap;
mod inherited;
mod io;
mod listener;
mod logins;
mod mailbox;
mod options;
mod poller;
mod pooler;
pub(crate) mod port_owner;
mod read;
mod receive;
mod ring;
mod secure;
mod send;
mod streaming;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use accept::{AcceptedClient, Load};
pub(crate) use driver::{Driver, DriverDependencies};
pub(crate) use heap::return_freed_memory;
pub(crate) use inherited::Passed;
pub(crate) use listener::{
    ListenError, ListenPlan, Listeners, addresses_of, group_id, tcp_socket, unix_path,
};
pub(crate) use mailbox::{Mailboxes, WorkerMessage};
pub(crate) use options::{NetOptions, SocketOptions};
pub(crate) use ring::Ring;
