//! What must hold when the world is at rest, and at its end.

use std::sync::Arc;

use pgweir_config::PoolMode;
use pgweir_core::{SharedPool, Shutdown};

use super::{World, driver::Conn};
use crate::{
    checks::{Promise, Violation},
    network::Far,
};

/// Microseconds that a server without a reason stays with a client that has pinned itself before, or is one of few.
const KEPT_MAX: u64 = 1_000_000;
/// Microseconds that a client that may go on with its server while others wait may pause before it speaks, at most.
const TURN_PAUSE: u64 = 20_000;

impl World {
    /// All mail has arrived and all bytes have flowed: the counts are right, and whoever waits has a
    /// reason to.
    pub(super) fn check_calm(&mut self) -> Result<(), Violation> {
        self.note_free();
        for pool in self.pools() {
            let (waiting, servers, connecting, retry) = {
                let ledger = pool.ledger.lock();
                (
                    ledger.waiting(),
                    ledger.servers() as usize,
                    ledger.connecting(),
                    ledger.retry_at(),
                )
            };
            let present = self.servers_of(&pool.key.database, &pool.key.user);
            let whole = !self.hosts.iter().any(|host| host.stopped);
            if whole && present.len() != servers {
                let what = format!("{} servers, and the ledger counts {servers}", present.len());
                return Err(Violation::new(Promise::Counts, what));
            }
            self.check_remains(&present)?;
            if waiting == 0 || self.is_shut() {
                continue;
            }
            if let Some(idle) = self.find_idle(&present) {
                let what = format!("{waiting} clients wait, and backend {idle} is idle");
                return Err(Violation::new(Promise::Waits, what));
            }
            let ticks = self
                .hosts
                .iter()
                .any(|host| !host.stopped && host.worker.next_tick().is_some());
            let may_open = retry.is_none() || !ticks;
            if may_open
                && connecting == 0
                && servers < self.pool_size as usize + self.scenario.caps.overflow(waiting)
                && !self.is_denied_rightly(&pool.key.database, &pool.key.user)
            {
                let what = format!(
                    "{waiting} clients wait, and the pool {} has room: {servers} servers, the backends {present:?}, \
                     obstacle {:?}",
                    pool.key.database,
                    pool.ledger.lock().wait_reason(self.now)
                );
                return Err(Violation::new(Promise::Waits, what));
            }
        }
        let most = self.pools().into_iter().map(|pool| {
            let key = &pool.key;
            self.servers_of(&key.database, &key.user).len()
        });
        let allowed = self.pool_size as usize + self.scenario.caps.above_size();
        self.most_servers = most.max().unwrap_or(0).max(allowed);
        Ok(())
    }

    /// What a client leaves behind does not outlive it, where others would notice.
    fn check_remains(&self, present: &[usize]) -> Result<(), Violation> {
        let is_over = |client: usize| !self.net.see(self.clients[client].link).held;
        for &backend in present {
            let owner = self.cluster.backends[backend].tap.owner;
            if let Some(owner) = owner.filter(|&owner| is_over(owner))
                && self.cluster.is_quiet(backend, &self.net)
                && let Some(what) = self.cluster.remains(backend)
            {
                let what = format!("client {owner} has gone, and backend {backend} has {what}");
                return Err(Violation::new(Promise::Sessions, what));
            }
        }
        Ok(())
    }

    /// A backend has been told which pool it belongs to: are there too many?
    pub(super) fn count_servers(&self, backend: usize) -> Result<(), Violation> {
        let Some((database, user)) = &self.cluster.backends[backend].pool else {
            return Ok(());
        };
        let count = self.servers_of(database, user).len();
        if count > self.most_servers {
            let what = format!(
                "{count} servers of {database}/{user}, {} allowed",
                self.most_servers
            );
            return Err(Violation::new(Promise::Counts, what));
        }
        self.check_caps(database, user)
    }

