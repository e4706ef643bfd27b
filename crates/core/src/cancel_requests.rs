//! Cancel requests: the client that a request names, the query that it stops, and the connections that carry requests
//! to servers and peers.
//!
//! This module owns clients' cancel keys and the queues of requests for peers. Input: requests of clients and of other
//! workers, and events of the connections that carry requests. Output: actions, and effects on clients and servers.

pub(crate) mod peers;

use std::sync::Arc;

use pgweir_wire::ssl_request;

use self::peers::PeerPools;
use crate::{
    Action, Actions, Address, Control, Endpoint, ReadMode, Time, TlsRole, Token, WorkerId,
    backend::{Duty, InternalQuery, Request},
    connections::{Conn, Connections},
    directory::Directory,
    effect::{ClientEffect, ConsoleEffect, Effect, Env, ServerEffect},
    frontend::{Client, ClientDuty},
    mail::Mail,
    shared::cancel::{
        CancelConnection, CancelKey, CancelState, CancelTarget, ELSEWHERE, Keys, Whereabouts,
        worker_of_pid,
    },
};

/// Reported when the table has lost the connection of a cancel request.
const NO_CONNECTION: &str = "the connection of a cancel request";

/// The largest number of requests for one server that may be under way at once; more would change nothing.
const CANCELS_PER_SERVER_MAX: u32 = 4;

// Outcomes of a request, with PgBouncer's texts; they are only logged.
const WRONG_KEY: &str = "failed cancel request";
const PASSED_ON: &str = "cancel request passed on to the other process of an online restart";
const IDLE: &str = "cancel request for idle client";
const WAITED: &str = "cancel request for waiting client";
const SENT: &str = "successfully sent cancel request";
const NOT_SENT: &str = "failed to send cancel request";
const OVERDUE: &str = "cancel_wait_timeout";

/// The cancel requests of a worker.
#[derive(Debug, Default)]
pub(crate) struct CancelRequests {
    /// The worker's clients by their cancel keys.
    keys: Keys,
    /// Peers to which this worker passes on requests.
    peers: PeerPools,
}

impl CancelRequests {
    /// Gives the client a cancel key. `peer` is this process's number among its peers, or 0.
    pub(crate) fn give_key(
        &mut self,
        worker: WorkerId,
        directory: &Directory,
        peer: u32,
        conn: Token,
        client: &mut Client,
        has_long_secret: bool,
    ) {
        let generation = directory.generation();
        // A peer may support only short keys.
        let is_long = has_long_secret && peer == 0;
        client
            .key_mut()
            .set_secret_len(if is_long { 32 } else { 4 });
        let pid = if peer == 0 {
            let pid = |number| CancelKey::pid(worker, generation, number);
            self.keys.new_pid(CancelKey::PIDS, pid)
        } else {
            client.key_mut().allow_hops();
            let pid = |number| CancelKey::pid_among_peers(worker, peer, number);
            self.keys.new_pid(CancelKey::PIDS_AMONG_PEERS, pid)
        };
        client.key_mut().set_pid(pid);
        self.keys.insert_at(client.key_mut().place(), conn);
    }

    /// Registers the key of a client that another process has handed over.
    pub(crate) fn take_key(&mut self, key: &CancelKey, conn: Token) {
        self.keys.insert(key, conn);
    }

    /// Removes the key of a client that has gone.
    pub(crate) fn drop_key(
        &mut self,
        env: &Env<'_>,
        conn: Token,
        client: &mut Client,
        out: &mut Actions,
    ) {
        let key = client.key_mut();
        self.keys.remove_at(key.place(), conn);
        let moves = key.count_move();
        let has_key = key.pid() != 0;
        if has_key && worker_of_pid(key.pid(), env.directory.workers()) != env.worker {
            tell_home(env, key.cancel_key(), None, moves, out);
        }
    }

