//! Clients that signal others (`pg_cancel_backend`, `pg_terminate_backend`) by the pids that pgweir gave these
//! clients. PostgreSQL's rules decide whether a client may: the server reports the privileges, and the order goes
//! to the worker of the client that is signalled.

use std::sync::Arc;

use pgweir_wire::{HEADER_LEN, MessageWriter};

use super::{Worker, session_state::send_unsent_parameters};
use crate::{
    Action, Actions, ReadMode, Time, Token,
    backend::{InternalQuery, Phase, Request, SIGNALS, Server},
    cancel::CancelKey,
    cancel_requests::busy_server,
    client_listen::send_backlog,
    fault::Fault,
    frontend::{Client, ClientDuty},
    loan::{begin, enter},
    mail::Mail,
    signal::{Asker, Order, Rights, Signal, Signals, unknown_pid},
};

/// Returns the signals that a finished request asks for, if the server can still report the caller's privileges.
///
/// With more requests behind it, or in a failed transaction, the server could not report which role the caller had.
pub(super) fn signals_at_end(client: &Client, server: &mut Server) -> Option<Box<Signals>> {
    let session = &mut server.session;
    let signal = Signal::of(session.transaction.effects)?;
    let signals = session.signals.take();
    if !server.replies.is_last() || !client.socket.stream.is_at_boundary() {
        return None;
    }
    // The next request asks for other things.
    session.transaction.effects = session.transaction.effects.without(SIGNALS);
    let mut signals = signals.filter(|_| server.status != b'E')?;
    signals.signal = Some(signal);
    Some(signals)
}

impl Worker {
    /// Handles a server's notice for its client: it may contain a client's pid. A notice about the startup
    /// parameters of a client that logs in is not a reply to that client's requests, but is sent to it all the
    /// same.
    #[cold]
    pub(crate) fn noticed(&mut self, conn: Token, notice: &[u8], out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        match (server.replies.current(), server.equips()) {
            (Some(Request::Internal(InternalQuery::Startup)), Some(client)) => {
                out.send_made(client, |bytes| bytes.extend_from_slice(notice));
            }
            (Some(Request::Internal(_)), _) => {}
            _ if server.session.transaction.effects.intersects(SIGNALS) => {
                if let Some(pid) = unknown_pid(&notice[HEADER_LEN..]) {
                    server.session.signals.get_or_insert_default().add(pid);
                }
            }
            _ => {}
        }
    }

    /// Queries the privileges by which the server's client signals others; the client waits.
    #[cold]
    pub(super) fn ask_for_rights(&mut self, conn: Token, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        enter(Phase::AskingPrivilege, client_conn, client, conn, server);
        out.read(client_conn, ReadMode::Hold);
        let text = Rights::query(server.shared.key.user.as_bytes());
        server.ask(InternalQuery::Rights);
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(&text);
        });
    }

    /// Handles the server's answer about the privileges.
    #[cold]
    pub(crate) fn handle_asker_rights(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        let signals = server.session.signals.take();
        let user = client.names.as_ref().map(|names| names.user.clone());
        let shared = server.shared.clone();
        if let Some(signals) = signals
            && let (Some(signal), Some(rights)) = (signals.signal, signals.rights)
            && let (Some(user), Some(pool)) = (user, self.pool(shared.id))
        {
            let by = Asker {
                rights,
                endpoints: pool.terms.endpoints.clone(),
                user,
                login_user: shared.key.user.clone(),
            };
            self.send_signals(signal, &signals.pids, &by, now, out);
        }
        // The client may have terminated itself.
        if self.table.client(client_conn).is_some() {
            self.inspect_after_signals(conn, now, out);
        }
    }

    /// Goes on with a request that signals others, once the privileges are known: does whatever else the request
    /// was held back for.
    #[cold]
    fn inspect_after_signals(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        if std::mem::take(&mut server.session.queries.ready_is_held) {
            enter(Phase::Relaying, client_conn, client, conn, server);
            return self.inspect_held(conn, now, out);
        }
        if !server.session.notifications.pending.is_empty() {
            send_backlog(&mut self.table, client_conn, out);
        }
        self.finish_request(conn, now, out);
    }

    /// Completes the client's request: everything that it was held back for is done.
    fn finish_request(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        enter(Phase::Relaying, client_conn, client, conn, server);
        send_unsent_parameters(directory.names(), client_conn, client, server, out);
        let status = server.status;
        out.send_made(client_conn, |bytes| {
            MessageWriter::new(bytes).ready_for_query(status);
        });
        let early = begin(client_conn, client, conn, server, out);
        self.relay_early(client_conn, early, now, out);
    }

    /// Sends the signals to the workers of these pids. The mail arrives before the client gets its reply.
    fn send_signals(
        &mut self,
        signal: Signal,
        pids: &[u32],
        by: &Asker,
        now: Time,
        out: &mut Actions,
    ) {
        let own_peer = self.snapshot.config.settings.peer_id;
        let workers = self.directory.workers();
        let mut orders: Vec<Vec<u32>> = vec![Vec::new(); workers];
        for &pid in pids {
            let named = CancelKey {
                pid,
                secret: Box::default(),
            };
            if own_peer == 0 || own_peer == named.peer() {
                orders[named.worker(workers).index()].push(pid);
            }
        }
        for (to, pids) in self.directory.worker_ids().zip(orders) {
            let order = Order {
                signal,
                pids,
                by: by.clone(),
            };
            if order.pids.is_empty() {
                continue;
            } else if to == self.id {
                self.signal(&order, now, out);
            } else {
                let mail = Mail::Signal(Box::new(order));
                out.list.push(Action::Mail { to, mail });
            }
        }
    }

    /// Carries out another client's signals for the clients of this worker.
    pub(super) fn signal(&mut self, order: &Order, now: Time, out: &mut Actions) {
        for &pid in &order.pids {
            let Some(conn) = self.cancel_requests.only_client_with(pid) else {
                continue;
            };
            if !self.may_be_signalled(conn, &order.by) {
                continue;
            }
            match order.signal {
                Signal::Terminate => self.terminate(conn, now, out),
                Signal::Cancel => match busy_server(&mut self.table, conn) {
                    Some(server) => self.cancel_query(server, now, out),
                    None => self.discard_request(conn, now, out),
                },
            }
        }
    }

    fn may_be_signalled(&mut self, conn: Token, by: &Asker) -> bool {
        let Some(client) = self.table.client(conn) else {
            return false;
        };
        let is_in = !matches!(client.duty, ClientDuty::Login(_) | ClientDuty::Console(_));
        let (names, pool) = (client.names.clone(), client.pool.filter(|_| is_in));
        let (Some(names), Some(pool)) = (names, pool.and_then(|pool| self.pool(pool))) else {
            return false;
        };
        by.may(&pool.terms.endpoints, &pool.shared.key.user, &names.user)
    }

    /// Terminates a client that another client has signalled.
    fn terminate(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(server) = busy_server(&mut self.table, conn) {
            self.cancel_query(server, now, out);
        }
        self.refuse(conn, &Fault::Terminated, now, out);
    }
}
