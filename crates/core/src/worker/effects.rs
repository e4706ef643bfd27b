//! The worker carries out the effects that modules return.

use super::{Parts, Worker};
use crate::{
    Action, Actions, Closed, Time, Token, catalog_reading, client_timeouts,
    effect::{Effect, Effects, ListenerEffect, PoolEffect, SessionEffect},
    exchange::{Kept, count_pins},
    fault::Fault,
    frontend::Client,
    maintenance,
    online_restart::send_listen_note,
    operator_orders,
    pool::PoolId,
    pooling, reconfiguration,
    relay::{ServerBytes, report_server_loss},
    role_settings,
    takeover::ListenNote,
};

impl Worker {
    /// Carries out what one module wants other modules to do.
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        effects: impl IntoIterator<Item = Effect>,
        now: Time,
        out: &mut Actions,
    ) {
        for effect in effects {
            self.carry_out_one(effect, now, out);
        }
    }

    /// Carries out the effects of one event, most often one or none.
    #[inline]
    pub(crate) fn carry_out_all(&mut self, effects: Effects, now: Time, out: &mut Actions) {
        let (first, others) = effects.into_parts();
        if let Some(first) = first {
            self.carry_out_one(first, now, out);
            if !others.is_empty() {
                self.carry_out(others, now, out);
            }
        }
    }

    /// Carries out one effect. Those of each transaction come first.
    #[inline]
    fn carry_out_one(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::Settle(server) => {
                // A token owns nothing: there is nothing to drop behind the call.
                std::mem::forget(effect);
                self.lend(now, out, |event, out| event.release_if_done(server, out));
            }
            Effect::Session(server, SessionEffect::Equip { client }) => {
                std::mem::forget(effect);
                self.equip(server, client, now, out);
            }
            effect => self.carry_out_other(effect, now, out),
        }
    }

    /// Gives a server connection the session state of a client to which it is lent.
    fn equip(&mut self, server: Token, client: Token, now: Time, out: &mut Actions) {
        if let Some(effect) = self.exchange(now).equip(server, client, out) {
            self.carry_out_other(effect, now, out);
        }
    }

    #[inline(never)]
    fn carry_out_other(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::Session(server, effect) => {
                self.carry_out_in_session(server, effect, now, out);
            }
            Effect::RelayEarly(client, early) => self.relay_again(client, &early, now, out),
            Effect::Pool(pool, effect) => self.carry_out_in_pool(pool, effect, now, out),
            Effect::Restart(effect) => self.carry_out_in_restart(effect, now, out),
            Effect::Listener(effect) => self.carry_out_for_listener(effect, now, out),
            Effect::Count(pool, counted) => {
                if let Some(pool) = self.pools.get_mut(pool) {
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
            Effect::EndSearch(search) => {
                pooling::end_search(&self.env(now), *search, out);
            }
            Effect::GoOnSearching(search) => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                parts.pools.go_on_searching(env, connections, *search, out);
            }
            Effect::FreezeIfSuspended(conn) => self.suspension.add(conn),
            Effect::Console(effect) => {
                self.use_console(now, out, |event, out| event.carry_out(effect, out));
            }
            Effect::EndCancelRequest(request) => self.dispatch(now, out, |parts, out| {
                let requests = parts.cancel_requests;
                requests.overdue(&parts.env, parts.connections, request, out)
            }),
            Effect::MoveChannels(server) => self.dispatch(now, out, |parts, out| {
                let clients = parts.listening_clients;
                clients.move_and_finish(&parts.env, parts.connections, server, out)
            }),
            Effect::ChannelCommand(server, command) => self.dispatch(now, out, |parts, out| {
                let clients = parts.listening_clients;
                clients.command(&parts.env, parts.connections, server, *command, out)
            }),
            Effect::UndoMarks(server, marks) => self.relay(now).undo(server, marks),
            Effect::ReportServerLoss(client, loss) => self.dispatch(now, out, |parts, out| {
                report_server_loss(parts.connections, parts.pools, client, *loss, out)
            }),
            Effect::AskForPrivileges(server) => {
                self.signal_clients(now, out, |event, out| event.ask_for_rights(server, out));
            }
            Effect::PrivilegesAnswered(server) => {
                self.signal_clients(now, out, |event, out| {
                    event.handle_asker_rights(server, out)
                });
            }
            Effect::GoOnAfterSignals(server) => {
                self.signal_clients(now, out, |event, out| {
                    event.go_on_after_signals(server, out)
                });
            }
            effect => self.carry_out_for_client(effect, now, out),
        }
    }

    /// Carries out what a module wants for a client: its login, its wait for a server, its end.
    fn carry_out_for_client(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::CheckOut(client) => {
                self.lend(now, out, |event, out| event.check_out(client, out));
            }
            Effect::CheckOutAgain(client) => {
                self.lend(now, out, |event, out| event.check_out_again(client, out));
            }
            Effect::JoinPool(client, asked) => {
                self.lend(now, out, |event, out| event.join_pool(client, asked, out));
            }
            Effect::EnterPool(client) => {
                self.lend(now, out, |event, out| event.enter_pool(client, out));
            }
            Effect::Wait {
                client,
                pool,
                at_login,
            } => self.lend(now, out, |event, out| {
                event.wait(client, pool, at_login, out)
            }),
            Effect::JoinQueue {
                client,
                pool,
                at_login,
            } => self.lend(now, out, |event, out| {
                event.join_queue(client, pool, at_login, out);
            }),
            Effect::OpenForClient(client, shared) => {
                self.use_servers(now, out, |event, out| {
                    event.open_for_client(client, &shared, out);
                });
            }
            Effect::ServeLookup {
                server,
                client,
                login,
            } => {
                let is_used = self.log_in(now, out, |event, out| {
                    event.serve_lookup(server, client, login, out)
                });
                if !is_used {
                    self.lend(now, out, |event, out| event.place_server(server, out));
                }
            }
            Effect::Welcome(client) => {
                self.log_in(now, out, |event, out| event.welcome(client, out));
            }
            Effect::Greet(client, parameters) => {
                self.log_in(now, out, |event, out| event.greet(client, &parameters, out));
            }
            Effect::BeginSession(client, asked) => self.exchange(now).begin_session(client, asked),
            Effect::BeginRelaying { client, server } => self.lend(now, out, |event, out| {
                event.begin_relaying(client, server, out);
            }),
            Effect::Dismiss(client, why) => {
                self.disconnect(now, out, |event, out| event.dismiss(client, why, out));
            }
            Effect::DismissFor(client, fault) => {
                self.disconnect(now, out, |event, out| {
                    event.dismiss(client, &fault.to_string(), out);
                });
            }
            Effect::Refuse(client, fault) => {
                self.disconnect(now, out, |event, out| event.refuse(client, &fault, out));
            }
            Effect::EndClient(client, fault) => self.dispatch(now, out, |parts, out| {
                client_timeouts::end_client(&parts.env, parts.connections, client, *fault, out)
            }),
            Effect::EndHungUpClient(client) => {
                self.disconnect(now, out, |event, out| event.end_hung_up_client(client, out));
            }
            Effect::DiscardRequest(client) => {
                self.disconnect(now, out, |event, out| event.discard_request(client, out));
            }
            Effect::ReleaseClient(conn, client) => self.release_client(conn, *client, now, out),
            Effect::PoolClientLeft(shared) => {
                self.lend(now, out, |event, out| {
                    event.uncount_pool_client(&shared, out)
                });
            }
            effect => self.carry_out_for_server(effect, now, out),
        }
    }

    /// Carries out what a module wants for a server connection: its next use, its end.
    fn carry_out_for_server(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::PlaceServer(server) => {
                self.lend(now, out, |event, out| event.place_server(server, out));
            }
            Effect::SettleFor { server, client } => {
                let lent = self.table.server(server);
                if lent.is_some_and(|lent| lent.relays_for() == Some(client)) {
                    self.lend(now, out, |event, out| event.release_if_done(server, out));
                }
            }
            Effect::GiveBack(server) => {
                self.lend(now, out, |event, out| event.give_back(server, false, out));
            }
            Effect::Checked(server) => {
                self.lend(now, out, |event, out| event.checked(server, out));
            }
            Effect::BeginCleaning(server) => {
                self.lend(now, out, |event, out| event.begin_cleaning(server, out));
            }
            Effect::EndCopy(server) => {
                self.lend(now, out, |event, out| {
                    event.end_copy(server, out);
                });
            }
            Effect::WasReset(server) => self.lend(now, out, |event, _| event.note_reset(server)),
            Effect::LookupAnswered(server) => {
                self.log_in(now, out, |event, out| event.lookup_answered(server, out));
            }
            Effect::Equip { server, client } => {
                self.lend(now, out, |event, out| event.equip(server, client, out));
            }
            Effect::CleanAbandonedServer(server, had) => self.lend(now, out, |event, out| {
                event.clean_abandoned_server(server, had, out);
            }),
            Effect::GoOnCleaning(server) => {
                self.lend(now, out, |event, out| event.continue_cleaning(server, out));
            }
            Effect::CloseIfCleaning(server) => {
                self.lend(now, out, |event, _| event.close_if_cleaning(server));
            }
            Effect::CloseIfOutdated(server) => {
                self.lend(now, out, |event, _| event.close_if_outdated(server));
            }
            Effect::FailCheck(server, why) => {
                self.lend(now, out, |event, _| event.replace_server(server, why));
            }
            Effect::EndIdleServer(server) => self.dispatch(now, out, |parts, _| {
                maintenance::end_idle_server(parts.connections, parts.pools, server)
            }),
            Effect::OpenSuccessor(server) => {
                let parts = self.parts(now);
                maintenance::open_successor(&parts.env, parts.connections, server, out);
            }
            Effect::Retire(server, why) => self.dispatch(now, out, |parts, _| {
                let (env, connections) = (&parts.env, parts.connections);
                operator_orders::retire(env, connections, parts.listeners, server, why)
            }),
            Effect::RetireRedefinedServer(server) => {
                let effect = role_settings::retire_server(&mut self.table, server);
                self.carry_out(effect, now, out);
            }
            Effect::CloseServer(server, why) => {
                self.use_servers(now, out, |event, out| event.close(server, why, out));
            }
            Effect::CloseServerFor(server, fault) => self.use_servers(now, out, |event, out| {
                event.close(server, &fault.to_string(), out);
            }),
            Effect::ServerFault(server, what) => self.use_servers(now, out, |event, out| {
                event.close_for(server, Fault::ServerProtocol(what), out);
            }),
            Effect::LoseServer(server, fault) => {
                self.use_servers(now, out, |event, out| event.close_for(server, *fault, out));
            }
            Effect::EndFailedServer(server) => {
                out.list.push(Action::Close(server));
                self.use_servers(now, out, |event, out| event.gone(server, &Closed::Eof, out));
            }
            Effect::DropServer(server, why) => {
                self.use_servers(now, out, |event, out| event.drop_server(server, &why, out));
            }
            Effect::EndServerLogin(server) => {
                self.use_servers(now, out, |event, out| event.end_overdue_login(server, out));
            }
            Effect::OpenListener(opening) => {
                self.use_servers(now, out, |event, out| event.open_listener(opening, out));
            }
            effect => debug_assert!(false, "no module carries out {effect:?}"),
        }
    }

    /// Carries out what a module wants for the session on a server connection.
    fn carry_out_in_session(
        &mut self,
        server: Token,
        effect: SessionEffect,
        now: Time,
        out: &mut Actions,
    ) {
        let mut exchange = self.exchange(now);
        let effects = match effect {
            SessionEffect::Equip { client } => return self.equip(server, client, now, out),
            SessionEffect::Answered(own) => exchange.answered(server, own, out),
            SessionEffect::TryStartup(client) => return exchange.try_startup(server, client, out),
            SessionEffect::Inspect(settling) => exchange.inspect_late(server, settling, out),
            SessionEffect::InspectHeld => exchange.inspect_held(server, out),
            SessionEffect::FinishWithFence => exchange.finish_with_fence(server, out),
            SessionEffect::FinishRequest => exchange.finish_request(server, out),
            SessionEffect::KeepOrRelease { is_pinned, is_kept } => {
                match exchange.keep_or_settle(server, is_pinned, out) {
                    Kept::Stays(effects) => effects,
                    Kept::MayGo => {
                        return self.lend(now, out, |event, out| {
                            event.release_shared(server, is_pinned, is_kept, out);
                        });
                    }
                }
            }
            SessionEffect::WithdrawIfPinned => return exchange.withdraw_if_pinned(server, out),
            SessionEffect::CountPinned => return exchange.count_kept(server, out),
            SessionEffect::Clean => return exchange.clean_session(server, out),
            SessionEffect::ReadCatalogOrLend => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                if !catalog_reading::begin_if_due(env, connections, parts.pools, server, out) {
                    self.lend(now, out, |event, out| event.place_ready_server(server, out));
                }
                return;
            }
        };
        self.carry_out_all(effects, now, out);
    }

    /// Tells the owner of a connection that listens what has become of it.
    fn carry_out_for_listener(&mut self, effect: ListenerEffect, now: Time, out: &mut Actions) {
        self.dispatch(now, out, |parts, out| {
            let (env, connections) = (&parts.env, parts.connections);
            let listeners = parts.listeners;
            match effect {
                ListenerEffect::Opened(opening, opened) => {
                    listeners.opened(env, connections, *opening, opened, out)
                }
                ListenerEffect::LoggedIn(conn) => listeners.logged_in(env, connections, conn, out),
                ListenerEffect::Lost(lost) => {
                    let listener = (lost.conn, &lost.key, &lost.shared);
                    listeners.lost(env, connections, listener, &lost.why, out)
                }
            }
        });
    }

    /// Lets each module release what it holds of a client that has gone.
    fn release_client(&mut self, conn: Token, mut client: Client, now: Time, out: &mut Actions) {
        client.statements.clear(&mut self.bindings);
        self.cancel_requests.drop_key(conn, &client);
        if let Some(listening) = client.listening.take() {
            if listening.taken_over.is_some() {
                send_listen_note(&client.cancel_key(), ListenNote::Done, out);
            }
            let parts = self.parts(now);
            let clients = parts.listening_clients;
            clients.stop(&parts.env, conn, *listening, out);
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
            PoolEffect::OfferWhileClientsWait => {
                Vec::from_iter(maintenance::offer_servers(&env, pools, pool, out))
            }
            PoolEffect::FillOrRemove => {
                let parts = self.parts(now);
                let (env, statistics) = (&parts.env, parts.statistics);
                return maintenance::fill_or_remove(env, parts.pools, statistics, pool, out);
            }
            PoolEffect::SettleForWaiters => return self.settle_kept(pool, false, now, out),
            PoolEffect::SettleKeptServers => return self.settle_kept(pool, true, now, out),
            PoolEffect::AnnounceKeptServers => {
                return self.exchange(now).announce_kept_servers(pool);
            }
            PoolEffect::Diagnose => {
                return self.notify_waiters(now, out, |event, out| event.diagnose(pool, out));
            }
            PoolEffect::OfferIdleServers => {
                while self.lend(now, out, |event, out| event.offer_idle_server(pool, out)) {}
                return;
            }
            PoolEffect::ReleaseKept
            | PoolEffect::ReleaseLentServers
            | PoolEffect::ServeHeldClients
            | PoolEffect::FreeKeptServers
            | PoolEffect::UpdateSharing
            | PoolEffect::AnswerLedger
            | PoolEffect::OfferKeptServers => {
                return self.lend(now, out, |event, out| event.use_pool(pool, effect, out));
            }
        };
        self.carry_out(effects, now, out);
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

    /// Handles bytes of a client that has a server.
    #[inline]
    pub(crate) fn relay_up(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        if let Some(effect) = self.relay(now).client_bytes(conn, bytes, out) {
            self.carry_out_one(effect, now, out);
        }
    }

    /// Handles bytes of a server. The effect of a message is carried out before the next message is handled.
    #[inline]
    pub(crate) fn relay_down(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let Some(mut input) = ServerBytes::begin(&mut self.table, conn, bytes, out) else {
            return;
        };
        while let Some(effect) = self.relay(now).pass_on(&mut input, out) {
            self.carry_out_one(effect, now, out);
        }
        if let Some(effect) = self.relay(now).end(input, out) {
            self.carry_out_one(effect, now, out);
        }
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

    /// Relays bytes that were read before their client had a server.
    #[cold]
    fn relay_again(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let outer = out.early.replace(out.scratch.len());
        out.scratch.extend_from_slice(bytes);
        self.relay_up(conn, bytes, now, out);
        out.early = outer;
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
}
