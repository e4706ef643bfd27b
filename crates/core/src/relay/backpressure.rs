//! A client whose server owes it a great deal is not read until half of that is answered: what a pipeline may take
//! of our memory is bounded (`max_pipelined_messages`).

use pgweir_wire::tag::frontend;

use super::client_to_server::ClientMessages;
use crate::{Actions, ReadMode, Token, worker::Worker};

impl ClientMessages<'_> {
    /// The server owes so much that the client is not read until it has answered: at the end of a message, so
    /// that a Flush can follow. Without one, PostgreSQL answers messages that have no Sync yet only when its
    /// buffer is full, and that Sync may be what the client is about to send.
    #[cold]
    pub(super) fn hold_back(&mut self, out: &mut Actions) {
        if !self.client.stream.is_at_boundary() {
            return;
        }
        let replies = &mut self.server.replies;
        replies.set_full();
        if replies.is_unsynced() {
            out.send_made(self.server_conn, |made| {
                made.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
            });
        }
        out.read(self.client_conn, ReadMode::Hold);
    }
}

impl Worker {
    /// A client was not read since its server owed too much: it is read on once half of that is answered.
    #[inline]
    pub(super) fn read_on_if_answered(&mut self, conn: Token, client: Token, out: &mut Actions) {
        let owed_max = self.snapshot.config.settings.max_pipelined_messages as usize;
        if let Some(server) = self.table.server(conn)
            && server.replies.take_full(owed_max)
            && !server.blocked
        {
            out.read(client, ReadMode::Deliver);
        }
    }
}
