//! What all workers of a process share: the configuration, and the pools by name.

mod clients;
mod takeover;

use std::{
    collections::HashMap,
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
    beginnings::Assignments,
    bypass::Bypass,
    catalog::{Catalog, Catalogs},
    client_counts::ClientCounts,
    listen::Holders,
    lookups::Lookups,
    occupancy::Occupancies,
    operator::Operator,
    pool::{CapLimits, Ledger, Limits, Order, PoolId, PoolKey, Scope, Seat, SharedCaps},
    session::{SequenceReaders, SettingsTable, Statements, TrackedNames},
    shared_pool::{FreeIds, SharedPool},
    time::Time,
    tls::TlsTerms,
};

use self::takeover::Takeover;

/// One whole configuration: it is replaced, never changed.
#[derive(Debug)]
pub struct Snapshot {
    /// The ini file, checked.
    pub config: Config,
    /// The users of `auth_file`.
    pub users: Userlist,
    /// What the TLS settings come to.
    pub tls: TlsTerms,
    /// The rules of `auth_hba_file`.
    pub rules: Rules,
}

/// Shared by all workers of a process; touched at login and by the console, never per query.
#[derive(Debug)]
pub struct Directory {
    snapshot: RwLock<Arc<Snapshot>>,
    workers: usize,
    process_key: ProcessKey,
    /// How many processes have handed over to each other before this one.
    generation: u8,
    names: TrackedNames,
    statements: Statements,
    settings: SettingsTable,
    pools: Mutex<Pools>,
    caps: Arc<SharedCaps>,
    free_ids: Arc<Mutex<FreeIds>>,
    clients: AtomicUsize,
    /// Touched when a client comes and when it leaves.
    client_counts: Mutex<ClientCounts>,
    bypass: Bypass,
    /// Clients with a pool, and workers that may still get some.
    staying: AtomicUsize,
    /// Workers that may still have servers.
    serving: AtomicUsize,
    next_id: AtomicU64,
    made_secrets: Mutex<HashMap<String, MadeSecret>>,
    lookups: Lookups,
    assignments: Assignments,
    occupancies: Occupancies,
    operator: Operator,
    holders: Holders,
    takeover: Takeover,
}

/// The pools that live.
#[derive(Debug, Default)]
struct Pools {
    by_key: HashMap<PoolKey, Weak<SharedPool>>,
    by_id: Vec<Weak<SharedPool>>,
    /// By database.
    catalogs: HashMap<Box<str>, Weak<Catalog>>,
    all_catalogs: Arc<Catalogs>,
}

