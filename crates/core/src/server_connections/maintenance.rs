//! Periodic work on servers and pools: closes servers that are old or idle, opens servers that are missing, removes
//! unused pools.
//!
//! This module owns no state. Input: the ticks of the worker; output: notes of ledgers, and effects that close
//! servers.

use std::sync::Arc;

use pgweir_config::PoolMode;

use crate::{
    Actions, Level, Time, Token, WorkerId,
    backend::{Duty, REDEFINED, Server},
    connections::{Conn, Connections},
    effect::{Effect, Env, PoolEffect, ServerEffect, SessionEffect},
    measurement::statistics::Statistics,
    pool::{PoolId, PoolKey},
    pooling::{LocalPool, LocalPools, deliver},
};

/// A server that was in use within this many microseconds (a quarter of its lifetime, if that is less) gets a
/// successor before it is closed.
const IN_USE: u64 = 1_000_000;

/// The reason for closing a server that has reached its `server_lifetime`.
const LIFETIME: &str = "server lifetime over";

/// Ends the servers that have been idle or open for too long, and opens successors of those that soon will be.
/// `planned` is when this check should have run.
pub(crate) fn end_due_servers(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
    planned: Time,
) -> Vec<Effect> {
    let found = connections.iter().filter_map(|(token, conn)| match conn {
        Conn::Server(server) => due(env, pools, planned, (token, server)),
        _ => None,
    });
    found.collect()
}

fn due(
    env: &Env<'_>,
    pools: &LocalPools,
    planned: Time,
    (token, server): (Token, &Server),
) -> Option<Effect> {
    if server.purpose().is_own() {
        return None;
    }
    let pool = pools.get(server.pool())?;
    let terms = &pool.terms;
    let settings = &env.snapshot.config.settings;
    let is_outdated =
        server.retirement.is_required() && server.retirement.reason() != Some(REDEFINED);
    if settings.server_fast_close && is_outdated && server.client().is_some() {
        // The client's session is ended, since with this setting pgweir does not wait for the session's end.
        return Some(Effect::Server(ServerEffect::CloseIfOutdated(token)));
    }
    let idle_max = settings.server_idle_timeout.0;
    let is_idle = matches!(*server.duty(), Duty::Idle);
    let idle_for = env.now.since(server.times.freed_at());
    if is_idle && idle_max > 0 && idle_for >= idle_max {
        return Some(Effect::Server(ServerEffect::EndIdle(token)));
    }
    if terms.server_lifetime == 0 {
        return None;
    }
    // A client in session mode may keep its server for as long as it likes: no waiter relies on that server.
    // While the process did not run, no client could use the server either.
    let was_idle_for = planned.since(server.times.freed_at());
    let is_used = is_idle && was_idle_for < IN_USE.min(terms.server_lifetime / 4)
        || server.relays_for().is_some() && terms.mode != PoolMode::Session;
    // This comes first: when a check is late, a server may be too old before its successor was opened.
    if is_used && terms.needs_successor(server, env.now) {
        return Some(Effect::Server(ServerEffect::OpenSuccessor(token)));
    }
    let is_too_old = terms.server_end(server) <= env.now;
    if is_idle && is_too_old {
        return Some(Effect::close(token, LIFETIME));
    }
    // The client keeps the server without need.
    (is_too_old && pool.may_keep(server))
        .then_some(Effect::Server(ServerEffect::Retire(token, LIFETIME)))
}

/// Closes a server that has been idle for too long, unless it is kept for `min_pool_size`. The number of remaining
/// servers decides this, so the effect for one server must be carried out before the next server is ended.
pub(crate) fn end_idle_server(
    connections: &mut Connections,
    pools: &LocalPools,
    conn: Token,
) -> Option<Effect> {
    let is_kept = is_kept_for_min(connections, pools, conn);
    (!is_kept).then_some(Effect::close(conn, "server idle timeout"))
}

