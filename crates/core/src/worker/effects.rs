//! The worker lends its parts to the module that handles an event ([`Parts`]), and carries out the effects that the
//! module returns.

use super::Worker;
use crate::{
    Actions, Time,
    cancel_requests::CancelRequests,
    client_listen::ListeningClients,
    client_timeouts,
    connections::Connections,
    effect::{Effect, Env},
    listeners::Listeners,
    parked_logins::ParkedLogins,
    pooling::{self, LocalPools},
    statistics::Statistics,
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
    pub(crate) statistics: &'w mut Statistics,
    pub(crate) parked_logins: &'w mut ParkedLogins,
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
                Effect::EndClient(client, fault) => {
                    let parts = self.parts(now);
                    let (env, connections) = (&parts.env, parts.connections);
                    let effects = client_timeouts::end_client(env, connections, client, fault, out);
                    self.carry_out(effects, now, out);
                }
                Effect::DismissFor(client, fault) => {
                    self.close_client(client, &fault.to_string(), now, out);
                }
                Effect::EndHungUpClient(client) => self.end_hung_up_clients(client, now, out),
                Effect::Diagnose(pool) => self.diagnose(pool, now, out),
                Effect::CloseServer(server, why) => self.close_server(server, why, now, out),
                Effect::CloseServerFor(server, fault) => {
                    self.close_server(server, &fault.to_string(), now, out);
                }
                Effect::Retire(server, why) => self.retire(server, why, now, out),
                Effect::CloseIfOutdated(server) => self.close_if_outdated(server, now, out),
                Effect::EndServerLogin(server) => self.server_login_overdue(server, now, out),
                Effect::FailCheck(server) => {
                    self.check_failed(server, "server check timeout", now, out);
                }
                Effect::EndCancelRequest(request) => {
                    let parts = self.parts(now);
                    let (env, connections) = (&parts.env, parts.connections);
                    let requests = parts.cancel_requests;
                    let effect = requests.overdue(env, connections, request, out);
                    self.carry_out(effect, now, out);
                }
                Effect::OfferKeptServers(pool) => self.offer_kept_servers(pool, now, out),
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

    /// Returns what modules may read of the worker.
    pub(crate) fn env(&self, now: Time) -> Env<'_> {
        Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            now,
        }
    }

    /// Splits the worker into the modules that own their state, their connections, and their environment.
    pub(crate) fn parts(&mut self, now: Time) -> Parts<'_> {
        Parts {
            env: Env {
                worker: self.id,
                directory: &self.directory,
                snapshot: &self.snapshot,
                now,
            },
            connections: &mut self.table,
            pools: &mut self.pools,
            cancel_requests: &mut self.cancel_requests,
            listening_clients: &mut self.listening_clients,
            listeners: &mut self.listeners,
            statistics: &mut self.statistics,
            parked_logins: &mut self.parked_logins,
            suspension: &mut self.suspension,
        }
    }
}
