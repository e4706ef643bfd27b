//! The state that all workers of a process share: the configuration, the pools by name, and counters.

mod clients;
mod takeover;
mod workers;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use pgweir_auth::{
    hba::Rules,
    scram,
    userlist::{Secret, Userlist},
};
use pgweir_config::{Config, Database, FairWindow};

use crate::{
    base::{memory::Memory, time::Time, tls::TlsTerms},
    listen::Holders,
    pool::{CapLimits, CapMembership, Ledger, Limits, PoolId, PoolKey, SharedCaps, WaitOrder},
    session::{SettingsTable, Statements, TrackedNames},
    shared::{
        auth_cache::AuthCache,
        bans::Bans,
        bypass::Bypass,
        catalog::{Catalog, Catalogs},
        client_counts::ClientCounts,
        events::{EventKind, Events, Occurrence},
        fleet::Fleet,
        hosts::Hosts,
        occupancy::Occupancies,
        operator::Operator,
        pool::{FreeIds, SharedPool},
        worker_loads::WorkerLoads,
    },
};

use self::takeover::Takeover;

/// A configuration with its files. A RELOAD replaces it as a whole, never a part of it.
#[derive(Debug)]
pub struct Snapshot {
    /// The ini file, checked.
    pub config: Config,
    /// The users of `auth_file`.
    pub users: Userlist,
    /// The TLS settings, with their files read.
    pub tls: TlsTerms,
    /// The rules of `auth_hba_file`.
    pub rules: Rules,
}

/// The state that all workers share. Logins and the console use it, queries do not.
#[derive(Debug)]
pub struct Directory {
    snapshot: RwLock<Arc<Snapshot>>,
    workers: Arc<WorkerLoads>,
    /// The place of this process among its online restarts.
    process: ProcessIdentity,
    /// The names, statements and settings that connections share.
    interned: Interned,
    pools: Mutex<Pools>,
    caps: Arc<SharedCaps>,
    free_ids: Arc<Mutex<FreeIds>>,
    /// The clients of all workers, and the workers that still have connections.
    clients: ClientTotals,
    bypass: Bypass,
    next_id: AtomicU64,
    /// The secrets that logins have shown or made.
    secrets: Secrets,
    occupancies: Occupancies,
    operator: Operator,
    servers: KnownServers,
    takeover: Takeover,
    events: Events,
}

/// The place of a process among its online restarts.
#[derive(Debug)]
struct ProcessIdentity {
    key: ProcessKey,
    /// The number of online restarts before this process, modulo 256.
    generation: u8,
}

/// The names, statements and settings that connections share.
#[derive(Debug)]
struct Interned {
    names: TrackedNames,
    statements: Statements,
    settings: SettingsTable,
    /// The memory that these objects and the connections take.
    memory: Arc<Memory>,
}

/// The clients of all workers, and the workers that still have connections.
#[derive(Debug)]
struct ClientTotals {
    all: AtomicUsize,
    /// Used when a client connects and when it disconnects.
    by_name: Mutex<ClientCounts>,
    /// Clients that are logged in to a pool, plus workers that still let clients log in.
    staying: AtomicUsize,
    /// Workers that have servers, or may still open some.
    serving: AtomicUsize,
    /// The number of client connections for which the process has descriptors.
    room: AtomicUsize,
}

/// The hosts of servers, the clients that servers work for, and the other processes that share the limit on servers.
#[derive(Debug)]
struct KnownServers {
    /// The client for which each server works.
    holders: Holders,
    hosts: Hosts,
    fleet: Fleet,
}

/// The secrets that logins have shown or made.
#[derive(Debug)]
struct Secrets {
    made: Mutex<HashMap<String, DerivedSecret>>,
    cache: AuthCache,
    bans: Bans,
}

/// The pools that exist.
#[derive(Debug, Default)]
struct Pools {
    by_key: HashMap<PoolKey, Weak<SharedPool>>,
    by_id: Vec<Weak<SharedPool>>,
    /// The catalogs by database.
    catalogs: HashMap<Box<str>, Weak<Catalog>>,
    all_catalogs: Arc<Catalogs>,
}

impl Pools {
    /// Returns the catalog of a database, which all of its pools share.
    fn catalog(&mut self, database: &str) -> Arc<Catalog> {
        self.catalogs
            .retain(|_, catalog| catalog.strong_count() > 0);
        let known = self.catalogs.get(database).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let catalog = self.all_catalogs.add();
            self.catalogs
                .insert(database.into(), Arc::downgrade(&catalog));
            catalog
        })
    }
}