    /// Notes that a client leaves for another worker. Its home goes on knowing its key.
    pub(crate) fn client_leaves(
        &mut self,
        env: &Env<'_>,
        conn: Token,
        client: &mut Client,
        to: WorkerId,
        out: &mut Actions,
    ) {
        let key = client.cancel_key();
        let moves = client.key_mut().count_move();
        if home(env, &key) == env.worker {
            self.keys.leave(&key, conn, to, moves);
        } else {
            self.keys.remove(&key, conn);
            tell_home(env, key, Some(to), moves, out);
        }
    }

    /// Notes at the home of a client where the client is now, after this number of moves; `None` if it has disconnected.
    pub(crate) fn note_move(&mut self, key: &CancelKey, to: Option<WorkerId>, moves: u32) {
        self.keys.note_move(key, to, moves);
    }

    /// Notes at the home of a client that the client has come back to this worker from another process.
    pub(crate) fn note_back(&mut self, key: &CancelKey, to: WorkerId, moves: u32) {
        self.keys.note_back(key, to, moves);
    }

    /// Returns the client that may have this key: the caller compares the whole key.
    pub(crate) fn find(&self, key: &CancelKey) -> Option<Token> {
        self.keys.find(key)
    }

    /// Returns where the client with this pid is, if exactly one client has the pid.
    pub(crate) fn locate_only_client_with(&self, pid: u32) -> Option<Whereabouts> {
        self.keys.only_one(pid)
    }

    /// Stops the query of the client that the key names, for a request that any worker has received.
    pub(crate) fn cancel(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
        from: WorkerId,
        request: Token,
        key: &CancelKey,
        out: &mut Actions,
    ) -> Option<Effect> {
        if let Some(to) = self.worker_to_ask(env, key) {
            let key = key.clone();
            out.mail(to, Mail::Cancel { from, request, key });
            return None;
        }
        let Some(conn) = self.client_named(env, connections, key) else {
            let is_elsewhere = request != ELSEWHERE && env.directory.has_partner();
            let outcome = if is_elsewhere { PASSED_ON } else { WRONG_KEY };
            if is_elsewhere {
                let elsewhere = Control::CancelElsewhere(key.clone());
                out.control(elsewhere);
            }
            report_outcome(from, request, outcome, out);
            return None;
        };
        if let Some(server) = busy_server(connections, conn) {
            open(env, connections, server, Some((from, request)), out);
            return None;
        }
        let client = connections.client(conn)?;
        let is_console = matches!(*client.duty(), ClientDuty::Console(_));
        let waits = client.waits_with_request();
        let outcome = if waits { WAITED } else { IDLE };
        report_outcome(from, request, outcome, out);
        match () {
            () if is_console => Some(Effect::Console(ConsoleEffect::EndCommand(conn))),
            () if waits => Some(Effect::Client(ClientEffect::DiscardRequest(conn))),
            () => None,
        }
    }

    /// Returns the worker that has the client with this key, or knows where it is; `None` if this worker does.
    fn worker_to_ask(&self, env: &Env<'_>, key: &CancelKey) -> Option<WorkerId> {
        match self.keys.locate(key) {
            Some(Whereabouts::Here(_)) => None,
            Some(Whereabouts::At(worker, _)) => Some(worker),
            // The client has left after its home had sent the request to this worker.
            None => Some(home(env, key)).filter(|&home| home != env.worker),
        }
    }

    /// Returns the client that the key names, if the whole key is right.
    fn client_named(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
        key: &CancelKey,
    ) -> Option<Token> {
        let any_hops = env.snapshot.config.settings.peer_id > 0;
        let conn = self.keys.find(key)?;
        let client = connections.client(conn)?;
        client.cancel_key().fits(key, any_hops).then_some(conn)
    }

