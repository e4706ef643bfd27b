//! Cancel requests: which client a request names, and which query of which server it stops.

use std::sync::Arc;

use super::{Conn, Worker};
use crate::{
    Action, Actions, Address, Control, Endpoint, ReadMode, Time, Token, WorkerId,
    backend::{Duty, Own, Request},
    cancel::{CancelConnection, CancelKey, ELSEWHERE, Goal, Passage},
    frontend::{Client, ClientDuty},
    mail::Mail,
};

/// Requests for one server that may be under way at once; more would change nothing.
const CANCELS_PER_SERVER_MAX: u32 = 4;

// What becomes of a request, in PgBouncer's words; only the log is told.
pub(crate) const WRONG_KEY: &str = "failed cancel request";
const PASSED_ON: &str = "cancel request passed on to the other process of an online restart";
const IDLE: &str = "cancel request for idle client";
const WAITED: &str = "cancel request for waiting client";
const SENT: &str = "successfully sent cancel request";
const NOT_SENT: &str = "failed to send cancel request";
const OVERDUE: &str = "cancel_wait_timeout";

impl Worker {
    /// A cancel request for a client of this worker.
    pub(crate) fn cancel(
        &mut self,
        from: WorkerId,
        request: Token,
        key: &CancelKey,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(console) = self.holder(key)
            && self.is_console(console)
        {
            self.cancel_console(console, now, out);
        }
        match self.cancel_target(key) {
            Err(WRONG_KEY) if request != ELSEWHERE && self.directory.has_partner() => {
                let elsewhere = Control::CancelElsewhere(key.clone());
                out.list.push(Action::Control(elsewhere));
                out.list.push(Action::Mail {
                    to: from,
                    mail: Mail::CancelDone(request, PASSED_ON),
                });
            }
            Ok(server) => self.open_cancel(server, Some((from, request)), now, out),
            Err(IDLE) if self.cancel_waiter(key, now, out) => out.list.push(Action::Mail {
                to: from,
                mail: Mail::CancelDone(request, WAITED),
            }),
            Err(why) => out.list.push(Action::Mail {
                to: from,
                mail: Mail::CancelDone(request, why),
            }),
        }
    }

    /// Stops the query of a server that is about to be closed: PostgreSQL notices the end of a
    /// connection only when it has something to say.
    pub(crate) fn cancel_query(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.open_cancel(server, None, now, out);
    }

    fn open_cancel(
        &mut self,
        server_conn: Token,
        from: Option<(WorkerId, Token)>,
        now: Time,
        out: &mut Actions,
    ) {
        let until = self.cancel_deadline(now);
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let Some(key) = server.key.clone() else {
            return;
        };
        // The very address of the server: behind its name there may be others.
        let endpoint = match server.addresses {
            Some((_, Address::Tcp(remote))) => Arc::new(Endpoint::Tcp {
                host: remote.ip().to_string(),
                port: remote.port(),
            }),
            _ => Arc::clone(&server.endpoint),
        };
        server.cancels += 1;
        let tls = server.tls.as_ref().map(|_| Arc::clone(&server.endpoint));
        let cancel = CancelConnection {
            goal: Goal::Server(server_conn),
            key: CancelKey {
                pid: key.pid,
                secret: key.secret,
            },
            from,
            passage: Passage::Opening,
            tls,
            until,
        };
        let conn = self.table.insert(Conn::Cancel(Box::new(cancel)));
        self.timed += 1;
        self.schedule(now);
        out.list.push(Action::Connect { conn, endpoint });
    }

    /// When patience with a request ends that comes now.
    pub(super) fn cancel_deadline(&self, now: Time) -> Time {
        match self.snapshot.config.settings.cancel_wait_timeout.0 {
            0 => Time(u64::MAX),
            patience => now.after(patience),
        }
    }

