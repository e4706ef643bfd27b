//! Answers in a server's place: ParseCompletes of statements that it has already.

use pgweir_wire::tag::backend;

use super::upward::Upward;
use crate::{Actions, Token, backend::Server};

impl Upward<'_> {
    /// Flush: what we have answered ourselves goes out, unless the server's answer takes it along.
    pub(super) fn flush_early(&mut self, out: &mut Actions) {
        if self.server.replies.is_fresh() {
            send_early(self.client_conn, self.server, out);
        }
    }
}

/// ParseCompletes that the client is owed.
#[inline]
pub(crate) fn send_early(client: Token, server: &mut Server, out: &mut Actions) {
    let count = server.replies.take_early();
    if count > 0 {
        out.send_made(client, |made| {
            for _ in 0..count {
                made.extend_from_slice(&[backend::PARSE_COMPLETE, 0, 0, 0, 4]);
            }
        });
    }
}
