//! Bounds the replies that a server owes its client (`max_pipelined_messages`): above the limit, pgweir does not read
//! from the client until half of the replies have arrived.

use pgweir_wire::tag::frontend;

use super::{
    client_to_server::ClientMessages,
    message::{Cursor, Message},
};
use crate::{Actions, ReadMode, Token, backend::Server};

impl ClientMessages<'_> {
    /// Stops reading from the client after all input was passed on. A client whose input ends inside a message's body
    /// is held before its next message instead: see [`Self::holds_back_before`].
    #[cold]
    pub(super) fn hold_back(&mut self, out: &mut Actions) {
        if self.client.socket.stream.is_in_body() {
            return;
        }
        self.demand_replies(out);
        out.read(self.client_conn, ReadMode::Hold);
    }

    /// Keeps this message and all input behind it until half of the outstanding replies, which are too many, have
    /// arrived. Returns whether it does: a server that reads COPY data may owe them until it has read the data.
    #[cold]
    pub(super) fn holds_back_before(
        &mut self,
        message: &Message<'_>,
        cursor: &mut Cursor<'_>,
        out: &mut Actions,
    ) -> bool {
        if self.server.replies.is_copy_in() {
            return false;
        }
        self.wait(message, cursor, out);
        self.demand_replies(out);
        true
    }

    /// Sends a Flush if the server has messages without a Sync: PostgreSQL answers these only when its buffer is full,
    /// and the Sync may be what the client is about to send.
    fn demand_replies(&mut self, out: &mut Actions) {
        let replies = &mut self.server.replies;
        replies.set_full();
        if replies.is_unsynced() {
            out.send_made(self.server_conn, |made| {
                made.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
            });
        }
    }
}

/// Reads from the client again once its server has sent half of the replies for which the client was held.
#[inline]
pub(super) fn read_on_if_answered(
    server: &mut Server,
    client: Token,
    owed_max: usize,
    out: &mut Actions,
) {
    if server.replies.take_full(owed_max)
        // Input that was kept goes to the server before any new input.
        && !server.replies.is_awaited()
        && !server.link.blocked
    {
        out.read(client, ReadMode::Deliver);
    }
}
