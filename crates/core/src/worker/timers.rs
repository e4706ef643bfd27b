//! The tick: the worker lets the modules concerned check their deadlines.

use super::Worker;
use crate::{Actions, Time, client_timeouts::Timeouts, maintenance, timers};

impl Worker {
    /// Checks all deadlines, if it is time to.
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
            let overdue = timers::overdue(&self.timeouts(now));
            self.carry_out(overdue, now, out);
        }
        let handed_over = self.online_restart.check_handover_out(&self.env(now));
        self.carry_out(handed_over, now, out);
        self.check_servers(now, out);
        let parts = self.parts(now);
        let effects = parts.listeners.check(&parts.env, parts.connections);
        self.carry_out(effects, now, out);
        self.check_pools(now, out);
        let clients_have_deadlines =
            self.has_client_timeouts() || self.online_restart.hands_clients_over();
        let parts = self.parts(now);
        let statistics = parts.statistics;
        statistics.turn(&parts.env, parts.pools);
        let owners = (&*parts.listeners, &*statistics);
        let next = timers::next_deadline(
            &parts.env,
            parts.connections,
            parts.pools,
            owners,
            clients_have_deadlines,
        );
        parts.connections.set_next_tick(next);
    }

    /// Closes servers that have been idle or open for too long.
    fn check_servers(&mut self, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let all = maintenance::due_servers(&parts.env, parts.connections, parts.pools);
        for due in all {
            let parts = self.parts(now);
            let (env, connections) = (&parts.env, parts.connections);
            let effect = maintenance::end_server(env, connections, parts.pools, due, out);
            self.carry_out(effect, now, out);
        }
    }

    /// Opens servers for pools that have too few, and removes unused pools.
    fn check_pools(&mut self, now: Time, out: &mut Actions) {
        let shuts_down = self.shutdown.is_on();
        let parts = self.parts(now);
        if !shuts_down {
            maintenance::make_forced_pools(&parts.env, parts.connections, parts.pools);
        }
        for id in self.pools.ids() {
            let parts = self.parts(now);
            let effect = maintenance::offer_servers(&parts.env, parts.pools, id, out);
            self.carry_out(effect, now, out);
            let parts = self.parts(now);
            if !shuts_down {
                maintenance::fill_pool(&parts.env, parts.pools, id, out);
            }
            let (env, statistics) = (&parts.env, parts.statistics);
            maintenance::remove_if_unused(env, parts.pools, statistics, id, out);
        }
    }

    /// Returns whether clients that have logged in have to be checked for timeouts.
    fn has_client_timeouts(&self) -> bool {
        self.logins.has_clients() && self.snapshot.config.has_client_timeouts()
    }

    /// Returns what the timeouts of this worker's clients depend on.
    pub(crate) fn timeouts(&self, now: Time) -> Timeouts<'_> {
        Timeouts {
            env: self.env(now),
            connections: &self.table,
            pools: &self.pools,
        }
    }
}
