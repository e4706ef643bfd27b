//! Shutdown and reload on a worker. A shutdown order waits for servers or clients, or ends them at once, and the
//! process is informed when nothing is left to wait for. A new configuration is applied to each pool.

use std::sync::Arc;

use pgweir_config::PoolMode;

use super::Worker;
use crate::{
    Action, Actions, Shutdown, Snapshot, Time, Token, connections::Conn, directory, effect::Effect,
    fault::Fault, frontend::ClientDuty, mail::Mail, pool::PoolId, pooling::Terms,
};

impl Worker {
    pub(crate) fn begin_shutdown(&mut self, how: Shutdown, now: Time, out: &mut Actions) {
        self.directory.operator().begin_end();
        let parts = self.parts(now);
        parts.suspension.obey(&parts.env, parts.connections, out);
        // A more urgent shutdown replaces a less urgent one, not the other way round.
        if self.shutdown.is_some_and(|present| present >= how) {
            return;
        }
        if self.shutdown.replace(how).is_none() && self.directory.stays_no_more() {
            self.announce_shutdown(Shutdown::WaitForClients, out);
        }
        for pool in self.pools.iter() {
            if how != Shutdown::WaitForClients {
                pool.shared.ledger.lock().open_no_more();
            }
        }
        let doomed = self.table.tokens(|conn| match conn {
            Conn::Client(client) => match (how, &client.duty) {
                (Shutdown::Immediate, _) => true,
                (_, ClientDuty::Waiting { at_login, .. }) => *at_login,
                (_, ClientDuty::Opening(_)) => true,
                (_, ClientDuty::Login(login)) => login.is_parked(),
                _ => false,
            },
            _ => false,
        });
        // The errors have PgBouncer's texts.
        let fault = match how {
            Shutdown::WaitForServers => Fault::ServersShutDown,
            Shutdown::WaitForClients | Shutdown::Immediate => Fault::ShuttingDown,
        };
        for client in doomed {
            if self.is_unanswered(client) {
                self.refuse(client, &fault, now, out);
            } else {
                // As with PgBouncer, the client notices at its next request.
                self.close_client(client, &fault.to_string(), now, out);
            }
        }
        match how {
            Shutdown::WaitForClients => {}
            Shutdown::WaitForServers => {
                self.close_servers(false, "pause mode", now, out);
                for id in self.pools.ids() {
                    if let Some(pool) = self.pool(id) {
                        pool.clients_keep_servers = false;
                    }
                    self.release_kept(id, now, out);
                }
            }
            Shutdown::Immediate => self.close_servers(true, "server shutting down", now, out),
        }
    }

    fn is_unanswered(&self, client: Token) -> bool {
        let Some(Conn::Client(client)) = self.table.look(client) else {
            return false;
        };
        match client.duty {
            ClientDuty::Login(_)
            | ClientDuty::Waiting { .. }
            | ClientDuty::Opening(_)
            | ClientDuty::Preparing(_)
            | ClientDuty::Discarding(_) => true,
            ClientDuty::Active(server) => match self.table.look(server) {
                Some(Conn::Server(server)) => !server.replies.is_settled(),
                _ => false,
            },
            ClientDuty::Idle
            | ClientDuty::TakenOver
            | ClientDuty::Console(_)
            | ClientDuty::CancelRequest { .. } => false,
        }
    }

    /// Announces that the last client (or server) of the process has gone: workers that waited only for it can end.
    pub(crate) fn announce_shutdown(&self, how: Shutdown, out: &mut Actions) {
        for to in self.directory.worker_ids() {
            if to != self.id {
                let mail = Mail::Shutdown(how);
                out.list.push(Action::Mail { to, mail });
            }
        }
    }

    fn close_servers(&mut self, all: bool, why: &str, now: Time, out: &mut Actions) {
        let servers = self.table.tokens(
            |conn| matches!(conn, Conn::Server(server) if all || server.client().is_none()),
        );
        for server in servers {
            self.close_server(server, why, now, out);
        }
    }

    /// Checks whether anything is left to wait for, at a shutdown or at SUSPEND.
    #[inline]
    pub(crate) fn check_shutdown(&mut self, now: Time, out: &mut Actions) {
        if self.suspension.is_on() {
            let parts = self.parts(now);
            parts.suspension.check(&parts.env, parts.connections, out);
        }
        if self.handover_out.is_some() {
            self.hand_over_if_quiet(now, out);
        }
        if let Some(how) = self.shutdown
            && !self.finished
        {
            self.finish_if_done(how, out);
        }
    }

