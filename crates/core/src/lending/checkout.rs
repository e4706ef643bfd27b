//! Checkout: a client with a request gets an idle server of its pool, or joins the queue.
//!
//! A server that was not used for a while is checked first. The server gets the client's parameters before it is lent.
//! Then the bytes that the client has sent so far are relayed.

use std::sync::Arc;

use super::{Lending, scheduling_log::Decision};
use crate::{
    Actions, Token,
    base::fault::Fault,
    connections::Conn,
    effect::{ClientEffect, Effect, Env, PoolEffect, RestartEffect, ServerEffect, SessionEffect},
    frontend::ClientDuty,
    pool::{PoolId, Waiter},
    pooling::LocalPool,
    server_connections::role_settings::is_redefined,
    shared::pool::Failure,
};

impl Lending<'_> {
    /// Gets a server for an idle client that has sent a request, or makes the client wait.
    #[inline]
    pub(crate) fn check_out(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        client.request.note_sent(self.env.now);
        let Some(pool) = client.pool() else { return };
        let is_new = client.context.as_ref().is_some_and(|own| own.unproven);
        if !is_new && self.reads_writes(conn, pool) {
            return self.check_out_current(conn, pool, out);
        }
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        if client.request.lost_hosts().is_some() {
            return self.check_out_elsewhere(conn, pool, out);
        }
        let table = &*self.connections;
        let context = match table.get(conn) {
            Some(Conn::Client(client)) => client.context.as_deref(),
            _ => None,
        };
        let at_login = context.is_some_and(|context| context.unproven);
        let idle = match (self.pools.get_mut(pool), context) {
            (Some(pool), Some(context)) if pool.catalog.certificates.types_depend_on_path() => {
                pool.take_idle_that(|server| table.has_types_for(server, &context.wanted))
            }
            (Some(pool), Some(context)) => {
                pool.take_idle_that(|server| table.holds(server, &context.wanted, &context.sql))
            }
            (Some(pool), None) => pool.take_idle(),
            (None, _) => None,
        };
        match idle {
            Some(server) if !self.is_stale(server) => self.equip(server, conn, out),
            Some(server) if self.peek_first(conn, out) => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.idle.push(server);
                }
            }
            Some(server) => self.check_first(server, conn, out),
            None => self.wait(conn, pool, at_login, out),
        }
    }

    /// Adds a client to the queue.
    pub(crate) fn wait(&mut self, conn: Token, id: PoolId, at_login: bool, out: &mut Actions) {
        if self.env.waits_for_servers() {
            return (self.effects).push(Effect::refuse(conn, Fault::ServersShutDown));
        }
        let client = self.connections.client(conn);
        let (is_exclusive, is_past_limits) = client.map_or((false, false), |client| {
            (client.is_exclusive(), client.is_past_limits())
        });
        let Some(pool) = self.pools.known(id, out) else {
            return;
        };
        if is_past_limits {
            let shared = Arc::clone(&pool.shared);
            return self.bypass_limits(conn, &shared);
        }
        if let Some(client) = self.connections.client(conn) {
            client.request.note_sent(self.env.now);
        }
        // A client that waits for an exclusive server leaves the idle servers to other clients.
        pool.offers_to_ledger |= !is_exclusive;
        if is_exclusive || pool.kept.is_empty() {
            return self.join_queue(conn, id, at_login, out);
        }
        // The ledger learns first that a kept server will become free, and opens no server for this client.
        let announce = Effect::Pool(id, PoolEffect::AnnounceKeptServers);
        let join = Effect::Client(ClientEffect::JoinQueue {
            client: conn,
            pool: id,
            at_login,
        });
        self.effects.extend([announce, join]);
    }

    /// Adds a client to the queue of its pool's ledger, and looks for a server that is kept without need.
    pub(crate) fn join_queue(
        &mut self,
        conn: Token,
        id: PoolId,
        at_login: bool,
        out: &mut Actions,
    ) {
        let (worker, now) = (self.env.worker, self.env.now);
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        let is_exclusive = client.is_exclusive();
        let Some(pool) = self.pools.known(id, out) else {
            return;
        };
        if let Some(fault) = exceeds_hold(&self.env, pool) {
            return self.effects.push(Effect::refuse(conn, fault));
        }
        let (shared, keeps_any) = (Arc::clone(&pool.shared), !pool.kept.is_empty());
        let (ticket, notes) = {
            let mut ledger = shared.ledger.lock();
            match is_exclusive {
                true => ledger.wait_exclusive(worker, conn, now),
                false => ledger.wait(worker, conn, now),
            }
        };
        (self.connections).begin_waiting(conn, ticket, at_login, now);
        self.deliver(&notes, &shared, out);
        if self.env.hands_clients_over {
            let ask = RestartEffect::AskForServerPlace(Arc::clone(&shared));
            self.effects.push(Effect::Restart(ask));
        }
        self.log_decision(conn, Decision::Waits(id), out);
        if !is_exclusive && keeps_any {
            let settle = Effect::Pool(id, PoolEffect::SettleForWaiters);
            let offer = Effect::Pool(id, PoolEffect::OfferKeptServers);
            self.effects.extend([settle, offer]);
        } else {
            self.offer_kept_servers(id);
        }
    }

    /// Gives a free server to a client that has waited. Returns `false` if the client has left; otherwise the server is
    /// in use now, or an effect places it again.
    pub(crate) fn serve_waiter(
        &mut self,
        server: Token,
        waiter: Waiter,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.connections.client(waiter.client) else {
            return false;
        };
        let at_login = match *client.duty() {
            ClientDuty::Waiting { ticket, at_login } if ticket == waiter.ticket => at_login,
            _ => return false,
        };
        client.become_idle();
        let (pool, login, client) = (client.pool(), client.take_postponed_login(), waiter.client);
        if let Some(login) = login {
            self.effects.push(Effect::Client(ClientEffect::ServeLookup {
                server,
                client,
                login,
            }));
            return true;
        }
        if !at_login {
            if !self.wait_for_other(client, server, out)
                && !self.wait_for_replay(client, server, out)
            {
                self.lend(server, client, out);
            }
            return true;
        }
        let is_outdated = self.connections.server(server);
        if is_outdated.is_some_and(|server| is_redefined(server)) {
            if let Some(pool) = pool {
                self.wait(client, pool, true, out);
            }
        } else if self.is_unproven(client) {
            let try_startup = SessionEffect::TryStartup(client);
            self.effects.push(Effect::Session(server, try_startup));
            return true;
        } else {
            // The client needs no server yet: it has only waited for the first server of the pool to log in.
            self.effects
                .push(Effect::Client(ClientEffect::Welcome(client)));
        }
        self.effects
            .push(Effect::Server(ServerEffect::Place(server)));
        true
    }

    /// Lends an idle server to an idle client.
    #[inline]
    pub(super) fn lend(&mut self, server: Token, client: Token, out: &mut Actions) {
        if self.is_stale(server) {
            return self.check_first(server, client, out);
        }
        self.equip(server, client, out);
    }
}

/// Returns the error of a client that would wait in an outage, if `outage_hold_clients` clients do so already.
fn exceeds_hold(env: &Env<'_>, pool: &LocalPool) -> Option<Fault> {
    let most = env.snapshot.config.settings.outage_hold_clients as usize;
    if most == 0 || pool.terms.outage_hold == 0 || pool.shared.ledger.lock().waiting() < most {
        return None;
    }
    let facts = pool.shared.facts.lock();
    facts.outage.since()?;
    facts.failure.as_ref().map(Failure::cached)
}
