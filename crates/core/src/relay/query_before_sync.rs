//! Delays a Query or FunctionCall that follows extended-protocol messages without a Sync. PostgreSQL skips such a Query
//! if one of these messages has failed. So pgweir sends the Query only after the replies to these messages, which show
//! whether the server will skip the Query.

use pgweir_wire::tag::frontend;

use super::{
    client_to_server::{ClientMessages, send_target},
    message::{Cursor, Message},
};
use crate::{
    Actions,
    backend::{Change, Mark, MarkKind},
    session::NO_SUCH_NAME,
};

impl ClientMessages<'_> {
    /// Returns whether a Query or FunctionCall waits for the replies to messages without a Sync.
    #[inline]
    pub(super) fn comes_before_sync(
        &mut self,
        message: &Message<'_>,
        cursor: &mut Cursor<'_>,
        out: &mut Actions,
    ) -> bool {
        let replies = &self.server.replies;
        if !replies.is_unsynced() || replies.is_skipping() || replies.is_copy_in() {
            return false;
        }
        if self.server.replies.may_skip_query() {
            cursor.flush(self.server_conn, message, out);
            self.await_earlier_replies(out);
            self.wait(message, cursor, out);
            return true;
        }
        // PostgreSQL 18 fails the query after the next Sync: "unexpected state STARTED".
        (self.server.retirement).require("a Query followed messages without a Sync");
        false
    }

    /// Sends a Close of an unknown name, whose reply shows that all earlier messages of the request are answered.
    pub(super) fn await_earlier_replies(&mut self, out: &mut Actions) {
        send_target(self.server_conn, frontend::CLOSE, NO_SUCH_NAME, out);
        let mark = Mark::own(MarkKind::Close, Change::AwaitEarlier);
        self.server.replies.mark_sent(mark);
        out.send_made(self.server_conn, |made| {
            made.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
        });
    }

    /// Queues a mark for a Parse or Close in which pgweir replaces no name, so that its reply is not mistaken for the
    /// reply to the Close of [`Self::await_earlier_replies`].
    #[inline]
    pub(super) fn mark_unfollowed(&mut self, tag: u8) {
        if self.limits.statements_max > 0 {
            return;
        }
        let kind = match tag {
            frontend::PARSE => MarkKind::Parse,
            frontend::CLOSE => MarkKind::Close,
            _ => return,
        };
        if !self.server.replies.is_skipping() {
            self.server.replies.mark_sent(Mark::plain(kind));
        }
    }
}
