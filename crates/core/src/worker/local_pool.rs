//! A worker's part of a pool: its idle and kept server connections, its counts, and the pool's configuration. The
//! part that all workers share is [`SharedPool`].

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use pgweir_config::{Database, PoolMode, SessionState, Settings};

use super::pins::PinCount;
use crate::{
    Directory, Endpoint, ServerTls, SharedPool, Snapshot, Time, Token,
    backend::Server,
    directory::opens_like,
    pin::Pin,
    session::{Certificates, VerdictCache},
    shared_pool::ServerParameters,
    stats::{Periods, Times},
};

/// Microseconds for which a pool that never had a server is kept without a client.
const FRUITLESS_POOL_KEPT: u64 = 1_000_000;

/// A worker's part of a pool: what the worker can use without a lock.
#[derive(Debug)]
pub(crate) struct LocalPool {
    pub(crate) shared: Arc<SharedPool>,
    /// Idle servers; the one that was used last is lent first.
    pub(crate) idle: Vec<Token>,
    /// Servers that are kept with their clients until another client waits for one (see `worker/settle.rs`), in the
    /// order in which that began. Some may be in use or gone by now. Each server is in the list once at most.
    pub(crate) kept: VecDeque<Token>,
    /// Whether a client of any worker may wait: then every server that becomes free goes through the ledger (see
    /// there).
    pub(crate) offers_to_ledger: bool,
    /// The number of this worker's clients.
    pub(crate) clients: usize,
    /// The number of this worker's servers.
    pub(crate) servers: usize,
    pub(crate) stats: Periods,
    pub(crate) times: Times,
    /// Certified facts about the code in the pool's database, as far as this worker knows.
    pub(crate) certificates: Certificates,
    /// When this worker next asks whether the catalog must be read.
    pub(crate) catalog_due: Time,
    /// The verdicts on the clients' texts under these certificates.
    pub(crate) verdicts: VerdictCache,
    pub(crate) terms: Terms,
    /// When the pool was last diagnosed (which clients have its servers), and when the diagnosis was last logged.
    pub(crate) diagnosed_at: Option<Time>,
    pub(crate) explained_at: Option<Time>,
    /// Since when the pool has had neither clients nor servers.
    pub(crate) empty_since: Time,
    /// Whether clients keep the servers that they have got (`share_after`).
    pub(crate) clients_keep_servers: bool,
    /// Pinned clients, by reason.
    pub(crate) pins: [PinCount; Pin::ALL.len()],
    /// Microseconds that an inspection takes after which the server goes to others: a moving average.
    pub(crate) inspection_time: u64,
    /// Whether the pool is paused, as far as this worker knows; the ledger knows for sure.
    pub(crate) paused: bool,
    /// The epoch of servers that are opened from here on (see `Epochs`).
    pub(crate) epoch: u32,
    /// The [`SharedPool::defaults`] up to which older servers have been closed.
    pub(crate) defaults: u32,
}

