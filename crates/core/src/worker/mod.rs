//! A worker: the client connections and server connections of one thread, and their protocol state.
//!
//! The driver calls one method of [`Worker`] per event: bytes, timers, mail. The worker answers with [`Actions`].

mod effects;
mod parts;
mod restart;

use std::sync::Arc;

use pgweir_auth::scram::DerivedKeys;

pub(crate) use self::parts::Parts;
use crate::{
    Actions, Address, AuthCheckResult, Closed, ConnectError, Control, Directory, Peer, ReadMode,
    Snapshot, Time, TlsFacts, Token, WorkerId,
    backend::{Duty, Server},
    base::fault::Fault,
    cancel_requests::{self, CancelRequests},
    client_listen::{self, ListeningClients},
    clients::timeouts::Timeouts,
    connections::{Conn, Connections},
    effect::Effect,
    exchange::KeptServers,
    frontend::{ClientDuty, MovedClient},
    listeners::Listeners,
    login::{ClientLogins, parked},
    mail::Mail,
    measurement::statistics::Statistics,
    online_restart::OnlineRestart,
    operators::{orders, reconfiguration, shutdown::ShutdownState, suspension::Suspension},
    pooling::LocalPools,
    server_connections::{catalog_reading, host_checks, maintenance},
    session::Bindings,
    timers,
    transaction_trace::Sampler,
};

/// Owns client and server connections and their protocol state. Each method handles one event, and appends
/// what the driver has to do to the [`Actions`].
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    directory: Arc<Directory>,
    snapshot: Arc<Snapshot>,
    table: Connections,
    cancel_requests: CancelRequests,
    /// The names of the prepared statements of the worker's clients.
    bindings: Bindings,
    listening_clients: ListeningClients,
    listeners: Listeners,
    pools: LocalPools,
    kept: KeptServers,
    statistics: Statistics,
    shutdown: ShutdownState,
    suspension: Suspension,
    /// The clients that move to another process.
    online_restart: OnlineRestart,
    logins: ClientLogins,
    /// Decides which transactions are traced, if any are.
    sampler: Option<Sampler>,
}

impl Worker {
    /// Creates a worker without connections.
    #[must_use]
    pub fn new(id: WorkerId, directory: Arc<Directory>) -> Self {
        let snapshot = directory.snapshot();
        let sampler = Sampler::of(&snapshot.config.settings, id);
        Self {
            id,
            snapshot,
            // The first worker opens `min_pool_size` servers before the first client connects.
            table: Connections::with_tick((id == WorkerId(0)).then_some(Time(0))),
            cancel_requests: CancelRequests::default(),
            bindings: Bindings::new(directory.statements().hasher().clone()),
            listening_clients: ListeningClients::default(),
            listeners: Listeners::default(),
            pools: LocalPools::default(),
            kept: KeptServers::default(),
            statistics: Statistics::default(),
            shutdown: ShutdownState::default(),
            suspension: Suspension::default(),
            online_restart: OnlineRestart::default(),
            logins: ClientLogins::default(),
            sampler,
            directory,
        }
    }

    /// Takes a new client connection. Its read mode is `Deliver` at first.
    pub fn accepted(&mut self, peer: &Peer, now: Time, out: &mut Actions) -> Token {
        let conn = self.log_in(now, out, |event, _| event.begin(peer));
        self.suspension.add(conn);
        conn
    }

    /// Handles a connection in mode `Notify` that has bytes to read. Its mode is `Hold` from now on.
    #[inline]
    pub fn readable(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(client) = self.table.client(conn)
            && matches!(*client.duty(), ClientDuty::Idle)
        {
            self.lend(now, out, |event, out| event.check_out(conn, out));
        }
    }

