//! The hosts of PostgreSQL servers, shared by all workers: the state of each host, and which worker checks it.
//!
//! pgweir learns the state of a host from logins, from messages that servers send to clients, and from the checks of
//! `host_check_interval`. Logins and checks take the locks of this module; queries do not.

mod cluster_report;
mod facts;
mod patroni_requests;
mod replay;
mod reported;
mod server_limits;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use pgweir_config::{Config, Database};

use self::server_limits::{HostCapacity, ServerLimits};
pub use self::{
    cluster_report::{ClusterReport, PatroniNews, ReportError, Reported, ReportedMember},
    facts::{Eligibility, HostExclusion, HostFacts, HostRequirements, HostState},
    patroni_requests::PatroniRequests,
    replay::{CompletedTransactions, Replay, ReplayPosition, Writes, leader, replayed_writes},
};
use crate::{Endpoint, WorkerId};

/// The largest number of hosts that are remembered. Above that number, each new host replaces one without connections.
const HOSTS_MAX: usize = 1_000;

/// All hosts to which pgweir has opened connections, by name.
#[derive(Debug)]
pub struct Hosts {
    by_name: Mutex<BTreeMap<String, Arc<Host>>>,
    writes: Writes,
    /// The limits on servers that follow from `max_server_conn` in percent.
    limits: RwLock<Arc<ServerLimits>>,
    patroni_requests: PatroniRequests,
}

impl Hosts {
    /// Creates the table of hosts for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            by_name: Mutex::default(),
            writes: Writes::new(workers),
            limits: RwLock::default(),
            patroni_requests: PatroniRequests::default(),
        }
    }

    /// Prepares for this configuration, which no worker has yet: begins to count writes if the configuration needs
    /// that, and finds the hosts that share a limit on servers.
    pub(crate) fn prepare_for(&self, config: &Config) {
        if config.database_with_read_after_write().is_some() {
            self.writes.begin();
        }
        *self.limits.write() = Arc::new(ServerLimits::of(config));
    }

    /// Returns the counters of requests to Patroni's REST API.
    #[must_use]
    pub fn patroni_requests(&self) -> &PatroniRequests {
        &self.patroni_requests
    }

    /// Returns whether `max_server_conn` is a percentage, so that the limits on servers depend on hosts.
    #[must_use]
    pub fn limit_servers(&self) -> bool {
        self.limits.read().are_of_hosts()
    }

    /// Returns the group of hosts whose limit holds for the servers of an entry, and the limit, which may be
    /// [`CapLimits::NOT_KNOWN`](crate::pool::CapLimits::NOT_KNOWN). If the limit holds for the process, the group has
    /// an empty name, and the limit is `of_process`.
    #[must_use]
    pub fn server_limit_for(&self, database: &Database, of_process: u32) -> (Arc<str>, u32) {
        let limits = Arc::clone(&self.limits.read());
        limits.limit_for(&|host| self.capacity(host), database, of_process)
    }

    /// Returns the largest number of servers of a host's group; `None` if it is not known yet, or not a percentage.
    #[must_use]
    pub fn server_limit_at(&self, host: &Endpoint) -> Option<u32> {
        let limits = Arc::clone(&self.limits.read());
        limits.limit_at(&|host| self.capacity(host), host)
    }

    /// Returns the sum of the limits of all groups of hosts; `None` if `max_server_conn` is a number.
    #[must_use]
    pub fn sum_of_server_limits(&self) -> Option<u32> {
        let limits = Arc::clone(&self.limits.read());
        let sum = || limits.sum(&|host| self.capacity(host));
        limits.are_of_hosts().then(sum)
    }

    /// Returns whether the connections of a host with servers are not known yet, so that its limit is provisional.
    #[must_use]
    pub fn have_unknown_limit(&self) -> bool {
        let limits = Arc::clone(&self.limits.read());
        limits.has_unknown(&|host| self.capacity(host))
    }

    /// Returns whether the servers of two entries count under the same `max_server_conn`.
    #[must_use]
    pub fn share_server_limit(&self, one: Option<&Database>, other: Option<&Database>) -> bool {
        self.limits.read().are_shared(one, other)
    }

    fn capacity(&self, endpoint: &Arc<Endpoint>) -> HostCapacity {
        let host = self.at(endpoint);
        let facts = host.eligibility();
        HostCapacity {
            usable: host.usable_connections(),
            state: facts.state,
            role: facts.role,
            connections: host.connections(),
        }
    }

    /// Returns the counters of writes.
    #[inline]
    #[must_use]
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Returns the host at an endpoint, and adds it if it is new.
    #[must_use]
    pub fn at(&self, endpoint: &Arc<Endpoint>) -> Arc<Host> {
        let mut hosts = self.by_name.lock();
        let name = endpoint.to_string();
        if let Some(host) = hosts.get(&name) {
            return Arc::clone(host);
        }
        if hosts.len() >= HOSTS_MAX {
            let unused = hosts.iter().find(|(_, host)| host.connections() == 0);
            if let Some(unused) = unused.map(|(name, _)| name.clone()) {
                hosts.remove(&unused);
            }
        }
        let host = Arc::new(Host {
            endpoint: Arc::clone(endpoint),
            connections: AtomicU32::new(0),
            usable: AtomicU32::new(0),
            facts: Mutex::default(),
            checker: Mutex::default(),
            replay: Replay::default(),
        });
        hosts.insert(name, Arc::clone(&host));
        host
    }

    /// Returns all hosts, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Host>> {
        self.by_name.lock().values().cloned().collect()
    }
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// The address, as it is configured.
    pub(crate) endpoint: Arc<Endpoint>,
    connections: AtomicU32,
    /// How many connections the host allows, less its reserved ones; 0 if that is not known.
    usable: AtomicU32,
    facts: Mutex<HostFacts>,
    /// The worker that checks the host.
    checker: Mutex<Option<WorkerId>>,
    /// Which writes the host has replayed.
    pub(crate) replay: Replay,
}

