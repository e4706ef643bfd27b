//! The checks that are made when no event is outstanding, and at the end of a run.

use std::sync::Arc;

use pgweir_config::PoolMode;
use pgweir_core::{SharedPool, Shutdown};

use super::{World, driver::Conn};
use crate::{
    checks::{Guarantee, Violation},
    network::FarEnd,
};

/// Microseconds for which a server may stay without a reason with a client that was pinned before, or that is one of
/// few.
const KEPT_MAX: u64 = 1_000_000;
/// The largest pause, in microseconds, of a client that goes on with its server while others wait.
const TURN_PAUSE: u64 = 20_000;

impl World {
    /// Checks a world in which all mail and all bytes have arrived: the counts are right, and each waiting client has a
    /// reason to wait.
    pub(super) fn check_quiet_world(&mut self) -> Result<(), Violation> {
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
                return Err(Violation::new(Guarantee::Counts, what));
            }
            self.check_remains(&present)?;
            if waiting == 0 || self.is_shut() {
                continue;
            }
            if let Some(idle) = self.find_idle(&present) {
                let what = format!("{waiting} clients wait, and backend {idle} is idle");
                return Err(Violation::new(Guarantee::Waits, what));
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
                return Err(Violation::new(Guarantee::Waits, what));
            }
        }
        let most = self.pools().into_iter().map(|pool| {
            let key = &pool.key;
            self.servers_of(&key.database, &key.user).len()
        });
        let allowed = self.pool_size as usize + self.scenario.caps.above_size();
        self.most_servers = most.max().unwrap_or(0).max(allowed);
        self.note_most_of_process();
        Ok(())
    }

    /// Checks that no session state outlives its client where others would notice.
    fn check_remains(&self, present: &[usize]) -> Result<(), Violation> {
        let is_over = |client: usize| !self.net.see(self.clients[client].link).held;
        for &backend in present {
            let owner = self.cluster.backends[backend].tap.owner;
            if let Some(owner) = owner.filter(|&owner| is_over(owner))
                && self.cluster.is_quiet(backend, &self.net)
                && let Some(what) = self.cluster.remains(backend)
            {
                let what = format!("client {owner} has gone, and backend {backend} has {what}");
                return Err(Violation::new(Guarantee::Sessions, what));
            }
        }
        Ok(())
    }

    /// Checks the number of servers, after a backend has received its database and user.
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
            return Err(Violation::new(Guarantee::Counts, what));
        }
        self.check_caps(database, user)
    }

    /// Returns whether the servers are idle, and pools and counts are as before the first client.
    pub(super) fn is_like_at_start(&self) -> bool {
        match self.scenario.shutdown {
            Some(_) => self.hosts.iter().all(|host| host.stopped),
            None => {
                // A server may still process messages that a client sent before it disconnected.
                let have_left = !self.scenario.is_wild || self.directory.clients() == 0;
                let pools = self.pools();
                let mut ledgers = pools.iter().map(|pool| pool.ledger.lock());
                have_left && ledgers.all(|own| own.waiting() == 0 && own.connecting() == 0)
            }
        }
    }

    /// Checks after a rest of all clients that a drain has disconnected those that were outside of a transaction before,
    /// and that no client has lost a transaction.
    pub(super) fn check_drain(&self, were_idle: &[bool]) -> Result<(), Violation> {
        for (index, client) in self.clients.iter().enumerate() {
            let what = if client.is_idle() && were_idle[index] && !client.is_native() {
                format!("the drain does not end: {}", client.state())
            } else if client.was_drained && self.cluster.has_lost_work(index) {
                format!("the drain has ended a transaction: {}", client.state())
            } else {
                continue;
            };
            return Err(Violation::new(Guarantee::Reasons, what));
        }
        Ok(())
    }

    /// Checks the counts after all clients have disconnected.
    pub(super) fn check_end(&mut self) -> Result<(), Violation> {
        if self.scenario.shutdown.is_some() {
            return Ok(());
        }
        let logins = self.directory.client_counts().logins();
        if self.directory.clients() + logins != 0 {
            let what = format!(
                "{} clients are counted after the last has left, {logins} of them log in",
                self.directory.clients()
            );
            return Err(Violation::new(Guarantee::Counts, what));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let listens = |conn: &&Conn| match conn {
                Conn::Open(open) => match self.net.see(open.link).far {
                    FarEnd::Backend(index) => self.cluster.backends[index].is_listener(),
                    FarEnd::Client(_) => false,
                },
                Conn::Connecting { .. } => false,
            };
            // Listeners are counted separately.
            let servers = host.table.values().filter(|conn| !listens(conn)).count();
            let counted: usize = self
                .pools()
                .iter()
                .map(|pool| pool.ledger.lock().owned(pgweir_core::WorkerId(index as u8)) as usize)
                .sum();
            if servers != counted {
                let what =
                    format!("worker {index} holds {servers} connections, {counted} are counted");
                return Err(Violation::new(Guarantee::Counts, what));
            }
        }
        self.remove_unused()
    }

    /// Advances the clock: idle servers are closed, and then pools are removed that the configuration does not name.
    fn remove_unused(&mut self) -> Result<(), Violation> {
        for _ in 0..30_000 {
            self.pass_time();
            self.run_until_quiet()?;
            let pools = self.pools();
            let has_none = pools.iter().all(|pool| pool.ledger.lock().servers() == 0);
            // Listeners close by themselves.
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
            return Err(Violation::new(Guarantee::Counts, what));
        }
        for _ in 0..30 {
            self.pass_time();
            self.run_until_quiet()?;
        }
        let snapshot = self.directory.snapshot();
        let forgotten =
            |pool: &Arc<SharedPool>| !snapshot.config.databases.contains_key(&*pool.key.database);
        match self.pools().iter().find(|pool| forgotten(pool)) {
            Some(pool) => {
                let what = format!("nobody uses the pool {:?}, and it is kept", pool.key);
                Err(Violation::new(Guarantee::Counts, what))
            }
            None => Ok(()),
        }
    }

    /// Describes clients that wait for ever, or workers that never finish.
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
            return Violation::new(Guarantee::Shutdown, what);
        }
        Violation::new(
            Guarantee::Waits,
            format!("for ever: {}", waiting.join("; ")),
        )
    }

    /// Returns all pools in a fixed order.
    pub(super) fn pools(&self) -> Vec<Arc<SharedPool>> {
        let mut pools = self.directory.pools();
        pools.sort_by(|a, b| a.key.cmp(&b.key));
        pools
    }

    /// Returns the backends of a pool to which the pooler has a connection.
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

    /// Returns whether a client may have a turn with this backend: other clients of its pool wait until it was silent
    /// for too long.
    fn may_be_in_turn(&self, backend: usize) -> bool {
        let touched_at = self.cluster.backends[backend].touched_at;
        self.has_owner(backend) && self.now < touched_at.after(TURN_PAUSE)
    }

    /// Returns whether the client whose session the backend has is connected.
    pub(super) fn has_owner(&self, backend: usize) -> bool {
        let owner = self.cluster.backends[backend].tap.owner;
        owner.is_some_and(|owner| self.net.see(self.clients[owner].link).held)
    }

    /// Records since when backends could be lent.
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

    /// Returns whether this backend, which could be lent, may stay with its client. A client that was pinned is
    /// inspected only once in a while. With `share_after`, clients keep their servers as long as another one may be on
    /// its way. A client that reads values of sequences keeps a server that may have some.
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

    /// Returns a backend that could be lent to clients that wait.
    fn find_idle(&self, present: &[usize]) -> Option<usize> {
        let may_go = |backend: &usize| {
            let backend = *backend;
            self.is_free(backend) && !self.may_stay(backend) && !self.may_be_in_turn(backend)
        };
        present.iter().copied().find(may_go)
    }

    /// Returns whether the backend could be lent, as far as its messages show.
    pub(super) fn is_free(&self, backend: usize) -> bool {
        let owner = self.cluster.backends[backend].tap.owner;
        // Session state may bind a client to its server.
        let is_kept = (self.scenario.mode == PoolMode::Session || self.cluster.is_bound(backend))
            && owner.is_some_and(|owner| self.net.see(self.clients[owner].link).held);
        let seen = &self.cluster.backends[backend];
        // The pooler may wait for the answers to messages of a client that disconnected, up to
        // `abandoned_query_timeout`.
        let is_waited_for = owner.is_some_and(|owner| self.clients[owner].is_wild());
        let is_own = seen.is_native() || seen.is_listener() || is_waited_for;
        !is_kept && !is_own && self.cluster.is_quiet(backend, &self.net)
    }

    fn is_shut(&self) -> bool {
        self.faults.shutdown && self.scenario.shutdown != Some(Shutdown::WaitForClients)
    }
}
