//! The part of a pool that all workers share: its ledger, and facts about its servers.

mod connect_query;
mod eviction;
mod failure;
mod host_logins;
mod outage;
mod server_parameters;
mod server_role;

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use pgweir_auth::{scram::ClientKeys, userlist::Secret};

pub(crate) use self::eviction::Found;
pub use self::{
    connect_query::{ConnectQuery, ConnectSettings, Parameters, SettingsStep},
    eviction::Search,
    failure::Failure,
    host_logins::{Candidate, HostCounts, HostLogin, HostLogins},
    outage::Outage,
    server_parameters::ServerParameters,
    server_role::ServerRole,
};
use crate::{
    base::stats::{Stats, Times},
    pool::{Epochs, Ledger, PoolId, PoolKey},
    session::{Baseline, CustomParameters, SequenceReaders, Startups},
    shared::catalog::Catalog,
};

/// The part of a pool that all workers share.
#[derive(Debug)]
pub struct SharedPool {
    /// The pool's id, as long as the pool exists.
    pub(crate) id: PoolId,
    /// A number that the process gives to no other pool, even later.
    number: u64,
    /// The pool's database and user.
    pub key: PoolKey,
    /// The pool's counts of servers, and its queue of waiting clients.
    pub ledger: Mutex<Ledger>,
    /// Facts about the pool's servers.
    pub(crate) facts: Mutex<ServerFacts>,
    /// Names of custom parameters that the pool's clients use.
    pub(crate) custom_parameters: Mutex<CustomParameters>,
    /// The certificates of the pool's database.
    pub(crate) catalog: Arc<Catalog>,
    /// The values that clients' startup parameters have in PostgreSQL's spelling.
    pub(crate) startups: Mutex<Startups>,
    /// The applications that read sequence values in a later transaction than the one that made them.
    pub(crate) sequence_readers: SequenceReaders,
    /// The epochs of the pool's servers, which show the servers that are out of date.
    pub(crate) epochs: Mutex<Epochs>,
    /// The number of changes to the settings with which new sessions of the pool begin (ALTER ROLE SET and the like).
    pub(crate) defaults: AtomicU32,
    /// The counters of workers that have dropped their part of the pool.
    past: Mutex<Stats>,
    /// The histograms of those workers.
    past_times: Mutex<Times>,
    /// The number of clients that share the pool's servers.
    clients: AtomicUsize,
    /// The number of opened servers, which determines the next of several hosts.
    hosts: AtomicUsize,
    free_ids: Arc<Mutex<FreeIds>>,
}

impl SharedPool {
    /// Returns a pool without servers and clients. Its id is free again when the pool is dropped.
    pub(crate) fn new(
        key: PoolKey,
        free_ids: &Arc<Mutex<FreeIds>>,
        catalog: Arc<Catalog>,
        ledger: impl FnOnce(PoolId) -> Ledger,
    ) -> Self {
        let (id, number) = free_ids.lock().take();
        let id = PoolId(id);
        Self {
            id,
            number,
            key,
            ledger: Mutex::new(ledger(id)),
            facts: Mutex::default(),
            custom_parameters: Mutex::default(),
            catalog,
            startups: Mutex::default(),
            sequence_readers: SequenceReaders::default(),
            epochs: Mutex::default(),
            defaults: AtomicU32::default(),
            past: Mutex::default(),
            past_times: Mutex::default(),
            clients: AtomicUsize::new(0),
            hosts: AtomicUsize::new(0),
            free_ids: Arc::clone(free_ids),
        }
    }

