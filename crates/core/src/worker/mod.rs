//! A worker: the client connections and server connections of one thread, and their protocol state.
//!
//! The driver calls one method of [`Worker`] per event: bytes, timers, mail. The worker answers with [`Actions`].

#[path = "../lending/bypass.rs"]
mod bypass;
mod catalog;
#[path = "../lending/check.rs"]
mod check;
#[path = "../lending/checkout.rs"]
mod checkout;
mod defaults;
#[path = "../wait_notices.rs"]
mod diagnosis;
#[path = "../disconnect/discard.rs"]
mod discard;
#[path = "../disconnect/mod.rs"]
mod disconnect;
#[path = "../early_answers.rs"]
mod early;
mod effects;
#[path = "../server_connections/exclusive.rs"]
mod exclusive_server;
mod handover_in;
mod handover_out;
#[path = "../disconnect/hang_up.rs"]
mod hang_up;
mod inspection;
#[path = "../lending/join.rs"]
mod join;
mod notification_forwarding;
mod pins;
mod recording;
#[path = "../lending/release.rs"]
mod release;
#[path = "../lending/scheduling_log.rs"]
mod scheduling;
mod server_handover;
#[path = "../server_connections/loss.rs"]
mod server_loss;
#[path = "../server_connections/login.rs"]
mod servers;
mod session;
mod session_state;
mod settle;
#[path = "../lending/sharing.rs"]
mod sharing;
#[path = "../client_signals.rs"]
mod signal;
mod sql_statements;
mod timers;
#[path = "../server_connections/tls.rs"]
mod tls;
mod trace;

use std::sync::Arc;

use pgweir_auth::scram::DerivedKeys;

pub use self::handover_in::TakenOverClient;
pub(crate) use self::{early::send_early, effects::Parts, pins::pins_of, server_loss::Loss};
use crate::{
    Action, Actions, Address, AuthCheckResult, Closed, ConnectError, Control, Directory, Peer,
    ReadMode, SharedPool, Shutdown, Snapshot, Time, TlsFacts, Token, WorkerId,
    backend::{Duty, Server},
    cancel_requests::{self, CancelRequests},
    client_listen::{self, ListeningClients},
    connections::{Conn, Connections},
    fault::Fault,
    frontend::ClientDuty,
    listeners::Listeners,
    login::ClientLogins,
    mail::Mail,
    operator_orders, parked_logins,
    pool::{Notes, PoolId},
    pooling::{self, LocalPool, LocalPools},
    reconfiguration,
    session::Bindings,
    shutdown::ShutdownState,
    statistics::Statistics,
    suspension::Suspension,
    transaction_trace::Sampler,
};

/// Owns client and server connections and their protocol state. Each method handles one event, and appends
/// what the driver has to do to the [`Actions`].
#[derive(Debug)]
pub struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) directory: Arc<Directory>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) table: Connections,
    pub(crate) cancel_requests: CancelRequests,
    /// The names of its clients' prepared statements.
    pub(crate) bindings: Bindings,
    pub(crate) listening_clients: ListeningClients,
    pub(crate) listeners: Listeners,
    pub(crate) pools: LocalPools,
    /// When the first server that is kept with its client has to be inspected.
    pub(crate) settle_at: Option<Time>,
    /// When servers were settled last because time had passed, and how many more may be settled shortly after that.
    pub(crate) settled_lately: (Time, usize),
    /// A server that was not used for this many microseconds is checked before it is lent.
    pub(crate) check_after: u64,
    /// Whether each decision about which client gets a server is logged.
    pub(crate) logs_scheduling: bool,
    pub(crate) statistics: Statistics,
    pub(crate) shutdown: ShutdownState,
    pub(crate) suspension: Suspension,
    /// Set while clients are handed over to the new process (online restart).
    pub(crate) handover_out: Option<Box<handover_out::HandoverOut>>,
    /// Clients that were handed over and still listen through this process.
    pub(crate) forwarded_clients: notification_forwarding::ForwardedClients,
    pub(crate) logins: ClientLogins,
    /// Decides which transactions are traced, if any are.
    pub(crate) sampler: Option<Sampler>,
}

impl Worker {
    /// Creates a worker without connections.
    #[must_use]
    pub fn new(id: WorkerId, directory: Arc<Directory>) -> Self {
        let snapshot = directory.snapshot();
        let check_after = check::check_after(&snapshot.config.settings);
        let logs_scheduling = snapshot.config.settings.log_scheduling;
        let sampler = Sampler::of(&snapshot.config.settings, id);
        Self {
            id,
            directory,
            snapshot,
            // The first worker opens `min_pool_size` servers before the first client connects.
            table: Connections::with_tick((id == WorkerId(0)).then_some(Time(0))),
            cancel_requests: CancelRequests::default(),
            bindings: Bindings::default(),
            listening_clients: ListeningClients::default(),
            listeners: Listeners::default(),
            pools: LocalPools::default(),
            check_after,
            logs_scheduling,
            settle_at: None,
            settled_lately: (Time(0), 0),
            statistics: Statistics::default(),
            shutdown: ShutdownState::default(),
            suspension: Suspension::default(),
            handover_out: None,
            forwarded_clients: notification_forwarding::ForwardedClients::default(),
            logins: ClientLogins::default(),
            sampler,
        }
    }