    /// Handles the end of a connection that carries a request: the request was carried out or has failed.
    pub(crate) fn ended(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        why: Option<&'static str>,
        out: &mut Actions,
    ) -> Option<Effect> {
        let Some(Conn::Cancel(cancel)) = connections.remove(conn) else {
            return None;
        };
        if let Some((to, request)) = cancel.from {
            let outcome = match cancel.state {
                CancelState::Sent => SENT,
                _ => NOT_SENT,
            };
            report_outcome(to, request, why.unwrap_or(outcome), out);
        }
        let server_conn = match cancel.goal {
            CancelTarget::Peer(peer) => {
                self.left_peer(env, connections, peer, cancel.state, out);
                return None;
            }
            CancelTarget::Server(server) => server,
        };
        let server = connections.server(server_conn)?;
        server.next_loan.note_cancel_ended();
        if server.next_loan.awaits_cancels() {
            return None;
        }
        match *server.duty() {
            Duty::Cleaning { .. } => Some(Effect::Server(ServerEffect::GoOnCleaning(server_conn))),
            _ if server.unsettled_since().is_some() => Some(Effect::Settle(server_conn)),
            _ => None,
        }
    }

    /// Ends a request that took too long. The request may still reach the server later, so the server is not lent
    /// again.
    pub(crate) fn overdue(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let Some(Conn::Cancel(cancel)) = connections.get_mut(conn) else {
            return None;
        };
        let (goal, state) = (cancel.goal, cancel.state);
        if let CancelTarget::Server(server) = goal
            && let Some(server) = connections.server(server)
        {
            server.retirement.replace_reason(OVERDUE);
        }
        // A request in the queue has no socket yet.
        if state != CancelState::Queued {
            out.list.push(Action::Close(conn));
        }
        self.ended(env, connections, conn, Some(OVERDUE), out)
    }

    /// Handles bytes on a connection that carries a request: the answer to the request for TLS. No other bytes are
    /// expected.
    pub(crate) fn answered(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        bytes: &[u8],
        out: &mut Actions,
    ) -> Option<Effect> {
        let Some(Conn::Cancel(cancel)) = connections.get_mut(conn) else {
            out.report_missing(NO_CONNECTION);
            return None;
        };
        match (&cancel.state, &cancel.tls, bytes) {
            (CancelState::Asked, Some(endpoint), b"S") => {
                let endpoint = Arc::clone(endpoint);
                cancel.state = CancelState::Handshake;
                let role = TlsRole::Connect { endpoint };
                out.start_tls(conn, role);
                None
            }
            (CancelState::Sent, ..) => None,
            _ => {
                out.list.push(Action::Close(conn));
                self.ended(env, connections, conn, None, out)
            }
        }
    }
}

/// Stops the query of a server that is about to be closed: PostgreSQL notices the end of a connection only when it
/// sends something.
pub(crate) fn stop_query(
    env: &Env<'_>,
    connections: &mut Connections,
    server: Token,
    out: &mut Actions,
) {
    open(env, connections, server, None, out);
}

/// Returns the worker that the pid of a key names: it knows where the client is.
fn home(env: &Env<'_>, key: &CancelKey) -> WorkerId {
    key.worker(env.directory.workers())
}

/// Tells the home of a client of this worker where the client goes, by this move; `None` if it has disconnected.
fn tell_home(env: &Env<'_>, key: CancelKey, to: Option<WorkerId>, moves: u32, out: &mut Actions) {
    let home = home(env, &key);
    if home != env.worker {
        out.mail(home, Mail::ClientMoved { key, to, moves });
    }
}

/// Tells the home of a client that the client has come back to this worker from another process, after this number of
/// moves.
pub(crate) fn tell_home_of_return(env: &Env<'_>, key: CancelKey, moves: u32, out: &mut Actions) {
    let (home, to) = (home(env, &key), env.worker);
    if home != to {
        out.mail(home, Mail::ClientBack { key, to, moves });
    }
}

/// Returns the server that runs a query of this client and may be sent a cancel request.
pub(crate) fn busy_server(connections: &mut Connections, conn: Token) -> Option<Token> {
    let client = connections.client(conn)?;
    let ClientDuty::Active(server_conn) = *client.duty() else {
        return None;
    };
    let server = connections.server(server_conn)?;
    let is_idle = server.replies.is_settled() && server.is_outside_transaction()
        // The query that runs at present cleans the server for the client. A cancel request for the client's query must
        // not cancel this one.
        || server.replies.current() == Some(Request::Internal(InternalQuery::Discard));
    let may = !is_idle
        && server.next_loan.cancels() < CANCELS_PER_SERVER_MAX
        && server.link.key().is_some();
    may.then_some(server_conn)
}

