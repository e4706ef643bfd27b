//! The worker lends its parts to the module that handles an event ([`Parts`]), and carries out the effects that the
//! module returns.

use std::sync::Arc;

use super::Worker;
use crate::{
    Actions, SharedPool, Time, Token,
    cancel_requests::CancelRequests,
    client_listen::ListeningClients,
    client_timeouts,
    connections::Connections,
    effect::{Effect, Env, PoolEffect},
    listeners::Listeners,
    login::{ClientLogins, LoginEvent, refuse_waiters},
    online_restart::OnlineRestart,
    operator_orders,
    pool::PoolId,
    pooling::{self, LocalPools},
    reconfiguration, role_settings,
    session::Bindings,
    shutdown::ShutdownState,
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
    pub(crate) logins: &'w mut ClientLogins,
    pub(crate) suspension: &'w mut Suspension,
    pub(crate) shutdown: &'w mut ShutdownState,
    pub(crate) online_restart: &'w mut OnlineRestart,
    pub(crate) bindings: &'w mut Bindings,
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
                Effect::DismissFor(client, fault) => {
                    self.close_client(client, &fault.to_string(), now, out);
                }
                Effect::Refuse(client, fault) => self.refuse(client, &fault, now, out),
                Effect::EndClient(client, fault) => self.dispatch(now, out, |parts, out| {
                    client_timeouts::end_client(&parts.env, parts.connections, client, fault, out)
                }),
                Effect::JoinPool(client, asked) => self.join_pool(client, asked, now, out),
                Effect::WaitAtLogin(client, pool) => self.wait(client, pool, true, now, out),
                Effect::CheckOut(client) => self.check_out(client, now, out),
                Effect::ServeConsole(client, early) => self.serve_console(client, &early, now, out),
                Effect::EndHungUpClient(client) => self.end_hung_up_clients(client, now, out),
                Effect::CloseServer(server, why) => self.close_server(server, why, now, out),
                Effect::CloseServerFor(server, fault) => {
                    self.close_server(server, &fault.to_string(), now, out);
                }
                Effect::CloseIfCleaning(server) => self.close_if_cleaning(server, now, out),
                Effect::CloseIfOutdated(server) => self.close_if_outdated(server, now, out),
                Effect::Retire(server, why) => self.retire(server, why, now, out),
                Effect::RetireRedefinedServer(server) => {
                    let effect = role_settings::retire_server(&mut self.table, server);
                    self.carry_out(effect, now, out);
                }
                Effect::EndServerLogin(server) => self.server_login_overdue(server, now, out),
                Effect::FailCheck(server) => {
                    self.check_failed(server, "server check timeout", now, out);
                }
                Effect::EndCancelRequest(request) => self.dispatch(now, out, |parts, out| {
                    let requests = parts.cancel_requests;
                    requests.overdue(&parts.env, parts.connections, request, out)
                }),
                Effect::Pool(pool, effect) => self.carry_out_in_pool(pool, effect, now, out),
                Effect::PlaceServer(server) => self.place_server(server, now, out),
                Effect::CheckConsole(console) => self.console_awaited(console, now, out),
                Effect::EndConsoleCommand(client) => self.cancel_console(client, now, out),
                Effect::DiscardRequest(client) => self.discard_request(client, now, out),
                Effect::Settle(server) => self.release_if_done(server, now, out),
                Effect::GoOnCleaning(server) => self.continue_cleaning(server, now, out),
                Effect::ServerFault(server, what) => self.server_fault(server, &what, now, out),
                Effect::OpenListener(opening) => self.open_listener(*opening, now, out),
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
                } => self.count_reasons(client, server, pins, now, out),
                Effect::Restart(effect) => self.carry_out_in_restart(effect, now, out),
                Effect::EndSearch(search) => {
                    pooling::end_search(&self.parts(now).env, *search, out);
                }
                Effect::GoOnSearching(search) => {
                    let parts = self.parts(now);
                    let (env, connections) = (&parts.env, parts.connections);
                    parts.pools.go_on_searching(env, connections, *search, out);
                }
            }
        }
    }

    /// Carries out what one module wants another module to do with a pool.
    fn carry_out_in_pool(
        &mut self,
        pool: PoolId,
        effect: PoolEffect,
        now: Time,
        out: &mut Actions,
    ) {
        let (env, connections, pools) = {
            let parts = self.parts(now);
            (parts.env, parts.connections, parts.pools)
        };
        let effects = match effect {
            PoolEffect::ApplyOrders => {
                operator_orders::apply_to_pool(&env, connections, pools, pool, out)
            }
            PoolEffect::ApplyLimits => reconfiguration::apply_limits(&env, pools, pool, out),
            PoolEffect::PlaceIdleAgain => pools.place_idle_again(pool),
            PoolEffect::RetireOutdated => {
                operator_orders::retire_outdated(connections, pools, pool)
            }
            PoolEffect::RetireRedefined => {
                role_settings::retire_redefined(connections, pools, pool)
            }
            PoolEffect::ReleaseKept => return self.release_kept(pool, now, out),
            PoolEffect::ServeHeldClients => return self.release_held(pool, now, out),
            PoolEffect::FreeKeptServers => return self.free_kept(pool, now, out),
            PoolEffect::UpdateSharing => {
                let shared = pools.get(pool).map(|pool| Arc::clone(&pool.shared));
                return shared.map_or((), |shared| self.update_sharing(&shared, now, out));
            }
            PoolEffect::Diagnose => return self.diagnose(pool, now, out),
            PoolEffect::OfferKeptServers => return self.offer_kept_servers(pool, now, out),
        };
        self.carry_out(effects, now, out);
    }

    /// Closes a server connection as soon as it is not in use, and logs the reason.
    fn retire(&mut self, server: Token, why: &'static str, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, parts.connections);
        let effect = operator_orders::retire(env, connections, parts.listeners, server, why);
        self.carry_out(effect, now, out);
    }

    /// Passes an event to a module, and carries out the effects that the module returns.
    pub(crate) fn dispatch<Effects: IntoIterator<Item = Effect>>(
        &mut self,
        now: Time,
        out: &mut Actions,
        event: impl FnOnce(Parts<'_>, &mut Actions) -> Effects,
    ) {
        let effects = event(self.parts(now), out);
        self.carry_out(effects, now, out);
    }

    /// Returns what modules may read of the worker.
    pub(crate) fn env(&self, now: Time) -> Env<'_> {
        Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            shutdown: self.shutdown.order(),
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
                shutdown: self.shutdown.order(),
                now,
            },
            connections: &mut self.table,
            pools: &mut self.pools,
            cancel_requests: &mut self.cancel_requests,
            listening_clients: &mut self.listening_clients,
            listeners: &mut self.listeners,
            statistics: &mut self.statistics,
            logins: &mut self.logins,
            suspension: &mut self.suspension,
            shutdown: &mut self.shutdown,
            online_restart: &mut self.online_restart,
            bindings: &mut self.bindings,
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