impl Host {
    /// Returns the number of connections to the host.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns how many connections the host allows, less its reserved ones; `None` until a login or a check has
    /// reported it.
    #[must_use]
    pub fn usable_connections(&self) -> Option<u32> {
        Some(self.usable.load(Ordering::Relaxed)).filter(|usable| *usable > 0)
    }

    /// Notes how many connections the host allows, less its reserved ones (at least 1). Returns whether the number is
    /// new.
    pub fn note_usable_connections(&self, usable: u32) -> bool {
        let usable = usable.max(1);
        self.usable.swap(usable, Ordering::Relaxed) != usable
    }

    /// Returns a copy of the host's state.
    #[must_use]
    pub fn facts(&self) -> HostFacts {
        self.facts.lock().clone()
    }

    /// Returns the facts that decide which pools may use the host.
    #[must_use]
    pub fn eligibility(&self) -> Eligibility {
        self.facts.lock().eligibility()
    }

    /// Changes the host's state. Returns whether some pools may have to begin or stop to use the host because of this
    /// change. If so, the caller informs all workers.
    pub fn update(&self, change: impl FnOnce(&mut HostFacts)) -> bool {
        let mut facts = self.facts.lock();
        let before = facts.eligibility();
        change(&mut facts);
        self.replay.note_role(facts.role);
        facts.eligibility() != before
    }

    /// Makes `worker` the one that checks the host, unless a worker does already. Returns `false` in that case.
    #[must_use]
    pub fn take_check(&self, worker: WorkerId) -> bool {
        let mut checker = self.checker.lock();
        let is_free = checker.is_none();
        checker.get_or_insert(worker);
        is_free
    }

    /// Allows another worker to check the host, if `worker` is the one that does.
    pub fn release_check(&self, worker: WorkerId) {
        let mut checker = self.checker.lock();
        if *checker == Some(worker) {
            *checker = None;
        }
    }
}

/// One connection to a host. The host counts the connection until this value is dropped.
#[derive(Debug)]
pub struct HostConnection(Arc<Host>);

impl HostConnection {
    /// Counts one more connection to the host.
    #[must_use]
    pub fn open(host: Arc<Host>) -> Self {
        host.connections.fetch_add(1, Ordering::Relaxed);
        Self(host)
    }

    /// Returns the host of this connection.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.0
    }
}

impl Drop for HostConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_and_one_worker_checks() {
        let hosts = Hosts::new(1);
        let host = hosts.at(&Arc::new(Endpoint::of("a", 1)));
        let open = || HostConnection::open(Arc::clone(&host));
        let connections = [open(), open()];
        assert_eq!(host.connections(), 2);
        drop(connections);
        assert_eq!(host.connections(), 0);
        let again = hosts.at(&Arc::new(Endpoint::of("a", 1)));
        assert!(Arc::ptr_eq(&host, &again));
        assert!(host.take_check(WorkerId(0)));
        assert!(!again.take_check(WorkerId(1)));
        host.release_check(WorkerId(1));
        assert!(!again.take_check(WorkerId(1)));
        host.release_check(WorkerId(0));
        assert!(again.take_check(WorkerId(1)));
    }

    #[test]
    fn hosts_are_bounded() {
        let hosts = Hosts::new(1);
        let first = HostConnection::open(hosts.at(&Arc::new(Endpoint::of("a", 0))));
        for port in 1..=HOSTS_MAX as u16 {
            let _ = hosts.at(&Arc::new(Endpoint::of("a", port)));
        }
        assert_eq!(hosts.all().len(), HOSTS_MAX);
        assert!(Arc::ptr_eq(
            first.host(),
            &hosts.at(&Arc::new(Endpoint::of("a", 0)))
        ));
    }
}
