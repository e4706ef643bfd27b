//! `read_after_write` for a client that has kept its server since its last transaction.

use crate::{
    Actions, ReadMode, Token,
    backend::Server,
    effect::{ClientEffect, Effect, Env},
    frontend::{Client, MustSee},
    pooling::LocalPool,
    server_connections::host_checks::is_current,
};

/// Keeps a client's bytes if they begin a transaction whose server's host has not replayed the writes that the client may know of.
/// Returns the effect that makes the client wait.
#[inline]
pub(super) fn hold(
    env: &Env<'_>,
    pool: &LocalPool,
    loan: (Token, &mut Client, &Server),
    bytes: &[u8],
    out: &mut Actions,
) -> Option<Effect> {
    let is_shared = !loan.2.is_exclusive();
    let is_on = is_shared && pool.terms.read_after_write.is_some();
    match is_on {
        true => hold_unreplayed(env, pool, loan, bytes, out),
        false => None,
    }
}

#[inline(never)]
fn hold_unreplayed(
    env: &Env<'_>,
    pool: &LocalPool,
    (conn, client, server): (Token, &mut Client, &Server),
    bytes: &[u8],
    out: &mut Actions,
) -> Option<Effect> {
    let is_within = !client.socket.stream.is_between_messages() || client.socket.holds_message();
    if is_within {
        return None;
    }
    let writes = || env.directory.hosts().writes().count();
    let must_see = client.request.take_must_see();
    let must_see = must_see.unwrap_or_else(|| MustSee::new(writes(), env.now));
    if is_current(env.directory, pool, server, must_see.writes()) {
        return None;
    }
    client.request.set_must_see(must_see.before_wait());
    client.socket.keep_early(bytes.to_vec());
    out.read(conn, ReadMode::Hold);
    Some(Effect::Client(ClientEffect::ReadAfterWrite(conn)))
}
