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
            self.dispatch(now, out, |parts, _| {
                timers::overdue(&Timeouts {
                    env: parts.env,
                    connections: parts.connections,
                    pools: parts.pools,
                })
            });
        }
        let handed_over = self.online_restart.check_handover_out(&self.env(now));
        self.carry_out(handed_over, now, out);
        self.dispatch(now, out, |parts, _| {
            maintenance::end_due_servers(&parts.env, parts.connections, parts.pools)
        });
        self.dispatch(now, out, |parts, _| {
            parts.listeners.check(&parts.env, parts.connections)
        });
        self.dispatch(now, out, |parts, _| {
            maintenance::maintain_pools(&parts.env, parts.connections, parts.pools)
        });
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

    /// Returns whether clients that have logged in have to be checked for timeouts.
    fn has_client_timeouts(&self) -> bool {
        self.logins.has_clients() && self.snapshot.config.has_client_timeouts()
    }
}
