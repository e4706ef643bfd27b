//! Online restart: a client in session mode, or a pinned one, keeps its server connection. The old process hands over
//! both connections together, and the session on the server goes on.

use std::sync::{Arc, atomic::Ordering};

use pgweir_config::PoolMode;

use super::{
    OnlineRestart,
    pinned::{pin_client, record_pin, record_statements, restore_session, restore_statements},
    restart,
};
use crate::{
    Actions, HandedOverServer, ReadMode, SharedPool, Time, Token,
    backend::{BackendKey, Duty, Phase, Retirement, Server, Unnamed},
    base::fault::Fault,
    connections::{Conn, Connections},
    directory::Directory,
    effect::{Effect, Env, RestartEffect, SessionEffect},
    frontend::{Client, ClientDuty},
    operators::suspension::Suspension,
    pooling::{self, LocalPools},
    session::Tracked,
    shared::pool::ServerParameters,
    takeover::{Pairs, ServerRecord},
};

impl OnlineRestart {
    /// Corrects the ledger when a server that left with its client has arrived in the other process, or has come back
    /// from it: in the first case this process no longer counts the server, in the second it must not count the server
    /// twice.
    pub(super) fn server_handed_over(
        &self,
        env: &Env<'_>,
        shared: &Arc<SharedPool>,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let notes = shared.ledger.lock().closed(env.worker, env.now);
        pooling::deliver(env, &notes, shared, out);
        let leaves = self.hands_clients_over();
        let effect = leaves.then(|| restart(RestartEffect::ReleaseServerPlaces));
        effect.into_iter().collect()
    }
}

/// Returns the server that is handed over with its client, in session mode or because the client is pinned. Neither
/// connection may have a partial message or an outstanding reply.
pub(super) fn server_to_hand_over(
    connections: &Connections,
    pools: &LocalPools,
    client: &Client,
) -> Option<Token> {
    let ClientDuty::Active(conn) = *client.duty() else {
        return None;
    };
    let pool = pools.get(client.pool()?)?;
    let Some(Conn::Server(server)) = connections.get(conn) else {
        return None;
    };
    let keeps = match &client.context {
        None => pool.terms.mode == PoolMode::Session,
        Some(context) => context.is_pinned() && is_idle_pinned(client, server),
    };
    let stays = !client.socket.has_early() && !server.is_exclusive();
    let is_quiet = server.is_outside_transaction()
        && server.replies.is_settled()
        && !server.replies.is_uncertain()
        && !server.replies.is_awaited()
        && server.stream.is_quiet()
        && !server.link.has_announced_end();
    let can_move = server.link.is_open()
        && !server.link.is_blocked()
        && !server.next_loan.awaits_cancels()
        && !server.retirement.is_required();
    (keeps && stays && is_quiet && can_move).then_some(conn)
}

/// Returns whether a pinned client and its server are between two transactions, and pgweir itself runs no query on the
/// server. A client that also listens by its pool's listener stays: the listener is another connection.
fn is_idle_pinned(client: &Client, server: &Server) -> bool {
    let session = &server.session;
    matches!(server.duty().phase(), Some(Phase::Dedicated { .. }))
        && client.listening.is_none()
        && !session.loan.are_awaited_by_client()
        && !server.is_announced()
}

/// Records the server of a client that leaves.
pub(super) fn record_server(
    env: &Env<'_>,
    connections: &Connections,
    client: &Client,
    conn: Token,
) -> Option<(ServerRecord, HandedOverServer)> {
    let names = env.directory.names();
    let Some(Conn::Server(server)) = connections.get(conn) else {
        return None;
    };
    let (local, remote) = server.link.addresses()?;
    let pairs = names.pairs(&server.tracked);
    let record = ServerRecord {
        id: server.id(),
        endpoint: (**server.link.endpoint()).clone(),
        local,
        remote,
        key_pid: server.link.pid(),
        key_secret: (server.link.key()).map_or_else(Vec::new, |key| key.secret.to_vec()),
        age: env.now.since(server.times.connected_at()),
        tracked: pairs
            .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
            .collect(),
        needs_reset: server.next_loan.needs_reset(),
        tls: server.link.tls().cloned(),
        at_login: parameters_at_login(env.directory, &server.shared),
        statements: record_statements(server),
        pinned: record_pin(client, server, env.now),
    };
    let shared = Arc::clone(&server.shared);
    Some((record, HandedOverServer { conn, shared }))
}

/// Records what the pool's servers report at login.
fn parameters_at_login(directory: &Directory, shared: &SharedPool) -> Option<(Vec<u8>, Pairs)> {
    let known = shared.facts.lock().server_parameters.clone()?;
    let tracked = directory.names().pairs(&known.tracked);
    let tracked = tracked.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()));
    Some((known.messages.clone(), tracked.collect()))
}

