//! Server connections, from their opening to their end.
//!
//! This module owns no state: each connection carries its own, in the table of connections. The module opens a
//! connection when the ledger of a pool asks for one (`opening`), or for one client that gets an exclusive server
//! (`exclusive`), logs in to the server (`login`, `tls`), tries a second host beside one that does not answer (`host_race`), and
//! removes the connection when it is closed or lost (`loss`). The ledgers are notified of each of these.
//!
//! Input: a ledger's orders to open a connection, and the events of connections that log in or are lost. Output:
//! actions for the driver, notes of ledgers, and effects: a server that has logged in is placed in its pool
//! ([`ServerEffect::Place`](crate::effect::ServerEffect::Place)), a client that loses its server gets another one or is
//! refused, and the owner of a listener connection learns of its beginning and its end.

pub(crate) mod catalog_reading;
mod connect_settings;
mod exclusive;
pub(crate) mod fleet_rounds;
pub(crate) mod host_checks;
mod host_race;
mod login;
mod loss;
pub(crate) mod maintenance;
mod opening;
pub(crate) mod role_settings;
mod tls;

use std::sync::Arc;

use crate::{
    Action, Actions, Level, SharedPool, Token,
    backend::{Duty, InternalAnswer, InternalQuery, Server},
    base::stats::Logins,
    connections::{Conn, Connections},
    effect::{Effect, Effects, Env, ListenerEffect, LostListener},
    listen::ListenerKey,
    login::note_lost_lookup,
    operators::orders,
    pool::Notes,
    pooling::{LocalPool, LocalPools, deliver},
    shared::{hosts::HostState, pool::ServerRole},
};

/// An event of a server connection, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct ServerConnections<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    /// Counts of TLS handshakes with servers.
    pub(crate) results: &'w mut Logins,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl ServerConnections<'_> {
    /// Returns this worker's part of a pool, and creates it if need be.
    fn open_pool(&mut self, shared: &Arc<SharedPool>) -> &mut LocalPool {
        self.pools.open(&self.env, self.connections, shared)
    }

    /// Sends the notes of a ledger to the workers.
    fn deliver(&self, notes: &Notes, pool: &Arc<SharedPool>, out: &mut Actions) {
        deliver(&self.env, notes, pool, out);
    }

    /// Returns the server's name for the log.
    fn subject(&mut self, conn: Token) -> String {
        let server = self.connections.server(conn);
        server.map_or_else(String::new, |server| server.subject())
    }

    /// Logs the end of a server connection with PgBouncer's text, which operators search for.
    fn log_end(&mut self, conn: Token, why: &str, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_disconnections
            && let Some(server) = self.connections.server(conn)
        {
            let age = self.env.now.since(server.times.connected_at()) / 1_000_000;
            let text = format!("closing because: {why} (age={age}s)");
            out.log(Level::Log, server.subject(), text);
        }
    }

    /// Closes the connection to a server. In a fleet, the server keeps its slot under the caps until PostgreSQL has closed its
    /// side.
    pub(crate) fn close_connection(&mut self, conn: Token, out: &mut Actions) {
        let is_in_fleet = self.env.snapshot.config.settings.fleet_etcd.is_set();
        let server = match self.connections.get(conn) {
            Some(Conn::Server(server)) if is_in_fleet && !server.purpose().bypasses_limits() => {
                server
            }
            _ => return out.list.push(Action::Close(conn)),
        };
        let pool = Arc::clone(&server.shared);
        pool.ledger.lock().begin_closing();
        out.list.push(Action::CloseServer { conn, pool });
    }

    /// Reports the end of a connection that listens, or was to listen.
    fn report_lost_listener(&mut self, conn: Token, server: &Server, key: &ListenerKey, why: &str) {
        let lost = LostListener {
            conn,
            key: key.clone(),
            shared: Arc::clone(&server.shared),
            why: why.to_owned(),
        };
        let lost = ListenerEffect::Lost(Box::new(lost));
        self.effects.push(Effect::Listener(lost));
    }

    /// Gives back the place of a connection that checked its host.
    fn end_host_check(&self, server: &Server, out: &mut Actions) {
        let notes = (server.shared.ledger.lock()).give_back_extra_place(self.env.now);
        self.deliver(&notes, &server.shared, out);
    }

    /// Records how a login to a host has ended. Informs all workers if pools may have to use other hosts now.
    fn note_host(
        &self,
        server: &Server,
        role: Option<ServerRole>,
        (state, error): (Option<HostState>, Option<&str>),
        out: &mut Actions,
    ) {
        let Some(host) = server.link.host() else {
            return;
        };
        let now = self.env.now;
        let return_after = self.env.snapshot.config.settings.host_return_after.0;
        host_checks::update(&self.env, host, out, |facts| {
            if let Some(error) = error {
                facts.note_error(error, now);
            }
            match state {
                Some(HostState::Up) => facts.note_answer(now, return_after),
                Some(state) => facts.note_unusable(state),
                None => {}
            }
            facts.role = role.or(facts.role);
        });
    }

    /// Removes a server connection from this worker, and from all counts but those of its ledger.
    pub(crate) fn forget(&mut self, conn: Token, out: &mut Actions) -> Option<Box<Server>> {
        let Some(Conn::Server(mut server)) = self.connections.remove(conn) else {
            return None;
        };
        let (env, directory) = (self.env, self.env.directory);
        // PostgreSQL may have changed session defaults or tables before the connection ended, even if pgweir has
        // received no answer.
        let defaults = role_settings::take_change(directory, &mut server);
        if let Some(change) = &defaults {
            role_settings::renew(directory, env.snapshot, server.link.endpoint(), change, out);
        }
        if server.session.transaction.schema().is_some() {
            server.settle_schema();
        }
        self.leave_race(&mut server);
        let _ = server.uncount_pinned();
        if let Some(InternalAnswer::Lookup(lookup)) =
            server.session.queries.end(InternalQuery::Lookup)
        {
            note_lost_lookup(env.worker, &lookup, out);
        }
        if let Some(key) = server.link.key() {
            let holders = directory.holders();
            holders.remove(server.link.endpoint(), key.pid, server.holder());
        }
        if let (true, Some(host)) = (server.purpose().checks_host(), server.link.host()) {
            host.release_check(env.worker);
            host.replay.end_checks();
        }
        if !server.purpose().is_own() {
            orders::count_closed(directory, &server.shared, server.retirement.epoch(), out);
        }
        if let Some(pool) = self.pools.get_mut(server.pool()) {
            pool.remove_server(env.now);
            // PostgreSQL may not notice the end of the connection before it has committed the transaction.
            if !server.replies.is_settled()
                && let Some(ddl) = server.session.transaction.take_ddl()
                && server.link.pid() != 0
            {
                let (endpoint, pid) = (server.link.endpoint(), server.link.pid());
                let lost_ddl = pool.shared.catalog.lost_ddl();
                lost_ddl.lock().add(endpoint, pid, (ddl, defaults), env.now);
                pool.catalog.due = env.now;
                self.connections.schedule(env.now);
            }
            if matches!(*server.duty(), Duty::Idle) {
                pool.idle.retain(|&idle| idle != conn);
            }
            if pool.keeps_min() || !pool.has_servers() {
                self.connections.schedule(env.now);
            }
        }
        Some(server)
    }
}
