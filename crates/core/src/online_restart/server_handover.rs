//! Online restart: a client in session mode keeps its server connection. The old process hands over both
//! connections together, and the session on the server goes on.

use std::sync::Arc;

use pgweir_config::PoolMode;

use super::{OnlineRestart, restart};
use crate::{
    Actions, HandedOverServer, ReadMode, SharedPool, Time, Token,
    backend::{BackendKey, Duty, Loan, Phase, Server, Unnamed},
    connections::{Conn, Connections},
    directory::Directory,
    effect::{Effect, Env, RestartEffect},
    fault::Fault,
    frontend::{Client, ClientDuty},
    pooling::{self, LocalPools},
    session::Tracked,
    suspension::Suspension,
    takeover::{Pairs, ServerRecord},
};

impl OnlineRestart {
    /// Corrects the counts when a server that left with its client has arrived, or has come back: it is no longer
    /// counted here, or not twice.
    pub(super) fn server_handed_over(
        &self,
        env: &Env<'_>,
        shared: &Arc<SharedPool>,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let notes = shared.ledger.lock().closed(env.worker, env.now);
        pooling::deliver(env.worker, env.directory, &notes, shared, out);
        let leaves = self.hands_clients_over();
        let effect = leaves.then(|| restart(RestartEffect::ReleaseServerPlaces));
        effect.into_iter().collect()
    }
}

/// Returns the server that a client can keep: in session mode, when neither has a message or reply outstanding.
pub(super) fn server_to_hand_over(
    connections: &Connections,
    pools: &LocalPools,
    client: &Client,
) -> Option<Token> {
    let ClientDuty::Active(conn) = client.duty else {
        return None;
    };
    let pool = pools.get(client.pool?)?;
    let Some(Conn::Server(server)) = connections.look(conn) else {
        return None;
    };
    let is_session = pool.terms.mode == PoolMode::Session
        && client.context.is_none()
        && client.socket.early.is_none()
        && server.purpose.owner.is_none();
    let is_quiet = server.status == b'I'
        && server.replies.is_settled()
        && !server.replies.is_uncertain()
        && !server.replies.is_awaited()
        && server.stream.is_quiet()
        && server.link.last_words.is_none();
    let can_move = server.link.tls.is_none()
        && server.link.addresses.is_some()
        && server.statements.prepared.is_empty()
        && !server.link.blocked
        && server.next_loan.cancels == 0
        && server.retirement.reason.is_none();
    (is_session && is_quiet && can_move).then_some(conn)
}

/// Records the server of a client that leaves.
pub(super) fn record_server(
    env: &Env<'_>,
    connections: &Connections,
    conn: Token,
) -> Option<(ServerRecord, HandedOverServer)> {
    let names = env.directory.names();
    let Some(Conn::Server(server)) = connections.look(conn) else {
        return None;
    };
    let (local, remote) = server.link.addresses?;
    let pairs = names.pairs(&server.tracked);
    let record = ServerRecord {
        id: server.id,
        endpoint: (*server.link.endpoint).clone(),
        local,
        remote,
        key_pid: server.link.key.as_ref().map_or(0, |key| key.pid),
        key_secret: server
            .link
            .key
            .as_ref()
            .map_or_else(Vec::new, |key| key.secret.to_vec()),
        age: env.now.since(server.times.connected_at),
        tracked: pairs
            .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
            .collect(),
        needs_reset: server.next_loan.needs_reset,
    };
    let shared = Arc::clone(&server.shared);
    Some((record, HandedOverServer { conn, shared }))
}

/// Takes over the server that came with a client; the caller registers its connection under the token.
///
/// # Errors
/// The pool is no longer in session mode: the session can't go on.
pub(crate) fn take_over_server(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    suspension: &mut Suspension,
    (client_conn, record): (Token, &ServerRecord),
    out: &mut Actions,
) -> Result<Option<Token>, Fault> {
    let pool = connections
        .client(client_conn)
        .and_then(|client| client.pool);
    let Some(pool) = pool.and_then(|pool| pools.get_mut(pool)) else {
        return Ok(None);
    };
    if pool.terms.mode != PoolMode::Session {
        return Err(Fault::DatabaseChanged);
    }
    pool.servers += 1;
    let (shared, epoch) = (Arc::clone(&pool.shared), pool.orders.epoch);
    shared.epochs.lock().opened(epoch);
    let notes = shared.ledger.lock().adopted(env.worker);
    let mut server = server_of(env, record, client_conn, &shared, epoch);
    if let Some(key) = &server.link.key {
        let holders = env.directory.holders();
        holders.add(&server.link.endpoint, key.pid, &server.holder);
    }
    server.retire_if_outdated();
    let conn = connections.insert(Conn::Server(Box::new(server)));
    if let Some((client, server)) = connections.pair(client_conn, conn) {
        client.duty = ClientDuty::Active(conn);
        server.holder.set(client.key.pid());
    }
    suspension.add(conn);
    out.read(conn, ReadMode::Deliver);
    pooling::deliver(env.worker, env.directory, &notes, &shared, out);
    Ok(Some(conn))
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
        Duty::Lent(Loan::new(client, Phase::Relaying)),
        tracked_of(env.directory, &record.tracked),
        epoch,
        env.now,
    );
    server.link.addresses = Some((record.local, record.remote));
    server.statements.unnamed = Unnamed::Unknown;
    server.link.key = (record.key_pid != 0).then(|| BackendKey {
        pid: record.key_pid,
        secret: record.key_secret.as_slice().into(),
    });
    server.times.connected_at = Time(env.now.0.saturating_sub(record.age));
    server.next_loan.needs_reset = record.needs_reset;
    server.session.connected = Some(shared.catalog.connected());
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
