//! Server connections come back to their pool: at the end of a transaction, after a clean, after a login. Such a server
//! is cleaned if needed, and then goes to a waiter of this or another worker, becomes idle, or is closed.

use std::sync::Arc;

use pgweir_config::{HandoverClean, PoolMode};

use super::{Lending, scheduling_log::Decision};
use crate::{
    Action, Actions, ReadMode, SharedPool, Time, Token, WorkerId,
    backend::{Phase, Server, Settling},
    base::{fault::Fault, stats::TextCounts},
    connections::Conn,
    effect::{ClientEffect, Effect, PoolEffect, RestartEffect, SessionEffect},
    pool::{Grant, PoolId, Waiter},
    pooling::EVICTED,
    server_connections::role_settings,
    session::Class,
};

impl Lending<'_> {
    /// Releases the server like [`Self::release_if_done`], if it is still lent to this client.
    pub(crate) fn release_if_lent_to(&mut self, client: Token, conn: Token, out: &mut Actions) {
        let server = self.connections.server(conn);
        if server.is_some_and(|server| server.relays_for() == Some(client)) {
            self.release_if_done(conn, out);
        }
    }

    /// Releases the server at the end of a transaction, if the pool's mode allows that.
    #[inline]
    pub(crate) fn release_if_done(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let Some(client_conn) = server.relays_for() else {
            return;
        };
        if server.replies.is_awaited() && server.link.has_announced_end() {
            // The server accepts no further requests. When it has closed the connection, the client's pending request
            // is sent to another server.
            return;
        }
        if server.replies.take_awaited() {
            return self.begin_relaying(client_conn, conn, out);
        }
        // If the server has sent only a part of a message, the rest must arrive first: another client must not get it.
        if !server.replies.is_settled()
            || !server.is_outside_transaction()
            || server.is_exclusive()
            || !server.stream.is_quiet()
        {
            return;
        }
        server.session.check_certificates(&server.shared.catalog);
        let is_retired = server.retirement.is_required();
        let is_uninspected = server.session.loan.inspection.is_missing();
        let is_costly = server.session.loan.take_known_settings()
            || server.session.changes.needs_clean()
            || server.session.loan.turn_until().is_some();
        let texts = server.session.clean.take_texts();
        let pool = self.pools.get_mut(server.pool());
        let (is_shared, keeps) = pool.map_or((false, false), |pool| {
            if texts != TextCounts::default() {
                pool.stats.now.add_texts(&texts);
            }
            (pool.terms.mode != PoolMode::Session, pool.keeps_servers())
        });
        let Some(client) = self.connections.client(client_conn) else {
            return out.report_missing("the client of a server that relays");
        };
        let context = client.context.as_deref_mut();
        let is_pinned = context.is_some_and(|own| own.is_pinned() && own.stays_pinned());
        let is_carried = client.context.is_some();
        let is_kept = is_pinned || keeps && is_carried && !is_retired;
        let is_at_boundary = client.socket.stream.is_at_boundary();
        if is_uninspected && is_carried && is_at_boundary {
            let inspect = SessionEffect::Inspect(Settling::default());
            return self.effects.push(Effect::Session(conn, inspect));
        }
        if is_shared && is_costly && is_carried && is_at_boundary && !client.socket.is_blocked() {
            let keep = SessionEffect::KeepOrRelease { is_pinned, is_kept };
            return self.effects.push(Effect::Session(conn, keep));
        }
        match is_shared {
            true => self.release_shared(conn, is_pinned, is_kept, out),
            false => self.end_transaction_of_session(client_conn, conn, out),
        }
    }

    /// Releases a server at the end of a transaction in transaction mode, unless its client keeps the server.
    #[inline(always)]
    pub(crate) fn release_shared(
        &mut self,
        conn: Token,
        is_pinned: bool,
        is_kept: bool,
        out: &mut Actions,
    ) {
        let Some((client_conn, client, server)) = self.connections.known_pair_of(conn, out) else {
            return;
        };
        // A client that reads slowly keeps its server until it has read everything. So the number of servers bounds the
        // number of buffers with unsent bytes.
        if client.socket.is_blocked() || is_kept || !client.socket.stream.is_at_boundary() {
            let is_newly_pinned = is_pinned && !server.session.lists.is_counted();
            if is_pinned && server.unsettled_since().is_none() {
                server.enter(Phase::Dedicated {
                    unsettled_since: None,
                });
            }
            self.note_kept(client_conn, conn, is_newly_pinned, out);
            return self.note_request_done(client_conn);
        }
        debug_assert_eq!(client.unfinished(), None, "at the end of a loan");
        client.become_idle();
        out.read(client_conn, ReadMode::Notify);
        self.log_given_back(client_conn, conn, out);
        self.give_back(conn, false, out);
        self.note_request_done(client_conn);
    }

    /// Counts and logs that a client keeps its server after a transaction.
    fn note_kept(&mut self, client: Token, conn: Token, is_newly_pinned: bool, out: &mut Actions) {
        if is_newly_pinned {
            self.log_newly_kept(client, conn, out);
            let count = SessionEffect::CountPinned;
            self.effects.push(Effect::Session(conn, count));
        } else {
            self.log_kept(client, conn, out);
        }
    }

    /// Handles the end of a transaction in session mode: the client keeps its server, unless the server is outdated.
    fn end_transaction_of_session(&mut self, client: Token, conn: Token, out: &mut Actions) {
        self.log_kept(client, conn, out);
        self.note_request_done(client);
        self.close_if_outdated(conn);
    }

    /// Allows a client whose request is answered to move to the new process of an online restart, or ends the client if
    /// the process is drained.
    #[inline]
    fn note_request_done(&mut self, client: Token) {
        if self.env.hands_clients_over {
            let done = Effect::Restart(RestartEffect::RequestDone(client));
            self.effects.push(done);
        } else if self
            .env
            .directory
            .operator()
            .departures()
            .leaves_after_transaction(self.env.now)
        {
            let end = ClientEffect::EndClient(client, Box::new(Fault::Terminated));
            self.effects.push(Effect::Client(end));
        }
    }

    /// Cleans a server without a client if needed, and passes it on.
    #[inline]
    pub(crate) fn give_back(&mut self, conn: Token, was_session: bool, out: &mut Actions) {
        let settings = &self.env.snapshot.config.settings;
        let wants_reset = was_session || settings.server_reset_query_always;
        let cleans = settings.handover_clean == HandoverClean::Always;
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let lasting = &server.session.lasting;
        if lasting.outlives_clean()
            || lasting.types.suit_nobody()
            || server.session.changes.class() == Class::Opaque
        {
            self.retire_if_unclean(conn, false);
        }
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        server.times.note_freed(self.env.now);
        if server.uncount_pinned() {
            server.retirement.require("above pool_size");
        }
        if cleans {
            // The statements that pgweir has prepared stay on the server; the clean removes all others.
            server.session.changes.raise(Class::Opaque);
        }
        if server.replies.is_uncertain() {
            server.retirement.require("unexpected replies may follow");
        }
        if wants_reset {
            server.next_loan.demand_reset();
        }
        if server.next_loan.needs_reset() || server.session.is_to_clean() {
            self.begin_cleaning(conn, out);
        } else {
            server.become_idle();
            self.place_server(conn, out);
        }
    }

    /// Gives a clean server to a waiter, makes it idle, or closes it.
    #[inline]
    pub(crate) fn place_server(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        server.end_announcement();
        if server.next_loan.awaits_cancels() {
            // A cancel request that is on its way to this server must not cancel the query of the next client.
            let never = Time(u64::MAX);
            (self.connections).begin_cleaning(conn, never, self.env.now, out);
            return;
        }
        role_settings::end_ddl(&self.env, server, out);
        server.become_idle();
        if let Some(why) = server.retirement.reason() {
            return self.effects.push(Effect::close(conn, why));
        }
        if self.env.waits_for_servers() {
            return (self.effects).push(Effect::close(conn, "pause mode"));
        }
        debug_assert_eq!(server.unfinished(), None, "at the end of a loan");
        let interval = self.env.snapshot.config.settings.catalog_check_interval.0;
        if let Some(pool) = self.pools.get_mut(server.pool()) {
            pool.use_current_catalog();
            if pool.catalog.due <= self.env.now && interval > 0 {
                let read = SessionEffect::ReadCatalogOrLend;
                return self.effects.push(Effect::Session(conn, read));
            }
        }
        self.place_ready_server(conn, out);
    }

    /// Gives a server that can be lent at once to a waiter, makes it idle, or closes it.
    #[inline(always)]
    pub(crate) fn place_ready_server(&mut self, conn: Token, out: &mut Actions) {
        let now = self.env.now;
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(server.pool()) else {
            return out.report_missing("the pool of a server that is free");
        };
        // A lifetime of 0 means that the server is lent once.
        if server.times.was_lent() && pool.terms.server_end(server) <= now {
            // The next check opens the successor, and closes the server later. In session mode there may be no check soon.
            let terms = &pool.terms;
            if terms.mode == PoolMode::Session || !terms.needs_successor(server, now) {
                return (self.effects).push(Effect::close(conn, "server lifetime over"));
            }
        }
        if pool.orders.paused {
            let operator = self.env.directory.operator();
            if operator.is_halted(&pool.shared.key.database) {
                return (self.effects).push(Effect::close(conn, "pause mode"));
            }
        } else if !pool.offers_to_ledger {
            return pool.idle.push(conn);
        }
        self.offer(conn, out);
    }

    /// Offers a free server to the clients that wait on any worker.
    fn offer(&mut self, conn: Token, out: &mut Actions) {
        let (worker, now) = (self.env.worker, self.env.now);
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let (shared, was_lent) = (Arc::clone(&server.shared), server.times.was_lent());
        loop {
            let grant = {
                let mut ledger = shared.ledger.lock();
                if ledger.is_above_size() {
                    None
                } else if was_lent {
                    Some(ledger.offer(worker, now))
                } else {
                    Some(ledger.offer_fresh(worker, now))
                }
            };
            match grant {
                None => {
                    return (self.effects).push(Effect::close(conn, "above pool_size"));
                }
                Some(Grant::Keep) => {
                    if let Some(pool) = self.pools.get_mut(shared.id) {
                        pool.offers_to_ledger = false;
                        pool.idle.push(conn);
                    }
                    return;
                }
                Some(Grant::Evict) => {
                    if let Some(pool) = self.pools.get_mut(shared.id) {
                        pool.stats.now.eviction_count += 1;
                    }
                    return self.effects.push(Effect::close(conn, EVICTED));
                }
                Some(Grant::OwnWaiter(waiter)) => {
                    if self.serve_waiter(conn, waiter, out) {
                        return;
                    }
                }
                Some(Grant::OtherWaiter(to, waiter)) => {
                    return self.move_server(conn, to, waiter, out);
                }
            }
        }
    }

    /// Moves a free server to the worker of the client that gets it.
    fn move_server(&mut self, conn: Token, to: WorkerId, waiter: Waiter, out: &mut Actions) {
        self.log_decision(conn, Decision::Moves(to), out);
        let Some(Conn::Server(mut server)) = self.connections.remove(conn) else {
            return;
        };
        server.next_loan.set_destination(waiter);
        if let Some(pool) = self.pools.get_mut(server.pool()) {
            pool.remove_server(self.env.now);
            pool.stats.now.server_move_count += 1;
        }
        out.list.push(Action::MoveServer { conn, to, server });
    }

    /// Takes a server that another worker has moved to this one, and gives it to the client that waits for it.
    pub(crate) fn adopt(&mut self, mut server: Box<Server>, out: &mut Actions) -> Token {
        let destined = server.next_loan.take_destination();
        // The server was in a list of the previous worker.
        server.session.lists.unlist();
        let shared = Arc::clone(&server.shared);
        self.open_pool(&shared).add_server();
        server.retire_if_outdated();
        let conn = (self.connections).insert(Conn::Server(server), self.env.now);
        self.connections.schedule(self.env.now);
        self.effects.push(Effect::FreezeIfSuspended(conn));
        out.read(conn, ReadMode::Deliver);
        let is_used = destined.is_some_and(|waiter| self.serve_waiter(conn, waiter, out));
        if !is_used {
            self.place_server(conn, out);
        }
        conn
    }

    /// Offers all idle and kept servers to the ledger: clients of some worker wait.
    pub(crate) fn offer_all_servers(&mut self, shared: &Arc<SharedPool>) {
        self.open_pool(shared).offers_to_ledger = true;
        let effects = [
            PoolEffect::OfferIdleServers,
            PoolEffect::SettleForWaiters,
            PoolEffect::AnswerLedger,
        ];
        let effects = effects.map(|effect| Effect::Pool(shared.id, effect));
        self.effects.extend(effects);
    }

    /// Offers one idle server of a pool to the ledger. Returns `false` if there is none, or no client waits. The effects
    /// must be carried out before the next server is offered: the ledger then knows whether this one was closed.
    pub(crate) fn offer_idle_server(&mut self, id: PoolId, out: &mut Actions) -> bool {
        let pool = self.pools.get_mut(id);
        let idle = pool
            .filter(|pool| pool.offers_to_ledger)
            .and_then(|pool| pool.idle.pop());
        if let Some(server) = idle {
            self.place_server(server, out);
        }
        idle.is_some()
    }

    /// Informs the ledger that this worker has offered all of its free servers: so the ledger can decide whether to
    /// open another one.
    pub(crate) fn answer_ledger(&mut self, id: PoolId, out: &mut Actions) {
        let Some(pool) = self.pools.known(id, out) else {
            return;
        };
        let shared = Arc::clone(&pool.shared);
        let notes = (shared.ledger.lock()).answered(self.env.worker, self.env.now);
        self.deliver(&notes, &shared, out);
        self.offer_kept_servers(id);
    }
}
