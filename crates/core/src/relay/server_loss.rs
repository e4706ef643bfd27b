//! The messages that a client gets when its server connection is lost.

use pgweir_config::PoolMode;
use pgweir_wire::{MessageWriter, Severity};

use crate::{
    Actions, ReadMode, Token,
    connections::Connections,
    effect::{ClientEffect, Effect},
    loan::Loss,
    pooling::LocalPools,
};

/// Reports to a client that its server connection is lost. A client that has lost no state with it stays connected, and
/// gets an error for each request that was not answered.
pub(crate) fn report_server_loss(
    connections: &mut Connections,
    pools: &LocalPools,
    client_conn: Token,
    loss: Loss,
    out: &mut Actions,
) -> Option<Effect> {
    let client = connections.client(client_conn)?;
    let pool = client.pool().and_then(|pool| pools.get(pool));
    let is_session = pool.is_some_and(|pool| pool.terms.mode == PoolMode::Session);
    let must_disconnect = is_session
        || loss.was_in_transaction
        || loss.mid_message
        || !client.socket.stream.is_at_boundary();
    client.become_idle();
    if must_disconnect {
        return Some(match loss.mid_message {
            // The client is in the middle of a message, so it would not understand an error.
            true => Effect::Client(ClientEffect::DismissFor(client_conn, Box::new(loss.fault))),
            false => Effect::refuse(client_conn, loss.fault),
        });
    }
    for _ in 0..loss.owed {
        out.send_made(client_conn, |bytes| {
            loss.fault.write(Severity::Error, bytes);
            MessageWriter::new(bytes).ready_for_query(b'I');
        });
    }
    if client.socket.has_early() {
        return Some(Effect::Client(ClientEffect::CheckOut(client_conn)));
    }
    out.read(client_conn, ReadMode::Notify);
    None
}