    /// Handles bytes that arrived on a connection in mode `Deliver`.
    #[inline]
    pub fn received(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Server(server)) => match *server.duty() {
                Duty::Login(_) => {
                    self.use_servers(now, out, |event, out| event.login_bytes(conn, bytes, out));
                }
                Duty::Listening { .. } => self.listener_received(conn, bytes, now, out),
                Duty::CheckingHost { .. } => self.dispatch(now, out, |parts, out| {
                    host_checks::received(&parts.env, parts.connections, conn, bytes, out)
                }),
                Duty::Idle | Duty::Lent { .. } | Duty::Cleaning { .. } => {
                    self.relay_down(conn, bytes, now, out);
                }
            },
            Some(Conn::Client(client)) => match *client.duty() {
                ClientDuty::Active(_) => self.relay_up(conn, bytes, now, out),
                ClientDuty::Login(_) => {
                    self.log_in(now, out, |event, out| event.received(conn, bytes, out));
                }
                ClientDuty::Console(_) => {
                    self.use_console(now, out, |event, out| event.bytes(conn, bytes, out));
                }
                ClientDuty::Discarding(_) => {
                    self.disconnect(now, out, |event, out| event.discard(conn, bytes, out));
                }
                ClientDuty::CancelRequest { .. } => {}
                ClientDuty::Idle
                | ClientDuty::TakenOver
                | ClientDuty::Waiting { .. }
                | ClientDuty::Opening(_)
                | ClientDuty::Preparing(_) => {
                    debug_assert!(false, "read from a client without a server");
                }
            },
            Some(Conn::Cancel(_)) => {
                let parts = self.parts(now);
                let effect =
                    parts
                        .cancel_requests
                        .answered(&parts.env, parts.connections, conn, bytes, out);
                self.carry_out(effect, now, out);
            }
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles the answer to [`Action::Peek`]: the first unread byte, or `None` at the end of the stream.
    pub fn peeked(&mut self, conn: Token, first: Option<u8>, now: Time, out: &mut Actions) {
        self.disconnect(now, out, |event, out| event.peeked(conn, first, out));
        self.check_shutdown(now, out);
    }

    /// Handles the end of the stream on a connection in mode `Notify` or `Hold`; unread bytes may be left.
    /// Called once per connection; in mode `Deliver` the driver calls `closed` instead.
    pub fn hung_up(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if self.table.client(conn).is_some() {
            self.disconnect(now, out, |event, out| event.note_hang_up(conn, out));
        }
    }

    /// Handles a lost connection (end of stream while in mode `Deliver`, or an error in any mode). The
    /// driver has closed the connection and forgotten the token.
    pub fn closed(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.disconnect(now, out, |event, out| event.gone(conn, why, out))
            }
            Some(Conn::Server(_)) => {
                self.use_servers(now, out, |event, out| event.gone(conn, why, out));
            }
            Some(Conn::Cancel(_)) => self.dispatch(now, out, |parts, out| {
                let requests = parts.cancel_requests;
                requests.ended(&parts.env, parts.connections, conn, None, out)
            }),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles a socket that did not take all bytes; the driver keeps the rest.
    pub fn blocked(&mut self, conn: Token, _now: Time, out: &mut Actions) {
        let other = match self.table.get_mut(conn) {
            Some(Conn::Client(client)) => {
                client.socket.set_blocked(true);
                if matches!(*client.duty(), ClientDuty::Idle) {
                    // A client that does not read from its socket gets no server.
                    out.read(conn, ReadMode::Hold);
                }
                client.server()
            }
            Some(Conn::Server(server)) => {
                server.link.set_blocked(true);
                server.client()
            }
            Some(Conn::Cancel(_)) | None => None,
        };
        if let Some(other) = other {
            out.read(other, ReadMode::Hold);
        }
    }

