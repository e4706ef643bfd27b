//! Operators' orders, carried out on a worker: PAUSE, RECONNECT, KILL, SUSPEND. The directory holds the orders,
//! mail announces a change, and this module applies it to the worker's clients and servers.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};

use super::Worker;
use crate::{
    Action, Actions, Address, Endpoint, Level, SharedPool, Time, Token, WorkerId,
    backend::OUTDATED, connections::Conn, effect::wake_waiting_consoles, fault::Fault,
    frontend::ClientDuty, mail::Mail, pool::PoolId,
};

impl Worker {
    /// Applies the current orders, after they have changed.
    pub(crate) fn apply_operator_orders(&mut self, now: Time, out: &mut Actions) {
        self.apply_suspension(now, out);
        for id in self.pool_ids() {
            self.apply_orders_to_pool(id, now, out);
            self.retire_outdated(id, now, out);
            self.retire_redefined(id, now, out);
        }
        // The order that a console waits for may have been taken back.
        for (worker, console) in self.directory.operator().waits() {
            if worker == self.id {
                self.console_awaited(console, now, out);
            }
        }
    }

    /// Applies the current PAUSE or RESUME to one pool.
    pub(crate) fn apply_orders_to_pool(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some(pool) = self.pool(id) else { return };
        let shared = Arc::clone(&pool.shared);
        let (paused, notes) = {
            // Read under the ledger's lock: the worker that reads last also writes last.
            let mut ledger = shared.ledger.lock();
            let paused = directory.operator().is_halted(&shared.key.database);
            (paused, ledger.set_paused(paused, now))
        };
        pool.paused = paused;
        if paused {
            self.close_unused(id, "pause mode", now, out);
            self.release_kept(id, now, out);
        } else {
            self.release_held(id, now, out);
        }
        self.deliver(notes, &shared, out);
    }

    /// Returns whether this pool is paused. `maybe` is what this worker knows of it.
    #[inline]
    pub(crate) fn is_paused(&self, maybe: bool, database: &str) -> bool {
        maybe && self.directory.operator().is_halted(database)
    }

    /// Closes servers of earlier epochs as soon as they are not in use.
    pub(crate) fn retire_outdated(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        let present = pool.shared.epochs.lock().present();
        if std::mem::replace(&mut pool.epoch, present) == present {
            return;
        }
        let outdated = self.tokens(
            |conn| matches!(conn, Conn::Server(server) if server.pool() == id && server.epoch != present),
        );
        for conn in outdated {
            self.retire(conn, OUTDATED, now, out);
        }
    }

    /// Closes the servers at a host's old addresses as soon as they are not in use.
    pub(crate) fn retire_servers_at(
        &mut self,
        host: &str,
        gone: &[IpAddr],
        now: Time,
        out: &mut Actions,
    ) {
        let is_there = |conn: &Conn| match conn {
            Conn::Server(server) => {
                matches!(&*server.endpoint, Endpoint::Tcp { host: at, .. } if at == host)
                    && matches!(server.addresses, Some((_, Address::Tcp(remote))) if gone.contains(&remote.ip()))
            }
            _ => false,
        };
        for conn in self.tokens(is_there) {
            self.retire(conn, OUTDATED, now, out);
        }
    }

    /// Closes servers of a database that a client drops, renames or copies: PostgreSQL refuses that, after some
    /// seconds, while any session is connected to the database. Without a pooler, a client that has left has no
    /// session. So servers without a client are closed, now or as soon as the last client leaves.
    #[cold]
    pub(crate) fn retire_servers_of_database(&self, name: &str, now: Time, out: &mut Actions) {
        let config = &self.snapshot.config;
        let mut any = false;
        for pool in self.directory.pools() {
            let asked_for = &*pool.key.database;
            let is_it = config
                .database(asked_for)
                .is_some_and(|entry| entry.dbname_for(asked_for) == name);
            if is_it {
                // Read under the lock: a client that leaves after that finds the request.
                let mut epochs = pool.epochs.lock();
                any |= epochs.leave(now, pool.clients.load(Ordering::Relaxed));
            }
        }
        if any {
            self.announce_operator_orders(out);
        }
    }

    /// Checks a server that came from another worker: it may have missed a RECONNECT on its way.
    pub(crate) fn check_epoch(&mut self, conn: Token) {
        if let Some(server) = self.table.server(conn)
            && server.epoch != server.shared.epochs.lock().present()
        {
            server.retire.get_or_insert(OUTDATED);
        }
        self.check_defaults(conn);
    }

