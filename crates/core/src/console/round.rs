//! A console command that visits all workers (a round), and the data that it collects.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::AddAssign,
};

use super::{Awaiting, command::Show, rows::Cell};
use crate::{
    Time, Token, WorkerId,
    base::{
        pin::Pin,
        stats::{Periods, Stats, Times},
    },
    pool::PoolKey,
    statement_statistics::StatementReport,
};

/// A command that visits every worker in turn, beginning with the console's own worker, and is answered there at
/// the end.
#[derive(Debug)]
pub struct WorkerRound {
    pub(crate) origin: WorkerId,
    pub(crate) console: Token,
    pub(crate) visited: usize,
    pub(crate) task: RoundTask,
}

/// The task of a round on each worker.
#[derive(Debug)]
pub(crate) enum RoundTask {
    /// Collect the rows of a SHOW.
    Show(Box<Collection>),
    /// Visit each worker, and no more. When the round comes to a worker, the worker has read all earlier mail and has
    /// carried out the operators' orders. The command is answered with this tag.
    Settle(String),
    /// Visit each worker, and then wait for this event.
    ApplyOrders(Awaiting),
    /// Carry out KILL of one database, or of all.
    Kill(Option<String>),
    /// Carry out KILL_CLIENT.
    KillClient { id: u64, found: bool },
}

/// The rows and counts that a SHOW command has collected from the workers it has visited.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) show: Show,
    /// Rows of connections, with the ids by which they are sorted.
    pub(crate) rows: Vec<(u64, Vec<Cell>)>,
    pub(crate) pools: BTreeMap<PoolKey, PoolCount>,
    pub(crate) pins: BTreeMap<PoolKey, PinCounts>,
    /// Histograms, for SHOW TIMES.
    pub(crate) times: BTreeMap<PoolKey, Times>,
    pub(crate) internal: BTreeMap<(PoolKey, Task), Work>,
    /// Waiting clients, for SHOW WAITERS.
    pub(crate) waiters: Vec<WaitingClient>,
    /// The servers in use of each pool, for SHOW WAITERS.
    pub(crate) holders: BTreeMap<PoolKey, Holders>,
    /// The statistics of statements.
    pub(crate) statements: StatementReport,
    /// Cancel requests for peers, by the peer's number.
    pub(crate) peers: BTreeMap<u32, PeerCount>,
    /// The console's own counters.
    pub(crate) console: Counted,
    /// The counters of pools that a worker has removed.
    pub(crate) past: Stats,
    /// The number of clients of the console.
    pub(crate) console_clients: usize,
    /// The number of clients that log in.
    pub(crate) login_clients: usize,
    /// The number of all clients.
    pub(crate) clients: usize,
    /// The number of all servers.
    pub(crate) servers: usize,
    /// The number of workers' parts of pools.
    pub(crate) local_pools: usize,
    /// The time at which the first worker began to count.
    pub(crate) began: Time,
    /// The host names that were looked up, for SHOW DNS_HOSTS and DNS_ZONES.
    pub(crate) names: KnownNames,
}

/// The host names that pgweir has looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The host names with their addresses.
    pub hosts: Vec<HostEntry>,
    /// The number of host names that are being looked up.
    pub asked: usize,
    /// The zones of these host names.
    pub zones: Vec<ZoneEntry>,
}

/// A zone of host names: everything after the first dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEntry {
    /// The zone's name.
    pub name: String,
    /// The zone's serial, as it was last read; 0 if it was not read.
    pub serial: u32,
    /// The number of the zone's names that pgweir has looked up.
    pub hosts: usize,
}

/// A host name that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The name.
    pub name: String,
    /// The host's addresses, separated by commas; empty if there are none.
    pub addresses: String,
    /// The time until which the addresses are valid.
    pub until: Time,
}

/// Counts: in total, and since the beginning of the last whole period.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) total: Stats,
    pub(crate) recent: Stats,
}

impl Counted {
    pub(crate) fn add(&mut self, periods: &Periods) {
        self.total += periods.now;
        self.recent += periods.recent();
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.recent += other.recent;
    }
}

/// Cancel requests for one peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerCount {
    /// Requests for which there is no room yet.
    pub(crate) queued: u32,
    /// Requests whose connection is being opened.
    pub(crate) opening: u32,
    /// Requests that are on their way.
    pub(crate) sent: u32,
}

