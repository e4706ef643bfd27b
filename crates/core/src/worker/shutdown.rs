//! The end, and a new configuration.

use std::sync::Arc;

use super::{Conn, Worker, local_pool::Terms};
use crate::{
    Action, Actions, Shutdown, Snapshot, Time, Token, directory, fault::Fault, frontend::ClientDuty,
};

impl Worker {
    pub(crate) fn begin_shutdown(&mut self, how: Shutdown, now: Time, out: &mut Actions) {
        // A more urgent word counts, a less urgent one does not.
        if self.shutdown.is_some_and(|present| present >= how) {
            return;
        }
        self.shutdown = Some(how);
        for pool in self.pools.iter().flatten() {
            if how != Shutdown::WaitForClients {
                pool.shared.ledger.lock().shut();
            }
        }
        let doomed: Vec<Token> = self
            .table
            .iter()
            .filter(|(_, conn)| match conn {
                Conn::Client(client) => match (how, &client.duty) {
                    (Shutdown::Immediate, _) | (_, ClientDuty::Login(_)) => true,
                    (Shutdown::WaitForServers, ClientDuty::Waiting { .. }) => true,
                    (_, ClientDuty::Waiting { at_login, .. }) => *at_login,
                    _ => false,
                },
                _ => false,
            })
            .map(|(token, _)| token)
            .collect();
        for client in doomed {
            self.refuse(client, &Fault::ShuttingDown, now, out);
        }
        if how != Shutdown::WaitForClients {
            self.close_servers(how == Shutdown::Immediate, now, out);
        }
    }

    fn close_servers(&mut self, all: bool, now: Time, out: &mut Actions) {
        let servers: Vec<Token> = self
            .table
            .iter()
            .filter(|(_, conn)| matches!(conn, Conn::Server(server) if all || server.client().is_none()))
            .map(|(token, _)| token)
            .collect();
        for server in servers {
            self.close_server(server, "server shutting down", now, out);
        }
    }

    /// Is there anything left to wait for?
    #[inline]
    pub(crate) fn check_shutdown(&mut self, out: &mut Actions) {
        if let Some(how) = self.shutdown
            && !self.finished
        {
            self.finish_if_done(how, out);
        }
    }

    #[cold]
    fn finish_if_done(&mut self, how: Shutdown, out: &mut Actions) {
        let waits = self.table.iter().any(|(_, conn)| match conn {
            Conn::Client(client) => {
                how == Shutdown::WaitForClients
                    && !matches!(
                        client.duty,
                        ClientDuty::Console(_) | ClientDuty::CancelRequest
                    )
            }
            Conn::Server(_) => how == Shutdown::WaitForServers,
            Conn::Cancel(_) => false,
        });
        if !waits {
            self.finished = true;
            out.list.push(Action::Finished);
        }
    }

    /// A new configuration is in force.
    pub(crate) fn reconfigure(&mut self, snapshot: Arc<Snapshot>, now: Time, out: &mut Actions) {
        self.snapshot = Arc::clone(&snapshot);
        let mut moved = Vec::new();
        for pool in self.pools.iter_mut().flatten() {
            let terms = Terms::of(&pool.shared, &snapshot);
            let mut before: Vec<_> = pool
                .terms
                .endpoints
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut after: Vec<_> = terms.endpoints.iter().map(ToString::to_string).collect();
            before.sort();
            after.sort();
            if before != after || terms.is_gone {
                moved.push(pool.shared.id);
            }
            pool.terms = terms;
            if let Some(database) = snapshot.config.database(&pool.shared.key.database) {
                let limits = directory::limits(&snapshot.config, database, &pool.shared.key.user);
                let notes = pool.shared.ledger.lock().set_limits(limits, now);
                Self::deliver(notes, &pool.shared, out);
            }
        }
        self.retire_servers(
            |pool| moved.contains(&pool),
            "database configuration changed",
            now,
            out,
        );
    }

    /// Idle servers of these pools are closed now, the others when they come free.
    fn retire_servers(
        &mut self,
        of: impl Fn(crate::pool::PoolId) -> bool,
        why: &'static str,
        now: Time,
        out: &mut Actions,
    ) {
        let servers: Vec<Token> = self
            .table
            .iter()
            .filter(|(_, conn)| matches!(conn, Conn::Server(server) if of(server.pool())))
            .map(|(token, _)| token)
            .collect();
        for conn in servers {
            let Some(server) = self.table.server(conn) else {
                continue;
            };
            server.retire = Some(why);
            if matches!(
                server.duty,
                crate::backend::Duty::Idle | crate::backend::Duty::Login(_)
            ) {
                self.close_server(conn, why, now, out);
            }
        }
    }
}
