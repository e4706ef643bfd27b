//! A worker's part of a pool: its idle and kept server connections, its counts, and the pool's configuration. The
//! part that all workers share is [`SharedPool`].

use std::sync::{Arc, atomic::Ordering};

use pgweir_config::Settings;

use super::{kept_list::KeptList, pin_count::PinCount, terms::Terms};
use crate::{
    Directory, SharedPool, Snapshot, Time, Token,
    backend::Server,
    base::{
        pin::Pin,
        stats::{Periods, Times},
    },
    session::{Certificates, VerdictCache},
    shared::pool::ServerParameters,
};

/// Microseconds for which a pool that never had a server is kept without a client.
const SERVERLESS_POOL_KEPT: u64 = 1_000_000;

/// A worker's part of a pool: what the worker can use without a lock.
#[derive(Debug)]
pub(crate) struct LocalPool {
    pub(crate) shared: Arc<SharedPool>,
    /// Idle servers. The most recently used one is lent first.
    pub(crate) idle: Vec<Token>,
    pub(crate) kept: KeptList,
    /// Whether a client of any worker may wait. If so, every server that becomes free goes through the ledger (see
    /// there).
    pub(crate) offers_to_ledger: bool,
    /// The number of this worker's clients.
    clients: usize,
    /// The number of this worker's servers.
    servers: usize,
    pub(crate) stats: Periods,
    pub(crate) times: Times,
    /// The catalog of the database, in the state that this worker knows.
    pub(crate) catalog: LocalCatalog,
    pub(crate) terms: Terms,
    /// The times of the last diagnosis.
    pub(crate) diagnosis: DiagnosisTimes,
    /// The time at which a client or a server last left.
    empty_since: Time,
    /// Whether clients keep the servers that they have got (`share_after`).
    pub(crate) clients_keep_servers: bool,
    /// Pinned clients, by reason.
    pins: [PinCount; Pin::ALL.len()],
    /// The duration of an inspection after which the server goes to other clients, in microseconds: a moving average.
    inspection_time: u64,
    /// The operators' orders that this worker has carried out.
    pub(crate) orders: PoolOrders,
}

/// The catalog of a database, in the state that one worker knows.
#[derive(Debug)]
pub(crate) struct LocalCatalog {
    /// Certified facts about the code in the pool's database, in the state that this worker knows.
    pub(crate) certificates: Certificates,
    /// When this worker checks again whether the catalog must be read.
    pub(crate) due: Time,
    /// The results of scanning clients' texts under these certificates.
    pub(crate) verdicts: VerdictCache,
}

/// The times of the last diagnosis of a pool.
#[derive(Debug, Default)]
pub(crate) struct DiagnosisTimes {
    /// When the diagnosis that is under way began.
    began_at: Option<Time>,
    /// When a diagnosis was last logged.
    logged_at: Option<Time>,
}

/// The orders for a pool that one worker has carried out.
#[derive(Debug)]
pub(crate) struct PoolOrders {
    /// Whether the pool is paused, as far as this worker knows; the ledger knows for sure.
    pub(crate) paused: bool,
    /// The epoch of servers that are opened from now on (see `Epochs`).
    pub(crate) epoch: u32,
    /// The value of [`SharedPool::defaults`] up to which this worker has closed older servers.
    pub(crate) defaults: u32,
}

impl DiagnosisTimes {
    /// Returns when the diagnosis that is under way began.
    pub(crate) fn began_at(&self) -> Option<Time> {
        self.began_at
    }

    pub(crate) fn begin(&mut self, now: Time) {
        self.began_at = Some(now);
    }

    pub(crate) fn end(&mut self) {
        self.began_at = None;
    }

    /// Returns whether a diagnosis may be logged now, and notes that it is: at most one in `interval` microseconds.
    pub(crate) fn log(&mut self, now: Time, interval: u64) -> bool {
        let may = self.logged_at.is_none_or(|at| now.since(at) >= interval);
        if may {
            self.logged_at = Some(now);
        }
        may
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
        // The directory replaces the snapshot before it begins a new epoch: here they are read in the opposite order.
        let is_current = Arc::ptr_eq(&directory.snapshot(), snapshot);
        let keeps = terms.are_few(shared.client_count());
        Self {
            clients_keep_servers: keeps,
            kept: KeptList::default(),
            shared: Arc::clone(shared),
            idle: Vec::new(),
            offers_to_ledger: false,
            clients: 0,
            servers: 0,
            stats: Periods::default(),
            times: Times::default(),
            catalog: LocalCatalog {
                certificates: Certificates::default(),
                due: Time(0),
                verdicts: VerdictCache::default(),
            },
            terms,
            diagnosis: DiagnosisTimes::default(),
            empty_since: now,
            pins: Default::default(),
            inspection_time: 0,
            orders: PoolOrders {
                paused: directory.operator().is_halted(&shared.key.database),
                epoch: present.wrapping_sub(u32::from(!is_current)),
                defaults: shared.defaults.load(Ordering::Acquire),
            },
        }
    }

