//! A console command on its way through all workers, and what it has gathered.

use std::{collections::BTreeMap, ops::AddAssign};

use super::{Awaiting, command::Show, rows::Cell};
use crate::{
    Time, Token, WorkerId,
    pin::Pin,
    pool::PoolKey,
    stats::{Periods, Stats},
};

/// A command that visits every worker in turn, beginning with the console's own, and is answered
/// there at the end.
#[derive(Debug)]
pub struct WorkerRound {
    pub(crate) origin: WorkerId,
    pub(crate) console: Token,
    pub(crate) visited: usize,
    pub(crate) task: RoundTask,
}

/// What a tour is about.
#[derive(Debug)]
pub(crate) enum RoundTask {
    /// To gather what a SHOW shows.
    Show(Box<Collection>),
    /// To be everywhere: what was mailed to the workers before has been read then, and what operators
    /// have ordered is done. Answered with this tag.
    Settle(String),
    /// The same, and then to wait for this.
    ApplyOrders(Awaiting),
    /// KILL of one database, or of all.
    Kill(Option<String>),
    /// KILL_CLIENT.
    KillClient { id: u64, found: bool },
}

/// What a SHOW has gathered so far.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) show: Show,
    /// Rows of connections, with their ids to sort by.
    pub(crate) rows: Vec<(u64, Vec<Cell>)>,
    pub(crate) pools: BTreeMap<PoolKey, PoolCount>,
    pub(crate) pins: BTreeMap<PoolKey, PinCounts>,
    pub(crate) internal: BTreeMap<(PoolKey, Task), Work>,
    /// Cancel requests for peers, by the peer's number.
    pub(crate) peers: BTreeMap<u32, PeerCount>,
    /// What the console has done itself.
    pub(crate) console: Counted,
    /// What was counted in pools that a worker has forgotten since.
    pub(crate) past: Stats,
    /// Clients of the console.
    pub(crate) console_clients: usize,
    /// Clients that log in.
    pub(crate) login_clients: usize,
    /// All clients.
    pub(crate) clients: usize,
    /// All servers.
    pub(crate) servers: usize,
    /// Workers' parts of pools.
    pub(crate) local_pools: usize,
    /// When the first worker began to count.
    pub(crate) began: Time,
    /// Host names that were looked up.
    pub(crate) names: KnownNames,
}

/// What is known of host names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// Those that were looked up.
    pub hosts: Vec<HostEntry>,
    /// How many are being looked up.
    pub asked: usize,
    /// Their zones.
    pub zones: Vec<ZoneEntry>,
}

/// A zone of host names: all behind the first dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEntry {
    /// The zone's name.
    pub name: String,
    /// Its serial, as it was last seen; 0 if it was not looked at.
    pub serial: u32,
    /// How many of its names are known.
    pub hosts: usize,
}

/// A host name that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The name.
    pub name: String,
    /// Its addresses, separated by commas; empty if there are none.
    pub addresses: String,
    /// How long this is believed.
    pub until: Time,
}

/// What was counted, altogether and since the beginning of the last whole period.
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
    /// For which there is no room yet.
    pub(crate) queued: u32,
    /// Whose connection is being opened.
    pub(crate) opening: u32,
    /// That are on their way.
    pub(crate) sent: u32,
}

/// What all workers have of one pool.
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
    /// Idle, and to be checked before they are lent.
    pub(crate) servers_used: usize,
    pub(crate) servers_tested: usize,
    pub(crate) servers_login: usize,
    /// Under the caps, though outside of the pool's size.
    pub(crate) servers_listening: usize,
    /// How long the oldest waiting client has waited, in microseconds.
    pub(crate) maxwait: u64,
    pub(crate) mode: &'static str,
    pub(crate) stats: Counted,
    /// Of workers that have forgotten the pool since.
    pub(crate) past: Stats,
}

impl PoolCount {
    /// All servers of the pool.
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
            internal: BTreeMap::new(),
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

/// How many clients were, and are, pinned for each reason.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PinCounts {
    pub(crate) total: [u64; Pin::ALL.len()],
    pub(crate) present: [usize; Pin::ALL.len()],
}

/// What connections of a pool do for pgweir itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Databases tell of users who log in.
    AuthQuery,
    /// A catalog is read.
    Catalog,
    /// A query is stopped.
    Cancel,
    /// LISTEN for clients.
    Listen,
    /// A server is tried before it is lent.
    Check,
}

/// How much of it.
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
        }
    }
}