    /// Takes a new client connection. Its read mode is `Deliver` at first.
    pub fn accepted(&mut self, peer: &Peer, now: Time, out: &mut Actions) -> Token {
        let conn = self.log_in(now, out, |event, _| event.begin(peer));
        self.suspension.add(conn);
        conn
    }

    /// Handles a connection in mode `Notify` that has bytes to read (its mode is `Hold` from here on).
    #[inline]
    pub fn readable(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(client) = self.table.client(conn)
            && matches!(client.duty, ClientDuty::Idle)
        {
            self.check_out(conn, now, out);
        }
    }

    /// Handles bytes that arrived on a connection in mode `Deliver`.
    #[inline]
    pub fn received(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Server(server)) => match server.duty {
                Duty::Login(_) => self.server_login_bytes(conn, bytes, now, out),
                Duty::Listening => self.listener_received(conn, bytes, now, out),
                _ => self.relay_down(conn, bytes, now, out),
            },
            Some(Conn::Client(client)) => match client.duty {
                ClientDuty::Active(_) => self.relay_up(conn, bytes, now, out),
                ClientDuty::Login(_) => {
                    self.log_in(now, out, |event, out| event.received(conn, bytes, out));
                }
                ClientDuty::Console(_) => self.console_bytes(conn, bytes, now, out),
                ClientDuty::Discarding(_) => self.discard(conn, bytes, now, out),
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
        self.client_peeked(conn, first, now, out);
        self.check_shutdown(now, out);
    }

    /// Handles the end of the stream on a connection in mode `Notify` or `Hold`; unread bytes may be left.
    /// Called once per connection; in mode `Deliver` the driver calls `closed` instead.
    pub fn hung_up(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if self.table.client(conn).is_some() {
            self.note_hang_up(conn, now);
            // Terminate and end of stream need no server; any other request waits for a server.
            out.list.push(Action::Peek(conn));
        }
    }

