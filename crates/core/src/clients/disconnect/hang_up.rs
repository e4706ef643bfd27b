//! Clients that hang up while pgweir does not read from them, because their last messages wait for the answers to
//! earlier ones.
//!
//! PostgreSQL processes all messages that a client has sent before it disconnected, and so does pgweir: waiting
//! messages are served in turn. But a server that does not answer is kept for at most `abandoned_query_timeout`, as
//! after any client that left.

use super::Disconnect;
use crate::{
    Action, Actions, Token, cancel_requests,
    effect::{ClientEffect, Effect},
};

/// Why the client and its server are closed.
const WHY: &str = "the client has left, and its last messages could not go on in time";

impl Disconnect<'_> {
    /// Notes that a client from which pgweir does not read has hung up. Terminate and the end of the stream need no
    /// server; any other request waits for one.
    pub(crate) fn note_hang_up(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        if client.socket.note_hang_up(self.env.now) {
            self.connections.schedule(self.env.now);
        }
        out.list.push(Action::Peek(conn));
    }

    /// Closes the client and its server.
    pub(crate) fn end_hung_up_client(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        if let Some(server_conn) = client.server() {
            client.become_idle();
            if let Some(server) = self.connections.server(server_conn)
                && !server.replies.is_settled()
            {
                cancel_requests::stop_query(&self.env, self.connections, server_conn, out);
            }
            self.effects.push(Effect::close(server_conn, WHY));
        }
        self.effects
            .push(Effect::Client(ClientEffect::Dismiss(conn, WHY)));
    }
}
