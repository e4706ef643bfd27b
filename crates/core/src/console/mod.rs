//! The console: database `pgbouncer` (or `pgweir`), simple query protocol.
//!
//! This module owns what a console client has sent and what its command waits for (`conversation`), reads commands
//! (`command`, `grammar`), writes tables (`rows`), and has the types for what a command gathers on its way through
//! the workers (`tour`). Bytes of a client come in; [`Step`]s for the worker go out. `admin` carries out the
//! commands.

mod command;
mod conversation;
mod grammar;
mod rows;
mod tour;

pub(crate) use self::{
    command::{Command, Show, Source, shown_setting},
    conversation::{Awaiting, Step, write_done, write_fault, write_ready, write_welcome},
    rows::{date, write_table},
    tour::{
        Collection, Counted, Holders, LongestHolder, PeerCount, PoolCount, RoundTask, Task,
        WaitingClient,
    },
};
pub use self::{
    command::{TableInfo, command_forms, tables},
    conversation::Console,
    rows::{Cell, Column, Kind, Table},
    tour::{HostEntry, KnownNames, WorkerRound, ZoneEntry},
};

/// The text of SHOW VERSION and `--version`.
pub const VERSION: &str = concat!("pgweir ", env!("CARGO_PKG_VERSION"));