    #[cold]
    fn finish_if_done(&mut self, how: Shutdown, out: &mut Actions) {
        let ends = match how {
            Shutdown::WaitForClients => self.directory.is_deserted() && !self.has_pooled_clients(),
            Shutdown::WaitForServers => self.servers_are_gone(out),
            Shutdown::Immediate => true,
        };
        if ends {
            self.finished = true;
            out.list.push(Action::Finished);
        }
    }

    fn has_pooled_clients(&self) -> bool {
        let pooled = |conn: &Conn| matches!(conn, Conn::Client(client) if client.pool.is_some());
        self.table.iter().any(|(_, conn)| pooled(conn))
    }

    /// Returns whether no worker has a server any more. Until then even a worker without one stays, for its clients
    /// and for administrators.
    fn servers_are_gone(&mut self, out: &mut Actions) -> bool {
        // The next tick refuses the clients that wait.
        let has_work = self.table.iter().any(|(_, conn)| match conn {
            Conn::Server(_) => true,
            Conn::Client(client) => matches!(client.duty, ClientDuty::Waiting { .. }),
            Conn::Cancel(_) => false,
        });
        if has_work {
            return false;
        }
        if !std::mem::replace(&mut self.served, true) && self.directory.has_served() {
            self.announce_shutdown(Shutdown::WaitForServers, out);
        }
        self.directory.have_all_served()
    }

    /// Applies a new configuration.
    pub(crate) fn reconfigure(&mut self, snapshot: Arc<Snapshot>, now: Time, out: &mut Actions) {
        self.check_after = super::check::check_after(&snapshot.config.settings);
        self.logs_scheduling = snapshot.config.settings.log_scheduling;
        self.snapshot = snapshot;
        for id in self.pools.ids() {
            self.reconfigure_pool(id, now, out);
        }
        self.schedule(now);
    }

    fn reconfigure_pool(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(pool) = self.pool(id) else { return };
        let shared = Arc::clone(&pool.shared);
        let terms = Terms::of(&shared, &snapshot);
        let before = std::mem::replace(&mut pool.terms, terms);
        let (mode, entry) = (pool.terms.mode, pool.terms.entry.clone());
        let same_servers = pool.terms.opens_like(&before);
        let Some(entry) = entry else {
            return self.remove_pool(id, now, out);
        };
        if before.mode == PoolMode::Session && mode != PoolMode::Session {
            self.reset_when_free(id);
        }
        if !same_servers {
            // A failure of the old servers does not predict one of the new servers.
            shared.facts.lock().failure = None;
        }
        // Nor does a failure with old passwords predict one with new passwords.
        shared.ledger.lock().allow_next_login();
        self.carry_out([Effect::RetireOutdated(id)], now, out);
        // All workers share the limits, and another worker may already have a newer configuration.
        let newest = self.directory.snapshot();
        let entry = Terms::of(&shared, &newest).entry.unwrap_or(entry);
        let limits = directory::limits(&newest.config, &entry, &shared.key.user);
        let caps = directory::cap_limits(&newest.config, &entry, &shared.key.user);
        let notes = shared.ledger.lock().set_limits(limits, caps, now);
        self.deliver(notes, &shared, out);
        self.update_sharing(&shared, now, out);
        self.place_idle_again(id, now, out);
    }

    /// Places each idle server of a pool again: there may be too many now.
    pub(super) fn place_idle_again(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        pool.offers_to_ledger = true;
        for server in std::mem::take(&mut pool.idle) {
            self.place_server(server, now, out);
        }
    }

    /// Removes the pool of a database that is no longer configured.
    fn remove_pool(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let of_pool = |conn: &Conn| matches!(conn, Conn::Client(client) if client.pool == Some(id));
        for client in self.table.tokens(of_pool) {
            self.refuse(client, &Fault::DatabaseRemoved, now, out);
        }
        self.retire_servers(id, "database removed", now, out);
    }

    /// Marks servers for a reset when they become free: in session mode, clients have left session state on them.
    fn reset_when_free(&mut self, id: PoolId) {
        for conn in self.table.tokens(|conn| conn.is_server_of(id)) {
            if let Some(server) = self.table.server(conn) {
                server.needs_reset |= server.client().is_some();
            }
        }
    }

    /// Closes a pool's idle servers now, and the others as they become free.
    fn retire_servers(&mut self, id: PoolId, why: &'static str, now: Time, out: &mut Actions) {
        for conn in self.table.tokens(|conn| conn.is_server_of(id)) {
            self.carry_out([Effect::Retire(conn, why)], now, out);
        }
    }
}