    /// Handles a connection whose output buffer is empty again.
    pub fn drained(&mut self, conn: Token, now: Time, out: &mut Actions) {
        match self.table.get_mut(conn) {
            Some(Conn::Client(client)) => {
                client.socket.set_blocked(false);
                let listens = client.listening.is_some();
                if matches!(*client.duty(), ClientDuty::Idle) {
                    out.read(conn, ReadMode::Notify);
                }
                if let Some(server) = client.server() {
                    out.read(server, ReadMode::Deliver);
                    self.lend(now, out, |event, out| event.release_if_done(server, out));
                }
                self.use_console(now, out, |event, out| event.drained(conn, out));
                if listens {
                    client_listen::send_backlog_if_idle(&mut self.table, conn, out);
                }
            }
            Some(Conn::Server(server)) => {
                server.link.set_blocked(false);
                if let Some(client) = server.relays_for()
                    && !server.replies.is_awaited()
                    && !server.replies.is_full()
                {
                    out.read(client, ReadMode::Deliver);
                }
            }
            Some(Conn::Cancel(_)) | None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles a connection opened for [`Action::Connect`]; its read mode is `Hold` until set.
    /// `nonce` is fresh and random, for the login.
    pub fn connected(
        &mut self,
        conn: Token,
        local: Address,
        remote: Address,
        nonce: [u8; 18],
        now: Time,
        out: &mut Actions,
    ) {
        match self.table.get(conn) {
            Some(Conn::Server(_)) => self.use_servers(now, out, |event, out| {
                event.connected(conn, (local, remote), nonce, out)
            }),
            Some(Conn::Cancel(_)) => {
                let parts = self.parts(now);
                cancel_requests::opened(&parts.env, parts.connections, conn, out);
            }
            Some(Conn::Client(_)) => out.report_missing("a connection that pgweir has opened"),
            None => {}
        }
    }

    /// Handles the end of the TLS handshake that [`Action::StartTls`] began.
    pub fn secured(&mut self, conn: Token, facts: TlsFacts, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.log_in(now, out, |event, out| event.secured(conn, facts, out));
            }
            Some(Conn::Server(_)) => {
                self.use_servers(now, out, |event, out| event.secured(conn, facts, out))
            }
            Some(Conn::Cancel(_)) => cancel_requests::send(&mut self.table, conn, out),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles a connection that could not be opened. The driver has forgotten the token.
    pub fn connect_failed(
        &mut self,
        conn: Token,
        why: &ConnectError,
        now: Time,
        out: &mut Actions,
    ) {
        match self.table.get(conn) {
            Some(Conn::Server(_)) => {
                self.use_servers(now, out, |event, out| event.unreachable(conn, why, out))
            }
            Some(Conn::Cancel(_)) => self.dispatch(now, out, |parts, out| {
                let requests = parts.cancel_requests;
                requests.ended(&parts.env, parts.connections, conn, None, out)
            }),
            Some(Conn::Client(_)) => out.report_missing("a connection that pgweir has opened"),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Takes the keys that [`Action::Derive`] asked for. Ignored if the connection is gone by now.
    pub fn derived(&mut self, conn: Token, keys: DerivedKeys, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.log_in(now, out, |event, out| event.keys_derived(conn, &keys, out));
            }
            Some(Conn::Server(_)) => {
                self.use_servers(now, out, |event, out| event.keys_derived(conn, &keys, out))
            }
            Some(Conn::Cancel(_)) => out.report_missing("a connection that needs keys"),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Takes the answer to [`Action::CheckAuth`]. Ignored if the client has gone.
    pub fn auth_checked(
        &mut self,
        conn: Token,
        result: AuthCheckResult,
        now: Time,
        out: &mut Actions,
    ) {
        self.log_in(now, out, |event, out| event.auth_checked(conn, result, out));
        self.check_shutdown(now, out);
    }

    /// Handles a refused [`Action::Derive`]: too many derivations are under way.
    pub fn derive_refused(&mut self, conn: Token, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.disconnect(now, out, |event, out| {
                    event.refuse(conn, &Fault::Overloaded, out);
                });
            }
            Some(Conn::Server(_)) => {
                let close = Effect::close(conn, "too many logins at once");
                self.carry_out([close], now, out);
            }
            Some(Conn::Cancel(_)) => out.report_missing("a connection that needs keys"),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles mail from another worker or the control thread.
    pub fn mail(&mut self, mail: Mail, now: Time, out: &mut Actions) {
        match mail {
            Mail::Diagnose(diagnosis) => {
                self.notify_waiters(now, out, |event, out| event.examine(*diagnosis, out))
            }
            Mail::LookUpAgain(client) => {
                self.log_in(now, out, |event, out| event.look_up_again(client, out));
            }
            Mail::ListenerRequest(request) => self.dispatch(now, out, |parts, out| {
                let listeners = parts.listeners;
                listeners.handle(&parts.env, parts.connections, *request, out)
            }),
            Mail::ListenerEvent(event) => self.dispatch(now, out, |parts, out| {
                let clients = parts.listening_clients;
                clients.handle(&parts.env, parts.connections, *event, out)
            }),
            Mail::ProcessPending(from) => parked::confirm_pending_processed(from, out),
            Mail::PendingProcessed => self.count_parked_logins(now, out),
            Mail::Cancel { from, request, key } => self.dispatch(now, out, |parts, out| {
                let (env, connections) = (&parts.env, parts.connections);
                let requests = parts.cancel_requests;
                requests.cancel(env, connections, from, request, &key, out)
            }),
            Mail::Signal(order) => {
                self.signal_clients(now, out, |event, out| event.signal(&order, out))
            }
            Mail::CancelForPeer { from, request, key } => {
                let parts = self.parts(now);
                parts.cancel_requests.pass_on(
                    &parts.env,
                    parts.connections,
                    from,
                    request,
                    key,
                    out,
                );
            }
            Mail::ClientMoved { key, to, moves } => self.cancel_requests.note_move(&key, to, moves),
            Mail::ClientBack { key, to, moves } => self.cancel_requests.note_back(&key, to, moves),
            mail @ (Mail::Busy(_) | Mail::ActiveWorkersChanged) => {
                self.move_clients(now, out, |event, out| event.take_mail(&mail, out));
            }
            Mail::CancelSent(request) => cancel_requests::sent(&mut self.table, request),
            Mail::CancelDone(request, why) => {
                let effect = cancel_requests::done(&mut self.table, request, why);
                self.carry_out(effect, now, out);
            }
            Mail::ConsoleRound(round) => {
                self.use_console(now, out, |event, out| event.continue_round(*round, out));
            }
            Mail::CatalogEvaluated(evaluated) => {
                catalog_reading::put_in_force(*evaluated, now, out);
            }
            Mail::OperatorOrders => {
                self.use_console(now, out, |event, out| event.apply_orders(out))
            }
            Mail::Names { console, names } => {
                self.use_console(now, out, |event, out| {
                    event.names_known(console, names, out)
                });
            }
            Mail::AddressesGone { host, gone } => {
                let effects = orders::retire_servers_at(&self.table, &host, &gone);
                self.carry_out(effects, now, out);
            }
            Mail::Awaited(console) => {
                self.use_console(now, out, |event, out| event.check_wait(console, out));
            }
            Mail::Config(snapshot) => self.reconfigure(snapshot, now, out),
            Mail::Configured { console, outcome } => {
                self.use_console(now, out, |event, out| {
                    event.configured(console, outcome, out)
                });
            }
            Mail::Takeover(word) => self.restart_message(*word, now, out),
            Mail::Measure(measurement) => {
                self.use_console(now, out, |event, out| event.measure(*measurement, out));
            }
            Mail::Count => {
                let counted = self.statistics.sum(&self.pools);
                out.control(Control::Counted(counted));
            }
            Mail::Shutdown(how) => {
                self.dispatch(now, out, |parts, out| parts.begin_shutdown(how, out));
            }
            mail => self.take_pool_mail(mail, now, out),
        }
        self.check_shutdown(now, out);
    }

    /// Takes a server handed over by another worker. The driver registers its socket under the returned
    /// token **before** it executes the actions.
    pub fn adopt(&mut self, server: Box<Server>, now: Time, out: &mut Actions) -> Token {
        let token = self.lend(now, out, |event, out| event.adopt(server, out));
        self.check_shutdown(now, out);
        token
    }

    /// Takes an idle client that another worker has sent. The driver registers its socket under the returned token
    /// **before** it executes the actions.
    pub fn take_client(&mut self, client: Box<MovedClient>, now: Time, out: &mut Actions) -> Token {
        let token = self.move_clients(now, out, |event, out| event.arrive(*client, out));
        self.check_shutdown(now, out);
        token
    }

    /// Ends an event: freezes connections at SUSPEND, hands clients over, and checks whether a shutdown is complete.
    #[inline]
    fn check_shutdown(&mut self, now: Time, out: &mut Actions) {
        if self.suspension.is_on() {
            let parts = self.parts(now);
            parts.suspension.check(&parts.env, parts.connections, out);
        }
        if self.online_restart.hands_clients_over() {
            let effects = self.online_restart.hand_over_if_quiet();
            self.carry_out(effects, now, out);
        }
        if self.shutdown.is_on() {
            let parts = self.parts(now);
            parts.shutdown.check(&parts.env, parts.connections, out);
        }
    }

    /// Applies a new configuration.
    pub(crate) fn reconfigure(&mut self, snapshot: Arc<Snapshot>, now: Time, out: &mut Actions) {
        self.sampler = Sampler::of(&snapshot.config.settings, self.id);
        self.snapshot = snapshot;
        self.dispatch(now, out, |parts, out| {
            reconfiguration::apply(&parts.env, parts.connections, parts.pools, out)
        });
    }

    /// Handles the timers that are due at [`Worker::next_tick`].
    pub fn tick(&mut self, now: Time, out: &mut Actions) {
        let due = self.exchange(now).begin_settling_due();
        self.settle_kept(due, now, out);
        self.lend(now, out, |event, out| event.check_replay_waits(out));
        self.check_timers(now, out);
        self.move_clients(now, out, |event, out| event.leave_if_inactive(out));
        self.check_shutdown(now, out);
    }

    /// Returns when [`Worker::tick`] has to be called next; `None` while no timer runs.
    #[must_use]
    #[inline]
    pub fn next_tick(&self) -> Option<Time> {
        let settle_at = self.kept.settle_at();
        let due = Time::earlier(self.pools.replay_waits.next_at(), settle_at);
        Time::earlier(self.table.next_tick(), due)
    }

    /// Checks all deadlines, if it is time to.
    fn check_timers(&mut self, now: Time, out: &mut Actions) {
        let planned = self.table.next_tick().unwrap_or(now);
        if planned > now {
            return;
        }
        if self.suspension.is_on() {
            let parts = self.parts(now);
            let overdue = parts
                .suspension
                .check_timeout(&parts.env, parts.connections);
            return self.carry_out(overdue, now, out);
        }
        if self.table.have_deadlines() || self.logins.have_timeouts(&self.env(now)) {
            self.dispatch(now, out, |parts, _| {
                timers::overdue(&Timeouts {
                    env: parts.env,
                    connections: parts.connections,
                    pools: parts.pools,
                })
            });
        }
        self.dispatch(now, out, |parts, _| {
            timers::end_silent_peers(&parts.env, parts.connections, planned)
        });
        self.dispatch(now, out, |parts, out| parts.check_memory(out));
        let handed_over = self.online_restart.check_handover_out(&self.env(now));
        self.carry_out(handed_over, now, out);
        self.dispatch(now, out, |parts, _| {
            maintenance::end_due_servers(&parts.env, parts.connections, parts.pools, planned)
        });
        self.dispatch(now, out, |parts, out| {
            let (env, connections) = (&parts.env, parts.connections);
            let mut effects = parts.listeners.check(env, connections, out);
            effects.extend(host_checks::check(env, connections, parts.pools, out));
            effects
        });
        self.dispatch(now, out, |parts, _| {
            maintenance::maintain_pools(&parts.env, parts.connections, parts.pools)
        });
        let clients_have_deadlines =
            self.logins.have_timeouts(&self.env(now)) || self.online_restart.hands_clients_over();
        let parts = self.parts(now);
        let statistics = parts.statistics;
        statistics.turn(&parts.env, parts.pools);
        let owners = (&*parts.listeners, &*statistics);
        let next = timers::next_deadline(
            &parts.env,
            parts.connections,
            parts.pools,
            owners,
            clients_have_deadlines,
        );
        parts.connections.set_next_tick(next);
    }
}
