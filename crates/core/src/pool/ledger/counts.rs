//! The numbers that a ledger keeps: its limits, its servers, and those of the other process.

use super::super::{Limits, WorkerSet};
use crate::Time;

/// The limits of the number of servers.
#[derive(Debug)]
pub(super) struct LedgerLimits {
    /// The limits in force.
    pub(super) in_force: Limits,
    /// The limits of the configuration.
    pub(super) configured: Limits,
    /// The most servers while clients are handed over to another process.
    pub(super) restriction: Option<u32>,
}

/// The servers of a pool in this process.
#[derive(Debug)]
pub(super) struct ServerCounts {
    /// Servers by worker, including those that log in or are on their way to the worker.
    pub(super) owned: Vec<u32>,
    pub(super) all: u32,
    pub(super) connecting: u32,
    /// How many servers are reading the catalog after their login, before they can be lent,
    pub(super) reading: u32,
    /// and until when clients wait for these rather than for new ones.
    pub(super) reading_until: Time,
    /// Servers that clients keep between transactions.
    pub(super) pinned: u32,
    /// Servers that are to be opened without a client that waits for them, and whose opening has not begun.
    pub(super) unasked: u32,
}

/// The servers of the other process in an online restart.
#[derive(Debug)]
pub(super) struct OtherProcess {
    /// Servers of the old process in an online restart.
    pub(super) servers: u32,
    /// The slots under the caps that are taken for these.
    pub(super) seats: u32,
    /// How many places this process has lent to the old one in all.
    pub(super) lends: u32,
}

/// The workers that offer their free servers to the ledger.
#[derive(Debug)]
pub(super) struct Offers {
    pub(super) workers: WorkerSet,
    /// Workers that were asked to offer, and have not offered all they have yet.
    pub(super) pending: WorkerSet,
}