/// A SCRAM secret that was derived from a plain password.
#[derive(Debug)]
struct DerivedSecret {
    of: Arc<Secret>,
    iterations: u32,
    made: scram::Secret,
}

struct ProcessKey([u8; 32]);

impl Directory {
    /// Creates a directory for `workers` workers; `process_key` is random, and secret.
    #[must_use]
    pub fn new(workers: usize, snapshot: Arc<Snapshot>, process_key: [u8; 32]) -> Self {
        let names = TrackedNames::new(&snapshot.config.settings.track_extra_parameters);
        let memory = Arc::new(Memory::new(workers));
        memory.set_limit(snapshot.config.settings.memory_limit.0);
        let hosts = Hosts::new(workers);
        hosts.prepare_for(&snapshot.config);
        Self {
            workers: Arc::new(WorkerLoads::new(workers, snapshot.worker_busy_target())),
            snapshot: RwLock::new(snapshot),
            process: ProcessIdentity {
                key: ProcessKey(process_key),
                generation: 0,
            },
            interned: Interned {
                names,
                statements: Statements::new(Arc::clone(&memory)),
                settings: SettingsTable::new(Arc::clone(&memory)),
                memory,
            },
            pools: Mutex::default(),
            caps: Arc::default(),
            free_ids: Arc::default(),
            clients: ClientTotals {
                all: AtomicUsize::new(0),
                by_name: Mutex::default(),
                staying: AtomicUsize::new(workers),
                serving: AtomicUsize::new(workers),
                room: AtomicUsize::new(usize::MAX),
            },
            bypass: Bypass::default(),
            next_id: AtomicU64::new(1),
            secrets: Secrets {
                made: Mutex::default(),
                cache: AuthCache::default(),
                bans: Bans::default(),
            },
            occupancies: Occupancies::default(),
            operator: Operator::default(),
            servers: KnownServers {
                holders: Holders::default(),
                hosts,
                fleet: Fleet::default(),
            },
            takeover: Takeover::default(),
            events: Events::default(),
        }
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Returns what this process knows of its fleet.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.servers.fleet
    }

    /// Returns the parameters that PostgreSQL reports.
    #[must_use]
    #[inline]
    pub fn names(&self) -> &TrackedNames {
        &self.interned.names
    }

    /// Returns the load of the threads for slow work.
    #[must_use]
    pub fn occupancies(&self) -> &Occupancies {
        &self.occupancies
    }

    /// Returns the prepared statements of all clients.
    #[must_use]
    pub fn statements(&self) -> &Statements {
        &self.interned.statements
    }

    /// Returns the settings of all sessions.
    #[must_use]
    pub fn settings(&self) -> &SettingsTable {
        &self.interned.settings
    }

