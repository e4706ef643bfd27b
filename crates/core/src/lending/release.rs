//! Server connections come back to their pool: at the end of a transaction, after a clean, after a login. They are
//! cleaned if needed, and then go to a waiter of this or another worker, become idle, or are closed.

use std::sync::Arc;

use pgweir_config::{HandoverClean, PoolMode, Unclean};

use super::{Worker, pins::uncount_kept, scheduling::Decision};
use crate::{
    Action, Actions, ReadMode, SharedPool, Time, Token,
    backend::{Duty, Settling},
    frontend::ClientDuty,
    pool::{Grant, PoolId},
    pooling::EVICTED,
    session::Class,
};

impl Worker {
    /// Releases the server at the end of a transaction, if the pool's mode allows that.
    #[inline]
    pub(crate) fn release_if_done(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let Some(client_conn) = server.relays_for() else {
            return;
        };
        if server.replies.is_awaited() && server.link.last_words.is_some() {
            // The server accepts no further requests. The client's pending request is sent to another server when
            // this one is gone.
            return;
        }
        if server.replies.take_awaited() {
            return self.accept_moved_server(client_conn, server_conn, now, out);
        }
        if !server.replies.is_settled() || server.status != b'I' || server.purpose.owner.is_some() {
            return;
        }
        let generation = server.shared.catalog.generation();
        server.session.check_certificates(generation);
        let (pool, is_counted) = (server.pool(), server.session.inspections.is_counted);
        let (is_retired, is_unjudged) = (
            server.retirement.reason.is_some(),
            server.session.inspections.is_missing,
        );
        let is_costly = server.session.dirt.needs_clean()
            || server.session.inspections.turn_until.is_some()
            || std::mem::take(&mut server.session.settings.are_new);
        let (sharing, keeps) = self.pool(pool).map_or((false, false), |pool| {
            (pool.terms.mode != PoolMode::Session, pool.keeps_servers())
        });
        let Some(client) = self.table.client(client_conn) else {
            return;
        };
        let context = client.context.as_deref_mut();
        let is_pinned = context.is_some_and(|own| own.is_pinned() && own.stays_pinned());
        let is_kept = is_pinned || keeps && client.context.is_some() && !is_retired;
        let is_carried = client.context.is_some();
        let is_at_rest = client.socket.stream.is_at_boundary() && !client.socket.blocked;
        if is_unjudged && is_carried && client.socket.stream.is_at_boundary() {
            return self.inspect_late(server_conn, Settling::default(), now, out);
        }
        if sharing
            && is_costly
            && is_carried
            && is_at_rest
            && self.stays_kept(server_conn, is_pinned, now, out)
        {
            return;
        }
        let Some((client, _)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        // A client that reads slowly keeps its server until it has read everything. So the number of servers bounds
        // what is buffered for clients.
        if !sharing || client.socket.blocked || is_kept || !client.socket.stream.is_at_boundary() {
            if is_pinned {
                self.become_dedicated(server_conn);
            }
            if !sharing {
                if self.logs_scheduling {
                    self.log_kept(client_conn, server_conn, now, out);
                }
                if let Some(handover) = &mut self.handover_out {
                    handover.done.push(client_conn);
                }
                self.close_if_outdated(server_conn, now, out);
            } else if is_pinned && !is_counted {
                self.count_kept(server_conn, now, out);
            } else if self.logs_scheduling {
                self.log_kept(client_conn, server_conn, now, out);
            }
            return;
        }
        client.duty = ClientDuty::Idle;
        out.read(client_conn, ReadMode::Notify);
        if self.logs_scheduling {
            self.log_given_back(client_conn, server_conn, now, out);
        }
        self.give_back(server_conn, false, now, out);
        if let Some(handover) = &mut self.handover_out {
            handover.done.push(client_conn);
        }
    }

    /// Cleans a server without a client if needed, and passes it on.
    #[inline]
    pub(crate) fn give_back(
        &mut self,
        conn: Token,
        was_session: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let settings = &self.snapshot.config.settings;
        let wants_reset = was_session || settings.server_reset_query_always;
        let cleans = settings.handover_clean == HandoverClean::Always;
        let closes = self.may_survive_clean(conn);
        if closes {
            self.count_unclean_close(conn);
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.times.freed_at = now;
        if uncount_kept(server) {
            server.retirement.reason.get_or_insert("above pool_size");
        }
        server.session.recent_texts.clear();
        server.session.inspections.turn_until = None;
        server.session.unclean |= cleans;
        if closes {
            server
                .retirement
                .reason
                .get_or_insert("its session may keep what no clean takes away");
        }
        if server.replies.is_uncertain() {
            server
                .retirement
                .reason
                .get_or_insert("unexpected replies may follow");
        }
        if wants_reset || server.next_loan.needs_reset || server.session.is_to_clean() {
            server.next_loan.needs_reset |= wants_reset;
            self.begin_cleaning(conn, now, out);
        } else {
            server.duty = Duty::Idle;
            self.place_server(conn, now, out);
        }
    }

    /// Counts a server that is about to be retired because no clean restores its session.
    #[cold]
    pub(super) fn count_unclean_close(&mut self, conn: Token) {
        let server = self.table.server(conn);
        let server = server.filter(|server| server.retirement.reason.is_none());
        let pool = server.map(|server| server.pool());
        if let Some(pool) = pool.and_then(|pool| self.pool(pool)) {
            pool.stats.now.unclean_close_count += 1;
        }
    }

    /// Returns whether a client may have left something in this server's session that no clean takes away. Any text
    /// that is not certified may have done so, in a database with code whose effects are unknown, or under other
    /// rules for string literals than at login.
    pub(super) fn may_survive_clean(&mut self, conn: Token) -> bool {
        let ignores = self.snapshot.config.settings.unclean == Unclean::Ignore;
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        if server.session.lasting.outlives_clean {
            return true;
        }
        if server.session.dirt.class() != Class::Opaque {
            return false;
        }
        let may_have_misread = server.session.lasting.may_have_misread_bodies;
        let id = server.pool();
        let Some(pool) = self.pool(id) else {
            return may_have_misread;
        };
        pool.use_current_catalog();
        let has_misread = may_have_misread && !pool.certificates.has_no_functions();
        has_misread || !ignores && pool.certificates.unclean_reason().is_some()
    }

    /// Gives a clean server to a waiter, makes it idle, or closes it.
    #[inline]
    pub(crate) fn place_server(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let pool_id = server.pool();
        server.ends_reading();
        // A lifetime of 0 means that the server is lent once.
        let was_lent = server.times.lent_at > server.times.connected_at;
        let (id, age) = (server.id, now.since(server.times.connected_at));
        if server.next_loan.cancels > 0 {
            // A cancel request is on its way to this server, and must not hit the next client's query.
            server.duty = Duty::Cleaning {
                until: Time(u64::MAX),
                rolled_back: false,
            };
            return self.schedule(now);
        }
        server.session.transaction.ddl = None;
        server.duty = Duty::Idle;
        if let Some(why) = server.retirement.reason {
            return self.close_server(conn, why, now, out);
        }
        if self.shutdown.waits_for_servers() {
            return self.close_server(conn, "pause mode", now, out);
        }
        if self.reads_catalog(conn, pool_id, now, out) {
            return;
        }
        match self.pool(pool_id) {
            Some(pool) if was_lent && pool.terms.end_age(id) <= age => {
                self.close_server(conn, "server lifetime over", now, out);
            }
            Some(pool) if pool.paused => {
                let database = pool.shared.key.database.clone();
                if self.directory.operator().is_halted(&database) {
                    return self.close_server(conn, "pause mode", now, out);
                }
                self.offer(conn, pool_id, now, out);
            }
            Some(pool) if !pool.offers_to_ledger => pool.idle.push(conn),
            Some(_) => self.offer(conn, pool_id, now, out),
            None => {}
        }
    }

    fn offer(&mut self, conn: Token, pool_id: PoolId, now: Time, out: &mut Actions) {
        let worker = self.id;
        let Some(shared) = self.pool(pool_id).map(|pool| Arc::clone(&pool.shared)) else {
            return;
        };
        let server = self.table.server(conn);
        let was_lent =
            server.is_some_and(|server| server.times.lent_at > server.times.connected_at);
        loop {
            let (grant, surplus) = {
                let mut ledger = shared.ledger.lock();
                let surplus = ledger.is_above_size();
                (
                    if surplus {
                        Grant::Keep
                    } else if was_lent {
                        ledger.offer(worker, now)
                    } else {
                        ledger.offer_fresh(worker, now)
                    },
                    surplus,
                )
            };
            match grant {
                Grant::Keep if surplus => {
                    return self.close_server(conn, "above pool_size", now, out);
                }
                Grant::Keep => {
                    if let Some(pool) = self.pool(pool_id) {
                        pool.offers_to_ledger = false;
                        pool.idle.push(conn);
                    }
                    return;
                }
                Grant::Evict => {
                    if let Some(pool) = self.pool(pool_id) {
                        pool.stats.now.eviction_count += 1;
                    }
                    return self.close_server(conn, EVICTED, now, out);
                }
                Grant::OwnWaiter(waiter) => {
                    if self.lend_to(conn, waiter, now, out) {
                        return;
                    }
                }
                Grant::OtherWaiter(to, waiter) => {
                    if self.logs_scheduling {
                        self.log_decision(conn, Decision::Moves(to), now, out);
                    }
                    let Some(super::Conn::Server(mut server)) = self.table.remove(conn) else {
                        return;
                    };
                    server.next_loan.destined = Some(waiter);
                    if let Some(pool) = self.pool(pool_id) {
                        pool.servers -= 1;
                        pool.stats.now.server_move_count += 1;
                        pool.empty_since = now;
                    }
                    out.list.push(Action::MoveServer { conn, to, server });
                    return;
                }
            }
        }
    }

    /// Offers all idle and kept servers to the ledger: clients of some worker wait.
    pub(crate) fn offer_all_servers(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let pool = self.local_pool(shared, now);
        pool.offers_to_ledger = true;
        let pool_id = shared.id;
        while let Some(server) = self
            .pool(pool_id)
            .filter(|pool| pool.offers_to_ledger)
            .and_then(|pool| pool.idle.pop())
        {
            self.place_server(server, now, out);
        }
        self.settle_for_waiters(pool_id, now, out);
        let notes = shared.ledger.lock().answered(self.id, now);
        self.deliver(notes, shared, out);
        // Only now is it known whether another server may be opened instead.
        self.offer_kept_servers(pool_id, now, out);
    }
}