/// The configuration of a pool, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: PoolMode,
    /// The pool's entry in [databases]; `None` if it was removed.
    pub(crate) entry: Option<Database>,
    /// The addresses of the pool's servers; successive logins take them in turn.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// How TLS is used with the servers.
    pub(crate) tls: Option<ServerTls>,
    /// Microseconds; 0 is no limit.
    pub(crate) query_wait_timeout: u64,
    pub(crate) patience: Patience,
    /// Microseconds; 0 means that a server is lent once.
    pub(crate) server_lifetime: u64,
    /// Microseconds for which a pinned client may be idle; 0 is no limit.
    pub(crate) pin_timeout: u64,
    /// Up to this many clients, each client keeps its server.
    pub(crate) share_after: usize,
    /// Whether each client keeps its first server.
    pub(crate) dedicated: bool,
    /// Whether session state is carried: `SET`, prepared statements and roles keep working in transaction mode.
    pub(crate) engine: bool,
    /// Whether `session_state` is `off`: what ends a connection in PgBouncer ends it here.
    pub(crate) as_pgbouncer: bool,
    /// The most prepared statements on each server; 0 if clients' statement names are not followed.
    pub(crate) prepared_max: usize,
    /// The fewest servers that are kept open.
    pub(crate) min_pool_size: u32,
    /// Whether the servers log in as one user, regardless of the clients' users.
    pub(crate) is_forced: bool,
    /// Whether idle servers are lent in turn.
    pub(crate) round_robin: bool,
    /// Whether the pool comes from the entry `*`: it is removed when it has been empty for `autodb_idle_timeout`.
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
    /// Returns whether each client keeps its server while there are this many clients.
    pub(crate) fn are_few(&self, clients: usize) -> bool {
        self.share_after > 0 && clients <= self.share_after
    }

    pub(crate) fn of(shared: &SharedPool, snapshot: &Snapshot) -> Self {
        let config = &snapshot.config;
        let Some(database) = config.database(&shared.key.database) else {
            return Self {
                mode: PoolMode::Transaction,
                entry: None,
                endpoints: Vec::new(),
                tls: None,
                query_wait_timeout: config.settings.query_wait_timeout.0,
                patience: Patience::default(),
                server_lifetime: 0,
                pin_timeout: 0,
                share_after: 0,
                dedicated: false,
                engine: false,
                as_pgbouncer: false,
                prepared_max: 0,
                min_pool_size: 0,
                is_forced: false,
                round_robin: false,
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
        let is_off = config.session_state(database) == SessionState::Off;
        let engine = config.carries_sessions(database, &shared.key.user);
        Self {
            mode,
            engine,
            pin_timeout: config.pin_timeout(database, &shared.key.user).0,
            share_after: config.share_after(database) as usize,
            dedicated: config.is_dedicated(database, &shared.key.user),
            as_pgbouncer: is_off,
            prepared_max,
            entry: Some(database.clone()),
            endpoints: hosts
                .iter()
                .map(|host| Arc::new(Endpoint::of(host, database.port)))
                .collect(),
            tls: snapshot.tls.servers,
            query_wait_timeout: config.query_wait_timeout(database, &shared.key.user).0,
            patience: Patience {
                query: config.query_timeout(&shared.key.user).0,
                idle_transaction: config.idle_transaction_timeout(&shared.key.user).0,
                transaction: config.transaction_timeout(&shared.key.user).0,
            },
            server_lifetime: config.server_lifetime(database).0,
            min_pool_size: config.min_pool_size(database),
            is_forced: database.user.as_deref() == Some(&*shared.key.user),
            round_robin: config.settings.server_round_robin,
            is_auto: !config.databases.contains_key(&*shared.key.database),
        }
    }
}

/// Microseconds by which a server's successor is opened before the server's end, at most.
const HANDOVER: u64 = 10_000_000;

/// Returns by how many 640ths of its lifetime a server ends early: 0 to 63.
#[inline]
fn spread(id: u64) -> u64 {
    // The high bits of a product with 2^64 / golden ratio spread consecutive numbers well.
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

impl Terms {
    /// Returns the age at which the server of this id ends: at most `server_lifetime`, and up to a tenth earlier,
    /// so that servers that were opened together don't end together.
    #[inline]
    pub(crate) fn end_age(&self, id: u64) -> u64 {
        self.server_lifetime - self.server_lifetime / 640 * spread(id)
    }

    /// Returns the age at which the server's successor is opened.
    pub(crate) fn successor_age(&self, id: u64) -> u64 {
        self.end_age(id) - (self.server_lifetime / 20).min(HANDOVER)
    }

    /// Returns whether a server that was opened under these terms would be opened in the same way under `other`.
    pub(crate) fn opens_like(&self, other: &Self) -> bool {
        match (&self.entry, &other.entry) {
            (Some(one), Some(another)) => self.tls == other.tls && opens_like(one, another),
            (None, None) => true,
            _ => false,
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
        // The directory takes over a snapshot before it turns epochs: here they are read in the opposite order.
        let is_current = Arc::ptr_eq(&directory.snapshot(), snapshot);
        let keeps = terms.are_few(shared.clients.load(Ordering::Relaxed));
        Self {
            clients_keep_servers: keeps,
            kept: VecDeque::new(),
            shared: Arc::clone(shared),
            idle: Vec::new(),
            offers_to_ledger: false,
            clients: 0,
            servers: 0,
            stats: Periods::default(),
            times: Times::default(),
            certificates: Certificates::default(),
            catalog_due: Time(0),
            verdicts: VerdictCache::default(),
            terms,
            diagnosed_at: None,
            explained_at: None,
            empty_since: now,
            pins: Default::default(),
            inspection_time: 0,
            paused: directory.operator().is_halted(&shared.key.database),
            epoch: present.wrapping_sub(u32::from(!is_current)),
            defaults: shared.defaults.load(Ordering::Acquire),
        }
    }

    /// Returns for how many microseconds the pool is kept without clients and servers; `None` is for ever.
    pub(crate) fn kept(&self, settings: &Settings) -> Option<u64> {
        let of_auto = || match self.server_parameters() {
            None => FRUITLESS_POOL_KEPT,
            Some(_) => settings.autodb_idle_timeout.0,
        };
        let auto = self.terms.is_auto.then(of_auto);
        let of_all = settings.pool_idle_timeout.0;
        let limits = auto.into_iter().chain([of_all]);
        limits.filter(|&kept| kept > 0).min()
    }

    /// Returns whether `min_pool_size` servers are kept open.
    pub(crate) fn keeps_min(&self) -> bool {
        self.terms.min_pool_size > 0
            && self.terms.entry.is_some()
            && (self.clients > 0 || self.terms.is_forced)
    }

    /// Returns whether clients keep their servers, as long as no client waits.
    #[inline]
    pub(crate) fn keeps_servers(&self) -> bool {
        self.clients_keep_servers && !self.offers_to_ledger && !self.paused
    }

    /// Returns whether a client may be keeping this server without need.
    pub(crate) fn may_keep(&self, server: &Server) -> bool {
        let is_lent = server.relays_for().is_some() && server.owner.is_none();
        self.clients_keep_servers && is_lent && server.retire.is_none()
    }

    /// Takes the next idle server to lend.
    #[inline]
    pub(crate) fn take_idle(&mut self) -> Option<Token> {
        if self.terms.round_robin && !self.idle.is_empty() {
            return Some(self.idle.remove(0));
        }
        self.idle.pop()
    }

    /// Takes the next idle server to lend: one that `likes` prefers, if it is found soon.
    #[inline]
    pub(crate) fn take_idle_that(&mut self, likes: impl Fn(Token) -> bool) -> Option<Token> {
        /// The most idle servers that are examined.
        const LOOKED_AT: usize = 16;
        let last = *self.idle.last()?;
        if self.terms.round_robin || likes(last) {
            return self.take_idle();
        }
        let from = self.idle.len().saturating_sub(LOOKED_AT);
        match self.idle[from..].iter().rposition(|&server| likes(server)) {
            Some(at) => Some(self.idle.remove(from + at)),
            None => self.idle.pop(),
        }
    }

    /// Returns the parameters that the servers have reported, once one has.
    pub(crate) fn server_parameters(&self) -> Option<Arc<ServerParameters>> {
        self.shared.facts.lock().server_parameters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn servers_that_are_opened_together_end_one_after_another() {
        for first in [0, 1, 1_000, u64::MAX - 10] {
            let mut ends: Vec<u64> = (0..16).map(|n| spread(first.wrapping_add(n))).collect();
            ends.sort_unstable();
            let gap = ends.windows(2).map(|pair| pair[1] - pair[0]).max();
            assert!(gap <= Some(10), "{ends:?}");
            assert!(ends[15] - ends[0] > 50, "{ends:?}");
        }
    }
}