    /// Puts a new configuration in force. The caller then sends it to every worker.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        self.hosts().prepare_for(&snapshot.config);
        let before = std::mem::replace(&mut *self.snapshot.write(), Arc::clone(&snapshot));
        for pool in self.pools() {
            let (name, user) = (&pool.key.database, &pool.key.user);
            let entries = (before.config.database(name), snapshot.config.database(name));
            let (Some(old), Some(new)) = entries else {
                continue;
            };
            let opens_alike = opens_like(old, new) && before.tls.servers == snapshot.tls.servers;
            // Until now pgweir has not recorded which session state clients leave on the pool's servers.
            let begins_to_carry = snapshot.config.carries_sessions(new, user)
                && !before.config.carries_sessions(old, user);
            if !opens_alike || begins_to_carry {
                pool.epochs.lock().renew();
            }
        }
        let (old, new) = (&before.config.settings, &snapshot.config.settings);
        if old.certified_functions != new.certified_functions
            || old.pin_extensions != new.pin_extensions
        {
            self.catalogs().doubt();
        }
        let memory_limit = snapshot.config.settings.memory_limit;
        self.interned.memory.set_limit(memory_limit.0);
        self.operator
            .forget_databases(|name| snapshot.config.database(name).is_some());
        self.secrets.cache.clear();
        let users = &snapshot.users;
        self.secrets.made.lock().retain(|user, kept| {
            users
                .get(user)
                .is_some_and(|now| Arc::ptr_eq(now, &kept.of))
        });
    }

    /// Returns the pool of a database and user, and creates it if it does not exist.
    #[must_use]
    pub fn pool(&self, key: &PoolKey, config: &Config, database: &Database) -> Arc<SharedPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.by_key.get(key).and_then(Weak::upgrade) {
            return pool;
        }
        let ledger = |id| {
            let (group, cap_limits) = self.cap_limits(config, database, &key.user);
            let names = [&*key.database, &*key.user, &*group];
            let caps = CapMembership::new(&self.caps, id, names, cap_limits);
            let limits = limits(config, database, &key.user);
            let mut ledger = Ledger::new(self.workers(), limits, caps);
            if self.hands_clients_over() {
                ledger.restrict(0);
            }
            if self.operator.is_halted(&key.database) {
                // No client waits in the new pool yet, so there are no notes to deliver.
                let _ = ledger.set_paused(true, Time(0));
            }
            ledger
        };
        let catalog = pools.catalog(&key.database);
        let pool = SharedPool::new(key.clone(), &self.free_ids, catalog, ledger);
        let (id, pool) = (pool.id, Arc::new(pool));
        pools.by_key.retain(|_, pool| pool.strong_count() > 0);
        pools.by_key.insert(key.clone(), Arc::downgrade(&pool));
        if pools.by_id.len() <= id.index() {
            pools.by_id.resize_with(id.index() + 1, Weak::new);
        }
        pools.by_id[id.index()] = Arc::downgrade(&pool);
        pool
    }

    /// Returns the limits that a pool shares with other pools, and the group of hosts whose limit holds for the pool.
    #[must_use]
    pub(crate) fn cap_limits(
        &self,
        config: &Config,
        database: &Database,
        user: &str,
    ) -> (Arc<str>, CapLimits) {
        let of_process = config.settings.fleet_share();
        let (group, process) = self.hosts().server_limit_for(database, of_process);
        let limits = CapLimits {
            database: config.max_db_connections(database),
            user: config.max_user_connections(user),
            process,
            weight: database.weight,
        };
        (group, limits)
    }

    /// Returns whether a pool of this database exists.
    #[must_use]
    pub fn has_pool_of(&self, database: &str) -> bool {
        let pools = self.pools.lock();
        let mut living = pools
            .by_key
            .iter()
            .filter(|(_, pool)| pool.strong_count() > 0);
        living.any(|(key, _)| &*key.database == database)
    }

    /// Returns all pools that exist.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<SharedPool>> {
        let pools = self.pools.lock();
        pools.by_key.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the pool with this id, if it exists.
    #[must_use]
    pub fn pool_of(&self, id: PoolId) -> Option<Arc<SharedPool>> {
        self.pools.lock().by_id.get(id.index())?.upgrade()
    }

    /// Returns the limits on servers that pools share.
    #[must_use]
    pub fn caps(&self) -> &SharedCaps {
        &self.caps
    }

    /// Counts a client that has logged in to a pool. Until it [disconnects](Directory::note_stayed_client_left), its pool may
    /// need a server of any worker, so no worker may end.
    pub fn stays(&self) {
        self.clients.staying.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that such a client has disconnected, or that a worker lets no more clients log in. Returns `true` for the
    /// last of all clients and workers: the caller then notifies the other workers.
    #[must_use]
    pub fn note_stayed_client_left(&self) -> bool {
        self.clients.staying.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns whether no client is left, and no worker lets clients log in.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.clients.staying.load(Ordering::Acquire) == 0
    }

    /// Notes that a worker has closed its last server and opens no more. Returns `true` for the last such worker: the
    /// caller then notifies the others.
    #[must_use]
    pub fn has_served(&self) -> bool {
        self.clients.serving.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns whether all workers have closed their last server.
    #[must_use]
    pub fn have_all_served(&self) -> bool {
        self.clients.serving.load(Ordering::Acquire) == 0
    }

    /// Returns the next id of a client or a server: one counter for both, as in PgBouncer.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the hosts that servers were opened on.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.servers.hosts
    }

    /// Returns the clients that servers work for, by the servers' pids.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.servers.holders
    }

    /// Returns the orders that operators have given by the console.
    #[must_use]
    #[inline]
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Returns the memory that clients and servers take.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.interned.memory
    }

    /// Returns the catalogs of all databases.
    #[must_use]
    pub fn catalogs(&self) -> Arc<Catalogs> {
        Arc::clone(&self.pools.lock().all_catalogs)
    }

    /// Returns the latest events, for SHOW EVENTS.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Records an event about a database and a user, each of which may be empty.
    pub fn note_event(&self, kind: EventKind, about: (&str, &str), text: &str, now: Time) {
        let occurrence = Occurrence {
            kind,
            about,
            text,
            source: None,
        };
        self.note_occurrence(occurrence, now);
    }

    /// Records an event.
    pub fn note_occurrence(&self, occurrence: Occurrence<'_>, now: Time) {
        let most = self.snapshot.read().config.settings.event_history as usize;
        self.events.add(occurrence, most, now);
    }

    /// Returns the number of online restarts before this process, modulo 256.
    #[must_use]
    pub fn generation(&self) -> u8 {
        self.process.generation
    }

    /// Returns how much longer than `retry` a pool waits before its next login to a server, in microseconds: up to a quarter of
    /// `retry`. The time differs from pool to pool, from process to process, and from one failure to the next.
    #[must_use]
    pub(crate) fn login_jitter(&self, pool: &SharedPool, failures: usize, retry: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.process.key.0, pool.number(), failures).hash(&mut hasher);
        hasher.finish() % (retry / 4 + 1)
    }

    /// Returns the secret from which mock SCRAM exchanges and salts are derived.
    #[must_use]
    pub fn process_key(&self) -> &[u8; 32] {
        &self.process.key.0
    }

    /// Returns the cache of `auth_query` results and of users' roles.
    #[must_use]
    pub fn auth_cache(&self) -> &AuthCache {
        &self.secrets.cache
    }

    /// Returns the failed logins by address and user, and the bans that follow them.
    #[must_use]
    pub fn bans(&self) -> &Bans {
        &self.secrets.bans
    }

    /// Returns the SCRAM secret that was derived from a user's plain password, if it is known.
    #[must_use]
    pub fn derived_secret(
        &self,
        user: &str,
        secret: &Arc<Secret>,
        iterations: u32,
    ) -> Option<scram::Secret> {
        let secrets = self.secrets.made.lock();
        let kept = secrets.get(user)?;
        let fits = Arc::ptr_eq(&kept.of, secret) && kept.iterations == iterations;
        fits.then(|| kept.made.clone())
    }

    /// Stores a secret for [`Directory::derived_secret`]: at most one for each user of `auth_file`.
    pub fn keep_derived_secret(
        &self,
        user: &str,
        of: Arc<Secret>,
        iterations: u32,
        made: scram::Secret,
    ) {
        let kept = DerivedSecret {
            of,
            iterations,
            made,
        };
        self.secrets.made.lock().insert(user.to_owned(), kept);
    }
}

