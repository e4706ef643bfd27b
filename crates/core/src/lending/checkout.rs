//! Checkout: a client with a request gets an idle server of its pool, or joins the queue.
//!
//! A server that was not used for a while is checked first. The server gets the client's parameters before it is lent.
//! Then the bytes that the client has sent so far are relayed.

use std::sync::Arc;

use super::{Worker, scheduling::Decision};
use crate::{
    Action, Actions, Time, Token,
    backend::{InternalQuery, Phase},
    client_listen::fence_first,
    connections::Conn,
    fault::Fault,
    frontend::ClientDuty,
    loan::{Early, begin, enter},
    pool::{PoolId, Waiter},
    role_settings::is_redefined,
    session::{Class, discards_plans},
};

impl Worker {
    /// Gets a server for an idle client that has sent a request, or makes the client wait.
    #[inline]
    pub(crate) fn check_out(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        client.request.sent_at = now;
        let Some(pool) = client.pool else { return };
        let table = &self.table;
        let context = match table.look(conn) {
            Some(Conn::Client(client)) => client.context.as_deref(),
            _ => None,
        };
        let at_login = context.is_some_and(|context| context.unproven);
        let pool_here = self.pools.get_mut(pool);
        let idle = match (pool_here, context) {
            (Some(pool), Some(context)) => {
                pool.take_idle_that(|server| table.holds(server, &context.wanted, &context.sql))
            }
            (Some(pool), None) => pool.take_idle(),
            (None, _) => None,
        };
        match idle {
            Some(server) if self.is_stale(server, now) && self.peek_first(conn, out) => {
                if let Some(pool) = self.pool(pool) {
                    pool.idle.push(server);
                }
            }
            Some(server) => {
                self.lend(server, conn, now, out);
            }
            None => self.wait(conn, pool, at_login, now, out),
        }
    }

    /// Returns whether the server has to be checked before it is lent.
    #[inline]
    fn is_stale(&self, server: Token, now: Time) -> bool {
        match self.table.look(server) {
            Some(Conn::Server(server)) => server.is_stale(self.check_after, now),
            _ => false,
        }
    }

    /// Adds a client to the queue.
    pub(crate) fn wait(
        &mut self,
        conn: Token,
        pool: PoolId,
        at_login: bool,
        now: Time,
        out: &mut Actions,
    ) {
        if self.shutdown.waits_for_servers() {
            return self.refuse(conn, &Fault::ServersShutDown, now, out);
        }
        let worker = self.id;
        let client = self.table.client(conn);
        let (is_native, is_past_limits) = client.map_or((false, false), |client| {
            (client.exclusive.is_some(), client.is_past_limits())
        });
        let Some(pool) = self.pool(pool) else { return };
        if is_past_limits {
            let shared = Arc::clone(&pool.shared);
            return self.bypass_limits(conn, &shared, now, out);
        }
        // A client that waits for an exclusive server leaves the idle servers to other clients.
        pool.offers_to_ledger |= !is_native;
        let shared = Arc::clone(&pool.shared);
        if !is_native {
            self.announce_kept_servers(shared.id, now);
        }
        let (ticket, notes) = {
            let mut ledger = shared.ledger.lock();
            if is_native {
                ledger.wait_exclusive(worker, conn, now)
            } else {
                ledger.wait(worker, conn, now)
            }
        };
        self.deliver(notes, &shared, out);
        if self.hands_clients_over() {
            self.request_server_place(&shared, out);
        }
        if let Some(client) = self.table.client(conn) {
            client.duty = ClientDuty::Waiting { ticket, at_login };
            client.request.wait_notice_was_sent = false;
            client.request.sent_at = now;
        }
        if !is_native {
            self.settle_for_waiters(shared.id, now, out);
        }
        if self.logs_scheduling {
            self.log_decision(conn, Decision::Waits(shared.id), now, out);
        }
        self.offer_kept_servers(shared.id, now, out);
        self.schedule(now);
    }

    /// Lends an idle server to a client that waited. Returns `false` if the client is gone.
    pub(crate) fn lend_to(
        &mut self,
        server: Token,
        waiter: Waiter,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.table.client(waiter.client) else {
            return false;
        };
        let at_login = match client.duty {
            ClientDuty::Waiting { ticket, at_login } if ticket == waiter.ticket => at_login,
            _ => return false,
        };
        client.duty = ClientDuty::Idle;
        if let Some(login) = client.login.take() {
            return self.log_in(now, out, |event, out| {
                event.serve_lookup(server, waiter.client, login, out)
            });
        }
        if at_login && self.table.server(server).is_some_and(|it| is_redefined(it)) {
            let pool = self.table.client(waiter.client).and_then(|own| own.pool);
            if let Some(pool) = pool {
                self.wait(waiter.client, pool, true, now, out);
            }
            return false;
        }
        if at_login && self.is_unproven(waiter.client) {
            return self.try_startup(server, waiter.client, now, out);
        }
        if at_login {
            // The client only waited until a server had logged in.
            self.log_in(now, out, |event, out| event.welcome(waiter.client, out));
            return false;
        }
        self.lend(server, waiter.client, now, out)
    }

    /// Lends an idle server to an idle client.
    #[inline]
    fn lend(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        if self.is_stale(server_conn, now) {
            return self.check_first(server_conn, client_conn, now, out);
        }
        self.equip(server_conn, client_conn, now, out)
    }

