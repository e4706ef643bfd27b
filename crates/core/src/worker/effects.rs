//! The worker carries out the effects that modules return.

use super::{Parts, Worker};
use crate::{
    Actions, Time, Token,
    base::fault::Fault,
    clients::timeouts,
    effect::{
        ClientEffect, Effect, Effects, ListenerEffect, PoolEffect, ServerEffect, SessionEffect,
    },
    exchange::{KeepDecision, KeptWalk, count_pins},
    frontend::Client,
    online_restart::send_listen_note,
    operators::{orders, reconfiguration},
    pool::PoolId,
    pooling,
    relay::{ServerBytes, report_server_loss},
    server_connections::{catalog_reading, fleet_rounds, maintenance, role_settings},
    takeover::ListenNote,
};

impl Worker {
    /// The effects on other modules that the worker carries out.
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

    /// Carries out one effect. The effects that occur in each transaction come first.
    #[inline]
    fn carry_out_one(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::Settle(server) => {
                // An effect with only a token needs no drop. Without `forget`, the compiler would check for one after
                // the call.
                std::mem::forget(effect);
                self.lend(now, out, |event, out| event.release_if_done(server, out));
            }
            Effect::Session(server, SessionEffect::Equip { client }) => {
                std::mem::forget(effect);
                if let Some(effect) = self.exchange(now).equip(server, client, out) {
                    self.carry_out_other(effect, now, out);
                }
            }
            effect => self.carry_out_other(effect, now, out),
        }
    }

    #[inline(never)]
    fn carry_out_other(&mut self, effect: Effect, now: Time, out: &mut Actions) {
        match effect {
            Effect::Settle(server) => {
                self.lend(now, out, |event, out| event.release_if_done(server, out));
            }
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
                let pair = (client, server);
                count_pins(env, connections, parts.pools, pair, (pins, None), out);
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
            Effect::RepeatRequest(client, lost) => {
                let (request, fault) = *lost;
                let effect = self.relay(now).repeat(client, request, &fault, out);
                self.carry_out(effect, now, out);
            }
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
            Effect::Client(effect) => self.carry_out_for_client(effect, now, out),
            Effect::Server(effect) => self.carry_out_for_server(effect, now, out),
        }
    }

    /// Carries out an effect on a client: on its login, its wait for a server, its end.
    fn carry_out_for_client(&mut self, effect: ClientEffect, now: Time, out: &mut Actions) {
        match effect {
            ClientEffect::CheckOut(client) => {
                self.lend(now, out, |event, out| event.check_out(client, out));
            }
            ClientEffect::CheckOutAgain(client) => {
                self.lend(now, out, |event, out| event.check_out_again(client, out));
            }
            ClientEffect::ReadAfterWrite(client) => {
                self.lend(now, out, |event, out| event.read_after_write(client, out));
            }
            ClientEffect::JoinPool(client, asked) => {
                self.lend(now, out, |event, out| event.join_pool(client, asked, out));
            }
            ClientEffect::EnterPool(client) => {
                self.lend(now, out, |event, out| event.enter_pool(client, out));
            }
            ClientEffect::Wait {
                client,
                pool,
                at_login,
            } => self.lend(now, out, |event, out| {
                event.wait(client, pool, at_login, out)
            }),
            ClientEffect::JoinQueue {
                client,
                pool,
                at_login,
            } => self.lend(now, out, |event, out| {
                event.join_queue(client, pool, at_login, out);
            }),
            ClientEffect::OpenForClient(client, shared) => {
                self.use_servers(now, out, |event, out| {
                    event.open_for_client(client, &shared, out);
                });
            }
            ClientEffect::ServeLookup {
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
            ClientEffect::Welcome(client) => {
                self.log_in(now, out, |event, out| event.welcome(client, out));
            }
            ClientEffect::AssignWorker(client) => {
                self.move_clients(now, out, |event, out| event.assign(client, out));
            }
            ClientEffect::Greet(client, parameters) => {
                self.log_in(now, out, |event, out| event.greet(client, &parameters, out));
            }
            ClientEffect::BeginSession(client, asked) => {
                self.exchange(now).begin_session(client, &asked)
            }
            ClientEffect::BeginRelaying { client, server } => self.lend(now, out, |event, out| {
                event.begin_relaying(client, server, out);
            }),
            ClientEffect::Dismiss(client, why) => {
                self.disconnect(now, out, |event, out| event.dismiss(client, why, out));
            }
            ClientEffect::DismissFor(client, fault) => {
                let why = fault.to_string();
                self.disconnect(now, out, |event, out| event.dismiss(client, &why, out));
            }
            ClientEffect::Refuse(client, fault) => {
                self.disconnect(now, out, |event, out| event.refuse(client, &fault, out));
            }
            ClientEffect::EndClient(client, fault) => self.dispatch(now, out, |parts, out| {
                timeouts::end_client(&parts.env, parts.connections, client, *fault, out)
            }),
            ClientEffect::EndHungUpClient(client) => {
                self.disconnect(now, out, |event, out| event.end_hung_up_client(client, out));
            }
            ClientEffect::DiscardRequest(client) => {
                self.disconnect(now, out, |event, out| event.discard_request(client, out));
            }
            ClientEffect::ReleaseClient(conn, client) => {
                self.release_client(conn, *client, now, out)
            }
            ClientEffect::PoolClientLeft(pool) => {
                self.lend(now, out, |event, out| event.uncount_pool_client(&pool, out));
            }
        }
    }

    /// Carries out an effect on a server connection: on its next use, its end.
    fn carry_out_for_server(&mut self, effect: ServerEffect, now: Time, out: &mut Actions) {
        match effect {
            ServerEffect::Place(server) => {
                self.lend(now, out, |event, out| event.place_server(server, out));
            }
            ServerEffect::SettleFor { server, client } => {
                self.lend(now, out, |event, out| {
                    event.release_if_lent_to(client, server, out)
                });
            }
            ServerEffect::GiveBack(server) => {
                self.lend(now, out, |event, out| event.give_back(server, false, out));
            }
            ServerEffect::Checked(server) => {
                self.lend(now, out, |event, out| event.checked(server, out));
            }
            ServerEffect::BeginCleaning(server) => {
                self.lend(now, out, |event, out| event.begin_cleaning(server, out));
            }
            ServerEffect::EndCopy(server) => {
                self.lend(now, out, |event, out| _ = event.end_copy(server, out));
            }
            ServerEffect::WasReset(server) => {
                self.lend(now, out, |event, _| event.note_reset(server))
            }
            ServerEffect::LookupAnswered(server) => {
                self.log_in(now, out, |event, out| event.lookup_answered(server, out));
            }
            ServerEffect::Equip { server, client } => {
                self.lend(now, out, |event, out| event.equip(server, client, out));
            }
            ServerEffect::CleanAbandoned(server, had) => self.lend(now, out, |event, out| {
                event.clean_abandoned_server(server, had, out);
            }),
            ServerEffect::GoOnCleaning(server) => {
                self.lend(now, out, |event, out| event.continue_cleaning(server, out));
            }
            ServerEffect::CloseIfCleaning(server) => {
                self.lend(now, out, |event, _| event.close_if_cleaning(server));
            }
            ServerEffect::CloseIfOutdated(server) => {
                self.lend(now, out, |event, _| event.close_if_outdated(server));
            }
            ServerEffect::FailCheck(server, why) => {
                self.lend(now, out, |event, _| event.replace_server(server, why));
            }
            ServerEffect::EndIdle(server) => self.dispatch(now, out, |parts, _| {
                maintenance::end_idle_server(parts.connections, parts.pools, server)
            }),
            ServerEffect::OpenSuccessor(server) => {
                let parts = self.parts(now);
                maintenance::open_successor(&parts.env, parts.connections, server, out);
            }
            ServerEffect::Retire(server, why) => self.dispatch(now, out, |parts, _| {
                let (env, connections) = (&parts.env, parts.connections);
                orders::retire(env, connections, parts.listeners, server, why)
            }),
            ServerEffect::RetireRedefined(server) => {
                let effect = role_settings::retire_server(&mut self.table, server);
                self.carry_out(effect, now, out);
            }
            ServerEffect::Close(server, why) => {
                self.use_servers(now, out, |event, out| event.close(server, why, out));
            }
            ServerEffect::CloseFor(server, fault) => self.use_servers(now, out, |event, out| {
                event.close(server, &fault.to_string(), out);
            }),
            ServerEffect::Fault(server, what) => self.use_servers(now, out, |event, out| {
                event.close_for(server, Fault::ServerProtocol(what.into()), out);
            }),
            ServerEffect::Lose(server, fault) => {
                self.use_servers(now, out, |event, out| event.close_for(server, *fault, out));
            }
            ServerEffect::EndFailed(server) => {
                self.use_servers(now, out, |event, out| event.end_failed(server, out));
            }
            ServerEffect::Drop(server, why) => {
                self.use_servers(now, out, |event, out| event.drop_server(server, &why, out));
            }
            ServerEffect::EndLogin(server) => {
                self.use_servers(now, out, |event, out| event.end_overdue_login(server, out));
            }
            ServerEffect::BeginRace(server) => {
                self.use_servers(now, out, |event, out| event.begin_race(server, out));
            }
            ServerEffect::OpenOwn(own) => {
                self.use_servers(now, out, |event, out| event.open_own(own, out));
            }
        }
    }

    /// Carries out an effect on the session on a server connection.
    fn carry_out_in_session(
        &mut self,
        server: Token,
        effect: SessionEffect,
        now: Time,
        out: &mut Actions,
    ) {
        let mut exchange = self.exchange(now);
        let effects = match effect {
            effect @ SessionEffect::Equip { .. } => {
                return self.carry_out_one(Effect::Session(server, effect), now, out);
            }
            SessionEffect::Answered(own) => exchange.answered(server, own, out),
            SessionEffect::TryStartup(client) => {
                exchange.try_startup(server, client, out).map(Effects::from)
            }
            SessionEffect::Inspect(settling) => exchange.inspect_late(server, settling, out),
            SessionEffect::InspectHeld => exchange.inspect_held(server, out),
            SessionEffect::FinishWithFence => exchange.finish_with_fence(server, out),
            SessionEffect::FinishRequest => exchange.finish_request(server, out),
            SessionEffect::KeepOrRelease { is_pinned, is_kept } => {
                match exchange.keep_or_settle(server, is_pinned, out) {
                    KeepDecision::Keep(effects) => effects,
                    KeepDecision::Release => {
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
                if !fleet_rounds::begin_if_asked(env, connections, parts.pools, server, out)
                    && !catalog_reading::begin_if_due(env, connections, parts.pools, server, out)
                {
                    self.lend(now, out, |event, out| event.place_ready_server(server, out));
                }
                return;
            }
        };
        if let Some(effects) = effects {
            self.carry_out_all(effects, now, out);
        }
    }

    /// Informs the owner of a connection that listens.
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

    /// Makes each module release its data of a client that has gone.
    fn release_client(&mut self, conn: Token, mut client: Client, now: Time, out: &mut Actions) {
        client.statements.clear(&mut self.bindings);
        let parts = self.parts(now);
        (parts.cancel_requests).drop_key(&parts.env, conn, &mut client, out);
        if let Some(listening) = client.listening.take() {
            if listening.is_taken_over() {
                send_listen_note(&client.cancel_key(), ListenNote::Done, out);
            }
            let parts = self.parts(now);
            let clients = parts.listening_clients;
            clients.stop(&parts.env, conn, *listening, out);
        }
    }

    /// Carries out an effect on a pool.
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
            PoolEffect::ApplyOrders => orders::apply_to_pool(&env, connections, pools, pool, out),
            PoolEffect::ApplyLimits => reconfiguration::apply_limits(&env, pools, pool, out),
            PoolEffect::PlaceIdleAgain => pools.place_idle_again(pool, out),
            PoolEffect::RetireOutdated => orders::retire_outdated(connections, pools, pool, out),
            PoolEffect::RetireRedefined => {
                role_settings::retire_redefined(connections, pools, pool, out)
            }
            PoolEffect::OfferWhileClientsWait => {
                Vec::from_iter(maintenance::offer_servers(&env, pools, pool, out))
            }
            PoolEffect::FillOrRemove => {
                let parts = self.parts(now);
                let (env, statistics) = (&parts.env, parts.statistics);
                return maintenance::fill_or_remove(env, parts.pools, statistics, pool, out);
            }
            PoolEffect::SettleForWaiters | PoolEffect::SettleKeptServers => {
                let all = matches!(effect, PoolEffect::SettleKeptServers);
                let walk = self.exchange(now).begin_settling(pool, all);
                return self.settle_kept(walk, now, out);
            }
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
        let writes = self.directory.hosts().writes();
        if writes.are_counted()
            && let Some(server) = self.table.server(conn)
            && server.link.may_write()
        {
            writes.add(self.id);
        }
        let Some(mut input) = ServerBytes::begin(&mut self.table, conn, bytes, out) else {
            return;
        };
        if let Some(earlier) = input.earlier.take() {
            self.relay_again(conn, &earlier, now, out);
        }
        while let Some(effect) = self.relay(now).pass_on(&mut input, out) {
            self.carry_out_one(effect, now, out);
        }
        if let Some(effect) = self.relay(now).end(input, out) {
            self.carry_out_one(effect, now, out);
        }
    }

    /// Settles kept servers. The effects of one server are carried out before the next server is examined.
    pub(super) fn settle_kept(&mut self, walk: Option<KeptWalk>, now: Time, out: &mut Actions) {
        let Some(mut walk) = walk else {
            return;
        };
        while let Some(effects) = self.exchange(now).settle_next(&mut walk, out) {
            self.carry_out(effects, now, out);
        }
    }

    /// Relays bytes that were read before: those of a client that had no server, or of a server that seemed to end.
    #[cold]
    fn relay_again(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let outer = out.early.replace(out.scratch.len());
        out.scratch.extend_from_slice(bytes);
        match self.table.client(conn).is_some() {
            true => self.relay_up(conn, bytes, now, out),
            false => self.relay_down(conn, bytes, now, out),
        }
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

    /// Handles bytes from a listener. An effect of a message is carried out before the next message is handled.
    pub(super) fn listener_received(
        &mut self,
        conn: Token,
        bytes: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        // A notification tells a client of a commit, too.
        self.directory.hosts().writes().add(self.id);
        let mut at = 0;
        loop {
            let parts = self.parts(now);
            let (env, connections) = (&parts.env, parts.connections);
            let from = (bytes, &mut at);
            let effect = parts.listeners.received(env, connections, conn, from, out);
            if effect.is_none() {
                return;
            }
            self.carry_out(effect, now, out);
        }
    }
}
