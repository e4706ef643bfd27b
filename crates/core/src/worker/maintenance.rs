//! Periodic work on servers and pools: closes servers that are old or idle, opens servers that are missing, removes
//! unused pools.

use std::sync::Arc;

use pgweir_config::PoolMode;

use super::{Worker, role_settings::REDEFINED};
use crate::{
    Actions, Level, Time, Token, WorkerId,
    backend::{Duty, Server},
    connections::Conn,
    pool::{PoolId, PoolKey},
    pooling::LocalPool,
};

/// A server that was in use within this many microseconds (a quarter of its lifetime, if that is less) gets a
/// successor before it is closed.
const IN_USE: u64 = 1_000_000;

/// What happens to a server that is due.
enum End {
    /// Closed: the server has been idle for too long.
    Idle(Token),
    /// Closed: the server is too old.
    Old(Token),
    /// Taken back and closed: the server is too old, and its client keeps it without need.
    Kept(Token),
    /// Closed: the server is outdated, and with `server_fast_close` pgweir does not wait for the end of the
    /// session.
    Outdated(Token),
    /// Another server is opened first: this one will soon be too old, and is needed.
    Soon(Token),
}

impl Worker {
    /// Closes servers that have been idle or open for too long.
    pub(super) fn check_servers(&mut self, now: Time, out: &mut Actions) {
        let found = self.table.iter().filter_map(|(token, conn)| match conn {
            Conn::Server(server) => self.end_of(token, server, now),
            _ => None,
        });
        for end in found.collect::<Vec<_>>() {
            match end {
                End::Idle(conn) if self.is_kept_for_min(conn) => {}
                End::Idle(conn) => self.close_server(conn, "server idle timeout", now, out),
                End::Old(conn) => self.close_server(conn, "server lifetime over", now, out),
                End::Kept(conn) => self.retire(conn, "server lifetime over", now, out),
                End::Outdated(conn) => self.close_if_outdated(conn, now, out),
                End::Soon(conn) => self.open_successor(conn, now, out),
            }
        }
    }

    fn end_of(&self, token: Token, server: &Server, now: Time) -> Option<End> {
        if server.listens.is_some() {
            return None;
        }
        let pool = self.pools.get(server.pool())?;
        let terms = &pool.terms;
        let settings = &self.snapshot.config.settings;
        let is_outdated = server.retire.is_some() && server.retire != Some(REDEFINED);
        if settings.server_fast_close && is_outdated && server.client().is_some() {
            return Some(End::Outdated(token));
        }
        let idle_max = settings.server_idle_timeout.0;
        let is_idle = matches!(server.duty, Duty::Idle);
        let idle_for = now.since(server.freed_at);
        let age = now.since(server.connected_at);
        if is_idle && idle_max > 0 && idle_for >= idle_max {
            return Some(End::Idle(token));
        }
        if terms.server_lifetime == 0 {
            return None;
        }
        if is_idle && age >= terms.end_age(server.id) {
            return Some(End::Old(token));
        }
        if pool.may_keep(server) && age >= terms.end_age(server.id) {
            return Some(End::Kept(token));
        }
        // A client in session mode keeps its server for as long as it likes: no waiter counts on that server.
        let is_used = is_idle && idle_for < IN_USE.min(terms.server_lifetime / 4)
            || server.relays_for().is_some() && terms.mode != PoolMode::Session;
        // Nor does a waiter count on an exclusive server of a client.
        let is_shared = server.owner.is_none();
        let is_soon = is_shared && !server.has_successor && age >= terms.successor_age(server.id);
        (is_soon && is_used).then_some(End::Soon(token))
    }

