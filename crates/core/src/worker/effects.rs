//! The worker as a router: it splits itself into the modules that own their state, for one event, and carries out
//! what these modules want each other to do.

use super::Worker;
use crate::{
    Actions, SharedPool, Time,
    cancel_requests::CancelRequests,
    client_listen::ListeningClients,
    connections::Connections,
    effect::{Effect, Env},
    listeners::Listeners,
    login::{ClientLogins, LoginEvent, refuse_waiters},
    pooling::{self, LocalPools},
    suspension::Suspension,
};

/// Mutable references to a worker's parts, for modules that own their state.
pub(crate) struct Parts<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) cancel_requests: &'w mut CancelRequests,
    pub(crate) listening_clients: &'w mut ListeningClients,
    pub(crate) listeners: &'w mut Listeners,
    pub(crate) logins: &'w mut ClientLogins,
    pub(crate) suspension: &'w mut Suspension,
}

impl Worker {
    /// Carries out what one module wants another module to do.
    pub(crate) fn carry_out(
        &mut self,
        effects: impl IntoIterator<Item = Effect>,
        now: Time,
        out: &mut Actions,
    ) {
        for effect in effects {
            match effect {
                Effect::Dismiss(client, why) => self.close_client(client, why, now, out),
                Effect::Refuse(client, fault) => self.refuse(client, &fault, now, out),
                Effect::EndClient(client, fault) => self.end_client(client, &fault, now, out),
                Effect::JoinPool(client, asked) => self.join_pool(client, asked, now, out),
                Effect::WaitAtLogin(client, pool) => self.wait(client, pool, true, now, out),
                Effect::CheckOut(client) => self.check_out(client, now, out),
                Effect::ServeConsole(client, early) => self.serve_console(client, &early, now, out),
                Effect::ApplyOrders(pool) => self.apply_orders_to_pool(pool, now, out),
                Effect::AnnounceShutdown(how) => self.announce_shutdown(how, out),
                Effect::CloseServer(server, why) => self.close_server(server, why, now, out),
                Effect::ServerFault(server, what) => self.server_fault(server, &what, now, out),
                Effect::OpenListener(opening) => self.open_listener(*opening, now, out),
                Effect::EndConsoleCommand(client) => self.cancel_console(client, now, out),
                Effect::DiscardRequest(client) => self.discard_request(client, now, out),
                Effect::Settle(server) => self.release_if_done(server, now, out),
                Effect::GoOnCleaning(server) => self.continue_cleaning(server, now, out),
                Effect::EndSearch(search) => {
                    pooling::end_search(&self.parts(now).env, *search, out);
                }
                Effect::FreeKeptServers(pool) => self.free_kept(pool, now, out),
                Effect::GoOnSearching(search) => {
                    let parts = self.parts(now);
                    parts
                        .pools
                        .go_on_searching(&parts.env, parts.connections, *search, out);
                }
                Effect::Equip { server, client } => drop(self.equip(server, client, now, out)),
                Effect::RelayEarly(client, early) => {
                    self.relay_early(client, Some(early), now, out)
                }
                Effect::FinishWithFence(server) => self.finish_with_fence(server, now, out),
                Effect::FinishRequest(server) => self.finish_fenced_request(server, now, out),
                Effect::Count(pool, counted) => {
                    if let Some(pool) = self.pool(pool) {
                        pool.stats.now += *counted;
                    }
                }
                Effect::CountPins {
                    client,
                    server,
                    pins,
                } => {
                    self.count_reasons(client, server, pins, now, out);
                }
                Effect::ForwardNotification(client, message) => {
                    self.forward(client, &message, now, out)
                }
                Effect::ForwardedAnswered(question, granted) => {
                    self.forward_answered(question, granted, now, out);
                }
                Effect::ForwardedLost(client, why) => {
                    self.fail_forwarded_client(client, &why, now, out);
                }
                Effect::TakenOverListens(client, granted) => {
                    self.arriving_answered(client, granted, now, out);
                }
                Effect::TakenOverFenced(client) => self.finish_listen_takeover(client, now, out),
            }
        }
    }

    /// Splits the worker into the modules that own their state, their connections, and their environment.
    pub(crate) fn parts(&mut self, now: Time) -> Parts<'_> {
        Parts {
            env: Env {
                worker: self.id,
                directory: &self.directory,
                snapshot: &self.snapshot,
                shutdown: self.shutdown,
                now,
            },
            connections: &mut self.table,
            pools: &mut self.pools,
            cancel_requests: &mut self.cancel_requests,
            listening_clients: &mut self.listening_clients,
            listeners: &mut self.listeners,
            logins: &mut self.logins,
            suspension: &mut self.suspension,
        }
    }

    /// Passes an event of a client that logs in to the module for logins, and carries out what follows.
    pub(crate) fn log_in<R>(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut LoginEvent<'_>, &mut Actions) -> R,
    ) -> R {
        let parts = self.parts(now);
        let mut event = LoginEvent {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            cancel_requests: parts.cancel_requests,
            logins: parts.logins,
            effects: Vec::new(),
        };
        let result = handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
        result
    }
    /// Counts parked logins again once all workers have processed pending disconnects.
    pub(super) fn count_parked_logins(&mut self, now: Time, out: &mut Actions) {
        for parked in self.logins.pending_processed() {
            // A login that is refused makes room for the next one.
            self.log_in(now, out, |event, out| event.count_again(parked, out));
        }
        let parts = self.parts(now);
        parts.logins.ask_for_pending(&parts.env, out);
    }

    /// Refuses clients that wait for servers of a pool to which logins fail.
    pub(super) fn refuse_waiters(&mut self, pool: &SharedPool, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let refused = refuse_waiters(&parts.env, parts.connections, pool);
        self.carry_out(refused, now, out);
    }
}
