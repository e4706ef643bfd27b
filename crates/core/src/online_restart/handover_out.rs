//! Online restart, the old process: hands clients over to the new process while they are idle between two transactions
//! (at a *quiet point*), and reduces its own servers at the same time, so that the new process may open servers of
//! the same pools.
//!
//! Both processes together keep to one limit of servers for each pool. The old process **keeps** servers only for
//! clients that can't leave: at most half of the servers that it had, and at most one for each such client. The old
//! process closes every other server that becomes free, and reports the number of the rest to the new process
//! ([`Control::Held`]), which counts them in its pool. If the kept servers are too few (in a pool of one server, none
//! is kept), the old process asks for a **place**: the permission to open one server ([`Control::Want`]). The request
//! waits in the queue of the new process, which **lends** a place when it is the request's turn. The old process
//! gives the place back after a second.

use std::sync::Arc;

use pgweir_auth::scram::ClientKeys;

use super::{
    OnlineRestart, restart,
    server_handover::{record_server, server_to_hand_over},
};
use crate::{
    Action, Actions, Control, HandedOverServer, SharedPool, Token,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, PoolEffect, RestartEffect},
    frontend::{Client, ClientDuty},
    pool::PoolId,
    pooling::{self, LocalPools},
    session::{Bindings, Statement},
    takeover::{ClientRecord, PoolNote, ServerPassword, SessionRecord, StatementRecord},
};

/// The number of consecutive checks that must find no client before a worker reports that it has none: a client that
/// another worker has accepted may be on its way to this one.
const EMPTY_CHECKS: u8 = 2;

/// A worker's state while its clients are handed over.
#[derive(Debug, Default)]
pub(super) struct HandoverOut {
    /// Clients that have given their server back, or that keep it, and have reached a quiet point.
    done: Vec<Token>,
    empty_checks: u8,
    has_reported: bool,
}

/// A client that is about to leave, and the server that it keeps.
pub(crate) struct ClientHandover {
    conn: Token,
    record: Box<ClientRecord>,
    server: Option<HandedOverServer>,
}

impl ClientHandover {
    /// Returns the connection of the server that leaves with the client.
    pub(crate) fn server(&self) -> Option<Token> {
        self.server.as_ref().map(|server| server.conn)
    }
}

impl OnlineRestart {
    /// Starts to hand clients over, since the new process is up.
    pub(super) fn begin_handover_out(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        pools: &mut LocalPools,
    ) -> Vec<Effect> {
        self.handover_out = Some(Box::default());
        connections.schedule(env.now);
        let mut effects = Vec::new();
        for pool in pools.iter_mut() {
            pool.clients_keep_servers = false;
            effects.push(Effect::Pool(pool.shared.id, PoolEffect::ReleaseKept));
        }
        effects.push(restart(RestartEffect::HandOverQuietClients));
        effects
    }

    /// Stops handing clients over, since the new process has failed: everything goes on as before.
    pub(super) fn cancel_handover_out(&mut self, out: &mut Actions) -> Vec<Effect> {
        if self.handover_out.take().is_none() {
            return Vec::new();
        }
        self.await_returns(out);
        // From now on, the configuration decides again about limits, and about the clients that keep servers.
        vec![restart(RestartEffect::ApplyConfiguration)]
    }

    /// Handles a tick while clients are handed over.
    pub(crate) fn check_handover_out(&self, env: &Env<'_>) -> Vec<Effect> {
        if self.handover_out.is_none() {
            return Vec::new();
        }
        // Reports of several workers may arrive in another order, so they are repeated.
        env.directory.retained().report_again();
        vec![
            restart(RestartEffect::HandOverQuietClients),
            restart(RestartEffect::CheckEmpty),
        ]
    }

    /// Reports to the control thread that this worker has no client left, once [`EMPTY_CHECKS`] consecutive checks have
    /// found none.
    pub(crate) fn check_empty(
        &mut self,
        env: &Env<'_>,
        connections: &Connections,
        out: &mut Actions,
    ) {
        let is_empty = !connections
            .iter()
            .any(|(_, conn)| matches!(conn, Conn::Client(client) if !is_own(client)))
            && self.forwarded_clients.is_empty();
        let Some(handover) = &mut self.handover_out else {
            return;
        };
        handover.empty_checks = if is_empty {
            handover.empty_checks + 1
        } else {
            0
        };
        if handover.empty_checks >= EMPTY_CHECKS {
            handover.empty_checks = 0;
            if !std::mem::replace(&mut handover.has_reported, true) {
                out.control(Control::Departed(env.worker));
            }
        }
    }

    /// Returns the effects that hand over all clients which are at a quiet point.
    pub(crate) fn hand_over_quiet_clients(&self, connections: &Connections) -> Vec<Effect> {
        let can_move =
            |conn: &Conn| matches!(conn, Conn::Client(client) if can_be_recorded(client));
        let mut effects = hand_over(connections.tokens(can_move));
        effects.push(restart(RestartEffect::RequestServerPlaces));
        effects
    }