    /// Counts a client of this worker that has joined the pool.
    pub(crate) fn add_client(&mut self) {
        self.clients += 1;
    }

    /// Uncounts a client that has left.
    pub(crate) fn remove_client(&mut self, now: Time) {
        self.clients -= 1;
        self.empty_since = now;
    }

    /// Counts a server that this worker has opened, or has got from another worker.
    pub(crate) fn add_server(&mut self) {
        self.servers += 1;
    }

    /// Uncounts a server that has been closed, or moved to another worker.
    pub(crate) fn remove_server(&mut self, now: Time) {
        self.servers -= 1;
        self.empty_since = now;
    }

    /// Returns whether the worker has clients of this pool.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// Returns whether the worker has servers of this pool.
    pub(crate) fn has_servers(&self) -> bool {
        self.servers > 0
    }

    /// Returns since when the pool has had neither clients nor servers, if it may be removed.
    pub(crate) fn unused_since(&self) -> Option<Time> {
        let is_unused = self.clients == 0 && self.servers == 0 && !self.keeps_min();
        is_unused.then_some(self.empty_since)
    }

    /// Returns for how many microseconds the pool is kept without clients and servers; `None` is for ever.
    pub(crate) fn kept(&self, settings: &Settings) -> Option<u64> {
        let of_auto = || match self.server_parameters() {
            None => SERVERLESS_POOL_KEPT,
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
        self.clients_keep_servers && !self.offers_to_ledger && !self.orders.paused
    }

    /// Returns whether a client may be keeping this server without need.
    pub(crate) fn may_keep(&self, server: &Server) -> bool {
        let is_lent = server.relays_for().is_some() && !server.is_exclusive();
        self.clients_keep_servers && is_lent && !server.retirement.is_required()
    }

    /// Takes the next idle server to lend.
    #[inline]
    pub(crate) fn take_idle(&mut self) -> Option<Token> {
        if self.terms.round_robin && !self.idle.is_empty() {
            return Some(self.idle.remove(0));
        }
        self.idle.pop()
    }

    /// Takes the next idle server to lend: one for which `likes` is true, if there is one among the first few.
    #[inline]
    pub(crate) fn take_idle_that(&mut self, likes: impl Fn(Token) -> bool) -> Option<Token> {
        /// The largest number of idle servers that are examined.
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

    /// Adopts the catalog if another worker has read it.
    #[inline]
    pub(crate) fn use_current_catalog(&mut self) {
        if self.shared.catalog.generation() != self.catalog.certificates.generation() {
            self.take_certificates();
        }
    }

    #[cold]
    fn take_certificates(&mut self) {
        self.catalog.certificates = self.shared.catalog.certificates();
        if self.shared.catalog.is_stale() {
            self.catalog.due = Time(0);
        }
        // The catalog was read in UTF-8.
        let is_utf8 = self.shared.is_utf8();
        let mut customs = self.shared.custom_parameters.lock();
        customs.watch(self.catalog.certificates.custom_names(), is_utf8);
    }

    /// Returns the duration of an inspection after which the server goes to other clients, in microseconds.
    pub(crate) fn inspection_time(&self) -> u64 {
        self.inspection_time
    }

    /// Adds the duration of an inspection to the average, in microseconds.
    pub(crate) fn add_inspection_time(&mut self, time: u64) {
        self.inspection_time = (7 * self.inspection_time + time) / 8;
    }

    /// Returns this worker's count of clients that were pinned for this reason.
    pub(crate) fn pin_count(&mut self, pin: Pin) -> &mut PinCount {
        &mut self.pins[pin as usize]
    }

    /// Returns how often clients of the pool were pinned on this worker, by reason.
    pub(crate) fn pin_counts(&self) -> impl Iterator<Item = (Pin, u64)> {
        Pin::ALL
            .into_iter()
            .map(|pin| (pin, self.pins[pin as usize].total()))
    }
}
