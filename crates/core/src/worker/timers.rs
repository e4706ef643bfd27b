//! The tick: while anything has a deadline, the worker checks deadlines three times a second, like PgBouncer's
//! janitor. Clients, logins and servers that are overdue end here.

use super::Worker;
use crate::{
    Actions, Time, Token,
    backend::{Duty, Phase},
    connections::Conn,
    connections::INTERVAL,
    fault::Fault,
    pool::PoolId,
    stats::Stats,
};

/// What is overdue.
enum Overdue {
    Client(Token, Fault),
    /// The client has left, and its server does not answer.
    HungUp(Token),
    /// Clients have waited for so long that they get a notice with the reason.
    Waiter(PoolId),
    ServerLogin(Token),
    Cleaning(Token),
    Check(Token),
    Cancel(Token),
}

impl Worker {
    /// Makes sure that a tick comes: something has a deadline now.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Time) {
        self.table.schedule(now);
    }

    pub(crate) fn check_timers(&mut self, now: Time, out: &mut Actions) {
        if self.table.next_tick().is_some_and(|at| at > now) {
            return;
        }
        if self.suspension.is_on() {
            let parts = self.parts(now);
            let overdue = parts
                .suspension
                .check_timeout(&parts.env, parts.connections);
            return self.carry_out(overdue, now, out);
        }
        if self.table.have_deadlines() || self.has_client_timeouts() {
            for overdue in self.overdue(now) {
                self.end_overdue(overdue, now, out);
            }
        }
        self.check_handover_out(now, out);
        self.check_servers(now, out);
        let parts = self.parts(now);
        let effects = parts.listeners.check(&parts.env, parts.connections);
        self.carry_out(effects, now, out);
        self.check_pools(now, out);
        self.turn_periods(now);
        let next = self.next_deadline(now);
        self.table.set_next_tick(next);
    }

    /// Returns when to check again: soon while something has a short deadline, else when the first server, empty
    /// pool or period ends.
    fn next_deadline(&mut self, now: Time) -> Option<Time> {
        let is_soon = self.table.have_deadlines()
            || self.has_client_timeouts()
            || self.may_offer_kept()
            || self.hands_clients_over();
        if is_soon {
            return Some(now.after(INTERVAL));
        }
        let periods = self.pools.iter().any(|pool| pool.servers > 0);
        let period_ends = periods.then_some(self.period_ends);
        let parts = self.parts(now);
        let listener_ends = parts
            .listeners
            .first_deadline(&parts.env, parts.connections);
        let deadlines = [
            self.first_server_deadline(now),
            self.first_pool_deadline(now),
            listener_ends,
            period_ends,
        ];
        let first = deadlines.into_iter().flatten().min();
        first.map(|at| at.max(now.after(INTERVAL)))
    }

    fn overdue(&mut self, now: Time) -> Vec<Overdue> {
        let settings = &self.snapshot.config.settings;
        let passed = |since: Time, limit: u64| limit > 0 && now.since(since) >= limit;
        let (mut found, mut waiters) = (Vec::new(), Vec::new());
        for (token, conn) in self.table.iter() {
            match conn {
                Conn::Client(client) if self.has_left_server(client, now) => {
                    found.push(Overdue::HungUp(token));
                }
                Conn::Client(client) => {
                    let pool = client.pool.filter(|_| self.wants_wait_notice(client, now));
                    waiters.extend(pool);
                    match self.client_overdue(client, now) {
                        Some(Fault::QueryWaitTimeout(_)) if client.pool.is_some() => {
                            waiters.extend(client.pool);
                        }
                        fault => found.extend(fault.map(|fault| Overdue::Client(token, fault))),
                    }
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
                    Duty::Lent(ref exchange) if matches!(exchange.phase(), Phase::Checking { until } if *until <= now) => {
                        found.push(Overdue::Check(token))
                    }
                    _ => {}
                },
                Conn::Cancel(cancel) if cancel.until <= now => found.push(Overdue::Cancel(token)),
                Conn::Cancel(_) => {}
            }
        }
        waiters.sort_unstable();
        waiters.dedup();
        found.extend(waiters.into_iter().map(Overdue::Waiter));
        found
    }

    fn end_overdue(&mut self, overdue: Overdue, now: Time, out: &mut Actions) {
        match overdue {
            Overdue::Waiter(pool) => self.diagnose(pool, now, out),
            Overdue::HungUp(conn) => self.end_hung_up_clients(conn, now, out),
            Overdue::Client(conn, fault) => self.end_client(conn, &fault, now, out),
            Overdue::ServerLogin(conn) => self.server_login_overdue(conn, now, out),
            Overdue::Cleaning(conn) => {
                self.close_server(conn, "abandoned query took too long", now, out);
            }
            Overdue::Check(conn) => self.check_failed(conn, "server check timeout", now, out),
            Overdue::Cancel(conn) => {
                let parts = self.parts(now);
                let effect =
                    parts
                        .cancel_requests
                        .overdue(&parts.env, parts.connections, conn, out);
                self.carry_out(effect, now, out);
            }
        }
    }

    /// Returns the sum of this worker's statistics.
    pub(crate) fn counted(&self) -> Stats {
        let mut sum = self.past;
        for pool in self.pools.iter() {
            sum += pool.stats.now;
        }
        sum
    }

    /// Returns the length of a statistics period, in microseconds.
    pub(crate) fn stats_period(&self) -> u64 {
        self.snapshot.config.settings.stats_period.0.max(1)
    }

    /// Ends a statistics period. Periods end at the same times on all workers, so that sums over workers cover the
    /// same span.
    pub(crate) fn turn_periods(&mut self, now: Time) {
        let period = self.stats_period();
        let present = now.0 / period;
        if self.began.is_none() {
            self.began = Some(now);
            self.period = present;
        }
        let ended = present.abs_diff(std::mem::replace(&mut self.period, present));
        self.console_stats.turn(ended);
        for pool in self.pools.iter_mut() {
            pool.stats.turn(ended);
        }
        self.period_ends = Time((present + 1) * period);
    }
}
