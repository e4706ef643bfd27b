//! What happens because time passes: three times a second, like PgBouncer's janitor, while
//! anything has a deadline.

use super::{Conn, Worker};
use crate::{Actions, Time, Token, backend::Duty, fault::Fault, pool::PoolId, stats::Stats};

/// Microseconds between two looks.
const INTERVAL: u64 = 333_000;
/// Why something has to end.
enum Overdue {
    Client(Token, Fault),
    ServerLogin(Token),
    Cleaning(Token),
    Cancel(Token),
}

impl Worker {
    /// Something has a deadline now: see that a tick comes.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Time) {
        let at = now.after(INTERVAL);
        if self.next_tick.is_none_or(|next| next > at) {
            self.next_tick = Some(at);
        }
    }

    pub(crate) fn check_timers(&mut self, now: Time, out: &mut Actions) {
        if self.next_tick.is_some_and(|at| at > now) {
            return;
        }
        if self.timed > 0 || self.has_client_timeouts() {
            for overdue in self.overdue(now) {
                self.end_overdue(overdue, now, out);
            }
        }
        self.check_idle_servers(now, out);
        self.check_pools(now, out);
        self.turn_periods(now);
        self.next_tick = self.next_deadline(now);
    }

    /// When to look again: soon while something has a short deadline, else when the first idle
    /// server, empty pool or period ends.
    fn next_deadline(&mut self, now: Time) -> Option<Time> {
        if self.timed > 0 || self.has_client_timeouts() {
            return Some(now.after(INTERVAL));
        }
        let settings = &self.snapshot.config.settings;
        let idle_max = Some(settings.server_idle_timeout.0).filter(|&max| max > 0);
        let autodb_kept = settings.autodb_idle_timeout.0;
        let mut first = None;
        for pool in self.pools.iter_mut().flatten() {
            if pool.clients == 0 && pool.servers == 0 {
                let kept = pool.kept(autodb_kept);
                first = first
                    .into_iter()
                    .chain(kept.map(|kept| pool.empty_since.after(kept)))
                    .min();
            }
            if pool.servers > 0 {
                // A server that is lent now comes free later, and its time begins then.
                let of_lent = idle_max.map(|max| now.after(max));
                first = first
                    .into_iter()
                    .chain(of_lent)
                    .chain([self.period_ends])
                    .min();
            }
            let lifetime = Some(pool.terms.server_lifetime).filter(|&lifetime| lifetime > 0);
            for &conn in &pool.idle {
                let Some(server) = self.table.server(conn) else {
                    continue;
                };
                let idle = idle_max.map(|max| server.freed_at.after(max));
                let old = lifetime.map(|lifetime| server.connected_at.after(lifetime));
                first = first.into_iter().chain(idle).chain(old).min();
            }
        }
        first.map(|at: Time| at.max(now.after(INTERVAL)))
    }

    fn overdue(&mut self, now: Time) -> Vec<Overdue> {
        let settings = &self.snapshot.config.settings;
        let passed = |since: Time, limit: u64| limit > 0 && now.since(since) >= limit;
        let mut found = Vec::new();
        for (token, conn) in self.table.iter() {
            match conn {
                Conn::Client(client) => {
                    let fault = self.client_overdue(client, now);
                    found.extend(fault.map(|fault| Overdue::Client(token, fault)));
                }
                Conn::Server(server) => match server.duty {
                    Duty::Login(_)
                        if passed(server.connected_at, settings.server_connect_timeout.0) =>
                    {
                        found.push(Overdue::ServerLogin(token));
                    }
                    Duty::Cleaning { until, .. } if until <= now => {
                        found.push(Overdue::Cleaning(token))
                    }
                    _ => {}
                },
                Conn::Cancel(cancel) if cancel.until <= now => found.push(Overdue::Cancel(token)),
                Conn::Cancel(_) => {}
            }
        }
        found
    }

    fn end_overdue(&mut self, overdue: Overdue, now: Time, out: &mut Actions) {
        match overdue {
            Overdue::Client(conn, fault) => self.end_client(conn, &fault, now, out),
            Overdue::ServerLogin(conn) => self.server_login_overdue(conn, now, out),
            Overdue::Cleaning(conn) => {
                self.close_server(conn, "abandoned query took too long", now, out);
            }
            Overdue::Cancel(conn) => self.cancel_overdue(conn, now, out),
        }
    }

    fn check_idle_servers(&mut self, now: Time, out: &mut Actions) {
        let idle_max = self.snapshot.config.settings.server_idle_timeout.0;
        let idle: Vec<Token> = self
            .pools
            .iter()
            .flatten()
            .flat_map(|pool| pool.idle.iter().copied())
            .collect();
        for conn in idle {
            let Some(server) = self.table.server(conn) else {
                continue;
            };
            let (freed_at, connected_at, pool) =
                (server.freed_at, server.connected_at, server.pool());
            let lifetime = self.pool(pool).map_or(0, |pool| pool.terms.server_lifetime);
            if idle_max > 0 && now.since(freed_at) >= idle_max {
                self.close_server(conn, "server idle timeout", now, out);
            } else if lifetime > 0 && now.since(connected_at) >= lifetime {
                self.close_server(conn, "server lifetime over", now, out);
            }
        }
    }

    /// Pools whose last login failed may try again; pools that nobody uses go.
    fn check_pools(&mut self, now: Time, out: &mut Actions) {
        let autodb_kept = self.snapshot.config.settings.autodb_idle_timeout.0;
        let worker = self.id;
        for index in 0..self.pools.len() {
            let id = PoolId(index as u32);
            let Some(pool) = self.pool(id) else { continue };
            if pool.told {
                let shared = std::sync::Arc::clone(&pool.shared);
                let notes = shared.ledger.lock().tick(now);
                Self::deliver(notes, &shared, out);
            }
            let Some(pool) = self.pool(id) else { continue };
            if pool.clients > 0 || pool.servers > 0 {
                continue;
            }
            let Some(kept) = pool.kept(autodb_kept) else {
                continue;
            };
            let is_over = now.since(pool.empty_since) >= kept;
            if is_over && pool.shared.clone().ledger.lock().resign(worker) {
                let counted = pool.stats.now;
                self.past += counted;
                self.pools[index] = None;
            }
        }
    }

    /// All that this worker has counted.
    pub(crate) fn counted(&self) -> Stats {
        let mut sum = self.past;
        for pool in self.pools.iter().flatten() {
            sum += pool.stats.now;
        }
        sum
    }

    /// The length of a period of statistics, in microseconds.
    pub(crate) fn stats_period(&self) -> u64 {
        self.snapshot.config.settings.stats_period.0.max(1)
    }

    /// Periods end at the same times on all workers, so that sums over workers are of the same span.
    pub(crate) fn turn_periods(&mut self, now: Time) {
        let period = self.stats_period();
        let present = now.0 / period;
        if self.began.is_none() {
            self.began = Some(now);
            self.period = present;
        }
        let ended = present.abs_diff(std::mem::replace(&mut self.period, present));
        self.console_stats.turn(ended);
        for pool in self.pools.iter_mut().flatten() {
            pool.stats.turn(ended);
        }
        self.period_ends = Time((present + 1) * period);
    }
}
