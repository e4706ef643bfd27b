//! `read_after_write`: a transaction begins on a host that has replayed the writes that clients know of, or on the primary.
//!
//! While the transaction of a client without a server waits, the request stays in the client's socket. A client that
//! keeps its server stays with it, and pgweir stores the request. The transaction begins when a check shows that the
//! host has replayed the writes. After `read_after_write_wait`, pgweir stops using the standbys that have not replayed
//! them, and the client gets a server of another host.

use super::Lending;
use crate::{
    Actions, Token,
    base::fault::Fault,
    connections::Conn,
    effect::{ClientEffect, Effect, ServerEffect},
    frontend::{ClientDuty, MustSee},
    loan::{RepeatFit, repeat_fit},
    pool::PoolId,
    pooling::{LocalPool, ReplayWait},
    server_connections::host_checks::{
        RequestedChecks, is_current, leave_slow_standbys, must_wait, note_news, request_checks,
    },
    shared::hosts::HostExclusion,
};

/// Microseconds within which a client has to leave its server, after pgweir has stopped using the server's host.
const DEPARTURE: u64 = 200_000;

impl Lending<'_> {
    /// Returns whether the transactions of this client's pool must see earlier writes.
    #[inline]
    pub(super) fn reads_writes(&self, conn: Token, id: PoolId) -> bool {
        let is_on = |pool: &LocalPool| pool.terms.read_after_write.is_some();
        self.pools.get(id).is_some_and(is_on) && self.has_shared_server(conn)
    }

    #[cold]
    fn has_shared_server(&self, conn: Token) -> bool {
        match self.connections.get(conn) {
            Some(Conn::Client(client)) => !client.is_exclusive(),
            _ => false,
        }
    }

    /// Gets a server for an idle client whose request must see all writes until now.
    pub(super) fn check_out_current(&mut self, conn: Token, id: PoolId, out: &mut Actions) {
        let writes = self.env.directory.hosts().writes().count();
        let must_see = MustSee::new(writes, self.env.now);
        if let Some(client) = self.connections.client(conn) {
            client.request.set_must_see(must_see);
        }
        if !self.lend_current(conn, id, must_see, out) {
            self.wait_for_current(conn, id, must_see, out);
        }
    }

    /// Lends an idle server whose host has replayed the writes. Returns `false` if there is none.
    fn lend_current(
        &mut self,
        conn: Token,
        id: PoolId,
        must_see: MustSee,
        out: &mut Actions,
    ) -> bool {
        let (table, directory) = (&*self.connections, self.env.directory);
        let Some(Conn::Client(client)) = table.get(conn) else {
            return false;
        };
        let Some(pool) = self.pools.get_mut(id) else {
            return false;
        };
        let fits = |token: &Token| match table.get(*token) {
            Some(Conn::Server(server)) => {
                is_current(directory, pool, server, must_see.writes())
                    && (client.request.lost_hosts().is_none()
                        || repeat_fit(directory.names(), client, server) == RepeatFit::Fit)
            }
            _ => false,
        };
        let holds = |token: &Token| {
            let context = client.context.as_deref();
            context.is_some_and(|own| table.holds(*token, &own.wanted, &own.sql))
        };
        let mut idle = pool.idle.iter();
        let best = idle.rposition(|token| holds(token) && fits(token));
        let Some(at) = best.or_else(|| pool.idle.iter().rposition(fits)) else {
            return false;
        };
        let server = pool.idle.remove(at);
        self.lend(server, conn, out);
        true
    }

    /// Makes a client wait: for the replay, or for a server if all hosts that are used have replayed the writes.
    fn wait_for_current(&mut self, conn: Token, id: PoolId, must_see: MustSee, out: &mut Actions) {
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        match must_wait(&self.env, pool, must_see.writes()) {
            true => self.await_replay(conn, out),
            false => self.wait(conn, id, false, out),
        }
    }

    /// Makes a client wait until a host has replayed the writes that its request must see.
    fn await_replay(&mut self, conn: Token, out: &mut Actions) {
        let now = self.env.now;
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let (Some(id), Some(must_see)) = (client.pool(), client.request.must_see()) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        let waited = now.since(must_see.since());
        if pool.terms.query_wait_timeout > 0 && waited >= pool.terms.query_wait_timeout {
            return self.effects.push(end(conn));
        }
        pool.stats.now.replay_wait_count += 1;
        let until = now.after(pool.terms.read_after_write.unwrap_or_default());
        request_checks(
            &self.env,
            pool,
            must_see.writes(),
            RequestedChecks::All,
            out,
        );
        self.wait_until(conn, id, must_see.waiting_until(until));
    }

    /// Adds a client to those that wait for the replay.
    fn wait_until(&mut self, conn: Token, pool: PoolId, must_see: MustSee) {
        if let Some(client) = self.connections.client(conn) {
            client.request.set_must_see(must_see);
        }
        self.pools.replay_waits.add(ReplayWait {
            client: conn,
            pool,
            until: must_see.until().unwrap_or(self.env.now),
        });
    }

    /// Checks a server that the queue offers to a client whose request must see earlier writes. If the server's host has not
    /// replayed them, the server goes to another client, and the client waits for the replay. Returns `false` if the client may
    /// get the server.
    pub(super) fn wait_for_replay(
        &mut self,
        client: Token,
        server: Token,
        out: &mut Actions,
    ) -> bool {
        let Some((waiting, offered)) = self.connections.pair(client, server) else {
            return false;
        };
        let Some(must_see) = waiting.request.must_see() else {
            return false;
        };
        let pool = self.pools.get(offered.pool());
        let is_on = |pool: &&LocalPool| pool.terms.read_after_write.is_some();
        let Some(pool) = pool.filter(is_on) else {
            return false;
        };
        if is_current(self.env.directory, pool, offered, must_see.writes()) {
            return false;
        }
        self.effects
            .push(Effect::Server(ServerEffect::Place(server)));
        self.await_replay(client, out);
        true
    }

    /// Handles the answer to a check of a host: the clients that wait are served, or wait further.
    pub(crate) fn take_replay_news(&mut self, out: &mut Actions) {
        note_news(&self.env, self.pools, out);
        self.request_replay_checks(RequestedChecks::Primary, out);
        self.resume_reads();
    }

    /// Begins the checks that are due, and ends the waits that are over.
    pub(crate) fn check_replay_waits(&mut self, out: &mut Actions) {
        if self.pools.replay_waits.take_due_check(self.env.now) {
            self.request_replay_checks(RequestedChecks::All, out);
        }
        if self.pools.replay_waits.are_any_over(self.env.now) {
            self.resume_reads();
        }
    }

    fn resume_reads(&mut self) {
        let waits = self.pools.replay_waits.take().into_iter();
        let resume = waits.map(|wait| Effect::Client(ClientEffect::ReadAfterWrite(wait.client)));
        self.effects.extend(resume);
    }

    /// Requests the checks that the clients of this worker wait for.
    fn request_replay_checks(&self, checks: RequestedChecks, out: &mut Actions) {
        for id in self.pools.replay_waits.pools() {
            let Some(pool) = self.pools.get(id) else {
                continue;
            };
            let clients = self.pools.replay_waits.of_pool(id);
            let writes = clients.filter_map(|client| match self.connections.get(client) {
                Some(Conn::Client(client)) => client.request.must_see().map(|own| own.writes()),
                _ => None,
            });
            if let Some(writes) = writes.max() {
                request_checks(&self.env, pool, writes, checks, out);
            }
        }
    }

    /// Serves a client whose request must see earlier writes, or makes it wait.
    pub(crate) fn read_after_write(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let (Some(must_see), Some(id)) = (client.request.must_see(), client.pool()) else {
            return;
        };
        if must_see.until().is_none() {
            return self.await_replay(conn, out);
        }
        match *client.duty() {
            ClientDuty::Idle => self.resume_idle(conn, id, must_see, out),
            ClientDuty::Active(server) if client.socket.has_early() => {
                self.resume_kept((conn, server), id, must_see, out);
            }
            _ => {}
        }
    }

    /// Serves a client without a server. After `read_after_write_wait` it gets a server of a host that is not behind.
    fn resume_idle(&mut self, conn: Token, id: PoolId, must_see: MustSee, out: &mut Actions) {
        if self.lend_current(conn, id, must_see, out) {
            return;
        }
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        if must_see.is_over(self.env.now) {
            pool.stats.now.replay_timeout_count += 1;
            leave_slow_standbys(&self.env, pool, must_see.writes(), out);
        } else if must_wait(&self.env, pool, must_see.writes()) {
            return self.wait_further(conn, id, must_see);
        }
        self.wait(conn, id, false, out);
    }

    /// Relays the request of a client that has kept its server. After `read_after_write_wait` the client has to leave the server,
    /// and is ended if it can't.
    fn resume_kept(
        &mut self,
        (conn, server_conn): (Token, Token),
        id: PoolId,
        must_see: MustSee,
        out: &mut Actions,
    ) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        let Some(server) = self.connections.server(server_conn) else {
            return;
        };
        let is_free = server.relays_for().is_some() && server.replies.is_settled();
        if is_free && is_current(self.env.directory, pool, server, must_see.writes()) {
            return self.begin_relaying(conn, server_conn, out);
        }
        if !must_see.is_over(self.env.now) {
            return self.wait_further(conn, id, must_see);
        }
        if must_see.is_late() {
            return self.effects.push(end(conn));
        }
        pool.stats.now.replay_timeout_count += 1;
        leave_slow_standbys(&self.env, pool, must_see.writes(), out);
        let late = must_see.leaving_until(self.env.now.after(DEPARTURE));
        self.wait_further(conn, id, late);
    }

    fn wait_further(&mut self, conn: Token, id: PoolId, must_see: MustSee) {
        let now = self.env.now;
        self.pools.replay_waits.plan_check(must_see.since(), now);
        self.wait_until(conn, id, must_see);
    }
}

/// Returns the effect that ends a client whose server's host has not replayed the writes.
fn end(client: Token) -> Effect {
    let fault = Fault::HostLeft(HostExclusion::Behind.reason());
    Effect::Client(ClientEffect::EndClient(client, Box::new(fault)))
}