    /// Servers idle, pools and counts are as before the first client came.
    pub(super) fn is_cold(&self) -> bool {
        match self.scenario.shutdown {
            Some(_) => self.hosts.iter().all(|host| host.stopped),
            None => {
                // A server may still be busy with messages that a wild client sent before it left.
                let have_left = !self.scenario.is_wild || self.directory.clients() == 0;
                let pools = self.pools();
                let mut ledgers = pools.iter().map(|pool| pool.ledger.lock());
                have_left && ledgers.all(|own| own.waiting() == 0 && own.connecting() == 0)
            }
        }
    }

    /// Everybody has left.
    pub(super) fn check_end(&mut self) -> Result<(), Violation> {
        if self.scenario.shutdown.is_some() {
            return Ok(());
        }
        let aside = self.directory.client_counts().parked_logins();
        if self.directory.clients() + aside != 0 {
            let what = format!(
                "{} clients are counted after the last has left, {aside} aside",
                self.directory.clients()
            );
            return Err(Violation::new(Promise::Counts, what));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let listens = |conn: &&Conn| match conn {
                Conn::Open(open) => match self.net.see(open.link).far {
                    Far::Backend(index) => self.cluster.backends[index].is_listener(),
                    Far::Client(_) => false,
                },
                Conn::Connecting { .. } => false,
            };
            // Listeners are counted apart.
            let servers = host.table.values().filter(|conn| !listens(conn)).count();
            let counted: usize = self
                .pools()
                .iter()
                .map(|pool| pool.ledger.lock().owned(pgweir_core::WorkerId(index as u8)) as usize)
                .sum();
            if servers != counted {
                let what =
                    format!("worker {index} holds {servers} connections, {counted} are counted");
                return Err(Violation::new(Promise::Counts, what));
            }
        }
        self.go_cold()
    }

    /// With time, idle servers are closed, and then pools forgotten that no one configured.
    fn go_cold(&mut self) -> Result<(), Violation> {
        for _ in 0..30_000 {
            self.pass_time();
            self.calm_down()?;
            let pools = self.pools();
            let has_none = pools.iter().all(|pool| pool.ledger.lock().servers() == 0);
            // Listeners go by themselves.
            if has_none && self.hosts.iter().all(|host| host.table.is_empty()) {
                break;
            }
        }
        let left: u32 = self
            .pools()
            .iter()
            .map(|pool| pool.ledger.lock().servers())
            .sum();
        let open: usize = self.hosts.iter().map(|host| host.table.len()).sum();
        if left > 0 || open > 0 {
            let what = format!("{left} servers and {open} connections are left of idle pools");
            return Err(Violation::new(Promise::Counts, what));
        }
        for _ in 0..30 {
            self.pass_time();
            self.calm_down()?;
        }
        let snapshot = self.directory.snapshot();
        let forgotten =
            |pool: &Arc<SharedPool>| !snapshot.config.databases.contains_key(&*pool.key.database);
        match self.pools().iter().find(|pool| forgotten(pool)) {
            Some(pool) => {
                let what = format!("nobody uses the pool {:?}, and it is kept", pool.key);
                Err(Violation::new(Promise::Counts, what))
            }
            None => Ok(()),
        }
    }

    /// Time is up.
    pub(super) fn never_ends(&self) -> Violation {
        let waiting: Vec<String> = self
            .clients
            .iter()
            .filter(|client| !client.is_over())
            .map(|client| client.state())
            .collect();
        if waiting.is_empty() && self.scenario.shutdown.is_some() {
            let running: Vec<usize> = (0..self.hosts.len())
                .filter(|&host| !self.hosts[host].stopped)
                .collect();
            let what = format!("workers {running:?} have not finished");
            return Violation::new(Promise::Shutdown, what);
        }
        Violation::new(Promise::Waits, format!("for ever: {}", waiting.join("; ")))
    }

