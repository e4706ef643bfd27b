//! What `/metrics` is made of, and the measurement that visits each worker for it.

use std::collections::BTreeMap;

use crate::{
    Time,
    console::{Collection, KnownNames, Show, Table},
    pin::Pin,
    pool::PoolKey,
    stats::{Logins, Stats, Times},
};

/// A measurement on its way through all workers.
#[derive(Debug)]
pub struct Measurement {
    pub(crate) visited: usize,
    pub(crate) collection: Collection,
    pub(crate) pools: BTreeMap<PoolKey, PoolCounts>,
    pub(crate) clients: BTreeMap<ClientGroup, u64>,
    pub(crate) servers: BTreeMap<(Box<str>, String), u64>,
    pub(crate) logins: Logins,
}

/// What is counted of a pool beside the counts of SHOW POOLS.
#[derive(Debug, Default)]
pub(crate) struct PoolCounts {
    pub(crate) times: Times,
    pub(crate) pins: [u64; Pin::ALL.len()],
}

/// Clients that metrics count as one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientGroup {
    pub(crate) database: Box<str>,
    pub(crate) user: Box<str>,
    pub(crate) application_name: String,
    pub(crate) state: &'static str,
}

/// What `/metrics` is made of: tables of the console, and what the console does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// What SHOW VERSION says.
    pub version: &'static str,
    /// SHOW DATABASES.
    pub databases: Table,
    /// SHOW POOLS.
    pub pools: Table,
    /// SHOW STATS_TOTALS.
    pub stats: Table,
    /// SHOW LISTS.
    pub lists: Table,
    /// SHOW MEM.
    pub memory: Table,
    /// Clients that have logged in, or try to send a cancel request.
    pub clients: Vec<ClientCount>,
    /// What the console does not show of pools.
    pub pool_metrics: Vec<PoolMetrics>,
    /// Server connections by database and endpoint.
    pub servers: Vec<(Box<str>, String, u64)>,
    /// What became of logins and TLS handshakes.
    pub logins: Logins,
    /// How many workers there are.
    pub workers: usize,
    /// PAUSE of all databases is in force.
    pub is_paused: bool,
    /// SUSPEND is in force.
    pub is_suspended: bool,
}

/// How many clients of a kind there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCount {
    /// The database, as the clients named it.
    pub database: Box<str>,
    /// The user, as the clients named it.
    pub user: Box<str>,
    /// Their `application_name`, cut as PostgreSQL does.
    pub application_name: String,
    /// As SHOW CLIENTS names it.
    pub state: &'static str,
    /// How many.
    pub count: u64,
}

/// What the console does not show of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMetrics {
    /// Its database.
    pub database: Box<str>,
    /// Its user.
    pub user: Box<str>,
    /// Counters.
    pub stats: Stats,
    /// Histograms.
    pub times: Times,
    /// How often clients were pinned for each reason; reasons that were none are left out.
    pub pins: Vec<(&'static str, u64)>,
}

impl Measurement {
    /// A measurement that has not begun. `names` is what is known of host names.
    #[must_use]
    pub fn new(names: KnownNames, now: Time) -> Self {
        let mut collection = Collection::new(Show::Lists, now);
        collection.names = names;
        Self {
            visited: 0,
            collection,
            pools: BTreeMap::new(),
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            logins: Logins::default(),
        }
    }
}