    /// Handles a lost connection (end of stream while in mode `Deliver`, or an error in any mode). The
    /// driver has closed the connection and forgotten the token.
    pub fn closed(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => self.client_gone(conn, why, now, out),
            Some(Conn::Server(_)) => self.server_gone(conn, why, now, out),
            Some(Conn::Cancel(_)) => self.cancel_ended(conn, now, out),
            None => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles a socket that did not take all that was sent; the driver keeps the rest.
    pub fn blocked(&mut self, conn: Token, _now: Time, out: &mut Actions) {
        let other = match self.table.get(conn) {
            Some(Conn::Client(client)) => {
                client.socket.blocked = true;
                if matches!(client.duty, ClientDuty::Idle) {
                    // A client that does not read gets no server.
                    out.read(conn, ReadMode::Hold);
                }
                client.server()
            }
            Some(Conn::Server(server)) => {
                server.link.blocked = true;
                server.client()
            }
            _ => None,
        };
        if let Some(other) = other {
            out.read(other, ReadMode::Hold);
        }
    }

    /// Handles a connection whose output buffer is empty again.
    pub fn drained(&mut self, conn: Token, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(client)) => {
                client.socket.blocked = false;
                let listens = client.listening.is_some();
                if matches!(client.duty, ClientDuty::Idle) {
                    out.read(conn, ReadMode::Notify);
                }
                if let Some(server) = client.server() {
                    out.read(server, ReadMode::Deliver);
                    self.release_if_done(server, now, out);
                }
                self.console_drained(conn, now, out);
                if listens {
                    client_listen::send_backlog_if_idle(&mut self.table, conn, out);
                }
            }
            Some(Conn::Server(server)) => {
                server.link.blocked = false;
                if let Some(client) = server.relays_for()
                    && !server.replies.is_awaited()
                    && !server.replies.is_full()
                {
                    out.read(client, ReadMode::Deliver);
                }
            }
            _ => {}
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
            Some(Conn::Server(_)) => self.server_connected(conn, (local, remote), nonce, now, out),
            Some(Conn::Cancel(_)) => {
                let parts = self.parts(now);
                cancel_requests::opened(&parts.env, parts.connections, conn, out);
            }
            _ => {}
        }
    }

    /// Handles the end of the TLS handshake that [`Action::StartTls`] began.
    pub fn secured(&mut self, conn: Token, facts: TlsFacts, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.log_in(now, out, |event, out| event.secured(conn, facts, out));
            }
            Some(Conn::Server(_)) => self.server_secured(conn, facts, now, out),
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
            Some(Conn::Server(_)) => self.server_unreachable(conn, why, now, out),
            Some(Conn::Cancel(_)) => self.cancel_ended(conn, now, out),
            _ => {}
        }
        self.check_shutdown(now, out);
    }

    /// Takes the keys that [`Action::Derive`] asked for. Ignored if the connection is gone by now.
    pub fn derived(&mut self, conn: Token, keys: DerivedKeys, now: Time, out: &mut Actions) {
        match self.table.get(conn) {
            Some(Conn::Client(_)) => {
                self.log_in(now, out, |event, out| event.keys_derived(conn, &keys, out));
            }
            Some(Conn::Server(_)) => self.server_derived(conn, &keys, now, out),
            _ => {}
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
            Some(Conn::Client(_)) => self.refuse(conn, &Fault::Overloaded, now, out),
            Some(Conn::Server(_)) => self.close_server(conn, "too many logins at once", now, out),
            _ => {}
        }
        self.check_shutdown(now, out);
    }

    /// Handles mail from another worker or the control thread.
    pub fn mail(&mut self, mail: Mail, now: Time, out: &mut Actions) {
        match mail {
            Mail::ServersWanted(pool) => self.offer_all_servers(&pool, now, out),
            Mail::Open(pool) => self.open_server(&pool, now, out),
            Mail::OpenFor(pool, waiter) => self.open_exclusive(&pool, waiter, now, out),
            Mail::SharingChanged(pool) => self.update_sharing(&pool, now, out),
            Mail::CapHasRoom(pool) => {
                let notes = pool.ledger.lock().room(now);
                self.deliver(notes, &pool, out);
            }
            Mail::Search(search) => {
                self.dispatch(now, out, |parts, _| parts.pools.visit(&parts.env, *search))
            }
            Mail::Evict(search) => {
                let parts = self.parts(now);
                let effects = parts.pools.evict(&parts.env, parts.connections, search);
                self.carry_out(effects, now, out);
            }
            Mail::Diagnose(diagnosis) => self.examine(*diagnosis, now, out),
            Mail::LookUpAgain(client) => {
                self.log_in(now, out, |event, out| event.look_up_again(client, out));
            }
            Mail::ListenerRequest(request) => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                let effect = parts.listeners.handle(env, connections, *request, out);
                self.carry_out(effect, now, out);
            }
            Mail::ListenerEvent(event) => {
                let parts = self.parts(now);
                let (env, connections) = (&parts.env, parts.connections);
                let effects = parts
                    .listening_clients
                    .handle(env, connections, *event, out);
                self.carry_out(effects, now, out);
            }
            Mail::Failed(pool) => self.refuse_waiters(&pool, now, out),
            Mail::ProcessPending(from) => parked_logins::confirm_pending_processed(from, out),
            Mail::PendingProcessed => self.count_parked_logins(now, out),
            Mail::Cancel { from, request, key } => {
                let parts = self.parts(now);
                let effect = parts.cancel_requests.cancel(
                    &parts.env,
                    parts.connections,
                    from,
                    request,
                    &key,
                    out,
                );
                self.carry_out(effect, now, out);
            }
            Mail::Signal(order) => self.signal(&order, now, out),
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
            Mail::CancelSent(request) => cancel_requests::sent(&mut self.table, request),
            Mail::CancelDone(request, why) => {
                let effect = cancel_requests::done(&mut self.table, request, why);
                self.carry_out(effect, now, out);
            }
            Mail::ConsoleRound(round) => self.continue_round(*round, now, out),
            Mail::OperatorOrders => self.apply_operator_orders(now, out),
            Mail::Names { console, names } => self.console_names(console, names, now, out),
            Mail::AddressesGone { host, gone } => {
                let effects = operator_orders::retire_servers_at(&self.table, &host, &gone);
                self.carry_out(effects, now, out);
            }
            Mail::Awaited(console) => self.console_awaited(console, now, out),
            Mail::Config(snapshot) => self.reconfigure(snapshot, now, out),
            Mail::Configured { console, outcome } => {
                self.configured(console, outcome, now, out);
            }
            Mail::Takeover(word) => self.handle_takeover_mail(*word, now, out),
            Mail::Measure(measurement) => self.measure(*measurement, now, out),
            Mail::Count => {
                let counted = self.statistics.sum(&self.pools);
                out.list.push(Action::Control(Control::Counted(counted)));
            }
            Mail::Shutdown(how) => self.begin_shutdown(how, now, out),
        }
        self.check_shutdown(now, out);
    }

    /// Takes a server handed over by another worker. The driver registers its socket under the returned
    /// token **before** it executes the actions.
    pub fn adopt(&mut self, mut server: Box<Server>, now: Time, out: &mut Actions) -> Token {
        let destined = server.next_loan.destined.take();
        // The flag is about the list of the previous worker.
        server.session.inspections.is_listed = false;
        self.local_pool(&server.shared, now).servers += 1;
        server.retire_if_outdated();
        let token = self.table.insert(Conn::Server(server));
        self.schedule(now);
        self.suspension.add(token);
        out.read(token, ReadMode::Deliver);
        match destined {
            Some(waiter) if self.lend_to(token, waiter, now, out) => {}
            _ => self.place_server(token, now, out),
        }
        self.check_shutdown(now, out);
        token
    }

    /// Ends an event: freezes connections at SUSPEND, hands clients over, and checks whether a shutdown is complete.
    #[inline]
    pub(crate) fn check_shutdown(&mut self, now: Time, out: &mut Actions) {
        if self.suspension.is_on() {
            let parts = self.parts(now);
            parts.suspension.check(&parts.env, parts.connections, out);
        }
        if self.handover_out.is_some() {
            self.hand_over_if_quiet(now, out);
        }
        if self.shutdown.is_on() {
            let parts = self.parts(now);
            parts.shutdown.check(&parts.env, parts.connections, out);
        }
    }

    fn begin_shutdown(&mut self, how: Shutdown, now: Time, out: &mut Actions) {
        self.directory.operator().begin_end();
        self.dispatch(now, out, |parts, out| {
            let (env, connections) = (&parts.env, parts.connections);
            parts.suspension.obey(env, connections, out);
            parts
                .shutdown
                .begin(env, connections, parts.pools, how, out)
        });
    }

    /// Applies a new configuration.
    pub(crate) fn reconfigure(&mut self, snapshot: Arc<Snapshot>, now: Time, out: &mut Actions) {
        self.check_after = check::check_after(&snapshot.config.settings);
        self.logs_scheduling = snapshot.config.settings.log_scheduling;
        self.sampler = Sampler::of(&snapshot.config.settings, self.id);
        self.snapshot = snapshot;
        self.dispatch(now, out, |parts, _| {
            reconfiguration::apply(&parts.env, parts.connections, parts.pools)
        });
    }

    /// Handles the timers that are due at [`Worker::next_tick`].
    pub fn tick(&mut self, now: Time, out: &mut Actions) {
        self.settle_due(now, out);
        self.check_timers(now, out);
        self.check_shutdown(now, out);
    }

    /// Returns when [`Worker::tick`] has to be called next; `None` while no timer runs.
    #[must_use]
    #[inline]
    pub fn next_tick(&self) -> Option<Time> {
        match (self.table.next_tick(), self.settle_at) {
            (Some(tick), Some(settle)) => Some(tick.min(settle)),
            (tick, settle) => tick.or(settle),
        }
    }

    /// Applies the operators' orders, after they have changed.
    pub(crate) fn apply_operator_orders(&mut self, now: Time, out: &mut Actions) {
        self.dispatch(now, out, |parts, out| {
            let Parts {
                env,
                connections,
                pools,
                suspension,
                ..
            } = parts;
            operator_orders::apply(&env, connections, pools, suspension, out)
        });
    }

    /// Handles bytes from a listener. An effect of a message is carried out before the next message is handled.
    fn listener_received(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
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

    /// Handles the end of a connection that carries a cancel request, or its failure to open.
    fn cancel_ended(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let effect = parts
            .cancel_requests
            .ended(&parts.env, parts.connections, conn, None, out);
        self.carry_out(effect, now, out);
    }

    /// Cancels the query of a server that is about to be closed.
    pub(crate) fn cancel_query(&mut self, server: Token, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        cancel_requests::stop_query(&parts.env, parts.connections, server, out);
    }

    /// Returns this worker's part of a pool, and creates it if need be.
    pub(crate) fn local_pool(&mut self, shared: &Arc<SharedPool>, now: Time) -> &mut LocalPool {
        let parts = self.parts(now);
        parts.pools.open(&parts.env, parts.connections, shared)
    }

    #[inline]
    pub(crate) fn pool(&mut self, id: PoolId) -> Option<&mut LocalPool> {
        self.pools.get_mut(id)
    }

    /// Sends the ledger's notes to the workers.
    pub(crate) fn deliver(&self, notes: Notes, pool: &Arc<SharedPool>, out: &mut Actions) {
        pooling::deliver(self.id, &self.directory, &notes, pool, out);
    }
}