    /// In a fixed order.
    pub(super) fn pools(&self) -> Vec<Arc<SharedPool>> {
        let mut pools = self.directory.pools();
        pools.sort_by(|a, b| a.key.cmp(&b.key));
        pools
    }

    /// The backends of one pool that the pooler holds a connection to.
    fn servers_of(&self, database: &str, user: &str) -> Vec<usize> {
        let is_of = |pool: &Option<(String, String)>| {
            pool.as_ref()
                .is_some_and(|pool| pool.0 == database && pool.1 == user)
        };
        (0..self.cluster.backends.len())
            .filter(|&index| {
                let backend = &self.cluster.backends[index];
                let counts = is_of(&backend.pool) && !backend.is_listener();
                self.net.see(backend.link).held && counts
            })
            .collect()
    }

    /// A client may have its turn with this backend: others of its pool wait until it has been silent for too long.
    fn may_be_in_turn(&self, backend: usize) -> bool {
        let touched_at = self.cluster.backends[backend].touched_at;
        self.has_owner(backend) && self.now < touched_at.after(TURN_PAUSE)
    }

    /// The client whose session it has is there.
    pub(super) fn has_owner(&self, backend: usize) -> bool {
        let owner = self.cluster.backends[backend].tap.owner;
        owner.is_some_and(|owner| self.net.see(self.clients[owner].link).held)
    }

    /// Notes since when backends could be lent.
    fn note_free(&mut self) {
        for backend in 0..self.cluster.backends.len() {
            if self.cluster.is_kept(backend, &self.net) && self.has_owner(backend) {
                self.count("kept server");
            }
            if self.is_free(backend) {
                self.could_be_free.entry(backend).or_insert(self.now);
            } else {
                self.could_be_free.remove(&backend);
            }
        }
    }

    /// May this backend, which could be lent, stay with its client? One that has pinned itself is asked only once in a
    /// while whether it is pinned still, and by `share_after` clients keep their servers as long as another may be on
    /// its way. Who reads values of sequences keeps those that it may have.
    pub(super) fn may_stay(&self, backend: usize) -> bool {
        let seen = &self.cluster.backends[backend];
        let Some(owner) = seen.tap.owner.filter(|_| self.has_owner(backend)) else {
            return false;
        };
        let since = self.could_be_free.get(&backend).copied();
        let was_pinned = seen.bound_to == Some(owner) || self.scenario.caps.shares();
        let is_pinned = was_pinned && self.now.since(since.unwrap_or(self.now)) <= KEPT_MAX;
        is_pinned || self.clients[owner].may_read_values(&self.clients)
    }

    /// A backend that could be lent to those who wait.
    fn find_idle(&self, present: &[usize]) -> Option<usize> {
        let may_go = |backend: &usize| {
            let backend = *backend;
            self.is_free(backend) && !self.may_stay(backend) && !self.may_be_in_turn(backend)
        };
        present.iter().copied().find(may_go)
    }

    /// Could be lent, as far as one can see from outside.
    pub(super) fn is_free(&self, backend: usize) -> bool {
        let owner = self.cluster.backends[backend].tap.owner;
        // What its session holds may bind a client to its server.
        let is_kept = (self.scenario.mode == PoolMode::Session || self.cluster.is_bound(backend))
            && owner.is_some_and(|owner| self.net.see(self.clients[owner].link).held);
        let seen = &self.cluster.backends[backend];
        // What a wild client leaves behind may be waited for, up to `abandoned_query_timeout`.
        let is_waited_for = owner.is_some_and(|owner| self.clients[owner].is_wild());
        let is_own = seen.is_native() || seen.is_listener() || is_waited_for;
        !is_kept && !is_own && self.cluster.is_quiet(backend, &self.net)
    }

    fn is_shut(&self) -> bool {
        self.grounds.shutdown && self.scenario.shutdown != Some(Shutdown::WaitForClients)
    }
}
