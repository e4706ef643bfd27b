//! Servers for clients of `bypass_users`, which are exempt from the limits: each has an exclusive server that no ledger
//! and no cap counts.

use std::sync::Arc;

use super::Worker;
use crate::{
    Actions, SharedPool, Time, Token, connections::Conn, frontend::ClientDuty, pool::PoolId,
};

impl Worker {
    /// Opens a server for a client that is exempt from the limits; while the database is paused, the client waits.
    pub(super) fn bypass_limits(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        // An order that ends a pause is sent to every worker after this check, so it is not missed.
        if self.directory.operator().is_halted(&shared.key.database) {
            let ticket = shared.ledger.lock().ticket();
            let duty = ClientDuty::Waiting {
                ticket,
                at_login: true,
            };
            if let Some(client) = self.table.client(conn) {
                client.duty = duty;
                client.request.wait_notice_was_sent = false;
                client.request.sent_at = now;
            }
            return self.schedule(now);
        }
        self.open_for_client(conn, shared, now, out);
    }

    /// Lets clients go on that waited for the end of a pause.
    pub(super) fn release_held(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        if self.shutdown.waits_for_servers() {
            return;
        }
        let held = self.table.tokens(|conn| match conn {
            Conn::Client(client) => {
                client.pool == Some(id)
                    && client.is_past_limits()
                    && matches!(client.duty, ClientDuty::Waiting { .. })
            }
            _ => false,
        });
        for client in held {
            let Some(pool) = self.pool(id) else { return };
            let shared = Arc::clone(&pool.shared);
            self.bypass_limits(client, &shared, now, out);
        }
    }
}
