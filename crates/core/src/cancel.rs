//! Cancel requests: who may stop whose query.

use std::{fmt, sync::Arc};

use subtle::ConstantTimeEq;

use crate::{
    Action, Actions, Address, Endpoint, ReadMode, Time, Token, WorkerId,
    backend::{BackendKey, Duty},
    frontend::ClientDuty,
    mail::Mail,
    worker::{Conn, Worker},
};

/// Bits of a client's pid that name its slot; the worker's are above them, and the sign bit stays 0.
const SLOT_BITS: u32 = 25;
/// Requests for one server that may be under way at once; more would change nothing.
const CANCELS_PER_SERVER_MAX: u32 = 4;

// What becomes of a request, in PgBouncer's words; only the log is told.
pub(crate) const WRONG_KEY: &str = "failed cancel request";
const IDLE: &str = "cancel request for idle client";
const SENT: &str = "successfully sent cancel request";
const NOT_SENT: &str = "failed to send cancel request";
const OVERDUE: &str = "cancel_wait_timeout";

/// Names a client and proves the right to cancel its query.
#[derive(Clone)]
pub struct CancelKey {
    /// The pid that the client was given.
    pub pid: u32,
    /// The secret that it was given.
    pub secret: Box<[u8]>,
}

impl CancelKey {
    /// The pid that names a client: unique in the process, and it tells the worker.
    #[must_use]
    pub fn pid(worker: WorkerId, client: Token) -> u32 {
        // Slot 0 of worker 0 would be pid 0, which drivers take for "none".
        u32::from(worker.0) << SLOT_BITS | ((client.slot + 1) & ((1 << SLOT_BITS) - 1))
    }

    /// The worker that the pid names.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        WorkerId((self.pid >> SLOT_BITS & 63) as u8)
    }

    /// The slot that the pid names on its worker.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        (self.pid & ((1 << SLOT_BITS) - 1)).checked_sub(1)
    }

    /// Is this the secret that the client was given? In constant time.
    #[must_use]
    pub fn is_proven_by(&self, secret: &[u8]) -> bool {
        self.secret.len() == secret.len() && bool::from(self.secret.ct_eq(secret))
    }
}

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// How far a cancel request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Its connection is being opened.
    Opening,
    /// The server was asked for TLS.
    Asked,
    /// TLS is being agreed on.
    Handshake,
    /// It is on its way.
    Sent,
}

/// A connection to PostgreSQL that carries one cancel request.
#[derive(Debug)]
pub struct CancelConnection {
    /// The server whose query is to be cancelled.
    pub server: Token,
    /// Its key.
    pub key: BackendKey,
    /// Who asked: worker and connection there; `None` if it was ourselves.
    pub from: Option<(WorkerId, Token)>,
    /// How far it has come.
    pub passage: Passage,
    /// It is to be encrypted, as its server's connection is; the server's name.
    pub tls: Option<Arc<Endpoint>>,
    /// When patience ends (`cancel_wait_timeout`).
    pub until: Time,
}

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
            Ok(server) => self.open_cancel(server, Some((from, request)), now, out),
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
        let patience = self.snapshot.config.settings.cancel_wait_timeout.0;
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
            server: server_conn,
            key,
            from,
            passage: Passage::Opening,
            tls,
            until: if patience == 0 {
                Time(u64::MAX)
            } else {
                now.after(patience)
            },
        };
        let conn = self.table.insert(Conn::Cancel(Box::new(cancel)));
        self.timed += 1;
        self.schedule(now);
        out.list.push(Action::Connect { conn, endpoint });
    }

    /// The server that runs the query which the key names. An error, in PgBouncer's words, if the key
    /// is wrong or the client has none: if it waits for one, it goes on waiting.
    fn cancel_target(&mut self, key: &CancelKey) -> Result<Token, &'static str> {
        let conn = self.holder(key).ok_or(WRONG_KEY)?;
        let client = self.table.client(conn).ok_or(WRONG_KEY)?;
        let ClientDuty::Active(server_conn) = client.duty else {
            return Err(IDLE);
        };
        let Some(server) = self.table.server(server_conn) else {
            return Err(IDLE);
        };
        let is_idle = server.replies.is_settled() && server.status == b'I';
        let may = !is_idle && server.cancels < CANCELS_PER_SERVER_MAX && server.key.is_some();
        may.then_some(server_conn).ok_or(IDLE)
    }

    /// The client that the key names, if it is the right key.
    fn holder(&mut self, key: &CancelKey) -> Option<Token> {
        let conn = self.table.token_at(key.slot()?)?;
        let client = self.table.client(conn)?;
        let secret = &client.secret[..usize::from(client.secret_len)];
        key.is_proven_by(secret).then_some(conn)
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
        let Some(server) = self.table.server(cancel.server) else {
            return;
        };
        server.cancels -= 1;
        if server.cancels == 0 && matches!(server.duty, Duty::Cleaning { .. }) {
            self.clean_on(cancel.server, now, out);
        }
    }

    /// The request took too long. It may still hit the server later, which is not lent again.
    pub(crate) fn cancel_overdue(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(Conn::Cancel(cancel)) = self.table.get(conn) {
            let server = cancel.server;
            if let Some(server) = self.table.server(server) {
                server.retire = Some(OVERDUE);
            }
            out.list.push(Action::Close(conn));
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