impl Pools {
    /// What is certified of a database, as its other pools know it.
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

/// A SCRAM secret that was made of a plain one.
#[derive(Debug)]
struct MadeSecret {
    of: Arc<Secret>,
    iterations: u32,
    made: scram::Secret,
}

struct ProcessKey([u8; 32]);

impl Directory {
    /// A directory for `workers` workers; `process_key` is random, and secret.
    #[must_use]
    pub fn new(workers: usize, snapshot: Arc<Snapshot>, process_key: [u8; 32]) -> Self {
        let names = TrackedNames::new(&snapshot.config.settings.track_extra_parameters);
        Self {
            snapshot: RwLock::new(snapshot),
            workers,
            process_key: ProcessKey(process_key),
            generation: 0,
            names,
            statements: Statements::default(),
            settings: SettingsTable::default(),
            pools: Mutex::default(),
            caps: Arc::default(),
            free_ids: Arc::default(),
            clients: AtomicUsize::new(0),
            client_counts: Mutex::default(),
            bypass: Bypass::default(),
            staying: AtomicUsize::new(workers),
            serving: AtomicUsize::new(workers),
            next_id: AtomicU64::new(1),
            made_secrets: Mutex::default(),
            lookups: Lookups::default(),
            assignments: Assignments::default(),
            occupancies: Occupancies::default(),
            operator: Operator::default(),
            holders: Holders::default(),
            takeover: Takeover::default(),
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The parameters that are tracked.
    #[must_use]
    pub fn names(&self) -> &TrackedNames {
        &self.names
    }

    /// How busy threads are.
    #[must_use]
    pub fn occupancies(&self) -> &Occupancies {
        &self.occupancies
    }

    /// The prepared statements of all clients.
    #[must_use]
    pub fn statements(&self) -> &Statements {
        &self.statements
    }

    /// The settings of all sessions.
    #[must_use]
    pub fn settings(&self) -> &SettingsTable {
        &self.settings
    }

    /// Puts a new configuration in force. The caller then mails it to every worker.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        let before = std::mem::replace(&mut *self.snapshot.write(), Arc::clone(&snapshot));
        for pool in self.pools() {
            let name = &pool.key.database;
            let entries = (before.config.database(name), snapshot.config.database(name));
            if let (Some(old), Some(new)) = entries
                && !(opens_like(old, new) && before.tls.servers == snapshot.tls.servers)
            {
                pool.epochs.lock().renew();
            }
        }
        self.operator
            .forget_databases(|name| snapshot.config.database(name).is_some());
        self.lookups.clear();
        let users = &snapshot.users;
        self.made_secrets.lock().retain(|user, kept| {
            users
                .get(user)
                .is_some_and(|now| Arc::ptr_eq(now, &kept.of))
        });
    }

    /// The pool of this name, made if need be.
    #[must_use]
    pub fn pool(&self, key: &PoolKey, config: &Config, database: &Database) -> Arc<SharedPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.by_key.get(key).and_then(Weak::upgrade) {
            return pool;
        }
        let id = PoolId(self.free_ids.lock().take());
        let names = [&*key.database, &*key.user];
        let seat = Seat::new(
            &self.caps,
            id,
            names,
            cap_limits(config, database, &key.user),
        );
        let limits = limits(config, database, &key.user);
        let mut ledger = Ledger::new(self.workers, limits, seat);
        if self.departs() {
            ledger.restrict(0);
        }
        if self.operator.is_halted(&key.database) {
            // Nobody waits in it yet, so that there is nothing to be told.
            let _ = ledger.set_paused(true, Time(0));
        }
        let pool = Arc::new(SharedPool {
            id,
            key: key.clone(),
            ledger: Mutex::new(ledger),
            facts: Mutex::default(),
            customs: Mutex::default(),
            catalog: pools.catalog(&key.database),
            startups: Mutex::default(),
            sequence_readers: SequenceReaders::default(),
            epochs: Mutex::default(),
            beginnings: Mutex::default(),
            past: Mutex::default(),
            past_times: Mutex::default(),
            clients: AtomicUsize::new(0),
            hosts: AtomicUsize::new(0),
            free_ids: Arc::clone(&self.free_ids),
        });
        pools.by_key.retain(|_, pool| pool.strong_count() > 0);
        pools.by_key.insert(key.clone(), Arc::downgrade(&pool));
        if pools.by_id.len() <= id.index() {
            pools.by_id.resize_with(id.index() + 1, Weak::new);
        }
        pools.by_id[id.index()] = Arc::downgrade(&pool);
        pool
    }

    /// Does a pool of this database live?
    #[must_use]
    pub fn has_pool_of(&self, database: &str) -> bool {
        let pools = self.pools.lock();
        let mut living = pools
            .by_key
            .iter()
            .filter(|(_, pool)| pool.strong_count() > 0);
        living.any(|(key, _)| &*key.database == database)
    }

    /// All pools that live.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<SharedPool>> {
        let pools = self.pools.lock();
        pools.by_key.values().filter_map(Weak::upgrade).collect()
    }

    /// The pool of this id, if it lives.
    #[must_use]
    pub fn pool_of(&self, id: PoolId) -> Option<Arc<SharedPool>> {
        self.pools.lock().by_id.get(id.index())?.upgrade()
    }

    /// The book of the caps that pools share.
    #[must_use]
    pub fn caps(&self) -> &SharedCaps {
        &self.caps
    }