/// Opens a successor of a server that will soon be too old, and is needed.
pub(crate) fn open_successor(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    out: &mut Actions,
) {
    // The server may have been closed together with another one that was due.
    let Some(server) = connections.server(conn) else {
        return;
    };
    server.retirement.note_successor(env.now);
    let notes = (server.shared.ledger.lock()).replace(env.worker, env.now);
    deliver(env, &notes, &server.shared, out);
}

fn is_kept_for_min(connections: &mut Connections, pools: &LocalPools, conn: Token) -> bool {
    let Some(server) = connections.server(conn) else {
        return false;
    };
    let pool = pools.get(server.pool());
    pool.is_some_and(|pool| pool.terms.min_pool_size > 0)
        && !server.shared.ledger.lock().is_above_min()
}

/// Returns when the first server must be closed, or gets its successor.
pub(crate) fn first_server_deadline(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
) -> Option<Time> {
    let servers = connections.iter().filter_map(|(_, conn)| match conn {
        Conn::Server(server) => server_deadline(env, pools, server),
        _ => None,
    });
    servers.min()
}

fn server_deadline(env: &Env<'_>, pools: &LocalPools, server: &Server) -> Option<Time> {
    if server.purpose().is_own() {
        return None;
    }
    let pool = pools.get(server.pool())?;
    let terms = &pool.terms;
    let idle_max = env.snapshot.config.settings.server_idle_timeout.0;
    let is_idle = matches!(*server.duty(), Duty::Idle);
    // A server that is lent now becomes free later, and its idle time begins then.
    let since = if is_idle {
        server.times.freed_at()
    } else {
        env.now
    };
    let idle = (idle_max > 0).then(|| since.after(idle_max));
    // A server that is kept for `min_pool_size` has exceeded its idle time already.
    let idle = idle.filter(|&at| terms.min_pool_size == 0 || at > env.now);
    let is_session = terms.mode == PoolMode::Session;
    let old = match (server.retirement.successor_at().is_some(), is_idle) {
        _ if terms.server_lifetime == 0 => None,
        (false, false) if is_session || server.is_exclusive() => None,
        (false, _) => Some((server.times.connected_at()).after(terms.successor_age(server.id()))),
        (true, false) if pool.may_keep(server) => Some(terms.server_end(server)),
        (true, true) => Some(terms.server_end(server)),
        (true, false) => None,
    };
    idle.into_iter().chain(old).min()
}

/// Opens missing servers and removes unused pools, for all pools of the worker. Creates the pools that must exist
/// without a client.
pub(crate) fn maintain_pools(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
) -> Vec<Effect> {
    if env.shutdown.is_none() {
        make_forced_pools(env, connections, pools);
    }
    let is_limit_unknown = env.directory.hosts().have_unknown_limit();
    let maintain = |id| {
        [
            is_limit_unknown.then_some(Effect::Pool(id, PoolEffect::ApplyLimits)),
            Some(Effect::Pool(id, PoolEffect::OfferWhileClientsWait)),
            Some(Effect::Pool(id, PoolEffect::FillOrRemove)),
        ]
    };
    let effects = pools.ids().into_iter().flat_map(maintain);
    let mut effects: Vec<_> = effects.flatten().collect();
    if may_commit_lost_ddl(env) {
        effects.extend(take_searchers(env, pools));
    }
    effects
}

/// Returns whether server processes may still commit DDL although their connections are closed.
pub(crate) fn may_commit_lost_ddl(env: &Env<'_>) -> bool {
    env.directory.catalogs().lost_ddl_counts().present > 0
}

/// Takes an idle server of each pool, which searches for these processes. The next client may need to know whether they
/// have ended, and may be the first that uses the pool since then.
fn take_searchers(env: &Env<'_>, pools: &mut LocalPools) -> Vec<Effect> {
    let ids = pools.ids().into_iter();
    let searchers = ids.filter_map(|id| {
        let pool = pools.get_mut(id)?;
        let is_due = pool.catalog.due <= env.now && !pool.orders.paused;
        if is_due { pool.take_idle() } else { None }
    });
    searchers
        .map(|conn| Effect::Session(conn, SessionEffect::ReadCatalogOrLend))
        .collect()
}

