//! The worker lends its parts to the module that handles an event, and carries out the effects that the module returns.

use std::collections::VecDeque;

use super::Worker;
use crate::{
    Actions, Shutdown, Time, TlsFacts, Token,
    admin::Admin,
    cancel_requests::CancelRequests,
    client_listen::ListeningClients,
    clients::{
        disconnect::Disconnect, signals::ClientSignals, wait_notices::WaitNotices,
        worker_moves::WorkerMoves,
    },
    connections::Connections,
    effect::{Effect, Effects, Env},
    exchange::{Exchange, KeptServers},
    lending::Lending,
    listeners::Listeners,
    login::{ClientLogins, LoginEvent, refuse_waiters},
    mail::Mail,
    measurement::{memory_use, statistics::Statistics},
    online_restart::{OnlineRestart, RestartParts},
    operators::{shutdown::ShutdownState, suspension::Suspension},
    pooling::{self, LocalPools},
    relay::Relay,
    server_connections::{ServerConnections, fleet_rounds, host_checks},
    session::Bindings,
};

/// Mutable references to a worker's parts, for modules that own their state.
pub(crate) struct Parts<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    /// The names of clients' prepared statements.
    pub(crate) bindings: &'w mut Bindings,
    pub(crate) kept: &'w mut KeptServers,
    pub(crate) cancel_requests: &'w mut CancelRequests,
    pub(crate) listening_clients: &'w mut ListeningClients,
    pub(crate) listeners: &'w mut Listeners,
    pub(crate) statistics: &'w mut Statistics,
    pub(crate) logins: &'w mut ClientLogins,
    pub(crate) suspension: &'w mut Suspension,
    pub(crate) shutdown: &'w mut ShutdownState,
    pub(crate) online_restart: &'w mut OnlineRestart,
}

impl<'w> Parts<'w> {
    /// Keeps the worker's memory below `memory_limit`.
    pub(super) fn check_memory(self, out: &mut Actions) -> Vec<Effect> {
        let owners = (self.connections, self.pools, self.bindings);
        memory_use::check(&self.env, owners, out)
    }

    /// Begins the end of the process.
    pub(super) fn begin_shutdown(self, how: Shutdown, out: &mut Actions) -> Vec<Effect> {
        let (env, connections) = (&self.env, self.connections);
        env.directory.operator().begin_end();
        self.suspension.obey(env, connections, out);
        self.shutdown.begin(env, connections, self.pools, how, out)
    }

    /// Returns the online restart and the parts that it uses. `client` is the client that the event is about, if any.
    pub(super) fn for_restart(
        self,
        client: Option<Token>,
    ) -> (&'w mut OnlineRestart, RestartParts<'w>) {
        let around = RestartParts {
            env: self.env,
            connections: self.connections,
            pools: self.pools,
            listening_clients: self.listening_clients,
            client,
        };
        (self.online_restart, around)
    }
}

impl Worker {
    /// Records that a new client came to another listener of this process by TLS, which passes the client's bytes on
    /// over a local socket. Channel binding is impossible for such a client.
    pub fn note_client_tls(&mut self, conn: Token, facts: TlsFacts) {
        if let Some(client) = self.table.client(conn) {
            client.note_encrypted(facts);
        }
    }