    /// Notes that a client has reached a quiet point: the client is handed over at the end of the event.
    #[inline]
    pub(crate) fn client_is_quiet(&mut self, client: Token) {
        if let Some(handover) = &mut self.handover_out {
            handover.done.push(client);
        }
    }

    /// Hands over the clients that have reached a quiet point. The worker calls this at the end of an event, when all
    /// input is processed.
    #[cold]
    pub(crate) fn hand_over_if_quiet(&mut self) -> Vec<Effect> {
        let done = match &mut self.handover_out {
            Some(handover) => std::mem::take(&mut handover.done),
            None => Vec::new(),
        };
        if done.is_empty() {
            return Vec::new();
        }
        hand_over(done)
    }

    /// Sends a client to the new process. The caller has already removed the client's server, if it had one, from this
    /// worker, and removes the client afterwards.
    pub(crate) fn send_client(
        &mut self,
        connections: &mut Connections,
        pools: &LocalPools,
        handover: ClientHandover,
        out: &mut Actions,
    ) {
        let ClientHandover {
            conn,
            record,
            server,
        } = handover;
        if server.is_some()
            && let Some(client) = connections.client(conn)
        {
            client.become_idle();
        }
        out.list.push(Action::HandOverClient {
            conn,
            record,
            server: server.map(Box::new),
        });
        self.begin_forwarding(connections, pools, conn);
    }
}

/// Returns the effects that hand these clients over, and give up places for servers with them.
fn hand_over(clients: Vec<Token>) -> Vec<Effect> {
    let clients = clients.into_iter();
    let mut effects: Vec<Effect> = clients
        .map(|client| restart(RestartEffect::HandOverClient(client)))
        .collect();
    effects.push(restart(RestartEffect::ReleaseServerPlaces));
    effects
}

/// Returns the effects that close the clients which were not handed over within `takeover_timeout`.
pub(super) fn end_handover_timeout(connections: &Connections) -> Vec<Effect> {
    let left = connections.tokens(|conn| matches!(conn, Conn::Client(client) if !is_own(client)));
    let refused = left
        .into_iter()
        .map(|conn| Effect::Client(ClientEffect::Refuse(conn, Box::new(Fault::TakeoverTimeout))));
    refused
        .chain([restart(RestartEffect::EndForwarding)])
        .collect()
}

/// Asks the new process for places for clients that wait and can't leave.
pub(crate) fn request_server_places(env: &Env<'_>, pools: &LocalPools, out: &mut Actions) {
    for pool in pools.iter() {
        request_server_place(env, &pool.shared, out);
    }
}

/// Asks for a place in one pool.
pub(crate) fn request_server_place(env: &Env<'_>, shared: &Arc<SharedPool>, out: &mut Actions) {
    if !shared.ledger.lock().is_restricted() {
        return;
    }
    // A place can be requested only once the number of servers is known.
    if let Some(note) = env.directory.retained().note(shared) {
        out.control(Control::Want(note));
    }
}

/// Takes a place that the new process has lent.
pub(super) fn take_lent_place(env: &Env<'_>, note: &PoolNote, out: &mut Actions) -> Vec<Effect> {
    let pools = env.directory.pools();
    let is_it = |pool: &&Arc<SharedPool>| {
        *pool.key.database == *note.database && *pool.key.user == *note.user
    };
    // The pool exists as long as clients wait in it. If the pool is gone, no client needs the place.
    let Some(shared) = pools.iter().find(is_it) else {
        return Vec::new();
    };
    let held = shared.ledger.lock().servers();
    let keeps = env
        .directory
        .retained()
        .take_lent_place(shared, held, env.now);
    let Some(keeps) = keeps else {
        return Vec::new();
    };
    let notes = {
        let mut ledger = shared.ledger.lock();
        ledger.restrict(keeps);
        ledger.tick(env.now)
    };
    pooling::deliver(env, &notes, shared, out);
    vec![restart(RestartEffect::ReleaseServerPlaces)]
}

/// Records a client that is at a quiet point, with its server if it keeps one. Nothing has changed yet.
pub(crate) fn prepare_client(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
    bindings: &Bindings,
    conn: Token,
) -> Option<ClientHandover> {
    let Some(Conn::Client(client)) = connections.get(conn) else {
        return None;
    };
    if !can_be_recorded(client) {
        return None;
    }
    let own = match *client.duty() {
        ClientDuty::Idle | ClientDuty::Waiting { .. } => None,
        _ => Some(server_to_hand_over(connections, pools, client)?),
    };
    let mut record = Box::new(record_client(env, pools, bindings, client)?);
    let along = own.and_then(|server| record_server(env, connections, client, server));
    let server = along.map(|(server, along)| {
        record.server = Some(server);
        along
    });
    Some(ClientHandover {
        conn,
        record,
        server,
    })
}

