//! The content of `/metrics`, and the measurement that visits each worker to gather it.

use std::collections::BTreeMap;

use crate::{
    Time,
    base::{
        memory::MemoryRefusal,
        pin::Pin,
        stats::{Logins, Stats, Times},
    },
    console::{Collection, KnownNames, Show, Table},
    pool::PoolKey,
    shared::{bans::BanCounts, fleet::FleetView, pool::HostCounts},
    statement_statistics::StatementRow,
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
    pub(crate) slow_transactions: u64,
}

/// The counts of a pool that SHOW POOLS does not have.
#[derive(Debug, Default)]
pub(crate) struct PoolCounts {
    pub(crate) times: Times,
    pub(crate) pins: [u64; Pin::ALL.len()],
    pub(crate) pinned: u64,
}

/// A group of clients that the metrics count together.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientGroup {
    pub(crate) database: Box<str>,
    pub(crate) user: Box<str>,
    pub(crate) application_name: String,
    pub(crate) state: &'static str,
}

/// The logins to hosts, the roles of hosts, and the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostMetrics {
    /// The results of logins to servers, by database and endpoint.
    pub logins: Vec<(Box<str>, String, HostCounts)>,
    /// The role of each host, as logins and checks have found it.
    pub roles: Vec<HostRole>,
    /// The connections that each host allows.
    pub connections: Vec<HostConnectionLimits>,
    /// The most servers of the process by `max_server_conn` in percent; `None` if it is a number.
    pub server_limit: Option<u32>,
    /// The fleet; its floor is 0 without `fleet_etcd`.
    pub fleet: FleetView,
}

/// How many connections a host allows, as logins and checks have found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConnectionLimits {
    /// The host and port, or the Unix socket.
    pub endpoint: String,
    /// How many connections the host allows, less its reserved ones.
    pub usable: u32,
    /// How many servers `max_server_conn` in percent allows, together with the other hosts of the host's lists.
    pub limit: Option<u32>,
}

/// The role of a host, as logins and checks have found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRole {
    /// The host and port, or the Unix socket.
    pub endpoint: String,
    /// Whether the host is a primary.
    pub is_primary: bool,
    /// The lag of a standby in microseconds, if it is known.
    pub lag: Option<u64>,
    /// The number of times that the host went from up to down or unavailable.
    pub failures: u64,
}

/// The content of `/metrics`: tables of the console, and figures that the console does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// The text of SHOW VERSION.
    pub version: &'static str,
    /// SHOW DATABASES.
    pub databases: Table,
    /// SHOW POOLS.
    pub pools: Table,
    /// SHOW STATS_TOTALS.
    pub stats: Table,
    /// SHOW LISTS.
    pub lists: Table,
    /// Memory.
    pub memory: MemoryMetrics,
    /// Clients that have logged in, or try to send a cancel request.
    pub clients: Vec<ClientCount>,
    /// The metrics of pools that the console does not show.
    pub pool_metrics: Vec<PoolMetrics>,
    /// Server connections by database and endpoint.
    pub servers: Vec<(Box<str>, String, u64)>,
    /// The logins to hosts, and the roles of hosts.
    pub hosts: HostMetrics,
    /// Figures about logins.
    pub logins: LoginMetrics,
    /// The statistics of statements.
    pub statements: StatementMetrics,
    /// The number of workers.
    pub workers: usize,
    /// The number of entries of SHOW EVENTS, and of dropped ones.
    pub events: (usize, u64),
    /// Whether PAUSE of all databases is in force.
    pub is_paused: bool,
    /// Whether SUSPEND is in force.
    pub is_suspended: bool,
}

/// The statistics of statements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatementMetrics {
    /// The statements on which servers have spent most time.
    pub slowest: Vec<StatementRow>,
    /// The number of statements that are not in `slowest`.
    pub folded: usize,
    /// The number of entries in all workers.
    pub entries: usize,
    /// The entries that were removed to make room for others.
    pub evicted: u64,
    /// Transactions that took longer than `log_slow_transactions`.
    pub slow_transactions: u64,
}

/// The number of clients in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCount {
    /// The database, as the clients named it.
    pub database: Box<str>,
    /// The user, as the clients named it.
    pub user: Box<str>,
    /// The clients' `application_name`, truncated as PostgreSQL does.
    pub application_name: String,
    /// The state, as SHOW CLIENTS names it.
    pub state: &'static str,
    /// The number of clients.
    pub count: u64,
}

/// The metrics of a pool that the console does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMetrics {
    /// The pool's database.
    pub database: Box<str>,
    /// The pool's user.
    pub user: Box<str>,
    /// Counters.
    pub stats: Stats,
    /// Histograms.
    pub times: Times,
    /// The number of clients that are pinned to a server now.
    pub pinned: u64,
    /// The number of times that clients were pinned, by reason; reasons with a count of zero are left out.
    pub pins: Vec<(&'static str, u64)>,
}

impl Measurement {
    /// Creates a measurement that has not begun. `names` has the host names that were looked up.
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
            slow_transactions: 0,
        }
    }
}

/// Figures about logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoginMetrics {
    /// The outcomes of logins and TLS handshakes.
    pub results: Logins,
    /// The figures of SHOW BANS.
    pub bans: BanCounts,
}

/// The memory of clients and servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMetrics {
    /// SHOW MEM.
    pub table: Table,
    /// `memory_limit` in bytes; 0 if there is none.
    pub limit: usize,
    /// Whether logins and statements are refused at present.
    pub is_full: bool,
    /// The number of refusals of each step, in the order of [`MemoryRefusal::ALL`].
    pub refusals: [u64; MemoryRefusal::ALL.len()],
}