fn open(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    from: Option<(WorkerId, Token)>,
    out: &mut Actions,
) {
    let Some(server) = connections.server(server_conn) else {
        return;
    };
    let Some(key) = server.link.key().cloned() else {
        return;
    };
    // The address of the server connection: the host name may have the addresses of other servers, too.
    let endpoint = match server.link.addresses() {
        Some((_, Address::Tcp(remote))) => Arc::new(Endpoint::Tcp {
            host: remote.ip().to_string(),
            port: remote.port(),
        }),
        _ => Arc::clone(server.link.endpoint()),
    };
    server.next_loan.note_cancel_opened();
    let cancel = CancelConnection {
        goal: CancelTarget::Server(server_conn),
        key: CancelKey {
            pid: key.pid,
            secret: key.secret,
        },
        from,
        state: CancelState::Opening,
        tls: server
            .link
            .tls()
            .map(|_| Arc::clone(server.link.endpoint())),
        until: env.cancel_deadline(),
    };
    let conn = connections.insert(Conn::Cancel(Box::new(cancel)), env.now);
    out.list.push(Action::Connect { conn, endpoint });
}

/// Sends the request on a connection that is now open. The request is encrypted if the connection of the server is.
pub(crate) fn opened(env: &Env<'_>, connections: &mut Connections, conn: Token, out: &mut Actions) {
    let Some(Conn::Cancel(cancel)) = connections.get_mut(conn) else {
        return out.report_missing(NO_CONNECTION);
    };
    let Some(endpoint) = cancel.tls.clone() else {
        return send(connections, conn, out);
    };
    if env.snapshot.tls.servers.is_some_and(|terms| terms.direct) {
        cancel.state = CancelState::Handshake;
        let role = TlsRole::Connect { endpoint };
        out.start_tls(conn, role);
    } else {
        cancel.state = CancelState::Asked;
        out.send_made(conn, ssl_request);
    }
    out.read(conn, ReadMode::Deliver);
}

/// Sends the request. PostgreSQL closes the connection when it has signalled the process.
pub(crate) fn send(connections: &mut Connections, conn: Token, out: &mut Actions) {
    let Some(Conn::Cancel(cancel)) = connections.get_mut(conn) else {
        return out.report_missing(NO_CONNECTION);
    };
    cancel.state = CancelState::Sent;
    if let Some((to, request)) = cancel.from {
        let mail = Mail::CancelSent(request);
        out.mail(to, mail);
    }
    out.send_made(conn, |bytes| {
        pgweir_wire::cancel_request(bytes, cancel.key.pid, &cancel.key.secret)
    });
    out.read(conn, ReadMode::Deliver);
}

/// Marks the request of this client connection as on its way to the server.
pub(crate) fn sent(connections: &mut Connections, request: Token) {
    if let Some(client) = connections.client(request) {
        client.cancel_request_sent();
    }
}

/// Ends the request of this client connection.
pub(crate) fn done(
    connections: &mut Connections,
    request: Token,
    why: &'static str,
) -> Option<Effect> {
    let client = connections.client(request)?;
    let is_request = matches!(*client.duty(), ClientDuty::CancelRequest { .. });
    is_request.then_some(Effect::Client(ClientEffect::Dismiss(request, why)))
}

/// Informs the worker that received a request of its outcome.
fn report_outcome(to: WorkerId, request: Token, outcome: &'static str, out: &mut Actions) {
    let mail = Mail::CancelDone(request, outcome);
    out.mail(to, mail);
}

impl Env<'_> {
    /// Returns the time at which a request that arrives now times out (`cancel_wait_timeout`).
    fn cancel_deadline(&self) -> Time {
        match self.snapshot.config.settings.cancel_wait_timeout.0 {
            0 => Time(u64::MAX),
            patience => self.now.after(patience),
        }
    }
}
