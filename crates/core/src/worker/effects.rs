//! The worker lends its parts to the module that handles an event ([`Parts`]), and carries out the effects that the
//! module returns.

use std::sync::Arc;

use super::Worker;
use crate::{
    Action, Actions, Closed, SharedPool, Time, Token,
    cancel_requests::CancelRequests,
    client_listen::ListeningClients,
    client_timeouts,
    connections::Connections,
    effect::{Effect, Env, PoolEffect, RestartEffect},
    exchange::{Exchange, count_pins},
    listeners::Listeners,
    login::{ClientLogins, LoginEvent, refuse_waiters},
    operator_orders,
    pool::PoolId,
    pooling::{self, LocalPools},
    reconfiguration,
    relay::{Relay, ServerBytes},
    role_settings,
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
                Effect::FailCheck(server, why) => self.check_failed(server, why, now, out),
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
                Effect::SettleFor { server, client } => {
                    let lent = self.table.server(server);
                    if lent.is_some_and(|lent| lent.relays_for() == Some(client)) {
                        self.release_if_done(server, now, out);
                    }
                }
                Effect::WithdrawIfPinned(server) => {
                    self.exchange(now).withdraw_if_pinned(server, out);
                }
                Effect::Inspect(server) => {
                    let effects = self.exchange(now).inspect_held(server, out);
                    self.carry_out(effects, now, out);
                }
                Effect::MoveChannels(server) => self.dispatch(now, out, |parts, out| {
                    let clients = parts.listening_clients;
                    clients.move_and_finish(&parts.env, parts.connections, server, out)
                }),
                Effect::ChannelCommand(server, command) => {
                    self.dispatch(now, out, |parts, out| {
                        let clients = parts.listening_clients;
                        clients.command(&parts.env, parts.connections, server, command, out)
                    });
                }
                Effect::InternalQueryAnswered(server, own) => {
                    let effects = self.exchange(now).answered(server, own, out);
                    self.carry_out(effects, now, out);
                }
                Effect::Checked(server) => self.checked(server, now, out),
                Effect::AskForPrivileges(server) => self.ask_for_rights(server, out),
                Effect::PrivilegesAnswered(server) => self.handle_asker_rights(server, now, out),
                Effect::LookupAnswered(server) => {
                    self.log_in(now, out, |event, out| event.lookup_answered(server, out));
                }
                Effect::WasReset(server) => self.was_reset(server),
                Effect::BeginCleaning(server) => self.begin_cleaning(server, now, out),
                Effect::EndCopy(server) => self.end_copy(server, now, out),
                Effect::GiveBack(server) => self.give_back(server, false, now, out),
                Effect::EndFailedServer(server) => {
                    out.list.push(Action::Close(server));
                    self.server_gone(server, &Closed::Eof, now, out);
                }
                Effect::LoseServer(server, fault) => self.close_for(server, fault, now, out),
                Effect::Welcome(client) => {
                    self.log_in(now, out, |event, out| event.welcome(client, out));
                }
                Effect::GoOnCleaning(server) => self.continue_cleaning(server, now, out),
                Effect::ServerFault(server, what) => self.server_fault(server, &what, now, out),
                Effect::OpenListener(opening) => self.open_listener(*opening, now, out),
                Effect::Equip { server, client } => drop(self.equip(server, client, now, out)),
                Effect::RelayEarly(client, early) => {
                    self.relay_early(client, Some(early), now, out)
                }
                Effect::FinishWithFence(server) => {
                    let effects = self.exchange(now).finish_with_fence(server, out);
                    self.carry_out(effects, now, out);
                }
                Effect::FinishRequest(server) => {
                    let effects = self.exchange(now).finish_request(server, out);
                    self.carry_out(effects, now, out);
                }
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
                    let parts = self.parts(now);
                    let (env, connections) = (&parts.env, parts.connections);
                    count_pins(env, connections, parts.pools, (client, server), pins, out);
                }
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
            PoolEffect::SettleForWaiters => return self.settle_kept(pool, false, now, out),
        };
        self.carry_out(effects, now, out);
    }

    /// Carries out what a module wants for a client that listens, during an online restart.
    fn carry_out_in_restart(&mut self, effect: RestartEffect, now: Time, out: &mut Actions) {
        match effect {
            RestartEffect::ForwardNotification(client, message) => {
                self.forward(client, &message, now, out);
            }
            RestartEffect::ForwardedAnswered(question, granted) => {
                self.forward_answered(question, granted, now, out);
            }
            RestartEffect::ForwardedLost(client, why) => {
                self.fail_forwarded_client(client, &why, now, out);
            }
            RestartEffect::TakenOverListens(client, granted) => {
                self.arriving_answered(client, granted, now, out);
            }
            RestartEffect::TakenOverFenced(client) => {
                self.finish_listen_takeover(client, now, out);
            }
        }
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
        }
    }

    /// Returns the pieces of the worker that the relay uses.
    #[inline]
    pub(crate) fn relay(&mut self, now: Time) -> Relay<'_> {
        let env = Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            shutdown: self.shutdown.order(),
            now,
        };
        Relay::new(env, &mut self.table, &mut self.pools, &mut self.bindings)
    }

    /// Returns the pieces of the worker that the exchange uses.
    #[inline]
    pub(crate) fn exchange(&mut self, now: Time) -> Exchange<'_> {
        let env = Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            shutdown: self.shutdown.order(),
            now,
        };
        let (connections, kept) = (&mut self.table, &mut self.kept);
        Exchange::new(env, connections, &mut self.pools, &mut self.bindings, kept)
    }

    /// Handles bytes of a client that has a server.
    #[inline]
    pub(crate) fn relay_up(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let effect = self.relay(now).client_bytes(conn, bytes, out);
        self.carry_out(effect, now, out);
    }

    /// Handles bytes of a server. The effect of a message is carried out before the next message is handled.
    #[inline]
    pub(crate) fn relay_down(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let Some(mut input) = ServerBytes::begin(&mut self.table, conn, bytes, out) else {
            return;
        };
        while let Some(effect) = self.relay(now).pass_on(&mut input, out) {
            self.carry_out([effect], now, out);
        }
        let effect = self.relay(now).end(input, out);
        self.carry_out(effect, now, out);
    }

    /// Settles the kept servers of a pool: `all` of them, or as many as clients wait for. The effects of one are carried
    /// out before the next one is looked at.
    pub(crate) fn settle_kept(&mut self, pool: PoolId, all: bool, now: Time, out: &mut Actions) {
        let Some(mut walk) = self.exchange(now).begin_settling(pool, all) else {
            return;
        };
        while let Some(effects) = self.exchange(now).settle_next(&mut walk) {
            self.carry_out(effects, now, out);
        }
    }

    /// Settles the servers that have been kept for long enough.
    pub(super) fn settle_due(&mut self, now: Time, out: &mut Actions) {
        let Some(mut walk) = self.exchange(now).begin_settling_due() else {
            return;
        };
        while let Some(effects) = self.exchange(now).settle_next_due(&mut walk, out) {
            self.carry_out(effects, now, out);
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