    /// Assigns the server to the client, and sets the client's parameters on it first.
    #[inline]
    pub(crate) fn equip(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        if self.logs_scheduling {
            self.log_lent(client_conn, server_conn, now, out);
        }
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let holder = server.holder.get();
        if let Some(listening) = &client.listening
            && holder != 0
            && holder != client.key.pid()
            && !self
                .listening_clients
                .have_delivered_before(listening, server.times.freed_at)
        {
            let parts = self.parts(now);
            let effects = fence_first(&parts.env, parts.connections, server_conn, client_conn, out);
            self.carry_out(effects, now, out);
            return true;
        }
        client.request.transaction_at = now;
        if let Some(sampler) = &mut self.sampler {
            let times = (client.request.sent_at, Some(now));
            let last = sampler.begin(&mut client.recording, times);
            out.list.extend(last.map(Action::Export));
        }
        server.times.lent_at = now;
        if std::mem::take(&mut server.session.lasting.is_from_login) {
            server.session.dirt.raise(Class::Opaque);
        }
        server.session.notifications.has_listening_client = client.listening.is_some();
        server.session.notifications.pending.clear();
        server.holder.set(client.key.pid());
        let waited = now.since(client.request.sent_at);
        if client.context.is_some() {
            return self.equip_session(server_conn, client_conn, waited, now, out);
        }
        let planned = {
            let start = out.scratch.len();
            let planned =
                self.directory
                    .names()
                    .plan(&client.tracked, &server.tracked, &mut out.scratch);
            let end = out.scratch.len();
            planned.then_some(start..end)
        };
        match planned {
            None => {
                // The values are equal. The client adopts the server's addresses, so the next comparison is by address.
                client.tracked.adopt(&server.tracked);
                enter(Phase::Relaying, client_conn, client, server_conn, server);
                let early = begin(client_conn, client, server_conn, server, out);
                let pool = server.pool();
                self.count_assignment(pool, waited);
                self.relay_early(client_conn, early, now, out);
                return true;
            }
            Some(range) => {
                enter(Phase::Equipping, client_conn, client, server_conn, server);
                server.ask(InternalQuery::Parameters);
                out.list.push(Action::Send {
                    to: server_conn,
                    source: crate::Source::Scratch(range.clone()),
                });
                let pool = server.pool();
                self.count_assignment(pool, waited);
                if self.is_verbose() {
                    self.trace_set(server_conn, range, out);
                }
            }
        }
        true
    }

    #[inline]
    pub(super) fn count_assignment(&mut self, pool: PoolId, waited: u64) {
        if let Some(pool) = self.pool(pool) {
            pool.stats.now.server_assignment_count += 1;
            pool.stats.now.wait_time += waited;
            pool.times.wait.observe(waited);
        }
    }

    /// Relays bytes that were read before their client had a server.
    #[inline]
    pub(super) fn relay_early(
        &mut self,
        conn: Token,
        early: Option<Early>,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(bytes) = early {
            self.relay_again(conn, &bytes, now, out);
        }
    }

    #[cold]
    pub(super) fn relay_again(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let outer = out.early.replace(out.scratch.len());
        out.scratch.extend_from_slice(bytes);
        self.relay_up(conn, bytes, now, out);
        out.early = outer;
    }

    /// Lets the client's next messages go on, since the server that they waited for is certain now.
    #[cold]
    pub(crate) fn accept_moved_server(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        let early = begin(client_conn, client, server_conn, server, out);
        self.relay_early(client_conn, early, now, out);
    }

    /// Lends the server, since it has the client's parameters now.
    pub(crate) fn prepared(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        if let Some(context) = &mut client.context {
            context.servers_lost = 0;
            if server.session.unclean {
                return self.clean_session(server_conn, now, out);
            }
            if discards_plans(&context.wanted, &server.session.settings.held) {
                server.statements.prepared.plans_discarded();
            }
            server.session.holds(&context.wanted);
            server.session.settings.has_unsent = false;
            if !client.tracked.is_same(&server.tracked) {
                let (names, settings) = (self.directory.names(), self.directory.settings());
                let (told, found) = (&client.tracked, &server.tracked);
                if context.keep_told(names, told, found, settings)
                    && self.send_plan(server_conn, client_conn, out)
                {
                    return;
                }
            }
        }
        self.hand_over(server_conn, now, out);
    }

    /// Begins to relay, since the server has the client's session state now.
    pub(super) fn hand_over(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        // The client adopts PostgreSQL's spelling of the values, and gets ParameterStatus for those that changed.
        let told = std::mem::replace(&mut client.tracked, server.tracked.clone());
        let spelled = server.tracked.clone();
        let names = self.directory.names();
        out.send_made(client_conn, |bytes| names.report(&told, &spelled, bytes));
        if self.is_verbose() {
            self.trace_spelling(client_conn, &told, &spelled, out);
        }
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        enter(Phase::Relaying, client_conn, client, server_conn, server);
        client.request.transaction_at = now;
        let early = begin(client_conn, client, server_conn, server, out);
        self.relay_early(client_conn, early, now, out);
    }

    /// Removes a waiting client from the queue.
    pub(crate) fn leave_queue(&mut self, conn: Token) {
        let worker = self.id;
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let ClientDuty::Waiting { ticket, .. } = client.duty else {
            return;
        };
        let pool = client.pool;
        client.duty = ClientDuty::Idle;
        if let Some(pool) = pool.and_then(|pool| self.pool(pool)) {
            pool.shared.ledger.lock().leave(worker, ticket);
        }
    }
}
