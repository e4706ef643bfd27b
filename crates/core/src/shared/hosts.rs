//! The hosts of PostgreSQL servers, shared by all workers: what is known of each, and which worker checks it.
//!
//! Logins, the reports of servers and the checks of `host_check_interval` say what a host is. Logins to servers and checks
//! take the locks; queries do not.

mod facts;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

pub use self::facts::{HostFacts, HostState, Need, Unfit};
use crate::{Endpoint, WorkerId};

/// The most hosts that are remembered. Beyond, one without connections is forgotten for each new one.
const HOSTS_MAX: usize = 1_000;

/// All hosts that servers were opened on.
#[derive(Debug, Default)]
pub struct Hosts {
    by_name: Mutex<BTreeMap<String, Arc<Host>>>,
}

impl Hosts {
    /// Returns a host, which is new if no server was opened on it yet.
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
    pub endpoint: Arc<Endpoint>,
    connections: AtomicU32,
    facts: Mutex<HostFacts>,
    /// The worker that checks the host.
    checker: Mutex<Option<WorkerId>>,
}

impl Host {
    /// Returns the number of connections to the host.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns what is known.
    #[must_use]
    pub fn facts(&self) -> HostFacts {
        self.facts.lock().clone()
    }

    /// Changes what is known. Returns whether the host may be fit for other uses than before.
    pub fn learn(&self, change: impl FnOnce(&mut HostFacts)) -> bool {
        let mut facts = self.facts.lock();
        let before = facts.standing();
        change(&mut facts);
        facts.standing() != before
    }

    /// Lets a worker check the host, if no other connection does. Returns whether it may.
    #[must_use]
    pub fn take_check(&self, worker: WorkerId) -> bool {
        let mut checker = self.checker.lock();
        let is_free = checker.is_none();
        checker.get_or_insert(worker);
        is_free
    }

    /// Ends the checks of a worker: another one may begin.
    pub fn release_check(&self, worker: WorkerId) {
        let mut checker = self.checker.lock();
        if *checker == Some(worker) {
            *checker = None;
        }
    }
}

/// Counts one connection to a host until it is dropped.
#[derive(Debug)]
pub struct Seat(Arc<Host>);

impl Seat {
    /// Counts a connection.
    #[must_use]
    pub fn at(host: Arc<Host>) -> Self {
        host.connections.fetch_add(1, Ordering::Relaxed);
        Self(host)
    }

    /// Returns the host.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_and_one_worker_checks() {
        let hosts = Hosts::default();
        let host = hosts.at(&Arc::new(Endpoint::of("a", 1)));
        let seats = [Seat::at(Arc::clone(&host)), Seat::at(Arc::clone(&host))];
        assert_eq!(host.connections(), 2);
        drop(seats);
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
        let hosts = Hosts::default();
        let first = Seat::at(hosts.at(&Arc::new(Endpoint::of("a", 0))));
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
