//! Applies a new configuration to the pools of one worker.
//!
//! This module owns no state. Input: a new configuration, which replaces the configuration of each pool ([`Terms`]) and
//! the limits in the pool's ledger. Output: effects that close the servers that the new configuration would open in
//! another way, offer idle servers to their pools again, and disconnect the clients of removed databases.

use std::sync::Arc;

use pgweir_config::PoolMode;

use crate::{
    Actions,
    base::fault::Fault,
    connections::Connections,
    directory,
    effect::{ClientEffect, Effect, Env, PoolEffect, ServerEffect},
    operators::orders,
    pool::PoolId,
    pooling::{self, LocalPools, Terms},
};

/// Applies the configuration of `env` to all pools.
pub(crate) fn apply(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    out: &mut Actions,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    for id in pools.ids() {
        effects.extend(apply_to_pool(env, connections, pools, id, out));
    }
    connections.schedule(env.now);
    effects
}

fn apply_to_pool(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    id: PoolId,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some(pool) = pools.known(id, out) else {
        return Vec::new();
    };
    let shared = Arc::clone(&pool.shared);
    let before = std::mem::replace(&mut pool.terms, Terms::of(&shared, env.snapshot));
    if pool.terms.entry.is_none() {
        return remove_pool(connections, id);
    }
    if before.mode == PoolMode::Session && pool.terms.mode != PoolMode::Session {
        reset_when_free(connections, id);
    }
    if !pool.terms.opens_like(&before) {
        // A failure of the old servers does not predict one of the new servers.
        shared.facts.lock().failure = None;
    }
    // A failure with old passwords does not predict one with new passwords, either.
    shared.ledger.lock().allow_next_login();
    let mut effects = orders::retire_outdated(connections, pools, id, out);
    effects.push(Effect::Pool(id, PoolEffect::ApplyLimits));
    effects
}

/// Applies the limits of a pool, after its outdated servers were closed.
pub(crate) fn apply_limits(
    env: &Env<'_>,
    pools: &mut LocalPools,
    id: PoolId,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some(pool) = pools.known(id, out) else {
        return Vec::new();
    };
    let Some(entry) = pool.terms.entry.clone() else {
        return Vec::new();
    };
    let shared = &pool.shared;
    // All workers share the limits, and another worker may already have a newer configuration.
    let newest = env.directory.snapshot();
    let entry = Terms::of(shared, &newest).entry.unwrap_or(entry);
    let limits = directory::limits(&newest.config, &entry, &shared.key.user);
    let (group, caps) = (env.directory).cap_limits(&newest.config, &entry, &shared.key.user);
    let notes = (shared.ledger.lock()).set_limits(limits, (&group, caps), env.now);
    pooling::deliver(env, &notes, shared, out);
    vec![
        Effect::Pool(id, PoolEffect::UpdateSharing),
        Effect::Pool(id, PoolEffect::PlaceIdleAgain),
    ]
}

/// Disconnects the clients of a database that is no longer configured, and closes its servers as they become free.
fn remove_pool(connections: &Connections, id: PoolId) -> Vec<Effect> {
    let clients = connections.tokens(|conn| conn.is_client_of(id)).into_iter();
    let servers = connections.tokens(|conn| conn.is_server_of(id)).into_iter();
    let refuse = clients.map(|client| {
        Effect::Client(ClientEffect::Refuse(
            client,
            Box::new(Fault::DatabaseRemoved),
        ))
    });
    let retire =
        servers.map(|server| Effect::Server(ServerEffect::Retire(server, "database removed")));
    refuse.chain(retire).collect()
}

/// Marks servers for a reset when they become free: clients in session mode have left session state on them.
fn reset_when_free(connections: &mut Connections, id: PoolId) {
    for conn in connections.tokens(|conn| conn.is_server_of(id)) {
        if let Some(server) = connections.server(conn)
            && server.client().is_some()
        {
            server.next_loan.demand_reset();
        }
    }
}