    /// Returns what modules may read of the worker.
    #[inline]
    pub(crate) fn env(&self, now: Time) -> Env<'_> {
        Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            shutdown: self.shutdown.order(),
            hands_clients_over: self.online_restart.hands_clients_over(),
            sampler: self.sampler.as_ref(),
            now,
        }
    }

    /// Splits the worker into the modules that own their state, their connections, and their environment.
    #[inline]
    pub(crate) fn parts(&mut self, now: Time) -> Parts<'_> {
        Parts {
            env: Env {
                worker: self.id,
                directory: &self.directory,
                snapshot: &self.snapshot,
                shutdown: self.shutdown.order(),
                hands_clients_over: self.online_restart.hands_clients_over(),
                sampler: self.sampler.as_ref(),
                now,
            },
            connections: &mut self.table,
            pools: &mut self.pools,
            bindings: &mut self.bindings,
            kept: &mut self.kept,
            cancel_requests: &mut self.cancel_requests,
            listening_clients: &mut self.listening_clients,
            listeners: &mut self.listeners,
            statistics: &mut self.statistics,
            logins: &mut self.logins,
            suspension: &mut self.suspension,
            shutdown: &mut self.shutdown,
            online_restart: &mut self.online_restart,
        }
    }

    /// Returns the pieces of the worker that the relay uses.
    #[inline]
    pub(crate) fn relay(&mut self, now: Time) -> Relay<'_> {
        let parts = self.parts(now);
        Relay {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            bindings: parts.bindings,
        }
    }

    /// Returns the pieces of the worker that the exchange uses.
    #[inline]
    pub(crate) fn exchange(&mut self, now: Time) -> Exchange<'_> {
        let parts = self.parts(now);
        Exchange {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            bindings: parts.bindings,
            kept: parts.kept,
        }
    }

    /// Passes an event of a client that logs in to the module for logins, and carries out the module's effects.
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
            effects: Effects::default(),
        };
        let result = handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
        result
    }

    /// Passes an event of a client that asks for a server, or of a server that becomes free, to the module for lending,
    /// and carries out the module's effects.
    #[inline]
    pub(crate) fn lend<R>(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut Lending<'_>, &mut Actions) -> R,
    ) -> R {
        let parts = self.parts(now);
        let mut event = Lending {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            listening_clients: parts.listening_clients,
            effects: Effects::default(),
        };
        let result = handle(&mut event, out);
        if !event.effects.is_empty() {
            let effects = event.effects;
            self.carry_out_all(effects, now, out);
        }
        result
    }

    /// Passes an event to the module for server connections, and carries out the module's effects.
    pub(crate) fn use_servers<R>(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut ServerConnections<'_>, &mut Actions) -> R,
    ) -> R {
        let parts = self.parts(now);
        let mut event = ServerConnections {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            results: parts.logins.results_mut(),
            effects: Effects::default(),
        };
        let result = handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
        result
    }

    /// Passes an event of a client that leaves to the module for disconnects, and carries out the module's effects.
    pub(crate) fn disconnect(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut Disconnect<'_>, &mut Actions),
    ) {
        let parts = self.parts(now);
        let mut event = Disconnect {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            logins: parts.logins,
            effects: Effects::default(),
        };
        handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
    }

    /// Passes an event of clients that move between workers to the module for these moves, and carries out the module's
    /// effects.
    pub(crate) fn move_clients<R>(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut WorkerMoves<'_>, &mut Actions) -> R,
    ) -> R {
        let parts = self.parts(now);
        let mut event = WorkerMoves {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            bindings: parts.bindings,
            logins: parts.logins,
            cancel_requests: parts.cancel_requests,
            suspension: parts.suspension,
            effects: Effects::default(),
        };
        let result = handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
        result
    }

    /// Passes an event of a client that signals others to the module for signals, and carries out the module's effects.
    pub(crate) fn signal_clients(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut ClientSignals<'_>, &mut Actions),
    ) {
        let parts = self.parts(now);
        let mut event = ClientSignals {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            cancel_requests: parts.cancel_requests,
            effects: Effects::default(),
        };
        handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
    }

    /// Passes an event of clients that wait to the module for wait notices, and carries out the module's effects.
    pub(crate) fn notify_waiters(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut WaitNotices<'_>, &mut Actions),
    ) {
        let parts = self.parts(now);
        let mut event = WaitNotices {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            effects: Effects::default(),
        };
        handle(&mut event, out);
        let effects = event.effects;
        self.carry_out(effects, now, out);
    }

    /// Passes an event to the console, and carries out the console's effects in a loop, so that the stack does not grow
    /// if a client sends many commands at once.
    pub(crate) fn use_console(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut Admin<'_>, &mut Actions),
    ) {
        // SHOW MEM and the metrics show what workers have published.
        let parts = self.parts(now);
        memory_use::measure(&parts.env, parts.connections, parts.pools, parts.bindings);
        let mut queue = VecDeque::from_iter(self.console_event(now, out, handle));
        while let Some(effect) = queue.pop_front() {
            let Effect::Console(effect) = effect else {
                self.carry_out([effect], now, out);
                continue;
            };
            let effects = self.console_event(now, out, |event, out| event.carry_out(effect, out));
            for (at, effect) in effects.into_iter().enumerate() {
                queue.insert(at, effect);
            }
        }
    }

    fn console_event(
        &mut self,
        now: Time,
        out: &mut Actions,
        handle: impl FnOnce(&mut Admin<'_>, &mut Actions),
    ) -> Effects {
        let parts = self.parts(now);
        let mut event = Admin {
            env: parts.env,
            connections: parts.connections,
            pools: parts.pools,
            listeners: parts.listeners,
            logins: parts.logins,
            statistics: parts.statistics,
            suspension: parts.suspension,
            effects: Effects::default(),
        };
        handle(&mut event, out);
        event.effects
    }

    /// Handles mail about the servers of pools.
    pub(super) fn take_pool_mail(&mut self, mail: Mail, now: Time, out: &mut Actions) {
        match mail {
            Mail::ServersWanted(pool) => {
                self.lend(now, out, |event, _| event.offer_all_servers(&pool))
            }
            Mail::Open(pool) => self.use_servers(now, out, |event, out| event.open(&pool, out)),
            Mail::OpenFor(pool, waiter) => self.use_servers(now, out, |event, out| {
                event.open_exclusive(&pool, waiter, out)
            }),
            Mail::SharingChanged(pool) => {
                self.lend(now, out, |event, _| event.update_sharing(pool.id))
            }
            Mail::CapHasRoom(pool) => {
                let notes = pool.ledger.lock().room(now);
                pooling::deliver(&self.env(now), &notes, &pool, out);
            }
            Mail::Search(search) => {
                self.dispatch(now, out, |parts, _| parts.pools.visit(&parts.env, *search))
            }
            Mail::Evict(search) => {
                let parts = self.parts(now);
                let effects = parts.pools.evict(&parts.env, parts.connections, search);
                self.carry_out(effects, now, out);
            }
            Mail::Failed(pool) => self.dispatch(now, out, |parts, _| {
                refuse_waiters(&parts.env, parts.connections, &pool)
            }),
            Mail::HostsChanged => {
                self.dispatch(now, out, |parts, _| {
                    host_checks::take_changes(&parts.env, parts.connections, parts.pools)
                });
                self.dispatch(now, out, |parts, out| {
                    host_checks::check(&parts.env, parts.connections, parts.pools, out)
                });
            }
            Mail::Fleet(mail) => self.dispatch(now, out, |parts, out| {
                fleet_rounds::take(&parts.env, parts.connections, parts.pools, mail, out)
            }),
            Mail::CheckReplay(host) => {
                let parts = self.parts(now);
                host_checks::check_replay(&parts.env, parts.connections, &host, out);
            }
            Mail::ReplayChecked => self.lend(now, out, |event, out| event.take_replay_news(out)),
            Mail::PatroniNews(news) => host_checks::take_news(&self.env(now), &news, out),
            mail => debug_assert!(false, "no module takes {mail:?}"),
        }
    }
}