    /// Closes a server as soon as it is not in use, for RECONNECT or a KILL of one server.
    pub(crate) fn retire(&mut self, conn: Token, why: &'static str, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.retire = Some(why);
        let stays = server.listens.is_some()
            && (self.listeners).stays_until_replaced(&mut self.table, conn, why, now);
        if stays {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if let (Some(owner), Some(_)) = (server.owner, server.client()) {
            // This server would never become free.
            self.end_client(owner, &Fault::DatabaseChanged, now, out);
        } else if server.client().is_none() {
            self.close_server(conn, why, now, out);
        } else {
            // `server_fast_close` may release the server before its client does.
            self.schedule(now);
            self.release_if_done(conn, now, out);
        }
    }

    /// Closes clients and servers of this database at once (of all databases, for `None`), for KILL.
    pub(crate) fn kill(&mut self, database: Option<&str>, now: Time, out: &mut Actions) {
        let is_meant =
            |shared: &SharedPool| database.is_none_or(|database| *shared.key.database == *database);
        let ids: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|pool| is_meant(&pool.shared))
            .map(|pool| pool.shared.id)
            .collect();
        for id in ids {
            self.apply_orders_to_pool(id, now, out);
            let of_pool =
                |conn: &Conn| matches!(conn, Conn::Client(client) if client.pool == Some(id));
            for client in self.tokens(of_pool) {
                self.refuse(client, &Fault::DatabaseRemoved, now, out);
            }
            for server in self.tokens(|conn| is_server_of(conn, id)) {
                self.close_server(server, "database removed", now, out);
            }
        }
    }

    /// Ends the client with this id, for KILL_CLIENT. A server of it that is being cleaned is closed. Returns
    /// whether the client is on this worker.
    pub(crate) fn kill_client(&mut self, id: u64, now: Time, out: &mut Actions) -> bool {
        let is_it = |conn: &Conn| match conn {
            Conn::Client(client) => client.id == id && !matches!(client.duty, ClientDuty::Login(_)),
            _ => false,
        };
        let Some(&conn) = self.tokens(is_it).first() else {
            return false;
        };
        let server = self.table.client(conn).and_then(|client| client.server());
        self.refuse(conn, &Fault::Killed, now, out);
        if let Some(server) = server
            && self
                .table
                .server(server)
                .is_some_and(|server| server.is_cleaning())
        {
            self.close_server(server, "unclean server", now, out);
        }
        true
    }

    /// Counts a closed server, and wakes consoles that wait if it was the last one, or the last outdated one.
    pub(crate) fn count_closed(&self, shared: &SharedPool, epoch: u32, out: &mut Actions) {
        let is_last = {
            let mut epochs = shared.epochs.lock();
            epochs.closed(epoch);
            epochs.servers() == 0 || epochs.outdated() == 0
        };
        if is_last {
            wake_waiting_consoles(&self.directory, out);
        }
    }

    /// Ends SUSPEND when the console that ordered it has gone: no other console could resume the process.
    pub(crate) fn resume_without_console(&self, conn: Token, out: &mut Actions) {
        let operator = self.directory.operator();
        if operator.abandon_suspension((self.id, conn)) {
            let text = "admin disappeared when suspended, doing RESUME";
            out.log(Level::Log, "", text);
            self.announce_operator_orders(out);
        }
    }

    /// Suspends or resumes this worker, as the operator has ordered.
    pub(crate) fn apply_suspension(&mut self, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        parts.suspension.obey(&parts.env, parts.connections, out);
    }

    /// Announces changed orders to all workers, where no round of the workers does that.
    pub(crate) fn announce_operator_orders(&self, out: &mut Actions) {
        for to in self.all_workers() {
            let mail = Mail::OperatorOrders;
            out.list.push(Action::Mail { to, mail });
        }
    }

    pub(crate) fn all_workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.directory.workers()).map(|index| WorkerId(index as u8))
    }

    fn close_unused(&mut self, id: PoolId, why: &str, now: Time, out: &mut Actions) {
        let unused = self.tokens(|conn| match conn {
            Conn::Server(server) => server.pool() == id && server.is_unused(),
            _ => false,
        });
        for server in unused {
            self.close_server(server, why, now, out);
        }
    }

    pub(crate) fn pool_ids(&self) -> Vec<PoolId> {
        let pools = self.pools.iter();
        pools.map(|pool| pool.shared.id).collect()
    }

    pub(crate) fn tokens(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<Token> {
        let found = self.table.iter().filter(|(_, conn)| wanted(conn));
        found.map(|(token, _)| token).collect()
    }
}

pub(crate) fn is_server_of(conn: &Conn, id: PoolId) -> bool {
    matches!(conn, Conn::Server(server) if server.pool() == id)
}
