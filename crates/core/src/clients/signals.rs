//! Clients that signal others (`pg_cancel_backend`, `pg_terminate_backend`) by the pids that pgweir gave these clients.
//! PostgreSQL's rules decide whether a client may signal another one: the server reports the client's privileges. The
//! order goes to the worker of the client that is signalled.
//!
//! This module owns no state. Input: servers' answers about privileges, and the orders of other workers. Output:
//! queries about privileges, orders to other workers, and effects: the client that is signalled is ended, or its
//! query or request is cancelled, and the request of the client that signals goes on.

use pgweir_wire::MessageWriter;

use crate::{
    Actions, ReadMode, Token, WorkerId,
    backend::{InternalQuery, Phase},
    base::fault::Fault,
    cancel_requests::{CancelRequests, busy_server, stop_query},
    client_listen::send_backlog,
    connections::{Connections, moves::enter},
    effect::{ClientEffect, Effect, Effects, Env, SessionEffect},
    frontend::ClientDuty,
    loan::{begin_relaying, send_unsent_parameters},
    mail::Mail,
    pooling::LocalPools,
    shared::cancel::{CancelKey, Whereabouts},
    signal::{Rights, Signal, SignalOrder, SignalSender},
};

/// An event of a client that signals others, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct ClientSignals<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w LocalPools,
    pub(crate) cancel_requests: &'w CancelRequests,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl ClientSignals<'_> {
    /// Queries the privileges by which the server's client signals others; the client waits.
    #[cold]
    pub(crate) fn ask_for_rights(&mut self, conn: Token, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.connections.known_pair_of(conn, out) else {
            return;
        };
        enter(Phase::AskingPrivilege, client_conn, client, conn, server);
        out.read(client_conn, ReadMode::Hold);
        let text = Rights::query(server.shared.key.user.as_bytes());
        out.ask(conn, server, InternalQuery::Rights, &text);
    }

    /// Handles the server's answer about the privileges.
    #[cold]
    pub(crate) fn handle_asker_rights(&mut self, conn: Token, out: &mut Actions) {
        let Some((_, client, server)) = self.connections.known_pair_of(conn, out) else {
            return;
        };
        let signals = server.session.loan.take_signals();
        let user = client.names().map(|names| names.user.clone());
        let shared = server.shared.clone();
        if let Some(signals) = signals
            && let (Some(signal), Some(rights)) = (signals.signal, signals.rights)
            && let (Some(user), Some(pool)) = (user, self.pools.get(shared.id))
        {
            let by = SignalSender {
                rights,
                endpoints: pool.terms.endpoints.clone(),
                user,
                login_user: shared.key.user.clone(),
            };
            self.send_signals(signal, &signals.pids, &by, out);
        }
        self.effects.push(Effect::GoOnAfterSignals(conn));
    }

    /// Continues a request that signals others, once the privileges are known.
    #[cold]
    pub(crate) fn go_on_after_signals(&mut self, conn: Token, out: &mut Actions) {
        // The client may have terminated itself.
        let Some((client_conn, client, server)) = self.connections.pair_of(conn) else {
            return;
        };
        if server.session.loan.release_ready() {
            enter(Phase::Relaying, client_conn, client, conn, server);
            let inspect = Effect::Session(conn, SessionEffect::InspectHeld);
            return self.effects.push(inspect);
        }
        if server.session.loan.notifications.is_any_pending() {
            send_backlog(self.connections, client_conn, out);
        }
        self.finish_request(conn, out);
    }

    /// Completes the client's request, for which nothing is left to do.
    fn finish_request(&mut self, conn: Token, out: &mut Actions) {
        let names = self.env.directory.names();
        let Some((client_conn, client, server)) = self.connections.known_pair_of(conn, out) else {
            return;
        };
        enter(Phase::Relaying, client_conn, client, conn, server);
        send_unsent_parameters(names, client_conn, client, server, out);
        let status = server.status();
        out.send_made(client_conn, |bytes| {
            MessageWriter::new(bytes).ready_for_query(status);
        });
        let early = begin_relaying(client_conn, client, conn, server, out);
        self.effects
            .extend(early.map(|early| Effect::RelayEarly(client_conn, early)));
    }

    /// Sends the signals to the workers of these pids. The mail arrives before the client gets its reply.
    fn send_signals(&mut self, signal: Signal, pids: &[u32], by: &SignalSender, out: &mut Actions) {
        let own_peer = self.env.snapshot.config.settings.peer_id;
        let workers = self.env.directory.workers();
        let mut orders: Vec<Vec<u32>> = vec![Vec::new(); workers];
        for &pid in pids {
            let named = named(pid);
            if own_peer == 0 || own_peer == named.peer() {
                orders[named.worker(workers).index()].push(pid);
            }
        }
        for (to, pids) in self.env.directory.worker_ids().zip(orders) {
            let order = SignalOrder {
                signal,
                pids,
                by: by.clone(),
            };
            if order.pids.is_empty() {
                continue;
            } else if to == self.env.worker {
                self.signal(&order, out);
            } else {
                let mail = Mail::Signal(Box::new(order));
                out.mail(to, mail);
            }
        }
    }

    /// Carries out another client's signals for the clients of this worker.
    pub(crate) fn signal(&mut self, order: &SignalOrder, out: &mut Actions) {
        for &pid in &order.pids {
            let conn = match self.cancel_requests.locate_only_client_with(pid) {
                Some(Whereabouts::Here(conn)) => conn,
                Some(Whereabouts::At(worker, _)) => {
                    pass_on(order, pid, worker, out);
                    continue;
                }
                None => {
                    // The client has left after its home had sent the order to this worker.
                    let home = named(pid).worker(self.env.directory.workers());
                    if home != self.env.worker {
                        pass_on(order, pid, home, out);
                    }
                    continue;
                }
            };
            if !self.may_be_signalled(conn, &order.by) {
                continue;
            }
            match order.signal {
                Signal::Terminate => self.terminate(conn, out),
                Signal::Cancel => match busy_server(self.connections, conn) {
                    Some(server) => stop_query(&self.env, self.connections, server, out),
                    None => self
                        .effects
                        .push(Effect::Client(ClientEffect::DiscardRequest(conn))),
                },
            }
        }
    }

    fn may_be_signalled(&mut self, conn: Token, by: &SignalSender) -> bool {
        let Some(client) = self.connections.client(conn) else {
            return false;
        };
        let is_in = !matches!(
            *client.duty(),
            ClientDuty::Login(_) | ClientDuty::Console(_)
        );
        let (names, pool) = (client.names().cloned(), client.pool().filter(|_| is_in));
        let (Some(names), Some(pool)) = (names, pool.and_then(|pool| self.pools.get(pool))) else {
            return false;
        };
        by.may(&pool.terms.endpoints, &pool.shared.key.user, &names.user)
    }

    /// Terminates a client that another client has signalled.
    fn terminate(&mut self, conn: Token, out: &mut Actions) {
        if let Some(server) = busy_server(self.connections, conn) {
            stop_query(&self.env, self.connections, server, out);
        }
        self.effects.push(Effect::Client(ClientEffect::Refuse(
            conn,
            Box::new(Fault::Terminated),
        )));
    }
}

/// Passes the part of an order that concerns this pid on to a worker that has the client, or knows where it is.
fn pass_on(order: &SignalOrder, pid: u32, to: WorkerId, out: &mut Actions) {
    let order = SignalOrder {
        signal: order.signal,
        pids: vec![pid],
        by: order.by.clone(),
    };
    out.mail(to, Mail::Signal(Box::new(order)));
}

/// Returns a key with this pid and no secret.
fn named(pid: u32) -> CancelKey {
    CancelKey {
        pid,
        secret: Box::default(),
    }
}
