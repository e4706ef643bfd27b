//! The numbers that a ledger keeps: its limits, its servers, and the servers of the old process in an online restart.

use super::super::{Limits, WorkerSet};
use crate::Time;

/// The limits of the number of servers.
#[derive(Debug)]
pub(super) struct LedgerLimits {
    /// The limits in force.
    pub(super) in_force: Limits,
    /// The limits of the configuration.
    pub(super) configured: Limits,
    /// The largest number of servers while clients are handed over to another process.
    pub(super) restriction: Option<u32>,
}

/// The servers of a pool in this process.
#[derive(Debug)]
pub(super) struct ServerCounts {
    /// Servers by worker, including those that log in or are on their way to the worker.
    pub(super) owned: Vec<u32>,
    pub(super) all: u32,
    pub(super) connecting: u32,
    /// The number of servers that log in beside another one for the same client (`host_race_after`).
    pub(super) rivals: u32,
    /// The number of servers that are reading the catalog after their login, before they can be lent.
    pub(super) reading: u32,
    /// The time until which clients wait for these servers rather than for new ones.
    pub(super) reading_until: Time,
    /// Servers that clients keep between transactions.
    pub(super) pinned: u32,
    /// Servers to be opened although no client waits for them, and whose opening has not begun.
    pub(super) without_waiter: u32,
}

/// The servers of the old process in an online restart.
#[derive(Debug)]
pub(super) struct OtherProcess {
    /// The number of servers.
    pub(super) servers: u32,
    /// The number of slots under the caps that are taken for these servers.
    pub(super) slots: u32,
    /// The number of places that this process has lent to the old one since the restart began.
    pub(super) lends: u32,
}

/// The workers that offer their free servers to the ledger.
#[derive(Debug)]
pub(super) struct Offers {
    pub(super) workers: WorkerSet,
    /// Workers that were asked to offer their servers, and have not offered all of them yet.
    pub(super) pending: WorkerSet,
}
