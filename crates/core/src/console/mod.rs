//! The console: database `pgbouncer` (or `pgweir`), simple query protocol.
//!
//! This module owns the conversation with a console client: the bytes that have arrived, and the event that the present
//! command waits for (`conversation`). The module reads commands (`command`, `grammar`, and
//! `on_all` for those that each node of a fleet carries out), writes tables (`rows`), and
//! has the types for the data that a command collects from all workers (`round`). Input: bytes of a client. Output:
//! [`Step`]s for the worker. `admin` carries out the commands.

mod command;
mod conversation;
mod grammar;
mod on_all;
mod round;
mod rows;

pub(crate) use self::{
    command::{Command, Show, Source, shown_setting},
    conversation::{Awaiting, Step, write_done, write_fault, write_ready, write_welcome},
    round::{
        Collection, Counted, Holders, LongestHolder, PeerCount, PoolCount, RoundTask, Task,
        WaitingClient,
    },
    rows::{date, write_table},
};
pub use self::{
    command::{TableInfo, command_forms, tables},
    conversation::Console,
    on_all::{CommandOnAll, NodeOutcome, OrderForNodes},
    round::{HostEntry, KnownNames, WorkerRound, ZoneEntry},
    rows::{Cell, Column, Kind, Table},
};

/// The text of SHOW VERSION and `--version`.
pub const VERSION: &str = concat!("pgweir ", env!("CARGO_PKG_VERSION"));