/// The counts of one pool on all workers.
#[derive(Debug, Default)]
pub(crate) struct PoolCount {
    pub(crate) clients_active: usize,
    pub(crate) clients_waiting: usize,
    /// Cancel requests that are on their way.
    pub(crate) cancels: usize,
    /// Cancel requests whose connection is not open yet.
    pub(crate) cancels_waiting: usize,
    pub(crate) being_canceled: usize,
    pub(crate) servers_active: usize,
    pub(crate) servers_idle: usize,
    /// Idle servers that must be checked before they are lent.
    pub(crate) servers_used: usize,
    pub(crate) servers_tested: usize,
    pub(crate) servers_login: usize,
    /// Servers that LISTEN: they count under `max_db_connections` and the other limits, but not under the pool's
    /// size.
    pub(crate) servers_listening: usize,
    /// The longest time that a client has waited, of those that wait now, in microseconds.
    pub(crate) maxwait: u64,
    pub(crate) mode: &'static str,
    pub(crate) stats: Counted,
    /// The counters of workers that have removed their part of the pool.
    pub(crate) past: Stats,
}

impl PoolCount {
    /// Returns the number of all servers of the pool.
    pub(crate) fn servers(&self) -> usize {
        self.servers_active
            + self.servers_idle
            + self.servers_used
            + self.servers_tested
            + self.servers_login
            + self.servers_listening
            + self.being_canceled
    }
}

impl Collection {
    pub(crate) fn new(show: Show, now: Time) -> Self {
        Self {
            show,
            rows: Vec::new(),
            pools: BTreeMap::new(),
            pins: BTreeMap::new(),
            times: BTreeMap::new(),
            internal: BTreeMap::new(),
            waiters: Vec::new(),
            holders: BTreeMap::new(),
            statements: StatementReport::default(),
            peers: BTreeMap::new(),
            console: Counted::default(),
            past: Stats::default(),
            console_clients: 0,
            login_clients: 0,
            clients: 0,
            servers: 0,
            local_pools: 0,
            began: now,
            names: KnownNames::default(),
        }
    }
}

/// A client that waits for a server connection.
#[derive(Debug)]
pub(crate) struct WaitingClient {
    pub(crate) pool: PoolKey,
    /// The user as the client named it.
    pub(crate) user: Box<str>,
    pub(crate) id: u64,
    pub(crate) since: Time,
}

/// The clients of a pool that have server connections.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Clients of one program are often stuck in the same way, so they are counted together.
    pub(crate) groups: BTreeMap<HolderGroupKey, HolderGroup>,
}

/// The properties that the holders of a group have in common: user, `application_name`, and state.
pub(crate) type HolderGroupKey = (Box<str>, Box<str>, &'static str);

/// Clients with server connections that have the same user, `application_name` and state.
#[derive(Debug)]
pub(crate) struct HolderGroup {
    pub(crate) count: usize,
    /// The client that has had its server connection for longest.
    pub(crate) longest: LongestHolder,
}

/// A client that has had its server connection for long.
#[derive(Debug)]
pub(crate) struct LongestHolder {
    pub(crate) client: u64,
    /// The user as the client named it.
    pub(crate) user: Box<str>,
    /// Its `application_name`; empty if it has none.
    pub(crate) application: Box<str>,
    /// Microseconds for which the client has had its server connection.
    pub(crate) held: u64,
    /// The client's state, in the terms of the notices to waiting clients.
    pub(crate) state: &'static str,
    /// The reasons why the client keeps its server connection between transactions; empty if it does not.
    pub(crate) pins: String,
    /// The fingerprint of its statement and the text without literals, if they are known.
    pub(crate) statement: Option<(String, String)>,
}

impl LongestHolder {
    /// Returns the group that the client belongs to.
    pub(crate) fn group(&self) -> HolderGroupKey {
        (self.user.clone(), self.application.clone(), self.state)
    }
}

impl Holders {
    /// Adds a holder.
    pub(crate) fn add(&mut self, holder: LongestHolder) {
        match self.groups.entry(holder.group()) {
            Entry::Vacant(place) => {
                place.insert(HolderGroup {
                    count: 1,
                    longest: holder,
                });
            }
            Entry::Occupied(mut group) => {
                let group = group.get_mut();
                group.count += 1;
                if group.longest.held < holder.held {
                    group.longest = holder;
                }
            }
        }
    }
}

/// For each reason: how often clients were pinned, and how many clients are pinned now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PinCounts {
    pub(crate) total: [u64; Pin::ALL.len()],
    pub(crate) present: [usize; Pin::ALL.len()],
}

/// The tasks of connections that pgweir opens or uses for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Lookups of users who log in.
    AuthQuery,
    /// Reading a catalog.
    Catalog,
    /// Stopping a query.
    Cancel,
    /// LISTEN for clients.
    Listen,
    /// Checking a server before it is lent.
    Check,
    /// Checking hosts.
    CheckHost,
}

/// The number of connections that do a task, and of those that wait to do it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) active: usize,
    pub(crate) waiting: usize,
}

impl Task {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AuthQuery => "auth_query",
            Self::Catalog => "catalog",
            Self::Cancel => "cancel",
            Self::Listen => "listen",
            Self::Check => "server_check_query",
            Self::CheckHost => "host_check",
        }
    }
}