    /// All servers of a database, of whatever pool.
    #[must_use]
    pub fn servers_of_database(&self, database: &str) -> u32 {
        self.caps.with(|caps| caps.taken(Scope::Database, database))
    }

    /// All servers that log in as this user, of whatever pool.
    #[must_use]
    pub fn servers_of_user(&self, user: &str) -> u32 {
        self.caps.with(|caps| caps.taken(Scope::User, user))
    }

    /// A client has logged in to a pool: until it [leaves](Directory::stays_no_more), its pool may
    /// need the servers of any worker, so that none may end.
    pub fn stays(&self) {
        self.staying.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a client left, or a worker lets no more clients log in. `true` for the last of all
    /// clients and workers: the others have to be told.
    #[must_use]
    pub fn stays_no_more(&self) -> bool {
        self.staying.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// No worker lets clients log in any more, and none is left of those that did.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.staying.load(Ordering::Acquire) == 0
    }

    /// A worker has no server any more and gets none. `true` for the last: the others have to be told.
    #[must_use]
    pub fn has_served(&self) -> bool {
        self.serving.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// No worker has a server any more.
    #[must_use]
    pub fn have_all_served(&self) -> bool {
        self.serving.load(Ordering::Acquire) == 0
    }

    /// The next id of a client or a server: one counter for both, as in PgBouncer.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Whose work the servers do.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// What operators have ordered.
    #[must_use]
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// How many online restarts there were, modulo 256.
    #[must_use]
    pub fn generation(&self) -> u8 {
        self.generation
    }

    /// The key that mock exchanges and made-up salts hang on.
    #[must_use]
    pub fn process_key(&self) -> &[u8; 32] {
        &self.process_key.0
    }

    /// What is assigned to sessions, by PostgreSQL.
    #[must_use]
    pub fn assignments(&self) -> &Assignments {
        &self.assignments
    }

    /// What databases have told of users.
    #[must_use]
    pub fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// The SCRAM secret that was made of a user's plain one, if it was.
    #[must_use]
    pub fn made_secret(
        &self,
        user: &str,
        secret: &Arc<Secret>,
        iterations: u32,
    ) -> Option<scram::Secret> {
        let secrets = self.made_secrets.lock();
        let kept = secrets.get(user)?;
        let fits = Arc::ptr_eq(&kept.of, secret) && kept.iterations == iterations;
        fits.then(|| kept.made.clone())
    }

    /// Keeps a secret for [`Directory::made_secret`]: one for each user of `auth_file` at most.
    pub fn keep_made_secret(
        &self,
        user: &str,
        of: Arc<Secret>,
        iterations: u32,
        made: scram::Secret,
    ) {
        let kept = MadeSecret {
            of,
            iterations,
            made,
        };
        self.made_secrets.lock().insert(user.to_owned(), kept);
    }
}

/// Would a server that was opened for one of these entries be opened just so for the other?
#[must_use]
pub(crate) fn opens_like(one: &Database, other: &Database) -> bool {
    let what = |entry: &Database| {
        let entry = entry.clone();
        let hosts = (entry.host, entry.port);
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

/// The limits of one pool.
#[must_use]
pub(crate) fn limits(config: &Config, database: &Database, user: &str) -> Limits {
    let settings = &config.settings;
    // As in PgBouncer, 0 is no limit.
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
            FairWindow::Auto => Order::Auto,
            FairWindow::Micros(window) => Order::Window(window.0),
        },
        retry: settings.server_login_retry.0,
    }
}

/// What the caps are that the pool shares with others.
#[must_use]
pub(crate) fn cap_limits(config: &Config, database: &Database, user: &str) -> CapLimits {
    CapLimits {
        database: config.max_db_connections(database),
        user: config.max_user_connections(user),
        process: config.settings.max_server_conn,
        weight: database.weight,
    }
}

impl std::fmt::Debug for ProcessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessKey(..)")
    }
}
