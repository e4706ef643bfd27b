//! Pools: which client waits, which server is lent, and when servers are opened and closed.
//!
//! This module knows ids, numbers and time, but no protocol and no socket.

mod cap_membership;
mod caps;
mod epochs;
mod ledger;
mod limits;
mod wait_queue;
mod worker_set;

pub use cap_membership::{CapMembership, SharedCaps};
pub use caps::{CapLimits, Caps, Denied, LeaseClock, PATIENCE, SERVERS_AT_FIRST, Scope};
pub use epochs::Epochs;
pub use ledger::{
    AboveSize, Grant, Ledger, LoginOutcome, Notes, Opening, ServerDemand, WaitReason,
};
pub use limits::{Limits, WaitOrder};
pub use wait_queue::{Ticket, Waiter};
pub use worker_set::WorkerSet;

/// The id of a pool in this process, as long as the pool exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

impl PoolId {
    /// Returns the id as an index.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The key of a pool: a database and a user, as in PgBouncer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolKey {
    /// The database's name, as clients give it.
    pub database: Box<str>,
    /// The user that the pool's servers log in as (a client's name, or the database's forced user).
    pub user: Box<str>,
}
