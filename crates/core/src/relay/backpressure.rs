//! Limits the replies that are outstanding on a server (`max_pipelined_messages`): above the limit, pgweir does not
//! read from the client until half of the replies have arrived.

use pgweir_wire::tag::frontend;

use super::{
    client_to_server::ClientMessages,
    message::{Cursor, Message},
};
use crate::{Actions, ReadMode, Token, backend::Server};

impl ClientMessages<'_> {
    /// Stops reading from the client after all input was passed on. If the input ends inside the body of a message,
    /// pgweir stops before the client's next message instead: see [`Self::holds_back_before`].
    #[cold]
    pub(super) fn hold_back(&mut self, out: &mut Actions) {
        if self.client.socket.stream.is_in_body() {
            return;
        }
        self.demand_replies(out);
        out.read(self.client_conn, ReadMode::Hold);
    }

    /// Keeps this message and all input after it until half of the outstanding replies have arrived. Returns `false`
    /// and keeps nothing while the server reads COPY data: it may send no reply before it has all of the data.
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

    /// Sends a Flush if the server has messages without a Sync. Without a Sync or Flush, PostgreSQL sends its replies
    /// only when its output buffer is full, and the client's Sync may be among the messages that pgweir does not read
    /// yet.
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

/// Reads from the client again once its server has sent half of the outstanding replies.
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
        && !server.link.is_blocked()
    {
        out.read(client, ReadMode::Deliver);
    }
}