/// Returns whether both entries of `[databases]` open their servers in the same way.
#[must_use]
pub(crate) fn opens_like(one: &Database, other: &Database) -> bool {
    let what = |entry: &Database| {
        let entry = entry.clone();
        let hosts = (entry.host, entry.port, entry.target_session_attrs);
        let login = (entry.dbname, entry.user, entry.password);
        let parameters = (
            entry.client_encoding,
            entry.datestyle,
            entry.timezone,
            entry.application_name,
        );
        (hosts, login, parameters, entry.connect_query)
    };
    what(one) == what(other)
}

/// Returns the limits of one pool.
#[must_use]
pub(crate) fn limits(config: &Config, database: &Database, user: &str) -> Limits {
    let settings = &config.settings;
    // As in PgBouncer, 0 means no limit.
    let size = match config.pool_size(database, user) {
        0 => u32::MAX,
        size => size,
    };
    Limits {
        size,
        pinned: config.max_pinned(database, size),
        pinned_overflow: settings.pinned_overflow,
        reserve: config.reserve_pool_size(database, user),
        reserve_after: settings.reserve_pool_timeout.0,
        overflow: config.overflow_size(database),
        overflow_waiting: config.overflow_waiting(database),
        min: config.min_pool_size(database),
        connecting: settings.server_connect_limit,
        order: match settings.fair_window {
            FairWindow::Auto => WaitOrder::Auto,
            FairWindow::Micros(window) => WaitOrder::Window(window.0),
        },
        retry: config.login_retry(database).0,
    }
}

impl std::fmt::Debug for ProcessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessKey(..)")
    }
}