    /// Returns a number that the process gives to no other pool, even later.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of clients that share the pool's servers.
    pub(crate) fn client_count(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Counts a client that shares the pool's servers. Returns the number of clients before.
    pub(crate) fn add_client(&self) -> usize {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Uncounts a client that has left. Returns the number of clients before.
    pub(crate) fn remove_client(&self) -> usize {
        self.clients.fetch_sub(1, Ordering::Relaxed)
    }

    /// Returns a number that determines at which of several hosts the search for a host begins.
    pub(crate) fn host_number(&self) -> usize {
        self.hosts.load(Ordering::Relaxed)
    }

    /// Returns the same number, and lets the next search begin at the next host.
    pub(crate) fn take_host_number(&self) -> usize {
        self.hosts.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the next search begin at the next host, unless another worker has done so since the number was `at`.
    pub(crate) fn skip_host(&self, at: usize) {
        let (next, order) = (at.wrapping_add(1), Ordering::Relaxed);
        let _ = self.hosts.compare_exchange(at, next, order, order);
    }

    /// Keeps the counters and histograms of a worker that drops its part of the pool.
    pub(crate) fn add_past(&self, stats: Stats, times: Times) {
        *self.past.lock() += stats;
        *self.past_times.lock() += times;
    }

    /// Returns the counters of workers that have dropped their part of the pool.
    pub(crate) fn past(&self) -> Stats {
        *self.past.lock()
    }

    /// Returns the histograms of those workers.
    pub(crate) fn past_times(&self) -> Times {
        *self.past_times.lock()
    }

    /// Returns whether the initial parameters of sessions on newly opened servers are known.
    pub(crate) fn is_known(&self) -> bool {
        let epoch = self.epochs.lock().present();
        let defaults = self.defaults.load(Ordering::Acquire);
        let facts = self.facts.lock();
        facts.server_parameters.is_some() && facts.epoch == epoch && facts.defaults == defaults
    }

    /// Returns whether UTF8 is the servers' encoding.
    pub(crate) fn is_utf8(&self) -> bool {
        let facts = self.facts.lock();
        let server_parameters = facts.server_parameters.as_ref();
        server_parameters
            .and_then(|server_parameters| server_parameters.parameter(b"server_encoding"))
            == Some(b"UTF8")
    }
}

/// Facts about the servers of a pool.
#[derive(Debug, Default)]
pub struct ServerFacts {
    /// The parameters that the servers report; `None` until the first one has logged in.
    pub server_parameters: Option<Arc<ServerParameters>>,
    /// The epoch of the server that reported them.
    pub epoch: u32,
    /// The value of [`SharedPool::defaults`] for that server.
    pub defaults: u32,
    /// The reason why the last login failed; `None` once one succeeds.
    pub failure: Option<Failure>,
    /// The number of failed logins in a row.
    pub failures: usize,
    /// The secret of a client that has authenticated, if its user is not in `auth_file`.
    pub secret: Option<Arc<Secret>>,
    /// Whether LDAP or PAM has checked the secret: then it is used before one in `auth_file`.
    pub is_checked: bool,
    /// The SCRAM keys of a client. A server accepts them, too, if it has the same secret for the user.
    pub keys: Option<ClientKeys>,
    /// The values of the parameters in a clean session, as a server reported them last.
    pub baseline: Option<Arc<Baseline>>,
    /// The parameters that `connect_query` sets; `None` until a server has reported them.
    pub connect_settings: Option<Arc<ConnectSettings>>,
    /// The results of logins to each host.
    pub logins: HostLogins,
    /// Whether no host can be used.
    pub outage: Outage,
}

impl ServerFacts {
    /// Notes a failed login.
    pub fn login_failed(&mut self, why: Failure) {
        let before = if self.failure.is_some() {
            self.failures
        } else {
            0
        };
        self.failures = before.saturating_add(1);
        self.failure = Some(why);
    }

    /// Returns the secret for logins to servers; `listed` is the user's secret in `auth_file`.
    #[must_use]
    pub fn secret<'s>(&'s self, listed: Option<&'s Arc<Secret>>) -> Option<&'s Arc<Secret>> {
        let proven = self.secret.as_ref();
        match self.is_checked {
            true => proven.or(listed),
            false => listed.or(proven),
        }
    }
}

/// The ids that new pools can get.
#[derive(Debug, Default)]
pub(crate) struct FreeIds {
    free: Vec<u32>,
    next: u32,
    /// The number of pools that were created.
    made: u64,
}

impl FreeIds {
    /// Returns an id that no present pool has, and a number that no pool has had.
    pub(crate) fn take(&mut self) -> (u32, u64) {
        self.made += 1;
        let id = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (id, self.made)
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        // The pool gives up its caps before another pool can get its id.
        self.ledger.get_mut().part();
        self.free_ids.lock().free.push(self.id.0);
    }
}
