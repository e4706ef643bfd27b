//! Exclusive servers. pgweir opens an exclusive server for one client, lends it to no other client, and closes it when its
//! client leaves.

use std::sync::Arc;

use super::ServerConnections;
use crate::{
    Actions, Replication, SharedPool, Token,
    backend::{Credentials, Phase, Purpose, Server},
    base::fault::Fault,
    connections::moves::enter,
    effect::{ClientEffect, Effect},
    frontend::{Client, ClientDuty},
    pool::Waiter,
    session::TrackedNames,
    shared::pool::ServerParameters,
};

impl ServerConnections<'_> {
    /// Opens an exclusive server for a waiting client, after the ledger has reserved a place for the server.
    pub(crate) fn open_exclusive(
        &mut self,
        shared: &Arc<SharedPool>,
        waiter: Waiter,
        out: &mut Actions,
    ) {
        let waits = self.connections.client(waiter.client).is_some_and(
            |client| matches!(*client.duty(), ClientDuty::Waiting { ticket, .. } if ticket == waiter.ticket),
        );
        if waits && shared.ledger.lock().is_paused() {
            self.note_exclusive_connected(shared, false, out);
            return self.wait_again(waiter.client, shared);
        }
        if !waits {
            // The client has left.
            return self.note_exclusive_connected(shared, false, out);
        }
        if !self.open_for_client(waiter.client, shared, out) {
            self.note_exclusive_connected(shared, false, out);
        }
    }

    fn wait_again(&mut self, client: Token, shared: &SharedPool) {
        self.effects.push(Effect::Client(ClientEffect::Wait {
            client,
            pool: shared.id,
            at_login: true,
        }));
    }

    /// Opens a server for one client. Returns `false` if the database is gone, and the client with it.
    pub(crate) fn open_for_client(
        &mut self,
        client_conn: Token,
        shared: &Arc<SharedPool>,
        out: &mut Actions,
    ) -> bool {
        let Some((endpoint, mut credentials)) = self.terms_of_login(shared) else {
            let fault = Fault::NoSuchDatabase(shared.key.database.to_string());
            self.effects.push(Effect::Client(ClientEffect::Refuse(
                client_conn,
                Box::new(fault),
            )));
            return false;
        };
        let Some(client) = self.connections.known_client(client_conn, out) else {
            return false;
        };
        let purpose = Purpose::Client {
            owner: client_conn,
            bypass: client.is_past_limits(),
            replication: client.replication(),
            stream: None,
        };
        add_login_parameters(&mut credentials, client, self.env.directory.names());
        // A replication connection may accept no such query.
        credentials.asks_connections = false;
        let conn = self.begin_login(shared, endpoint, credentials, purpose, out);
        (self.connections).begin_opening(client_conn, conn, self.env.now);
        true
    }

    /// Ends the client's login, since its exclusive server has logged in.
    pub(super) fn exclusive_ready(
        &mut self,
        conn: Token,
        owner: Token,
        server_parameters: ServerParameters,
        out: &mut Actions,
    ) {
        let now = self.env.now;
        let Some((client, server)) = self.connections.pair(owner, conn) else {
            return out.report_missing("the client of an exclusive server");
        };
        let shared = Arc::clone(&server.shared);
        let bypass = server.purpose().bypasses_limits();
        let waited = now.since(client.request.sent_at());
        client.tracked = server.tracked.clone();
        client.request.note_transaction(now);
        server.times.note_lent(now);
        enter(Phase::Relaying, owner, client, conn, server);
        if !bypass {
            self.note_exclusive_connected(&shared, true, out);
        }
        self.pools.count_assignment(shared.id, waited);
        self.effects.push(Effect::Client(ClientEffect::Greet(
            owner,
            Box::new(server_parameters),
        )));
        self.effects
            .push(Effect::Client(ClientEffect::BeginRelaying {
                server: conn,
                client: owner,
            }));
    }

    /// Handles a failed login of an exclusive server. The failure says nothing about other servers of the pool: the
    /// REPLICATION privilege, or the line in pg_hba.conf for it, may be missing.
    pub(super) fn exclusive_failed(
        &mut self,
        server: &Server,
        owner: Token,
        why: &str,
        out: &mut Actions,
    ) {
        if self.release_owner(server, owner, out) {
            let fault = Fault::OwnServer(why.to_owned());
            self.effects
                .push(Effect::Client(ClientEffect::Refuse(owner, Box::new(fault))));
        }
    }

    /// Handles the login of an exclusive server that pgweir has ended (PAUSE, RECONNECT): the client, if it is still
    /// there, gets another server.
    pub(super) fn exclusive_given_up(&mut self, server: &Server, owner: Token, out: &mut Actions) {
        if self.release_owner(server, owner, out) {
            self.wait_again(owner, &server.shared);
        }
    }

    /// Makes the owner of an exclusive server idle, because the server did not become ready. Returns `false` if the owner
    /// has left, too.
    fn release_owner(&mut self, server: &Server, owner: Token, out: &mut Actions) -> bool {
        if !server.purpose().bypasses_limits() {
            self.note_exclusive_connected(&server.shared, false, out);
        }
        let client = self.connections.client(owner);
        client.is_some_and(|client| {
            client.become_idle();
            true
        })
    }

    /// Informs the ledger that an exclusive server has logged in, or that its login has failed.
    fn note_exclusive_connected(
        &mut self,
        shared: &Arc<SharedPool>,
        is_ready: bool,
        out: &mut Actions,
    ) {
        let (worker, now) = (self.env.worker, self.env.now);
        let notes = (shared.ledger.lock()).exclusive_connected(worker, is_ready, now);
        self.deliver(&notes, shared, out);
    }
}

/// Adds the parameters of the client's startup packet to the server's: a physical replication connection can't
/// get parameters in another way, and some parameters can't be changed later on any connection.
fn add_login_parameters(credentials: &mut Credentials, client: &Client, names: &TrackedNames) {
    let Some(exclusive) = client.exclusive() else {
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
