//! A worker's part of a pool.

use std::sync::Arc;

use pgweir_config::{Database, PoolMode};

use crate::{
    Directory, Endpoint, SharedPool, Snapshot, Time, Token, backend::Welcome,
    directory::opens_like, stats::Periods,
};

/// Microseconds for which a pool that never had a server is kept without a client.
const FRUITLESS_POOL_KEPT: u64 = 1_000_000;

/// A worker's part of a pool: what it can use without a lock.
#[derive(Debug)]
pub(crate) struct LocalPool {
    pub(crate) shared: Arc<SharedPool>,
    /// Idle servers; the one that was used last is lent first.
    pub(crate) idle: Vec<Token>,
    /// Somebody may wait: every server that comes free goes through the ledger (see there).
    pub(crate) told: bool,
    /// Clients of this worker.
    pub(crate) clients: usize,
    /// Servers of this worker.
    pub(crate) servers: usize,
    pub(crate) stats: Periods,
    pub(crate) terms: Terms,
    /// Since when it has had neither clients nor servers.
    pub(crate) empty_since: Time,
    /// As far as this worker knows; the ledger knows for sure.
    pub(crate) paused: bool,
    /// What its servers belong to that are opened from here on (see `Epochs`).
    pub(crate) epoch: u32,
}

/// What the configuration says of a pool, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: PoolMode,
    /// The entry of [databases] that serves it; `None` if there is none any more.
    pub(crate) entry: Option<Database>,
    /// Where its servers are; the next server goes to the next one in the list.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// Microseconds; 0 is no limit.
    pub(crate) query_wait_timeout: u64,
    pub(crate) patience: Patience,
    /// Microseconds.
    pub(crate) server_lifetime: u64,
    /// Most prepared statements on each server; 0 if clients' names are not followed.
    pub(crate) prepared_max: usize,
    /// From the entry `*`: not kept when it has been empty for `autodb_idle_timeout`.
    pub(crate) is_auto: bool,
}

/// How long a client of a pool may keep its server, in microseconds; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    pub(crate) query: u64,
    pub(crate) idle_transaction: u64,
    pub(crate) transaction: u64,
}

impl Terms {
    pub(crate) fn of(shared: &SharedPool, snapshot: &Snapshot) -> Self {
        let config = &snapshot.config;
        let Some(database) = config.database(&shared.key.database) else {
            return Self {
                mode: PoolMode::Transaction,
                entry: None,
                endpoints: Vec::new(),
                query_wait_timeout: config.settings.query_wait_timeout.0,
                patience: Patience::default(),
                server_lifetime: 0,
                prepared_max: 0,
                is_auto: true,
            };
        };
        let hosts = match database.host.as_slice() {
            [] => vec![
                config
                    .settings
                    .unix_socket_dir
                    .clone()
                    .unwrap_or_else(|| "/tmp".to_owned()),
            ],
            hosts => hosts.to_vec(),
        };
        let mode = config.pool_mode(database, &shared.key.user);
        let prepared_max = match mode {
            PoolMode::Session => 0,
            _ => config.settings.max_prepared_statements as usize,
        };
        Self {
            mode,
            prepared_max,
            entry: Some(database.clone()),
            endpoints: hosts
                .iter()
                .map(|host| Arc::new(endpoint(host, database.port)))
                .collect(),
            query_wait_timeout: config.query_wait_timeout(database, &shared.key.user).0,
            patience: Patience {
                query: config.query_timeout(&shared.key.user).0,
                idle_transaction: config.idle_transaction_timeout(&shared.key.user).0,
                transaction: config.transaction_timeout(&shared.key.user).0,
            },
            server_lifetime: config.server_lifetime(database).0,
            is_auto: !config.databases.contains_key(&*shared.key.database),
        }
    }
}

impl Terms {
    /// Would a server that was opened under these terms be opened just so under `other`?
    pub(crate) fn opens_like(&self, other: &Self) -> bool {
        match (&self.entry, &other.entry) {
            (Some(one), Some(other)) => opens_like(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    if host.starts_with(['/', '@']) {
        Endpoint::Unix(format!("{}/.s.PGSQL.{port}", host.trim_end_matches('/')))
    } else {
        Endpoint::Tcp {
            host: host.to_owned(),
            port,
        }
    }
}

impl LocalPool {
    pub(crate) fn new(
        shared: &Arc<SharedPool>,
        directory: &Directory,
        snapshot: &Arc<Snapshot>,
        now: Time,
    ) -> Self {
        let terms = Terms::of(shared, snapshot);
        let present = shared.epochs.lock().present();
        // The directory takes over a snapshot before it turns epochs: this order is the other way round.
        let is_current = Arc::ptr_eq(&directory.snapshot(), snapshot);
        Self {
            shared: Arc::clone(shared),
            idle: Vec::new(),
            told: false,
            clients: 0,
            servers: 0,
            stats: Periods::default(),
            terms,
            empty_since: now,
            paused: directory.operator().is_halted(&shared.key.database),
            epoch: present.wrapping_sub(u32::from(!is_current)),
        }
    }

    /// For how many microseconds it is kept without clients and servers; `None` is for ever.
    pub(crate) fn kept(&self, autodb_kept: u64) -> Option<u64> {
        let never_worked = self.welcome().is_none();
        let kept = if never_worked {
            FRUITLESS_POOL_KEPT
        } else {
            autodb_kept
        };
        (self.terms.is_auto && kept > 0).then_some(kept)
    }

    /// What the servers said of themselves, once one has.
    pub(crate) fn welcome(&self) -> Option<Arc<Welcome>> {
        self.shared.facts.lock().welcome.clone()
    }
}
