//! Exclusive servers: opened for one client, used by that client alone, and closed with it.

use std::sync::Arc;

use super::Worker;
use crate::{
    Actions, Replication, SharedPool, Time, Token,
    backend::{Credentials, Duty, Loan, Phase, Server},
    fault::Fault,
    frontend::{Client, ClientDuty},
    loan::begin,
    pool::Waiter,
    shared_pool::ServerParameters,
};

impl Worker {
    /// Opens an exclusive server for a client, since the ledger has room for it.
    pub(crate) fn open_exclusive(
        &mut self,
        shared: &Arc<SharedPool>,
        waiter: Waiter,
        now: Time,
        out: &mut Actions,
    ) {
        let waits = self.table.client(waiter.client).is_some_and(
            |client| matches!(client.duty, ClientDuty::Waiting { ticket, .. } if ticket == waiter.ticket),
        );
        if waits && shared.ledger.lock().is_paused() {
            self.exclusive_connected(shared, false, now, out);
            return self.wait(waiter.client, shared.id, true, now, out);
        }
        if !waits {
            // The client has left.
            return self.exclusive_connected(shared, false, now, out);
        }
        if !self.open_for_client(waiter.client, shared, now, out) {
            self.exclusive_connected(shared, false, now, out);
        }
    }

    /// Opens a server for one client. Returns `false` if the database is gone, and the client with it.
    pub(super) fn open_for_client(
        &mut self,
        client_conn: Token,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some((endpoint, mut credentials)) = self.terms_of_login(shared, now) else {
            let fault = Fault::NoSuchDatabase(shared.key.database.to_string());
            self.refuse(client_conn, &fault, now, out);
            return false;
        };
        let directory = Arc::clone(&self.directory);
        let Some(client) = self.table.client(client_conn) else {
            return false;
        };
        let (replication, bypass) = (client.replication(), client.is_past_limits());
        add_login_parameters(&mut credentials, client, directory.names());
        let conn = self.begin_server_login(shared, endpoint, credentials, None, now, out);
        if let Some(server) = self.table.server(conn) {
            server.purpose.owner = Some(client_conn);
            server.purpose.bypass = bypass;
            server.purpose.replication = replication;
        }
        if let Some(client) = self.table.client(client_conn) {
            client.duty = ClientDuty::Opening(conn);
        }
        true
    }

    /// Ends the client's login, since its exclusive server has logged in.
    pub(super) fn exclusive_ready(
        &mut self,
        conn: Token,
        owner: Token,
        server_parameters: &ServerParameters,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.table.pair(owner, conn) else {
            return;
        };
        let shared = Arc::clone(&server.shared);
        let bypass = server.purpose.bypass;
        let waited = now.since(client.request.sent_at);
        client.tracked = server.tracked.clone();
        client.request.transaction_at = now;
        client.duty = ClientDuty::Active(conn);
        server.times.lent_at = now;
        server.duty = Duty::Lent(Loan::new(owner, Phase::Relaying));
        if !bypass {
            self.exclusive_connected(&shared, true, now, out);
        }
        self.log_in(now, out, |event, out| {
            event.greet(owner, server_parameters, out)
        });
        self.count_assignment(shared.id, waited);
        let Some((client, server)) = self.table.pair(owner, conn) else {
            return;
        };
        let early = begin(owner, client, conn, server, out);
        self.relay_early(owner, early, now, out);
    }

    /// Handles a failed login of an exclusive server. The failure says nothing about other servers of the pool: the
    /// REPLICATION privilege, or the line in pg_hba.conf for it, may be missing.
    pub(super) fn exclusive_failed(
        &mut self,
        server: &Server,
        owner: Token,
        why: &str,
        now: Time,
        out: &mut Actions,
    ) {
        if self.is_without_server(server, owner, now, out) {
            self.refuse(owner, &Fault::OwnServer(why.to_owned()), now, out);
        }
    }

    /// Handles an exclusive server's login that pgweir has ended (PAUSE, RECONNECT): the client, if it's still
    /// there, gets another server.
    pub(super) fn exclusive_given_up(
        &mut self,
        server: &Server,
        owner: Token,
        now: Time,
        out: &mut Actions,
    ) {
        if self.is_without_server(server, owner, now, out) {
            self.wait(owner, server.pool(), true, now, out);
        }
    }

    /// Notes that the exclusive server will not come. Returns `false` if the client is gone too.
    fn is_without_server(
        &mut self,
        server: &Server,
        owner: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        if !server.purpose.bypass {
            self.exclusive_connected(&server.shared, false, now, out);
        }
        let client = self.table.client(owner);
        client.is_some_and(|client| {
            client.duty = ClientDuty::Idle;
            true
        })
    }

    fn exclusive_connected(
        &mut self,
        shared: &Arc<SharedPool>,
        is_ready: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let notes = shared
            .ledger
            .lock()
            .exclusive_connected(self.id, is_ready, now);
        self.deliver(notes, shared, out);
    }

    /// Logs that a server refused a login.
    pub(super) fn log_refused(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        let owner = self
            .table
            .server(conn)
            .and_then(|server| server.purpose.owner);
        self.log_server_end(conn, owner.map_or(why, |_| "login failed"), now, out);
    }
}

/// Adds the parameters of the client's startup packet to the server's: a physical replication connection can't
/// get parameters in another way, and some parameters can't be changed later on any connection.
fn add_login_parameters(
    credentials: &mut Credentials,
    client: &Client,
    names: &crate::session::TrackedNames,
) {
    let Some(exclusive) = &client.exclusive else {
        return;
    };
    let tracked = names.pairs(&client.tracked);
    let tracked = tracked.map(|(name, value)| (name.into(), value.to_vec()));
    credentials.parameters.extend(tracked);
    credentials
        .parameters
        .extend_from_slice(&exclusive.parameters);
    if exclusive.replication != Replication::None {
        let value = exclusive.replication.parameter().as_bytes();
        credentials
            .parameters
            .push((b"replication".to_vec(), value.to_vec()));
    }
    if exclusive.replication == Replication::Physical {
        // A physical replication connection runs no SQL.
        credentials.connect_query = None;
    }
}
