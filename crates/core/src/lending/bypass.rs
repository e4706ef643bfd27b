//! Servers for clients of `bypass_users`, which are exempt from the limits: each has an exclusive server that no ledger
//! and no cap counts.

use std::sync::Arc;

use super::Lending;
use crate::{
    SharedPool, Token,
    connections::Conn,
    effect::{ClientEffect, Effect},
    frontend::ClientDuty,
    pool::PoolId,
};

impl Lending<'_> {
    /// Opens a server for a client that is exempt from the limits; while the database is paused, the client waits.
    pub(super) fn bypass_limits(&mut self, conn: Token, shared: &Arc<SharedPool>) {
        // A pause that ends after this check is announced to every worker, so the client is not forgotten.
        if self
            .env
            .directory
            .operator()
            .is_halted(&shared.key.database)
        {
            let ticket = shared.ledger.lock().ticket();
            if let Some(client) = self.connections.client(conn) {
                client.request.note_sent(self.env.now);
            }
            return (self.connections).begin_waiting(conn, ticket, true, self.env.now);
        }
        let open = Effect::Client(ClientEffect::OpenForClient(conn, Arc::clone(shared)));
        self.effects.push(open);
    }

    /// Opens servers for clients of `bypass_users` that waited for the end of a pause.
    pub(crate) fn serve_held_clients(&mut self, id: PoolId) {
        if self.env.waits_for_servers() {
            return;
        }
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        let shared = Arc::clone(&pool.shared);
        let is_held = |conn: &Conn| match conn {
            Conn::Client(client) => {
                client.pool() == Some(id)
                    && client.is_past_limits()
                    && matches!(*client.duty(), ClientDuty::Waiting { .. })
            }
            _ => false,
        };
        for client in self.connections.tokens(is_held) {
            self.bypass_limits(client, &shared);
        }
    }
}