/// Creates the pools of databases with a forced user, which are kept filled from the start. The first worker
/// does that.
fn make_forced_pools(env: &Env<'_>, connections: &mut Connections, pools: &mut LocalPools) {
    if env.worker != WorkerId(0) {
        return;
    }
    let config = &env.snapshot.config;
    for (name, entry) in &config.databases {
        let Some(user) = &entry.user else { continue };
        if config.min_pool_size(entry) == 0 {
            continue;
        }
        let key = PoolKey {
            database: name.as_str().into(),
            user: user.as_str().into(),
        };
        let shared = env.directory.pool(&key, config, entry);
        pools.open(env, connections, &shared);
    }
}

/// Offers the servers of a pool to clients that wait.
pub(crate) fn offer_servers(
    env: &Env<'_>,
    pools: &LocalPools,
    id: PoolId,
    out: &mut Actions,
) -> Option<Effect> {
    let pool = pools.get(id)?;
    let shared = &pool.shared;
    if !pool.offers_to_ledger && !shared.ledger.lock().has_exclusive_waits() {
        return None;
    }
    let notes = shared.ledger.lock().tick(env.now);
    deliver(env, &notes, shared, out);
    Some(Effect::Pool(id, PoolEffect::OfferKeptServers))
}

/// Opens servers for a pool that has too few, or removes a pool that has been unused for too long.
pub(crate) fn fill_or_remove(
    env: &Env<'_>,
    pools: &mut LocalPools,
    statistics: &mut Statistics,
    id: PoolId,
    out: &mut Actions,
) {
    if env.shutdown.is_none() {
        fill_pool(env, pools, id, out);
    }
    remove_if_unused(env, pools, statistics, id, out);
}

/// Opens servers for a pool that has too few.
fn fill_pool(env: &Env<'_>, pools: &LocalPools, id: PoolId, out: &mut Actions) {
    let Some(pool) = pools.get(id).filter(|pool| pool.keeps_min()) else {
        return;
    };
    loop {
        let notes = pool.shared.ledger.lock().fill(env.worker, env.now);
        let is_enough = notes.open.is_none();
        deliver(env, &notes, &pool.shared, out);
        if is_enough {
            break;
        }
    }
}

/// Removes a pool that has been unused for too long.
fn remove_if_unused(
    env: &Env<'_>,
    pools: &mut LocalPools,
    statistics: &mut Statistics,
    id: PoolId,
    out: &mut Actions,
) {
    let Some(pool) = pools.get(id) else {
        return;
    };
    let Some(unused_since) = pool.unused_since() else {
        return;
    };
    let Some(kept) = pool.kept(&env.snapshot.config.settings) else {
        return;
    };
    let is_over = env.directory.memory().is_full() || env.now.since(unused_since) >= kept;
    let shared = Arc::clone(&pool.shared);
    if is_over && shared.ledger.lock().forget_worker(env.worker) {
        let counted = pool.stats.now;
        statistics.add_removed_pool(counted);
        shared.add_past(counted, pool.times);
        pools.remove(id);
        // This is the last worker that had the pool.
        if Arc::strong_count(&shared) == 1 {
            let key = &shared.key;
            let subject = format!("{}/{}", key.database, key.user);
            out.log(Level::Log, subject, "cleaning up idle pool");
        }
    }
}

/// Returns when the first pool must be removed or filled.
pub(crate) fn first_pool_deadline(env: &Env<'_>, pools: &LocalPools) -> Option<Time> {
    let settings = &env.snapshot.config.settings;
    let deadline = |pool: &LocalPool| {
        if pool.keeps_min() && pool.shared.ledger.lock().is_below_min() {
            return Some(env.now);
        }
        Some(pool.unused_since()?.after(pool.kept(settings)?))
    };
    pools.iter().filter_map(deadline).min()
}