    /// The server that runs the query which the key names. An error, in PgBouncer's words, if the key
    /// is wrong or the client has none.
    fn cancel_target(&mut self, key: &CancelKey) -> Result<Token, &'static str> {
        let conn = self.holder(key).ok_or(WRONG_KEY)?;
        self.busy_server(conn)
    }

    /// The server that runs a query of this client.
    pub(crate) fn busy_server(&mut self, conn: Token) -> Result<Token, &'static str> {
        let client = self.table.client(conn).ok_or(WRONG_KEY)?;
        let ClientDuty::Active(server_conn) = client.duty else {
            return Err(IDLE);
        };
        let Some(server) = self.table.server(server_conn) else {
            return Err(IDLE);
        };
        let is_idle = server.replies.is_settled() && server.status == b'I'
            // What cleans the server for the client must not be cancelled in the place of its query.
            || server.replies.current() == Some(Request::Own(Own::Sequences));
        let may = !is_idle && server.cancels < CANCELS_PER_SERVER_MAX && server.key.is_some();
        may.then_some(server_conn).ok_or(IDLE)
    }

    /// The client that the key names waits for a server: what it asked for is not to be done. `false`
    /// if it does not wait.
    fn cancel_waiter(&mut self, key: &CancelKey, now: Time, out: &mut Actions) -> bool {
        let client = self.holder(key);
        client.is_some_and(|client| self.cancel_waiting(client, now, out))
    }

    /// The client that the key names, if it is the right key.
    fn holder(&mut self, key: &CancelKey) -> Option<Token> {
        let any_hops = self.snapshot.config.settings.peer_id > 0;
        let conn = self.cancel_keys.find(key)?;
        let client = self.table.client(conn)?;
        client.cancel_key().fits(key, any_hops).then_some(conn)
    }

    /// From here on the client can be named by a key.
    pub(crate) fn give_cancel_key(&mut self, conn: Token, has_long_secret: bool) {
        let peer = self.snapshot.config.settings.peer_id;
        let (worker, generation) = (self.id, self.directory.generation());
        let Some(client) = self.table.client(conn) else {
            return;
        };
        // A peer may be one that knows short keys only.
        client.secret_len = if has_long_secret && peer == 0 { 32 } else { 4 };
        let keys = &mut self.cancel_keys;
        client.key_pid = if peer == 0 {
            let pid = |number| CancelKey::pid(worker, generation, number);
            keys.new_pid(CancelKey::PIDS, pid)
        } else {
            client.secret[3] |= CancelKey::HOPS;
            let pid = |number| CancelKey::pid_among_peers(worker, peer, number);
            keys.new_pid(CancelKey::PIDS_AMONG_PEERS, pid)
        };
        keys.insert(&client.cancel_key(), conn);
    }

    /// A client is gone, and its key with it.
    pub(crate) fn drop_cancel_key(&mut self, conn: Token, client: &Client) {
        self.cancel_keys.remove(&client.cancel_key(), conn);
    }

    /// The way to the server is open: pass the request on. PostgreSQL closes the connection when it
    /// has signalled the process.
    pub(crate) fn send_cancel(&mut self, conn: Token, out: &mut Actions) {
        if let Some(Conn::Cancel(cancel)) = self.table.get(conn) {
            cancel.passage = Passage::Sent;
            if let Some((to, request)) = cancel.from {
                let mail = Mail::CancelSent(request);
                out.list.push(Action::Mail { to, mail });
            }
            out.send_made(conn, |bytes| {
                pgweir_wire::cancel_request(bytes, cancel.key.pid, &cancel.key.secret)
            });
            out.read(conn, ReadMode::Deliver);
        }
    }

    /// The request has been dealt with, or has failed: its connection is gone.
    pub(crate) fn cancel_ended(
        &mut self,
        conn: Token,
        why: Option<&'static str>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(Conn::Cancel(cancel)) = self.table.remove(conn) else {
            return;
        };
        self.timed -= 1;
        if let Some((to, request)) = cancel.from {
            let outcome = if cancel.passage == Passage::Sent {
                SENT
            } else {
                NOT_SENT
            };
            let mail = Mail::CancelDone(request, why.unwrap_or(outcome));
            out.list.push(Action::Mail { to, mail });
        }
        let server_conn = match cancel.goal {
            Goal::Peer(peer) => return self.left_peer(peer, cancel.passage, out),
            Goal::Server(server) => server,
        };
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        server.cancels -= 1;
        if server.cancels == 0 && matches!(server.duty, Duty::Cleaning { .. }) {
            self.clean_on(server_conn, now, out);
        }
    }

    /// The request took too long. It may still hit the server later, which is not lent again.
    pub(crate) fn cancel_overdue(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(Conn::Cancel(cancel)) = self.table.get(conn) {
            let (goal, passage) = (cancel.goal, cancel.passage);
            if let Goal::Server(server) = goal
                && let Some(server) = self.table.server(server)
            {
                server.retire = Some(OVERDUE);
            }
            // One that waits for others has no socket yet.
            if passage != Passage::Queued {
                out.list.push(Action::Close(conn));
            }
            self.cancel_ended(conn, Some(OVERDUE), now, out);
        }
    }

    /// The request of this connection is on its way to the server.
    pub(crate) fn cancel_sent(&mut self, request: Token) {
        if let Some(client) = self.table.client(request)
            && let ClientDuty::CancelRequest { sent } = &mut client.duty
        {
            *sent = true;
        }
    }

    /// The request of this connection has been dealt with.
    pub(crate) fn cancel_done(
        &mut self,
        request: Token,
        why: &'static str,
        now: Time,
        out: &mut Actions,
    ) {
        let client = self.table.client(request);
        if client.is_some_and(|client| matches!(client.duty, ClientDuty::CancelRequest { .. })) {
            self.dismiss(request, why, now, out);
        }
    }
}
