//! Online restart: a client in session mode keeps its server connection. The old process hands over both
//! connections together, and the session on the server goes on.

use std::sync::Arc;

use pgweir_config::PoolMode;

use super::Worker;
use crate::{
    Actions, HandedOverServer, ReadMode, SharedPool, Time, Token,
    backend::{BackendKey, Duty, Loan, Phase, Server, Unnamed},
    connections::Conn,
    fault::Fault,
    frontend::{Client, ClientDuty},
    takeover::{Pairs, ServerRecord},
};

impl Worker {
    /// Returns the server that a client can keep: in session mode, when neither has a message or reply outstanding.
    pub(super) fn server_to_hand_over(&self, client: &Client) -> Option<Token> {
        let ClientDuty::Active(conn) = client.duty else {
            return None;
        };
        let pool = self.pools.get(client.pool?)?;
        let Some(Conn::Server(server)) = self.table.look(conn) else {
            return None;
        };
        let is_session = pool.terms.mode == PoolMode::Session
            && client.context.is_none()
            && client.socket.early.is_none()
            && server.purpose.owner.is_none();
        let is_quiet = server.status == b'I'
            && server.replies.is_settled()
            && !server.replies.is_uncertain()
            && !server.replies.is_awaited()
            && server.stream.is_quiet()
            && server.link.last_words.is_none();
        let can_move = server.link.tls.is_none()
            && server.link.addresses.is_some()
            && server.statements.prepared.is_empty()
            && !server.link.blocked
            && server.next_loan.cancels == 0
            && server.retirement.reason.is_none();
        (is_session && is_quiet && can_move).then_some(conn)
    }

    /// Serializes the server of a client that leaves, and removes it here, except from the ledger.
    pub(super) fn hand_over_server(
        &mut self,
        client: Token,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Option<(ServerRecord, HandedOverServer)> {
        let names = self.directory.names();
        let Some(Conn::Server(server)) = self.table.look(conn) else {
            return None;
        };
        let (local, remote) = server.link.addresses?;
        let pairs = names.pairs(&server.tracked);
        let record = ServerRecord {
            id: server.id,
            endpoint: (*server.link.endpoint).clone(),
            local,
            remote,
            key_pid: server.link.key.as_ref().map_or(0, |key| key.pid),
            key_secret: server
                .link
                .key
                .as_ref()
                .map_or_else(Vec::new, |key| key.secret.to_vec()),
            age: now.since(server.times.connected_at),
            tracked: pairs
                .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
                .collect(),
            needs_reset: server.next_loan.needs_reset,
        };
        let shared = Arc::clone(&server.shared);
        self.forget_server(conn, now, out)?;
        if let Some(client) = self.table.client(client) {
            client.duty = ClientDuty::Idle;
        }
        Some((record, HandedOverServer { conn, shared }))
    }

    /// Corrects the counts when a server that left with its client has arrived, or has come back: it is no longer
    /// counted here, or not twice.
    pub(super) fn server_handed_over(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let notes = shared.ledger.lock().closed(self.id, now);
        self.deliver(notes, shared, out);
        if self.hands_clients_over() {
            self.release_server_places(now, out);
        }
    }

    /// Takes over the server that came with a client; the caller registers its connection under the token.
    ///
    /// # Errors
    /// The pool is no longer in session mode: the session can't go on.
    pub(super) fn take_over_server(
        &mut self,
        client_conn: Token,
        record: &ServerRecord,
        now: Time,
        out: &mut Actions,
    ) -> Result<Option<Token>, Fault> {
        let pool = self
            .table
            .client(client_conn)
            .and_then(|client| client.pool);
        let Some(pool) = pool.and_then(|pool| self.pool(pool)) else {
            return Ok(None);
        };
        if pool.terms.mode != PoolMode::Session {
            return Err(Fault::DatabaseChanged);
        }
        pool.servers += 1;
        let (shared, epoch) = (Arc::clone(&pool.shared), pool.epoch);
        shared.epochs.lock().opened(epoch);
        let notes = shared.ledger.lock().adopted(self.id);
        let mut server = self.server_of(record, client_conn, &shared, epoch, now);
        if let Some(key) = &server.link.key {
            let holders = self.directory.holders();
            holders.add(&server.link.endpoint, key.pid, &server.holder);
        }
        server.retire_if_outdated();
        let conn = self.table.insert(Conn::Server(Box::new(server)));
        if let Some((client, server)) = self.table.pair(client_conn, conn) {
            client.duty = ClientDuty::Active(conn);
            server.holder.set(client.key.pid());
        }
        self.suspension.add(conn);
        out.read(conn, ReadMode::Deliver);
        self.deliver(notes, &shared, out);
        Ok(Some(conn))
    }

    fn server_of(
        &self,
        record: &ServerRecord,
        client: Token,
        shared: &Arc<SharedPool>,
        epoch: u32,
        now: Time,
    ) -> Server {
        let mut server = Server::new(
            record.id,
            shared,
            Arc::new(record.endpoint.clone()),
            Duty::Lent(Loan::new(client, Phase::Relaying)),
            self.tracked_of(&record.tracked),
            epoch,
            now,
        );
        server.link.addresses = Some((record.local, record.remote));
        server.statements.unnamed = Unnamed::Unknown;
        server.link.key = (record.key_pid != 0).then(|| BackendKey {
            pid: record.key_pid,
            secret: record.key_secret.as_slice().into(),
        });
        server.times.connected_at = Time(now.0.saturating_sub(record.age));
        server.next_loan.needs_reset = record.needs_reset;
        server.session.connected = Some(shared.catalog.connected());
        server
    }

    /// Returns the parameters that were serialized.
    pub(super) fn tracked_of(&self, pairs: &Pairs) -> crate::session::Tracked {
        let names = self.directory.names();
        let mut tracked = names.unset();
        for (name, value) in pairs {
            if let Some(at) = names.position(name) {
                tracked.set(at, value);
            }
        }
        tracked
    }
}