/// Records the state of a client that may leave.
fn record_client(
    env: &Env<'_>,
    pools: &LocalPools,
    bindings: &Bindings,
    client: &Client,
) -> Option<ClientRecord> {
    let names = env.directory.names();
    let pairs = |pairs: &mut dyn Iterator<Item = (&[u8], &[u8])>| {
        pairs
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect()
    };
    let session = client.context.as_ref().map(|context| SessionRecord {
        base: pairs(&mut context.base.iter()),
        wanted: pairs(&mut context.wanted.iter()),
        implied: pairs(&mut context.implied.iter()),
        sql: pairs(&mut context.sql.pairs()),
        has_sequences: context.has_sequences,
        is_unproven: context.unproven,
    });
    let statements = client.statements.all(bindings).into_iter();
    let recorded = |(name, statement): (Box<[u8]>, Arc<Statement>)| StatementRecord {
        name: name.into_vec(),
        id: statement.id(),
        definition: statement.definition().to_vec(),
    };
    let mut tracked = names
        .pairs(&client.tracked)
        .map(|(name, value)| (name.as_bytes(), value));
    Some(ClientRecord {
        id: client.origin.id,
        names: client.names().map(|names| &**names)?.clone(),
        remote: client.origin.remote,
        local: client.origin.local,
        port: client.origin.port,
        same_uid: client.origin.same_uid,
        process: client.origin.pid,
        key_pid: client.pid(),
        key_secret: client.cancel_key().secret.into_vec(),
        age: env.now.since(client.origin.connected_at),
        server_password: server_password(pools, client.pool()),
        ready_was_sent: !matches!(*client.duty(), ClientDuty::Waiting { at_login: true, .. }),
        tracked: pairs(&mut tracked),
        session,
        statements: statements.map(recorded).collect(),
        unnamed: client.unnamed.definition().map(<[u8]>::to_vec),
        early: client.socket.early().to_vec(),
        partial: client.socket.stream.partial().to_vec(),
        server_keys: server_keys(pools, client.pool()),
        server: None,
        tls: client.tls().cloned(),
        channels: client
            .listening
            .as_ref()
            .map_or_else(Vec::new, |listening| listening.names()),
    })
}

/// Returns the password for the pool's server logins, if a client has brought it.
fn server_password(pools: &LocalPools, pool: Option<PoolId>) -> Option<ServerPassword> {
    let pool = pools.get(pool?)?;
    let facts = pool.shared.facts.lock();
    ServerPassword::of(facts.secret.as_ref()?, facts.is_checked)
}

/// Returns the SCRAM keys for the pool's server logins.
fn server_keys(pools: &LocalPools, pool: Option<PoolId>) -> Option<[[u8; 32]; 2]> {
    let pool = pools.get(pool?)?;
    let facts = pool.shared.facts.lock();
    facts.keys.as_ref().map(ClientKeys::to_bytes)
}

/// Returns the effects that close servers which are free and not kept, and report the rest to the new process.
pub(crate) fn release_server_places(env: &Env<'_>, pools: &LocalPools) -> Vec<Effect> {
    let pools = pools.iter();
    let mut effects: Vec<Effect> = pools
        .filter(|pool| is_above_kept_places(env, &pool.shared))
        .map(|pool| Effect::Pool(pool.shared.id, PoolEffect::PlaceIdleAgain))
        .collect();
    effects.push(restart(RestartEffect::ReportServerPlaces));
    effects
}

/// Reports the servers that are left in each pool to the new process.
pub(crate) fn report_server_places(env: &Env<'_>, out: &mut Actions) {
    // Includes pools that only other workers know. A ledger's lock is never taken while this lock is held.
    let mut pools = env.directory.retained().known();
    pools.extend(env.directory.pools());
    for pool in pools {
        let held = pool.ledger.lock().servers();
        let mut keeping = env.directory.retained();
        if let Some(note) = keeping.report(&pool, held, env.now) {
            out.control(Control::Held(note));
        }
    }
}

/// Restricts a pool to the places that this process keeps. Returns whether the pool has more servers now.
fn is_above_kept_places(env: &Env<'_>, shared: &Arc<SharedPool>) -> bool {
    let held = shared.ledger.lock().servers();
    let keeps = env.directory.retained().shrink(shared, held, env.now);
    // Without a number, the handover was cancelled.
    keeps.is_some_and(|keeps| {
        let mut ledger = shared.ledger.lock();
        ledger.restrict(keeps);
        ledger.is_above_size()
    })
}

/// Returns whether the connection ends with the process.
fn is_own(client: &Client) -> bool {
    matches!(
        *client.duty(),
        ClientDuty::Console(_) | ClientDuty::CancelRequest { .. }
    )
}

/// Returns whether the client can be recorded, once it is at a quiet point.
fn can_be_recorded(client: &Client) -> bool {
    let may_be_quiet = matches!(
        *client.duty(),
        ClientDuty::Idle | ClientDuty::Waiting { .. } | ClientDuty::Active(_)
    );
    may_be_quiet
        && client.pool().is_some()
        && !client.is_exclusive()
        && !client.has_postponed_login()
        && client
            .listening
            .as_ref()
            .is_none_or(|listening| listening.is_quiet())
        && !client.socket.holds_message()
        && !client.socket.is_blocked()
        && client.socket.stream.is_at_boundary()
}