    fn is_kept_for_min(&mut self, conn: Token) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        let shared = Arc::clone(&server.shared);
        self.pool(shared.id)
            .is_some_and(|pool| pool.terms.min_pool_size > 0)
            && !shared.ledger.lock().is_above_min()
    }

    fn open_successor(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.has_successor = true;
        let shared = Arc::clone(&server.shared);
        let notes = shared.ledger.lock().replace(self.id, now);
        self.deliver(notes, &shared, out);
    }

    /// Returns when the first server must be closed, or gets its successor.
    pub(super) fn first_server_deadline(&self, now: Time) -> Option<Time> {
        let idle_max = self.snapshot.config.settings.server_idle_timeout.0;
        let deadline = |server: &Server| {
            if server.listens.is_some() {
                return None;
            }
            let pool = self.pools.get(server.pool())?;
            let terms = &pool.terms;
            let is_idle = matches!(server.duty, Duty::Idle);
            // A server that is lent now becomes free later, and its idle time begins then.
            let since = if is_idle { server.freed_at } else { now };
            let idle = (idle_max > 0).then(|| since.after(idle_max));
            // A server that is kept for `min_pool_size` has exceeded its idle time already.
            let idle = idle.filter(|&at| terms.min_pool_size == 0 || at > now);
            let is_session = terms.mode == PoolMode::Session;
            let age = match (server.has_successor, is_idle) {
                _ if terms.server_lifetime == 0 => None,
                (false, false) if is_session || server.owner.is_some() => None,
                (false, _) => Some(terms.successor_age(server.id)),
                (true, false) if pool.may_keep(server) => Some(terms.end_age(server.id)),
                (true, true) => Some(terms.end_age(server.id)),
                (true, false) => None,
            };
            let old = age.map(|age| server.connected_at.after(age));
            idle.into_iter().chain(old).min()
        };
        let servers = self.table.iter().filter_map(|(_, conn)| match conn {
            Conn::Server(server) => deadline(server),
            _ => None,
        });
        servers.min()
    }

    /// Opens servers for pools that have too few, and removes unused pools.
    pub(super) fn check_pools(&mut self, now: Time, out: &mut Actions) {
        self.make_forced_pools(now);
        for id in self.pools.ids() {
            let Some(pool) = self.pool(id) else { continue };
            let shared = Arc::clone(&pool.shared);
            let (told, keeps_min) = (pool.offers_to_ledger, pool.keeps_min());
            if told || shared.ledger.lock().has_exclusive_waits() {
                let notes = shared.ledger.lock().tick(now);
                self.deliver(notes, &shared, out);
                self.offer_kept_servers(id, now, out);
            }
            if keeps_min && self.shutdown.is_none() {
                loop {
                    let notes = shared.ledger.lock().fill(self.id, now);
                    let is_enough = notes.open.is_none();
                    self.deliver(notes, &shared, out);
                    if is_enough {
                        break;
                    }
                }
            }
            drop(shared);
            self.forget_if_unused(id, now, out);
        }
    }

    /// Creates the pools of databases with a forced user, which are kept filled from the start. The first worker
    /// does that.
    fn make_forced_pools(&mut self, now: Time) {
        if self.id != WorkerId(0) || self.shutdown.is_some() {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        for (name, entry) in &snapshot.config.databases {
            let Some(user) = &entry.user else { continue };
            if snapshot.config.min_pool_size(entry) > 0 {
                let key = PoolKey {
                    database: name.as_str().into(),
                    user: user.as_str().into(),
                };
                let shared = self.directory.pool(&key, &snapshot.config, entry);
                self.local_pool(&shared, now);
            }
        }
    }

    fn forget_if_unused(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        if pool.clients > 0 || pool.servers > 0 || pool.keeps_min() {
            return;
        }
        let Some(kept) = pool.kept(&self.snapshot.config.settings) else {
            return;
        };
        let is_over = now.since(pool.empty_since) >= kept;
        let shared = Arc::clone(&pool.shared);
        if is_over && shared.ledger.lock().forget_worker(self.id) {
            let counted = pool.stats.now;
            self.past += counted;
            *shared.past.lock() += counted;
            *shared.past_times.lock() += pool.times;
            self.pools.remove(id);
            // This is the last worker that had the pool.
            if Arc::strong_count(&shared) == 1 {
                let key = &shared.key;
                let subject = format!("{}/{}", key.database, key.user);
                out.log(Level::Log, subject, "cleaning up idle pool");
            }
        }
    }

    /// Returns when the first pool must be removed or filled.
    pub(super) fn first_pool_deadline(&self, now: Time) -> Option<Time> {
        let settings = &self.snapshot.config.settings;
        let deadline = |pool: &LocalPool| {
            if pool.keeps_min() && pool.shared.ledger.lock().is_below_min() {
                return Some(now);
            }
            if pool.clients > 0 || pool.servers > 0 || pool.keeps_min() {
                return None;
            }
            Some(pool.empty_since.after(pool.kept(settings)?))
        };
        let pools = self.pools.iter();
        pools.filter_map(deadline).min()
    }
}
