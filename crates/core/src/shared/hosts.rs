//! The hosts of PostgreSQL servers, shared by all workers: the state of each host, and which worker checks it.
//!
//! pgweir learns the state of a host from logins, from messages that servers send to clients, and from the checks of
//! `host_check_interval`. Logins and checks take the locks of this module; queries do not.

mod cluster_report;
mod facts;
mod replay;
mod reported;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;
use pgweir_config::Config;

pub use self::{
    cluster_report::{ClusterReport, PatroniNews, ReportError, Reported, ReportedMember},
    facts::{Eligibility, HostExclusion, HostFacts, HostRequirements, HostState},
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
}

impl Hosts {
    /// Creates the table of hosts for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            by_name: Mutex::default(),
            writes: Writes::new(workers),
        }
    }

    /// Begins to count writes if this configuration, which no worker has yet, needs that.
    pub(crate) fn count_writes_for(&self, config: &Config) {
        if config.database_with_read_after_write().is_some() {
            self.writes.begin();
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
