//! Messages of the extended protocol, and a Query or FunctionCall behind them where a Sync is due. PostgreSQL skips
//! it if one of them has failed; so it waits until they are answered, and then it is known whether it will be.

use pgweir_wire::tag::frontend;

use super::client_to_server::{ClientMessages, Cursor, send_target};
use crate::{
    Actions,
    backend::{Change, Mark, MarkKind},
    frontend::Head,
    session::NO_SUCH_NAME,
};

/// Is it a request of its own, that needs no Sync?
#[inline]
pub(super) fn is_simple(tag: u8) -> bool {
    matches!(tag, frontend::QUERY | frontend::FUNCTION_CALL)
}

impl ClientMessages<'_> {
    /// A Query or FunctionCall comes: `true` if it waits for the answers to messages without a Sync.
    #[inline]
    pub(super) fn comes_before_sync(
        &mut self,
        head: &Head,
        bytes: &[u8],
        cursor: &mut Cursor,
        out: &mut Actions,
    ) -> bool {
        let replies = &self.server.replies;
        if !replies.is_unsynced() || replies.is_skipping() || replies.is_copy_in() {
            return false;
        }
        if self.server.replies.needs_fence() {
            cursor.flush(self.server_conn, head, out);
            self.fence(out);
            self.wait(head, bytes, cursor, out);
            return true;
        }
        // PostgreSQL 18 fails the query after the next Sync: "unexpected state STARTED".
        let retire = &mut self.server.retirement.reason;
        retire.get_or_insert("a query came where a Sync was due");
        false
    }

    /// What follows waits until all that was sent is answered, in a request that goes on.
    pub(super) fn fence(&mut self, out: &mut Actions) {
        send_target(self.server_conn, frontend::CLOSE, NO_SUCH_NAME, out);
        let mark = Mark::own(MarkKind::Close, Change::Fence);
        self.server.replies.mark_sent(mark);
        out.send_made(self.server_conn, |made| {
            made.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
        });
    }

    /// A Parse or Close where names are not followed: so that its answer is not taken for that to a fence.
    #[inline]
    pub(super) fn mark_unfollowed(&mut self, tag: u8) {
        if self.most > 0 {
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
