//! Clients that have hung up while they were not read: their last messages wait for answers to earlier ones.
//!
//! PostgreSQL carries out what a client has sent before it left, and so does pgweir: waiting messages are served in
//! turn. But a server that does not answer is kept for at most `abandoned_query_timeout`, as after any client that
//! left.

use super::Worker;
use crate::{Actions, Time, Token, frontend::ClientDuty};

/// Why the client and its server are closed.
const WHY: &str = "the client has left, and its last messages could not go on in time";

impl Worker {
    /// Notes that a client that is not read has hung up.
    pub(super) fn note_hang_up(&mut self, conn: Token, now: Time) {
        if let Some(client) = self.table.client(conn)
            && client.socket.hung_up_at.is_none()
        {
            client.socket.hung_up_at = Some(now);
            self.schedule(now);
        }
    }

    /// Closes the client and its server.
    pub(super) fn end_hung_up_clients(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let server = self.table.client(conn).and_then(|client| client.server());
        if let Some(server_conn) = server {
            if let Some(server) = self.table.server(server_conn)
                && !server.replies.is_settled()
            {
                self.cancel_query(server_conn, now, out);
            }
            if let Some(client) = self.table.client(conn) {
                client.duty = ClientDuty::Idle;
            }
            self.close_server(server_conn, WHY, now, out);
        }
        self.close_client(conn, WHY, now, out);
    }
}