/// Notes which parameters the pool's servers report at login, if no server of the pool has logged in to this process
/// yet. The server that was taken over may be the pool's only one, and clients that log in are sent these parameters.
fn note_parameters(directory: &Directory, shared: &SharedPool, record: &ServerRecord) {
    let Some((messages, tracked)) = &record.at_login else {
        return;
    };
    let epoch = shared.epochs.lock().present();
    let defaults = shared.defaults.load(Ordering::Acquire);
    let mut facts = shared.facts.lock();
    if facts.server_parameters.is_none() {
        facts.server_parameters = Some(Arc::new(ServerParameters {
            messages: messages.clone(),
            tracked: tracked_of(directory, tracked),
            report: None,
        }));
        facts.epoch = epoch;
        facts.defaults = defaults;
    }
}

/// Takes over the server that came with a client; the caller registers its connection under the token.
///
/// # Errors
/// The pool's mode is another one now: the session can't go on.
pub(crate) fn take_over_server(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    suspension: &mut Suspension,
    (client_conn, record): (Token, &ServerRecord),
    out: &mut Actions,
) -> Result<Option<(Token, Option<Effect>)>, Fault> {
    let pool = connections
        .client(client_conn)
        .and_then(|client| client.pool());
    let Some(pool) = pool.and_then(|pool| pools.get_mut(pool)) else {
        return Ok(None);
    };
    let goes_on = match &record.pinned {
        None => pool.terms.mode == PoolMode::Session,
        Some(_) => pool.terms.carries_sessions,
    };
    if !goes_on {
        return Err(Fault::DatabaseChanged);
    }
    pool.add_server();
    let (shared, epoch) = (Arc::clone(&pool.shared), pool.orders.epoch);
    note_parameters(env.directory, &shared, record);
    shared.epochs.lock().opened(epoch);
    let notes = shared.ledger.lock().adopted(env.worker);
    let mut server = server_of(env, record, client_conn, &shared, epoch);
    if let Some(key) = server.link.key() {
        let holders = env.directory.holders();
        holders.add(server.link.endpoint(), key.pid, server.holder());
    }
    server.retire_if_outdated();
    let conn = connections.insert(Conn::Server(Box::new(server)), env.now);
    if let Some((client, server)) = connections.pair(client_conn, conn) {
        client.keep_server(conn);
        server.holder().set(client.pid());
        restore_statements(env.directory, server, client.origin.id, record);
        if let Some(pinned) = &record.pinned {
            pin_client(client, pinned, env.now);
            restore_session(env.directory, server, client.origin.id, pinned);
            server.enter(Phase::Dedicated {
                unsettled_since: Some(env.now),
            });
        }
    }
    suspension.add(conn);
    out.read(conn, ReadMode::Deliver);
    pooling::deliver(env, &notes, &shared, out);
    let is_pinned = record.pinned.is_some();
    let keep = SessionEffect::KeepOrRelease {
        is_pinned,
        is_kept: is_pinned,
    };
    Ok(Some((
        conn,
        is_pinned.then_some(Effect::Session(conn, keep)),
    )))
}

fn server_of(
    env: &Env<'_>,
    record: &ServerRecord,
    client: Token,
    shared: &Arc<SharedPool>,
    epoch: u32,
) -> Server {
    let mut server = Server::new(
        record.id,
        shared,
        Arc::new(record.endpoint.clone()),
        Duty::Lent {
            client,
            phase: Phase::Relaying,
        },
        tracked_of(env.directory, &record.tracked),
        Retirement::new(epoch, 0),
        env.now,
    );
    server.link.note_open((record.local, record.remote));
    if let Some(facts) = &record.tls {
        server.link.note_encrypted(facts.clone());
    }
    server.statements.unnamed = Unnamed::Unknown;
    server
        .link
        .set_key((record.key_pid != 0).then(|| BackendKey {
            pid: record.key_pid,
            secret: record.key_secret.as_slice().into(),
        }));
    server
        .times
        .note_connected(Time(env.now.0.saturating_sub(record.age)));
    if record.needs_reset {
        server.next_loan.demand_reset();
    }
    server.session.note_connected(shared.catalog.connected());
    server
}

/// Returns the parameters that were serialized.
pub(super) fn tracked_of(directory: &Directory, pairs: &Pairs) -> Tracked {
    let names = directory.names();
    let mut tracked = names.unset();
    for (name, value) in pairs {
        if let Some(at) = names.position(name) {
            tracked.set(at, value);
        }
    }
    tracked
}
