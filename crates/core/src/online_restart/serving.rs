//! The first step for a client that was taken over and has all of its session state.

use crate::{
    Actions, ReadMode, Token,
    connections::Connections,
    effect::{ClientEffect, Effect},
    pooling::LocalPools,
};

/// Starts to serve the client like any other client. `is_welcome`: the client's login is complete.
pub(crate) fn serve_taken_over_client(
    connections: &mut Connections,
    pools: &LocalPools,
    conn: Token,
    is_welcome: bool,
    out: &mut Actions,
) -> Option<Effect> {
    let client = connections.client(conn)?;
    let pool = client.pool()?;
    if is_welcome {
        return match (client.socket.has_early(), client.socket.is_blocked()) {
            (true, _) => Some(Effect::Client(ClientEffect::CheckOut(conn))),
            (false, false) => {
                out.read(conn, ReadMode::Notify);
                None
            }
            (false, true) => None,
        };
    }
    let knows = pools.get(pool).is_some_and(|pool| pool.shared.is_known());
    Some(match (knows, client.is_unproven()) {
        (true, true) => Effect::Client(ClientEffect::CheckOut(conn)),
        (true, false) => Effect::Client(ClientEffect::Welcome(conn)),
        (false, _) => Effect::Client(ClientEffect::Wait {
            client: conn,
            pool,
            at_login: true,
        }),
    })
}
