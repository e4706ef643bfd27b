//! Sends replies in a server's place: ParseComplete for statements that the server has already.

use pgweir_wire::tag::backend;

use crate::{Actions, Token, backend::Server};

/// Sends a client the ParseCompletes that it must get before the server's next message.
#[inline]
pub(crate) fn send_early(client: Token, server: &mut Server, out: &mut Actions) {
    let count = server.replies.take_early();
    if count > 0 {
        server.link.close_repeatable();
        out.send_made(client, |made| {
            for _ in 0..count {
                made.extend_from_slice(&[backend::PARSE_COMPLETE, 0, 0, 0, 4]);
            }
        });
    }
}
