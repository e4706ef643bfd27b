//! Changes of session defaults by ALTER ROLE SET, ALTER DATABASE SET and DROP ROLE in a client's text: the server
//! connections concerned are replaced.
//!
//! Server connections of the pools concerned are closed as they become free, and the next login waits for a new one.
//! Server connections that belong to one client, or that LISTEN, stay. A superuser's text concerns every pool on the
//! same server that the text names. The text of any other client concerns the pools of the client's user, so that no
//! client can close the server connections of other users.
//!
//! If a connection is closed before the server has answered, the server process may still commit the change. Then the
//! servers concerned are replaced once more when the process has ended
//! ([`LostDdl`](crate::shared::catalog::LostDdlCounts)).
//!
//! If a client alters a type that functions of PL/pgSQL may keep, the servers of the database are replaced in the same way.
//!
//! This module owns no state. Input: the names of changed roles. Output: new values of counters in the shared pools,
//! and effects on servers.

use std::sync::{Arc, atomic::Ordering};

use pgweir_config::Unclean;

use crate::{
    Actions, Directory, Endpoint, SharedPool, Snapshot, Token,
    backend::{REDEFINED, Server},
    connections::Connections,
    effect::{Effect, Env, ServerEffect},
    operators::orders,
    pool::PoolId,
    pooling::{LocalPools, Terms},
    session::DefaultsChange,
};

/// Takes the change of session defaults that the texts of a server's transaction may have made.
pub(crate) fn take_change(directory: &Directory, server: &mut Server) -> Option<DefaultsChange> {
    let names = server.session.transaction.take_changed_roles();
    let is_superuser = directory.names().value(&server.tracked, b"is_superuser") == Some(b"on");
    (!names.is_empty()).then(|| DefaultsChange {
        names,
        user: server.shared.key.user.clone(),
        is_by_superuser: is_superuser,
    })
}

/// Replaces the servers of the roles and databases whose defaults a transaction has changed. The transaction has
/// finished on this server.
pub(crate) fn renew_changed(
    directory: &Directory,
    snapshot: &Snapshot,
    connections: &mut Connections,
    conn: Token,
    out: &mut Actions,
) {
    let Some(server) = connections.server(conn) else {
        return;
    };
    if let Some(change) = take_change(directory, server) {
        let at = Arc::clone(server.link.endpoint());
        renew(directory, snapshot, &at, &change, out);
    }
}

/// Replaces the servers that this change on a host concerns.
pub(crate) fn renew(
    directory: &Directory,
    snapshot: &Snapshot,
    at: &Arc<Endpoint>,
    change: &DefaultsChange,
    out: &mut Actions,
) {
    for pool in directory.pools() {
        let key = &pool.key;
        let terms = Terms::of(&pool, snapshot);
        let database = snapshot.config.database(&key.database);
        let database = database.map(|entry| entry.dbname_for(&key.database));
        if change.concerns(&key.user, database)
            && terms.carries_sessions
            && terms.endpoints.contains(at)
        {
            pool.defaults.fetch_add(1, Ordering::AcqRel);
            pool.startups.lock().clear();
        }
    }
    orders::announce(directory, out);
}

/// Ends the DDL of a transaction that has ended on this server, if it had any. If the DDL may have altered a type that
/// functions keep, the servers of the database are replaced.
#[inline]
pub(crate) fn end_ddl(env: &Env<'_>, server: &mut Server, out: &mut Actions) {
    if server.session.transaction.end_ddl() {
        renew_types(env, server, out);
    }
}

/// Replaces the servers of a database whose functions may keep a type as it was before DDL.
#[cold]
fn renew_types(env: &Env<'_>, server: &Server, out: &mut Actions) {
    if env.snapshot.config.settings.unclean == Unclean::Ignore {
        return;
    }
    let name_of = |pool: &SharedPool| {
        let database = env.snapshot.config.database(&pool.key.database);
        database.map(|entry| entry.dbname_for(&pool.key.database).to_owned())
    };
    let (own, name) = (&server.shared, name_of(&server.shared));
    for pool in env.directory.pools() {
        let terms = Terms::of(&pool, env.snapshot);
        // Before a server has reported its database, the catalogs of two entries are not known to be the same.
        let is_same = pool.catalog.is_same_as(&own.catalog)
            || terms.endpoints.contains(server.link.endpoint()) && name_of(&pool) == name;
        if is_same && terms.carries_sessions {
            pool.defaults.fetch_add(1, Ordering::AcqRel);
        }
    }
    orders::announce(env.directory, out);
}

/// Closes servers that were opened under other session defaults, as soon as they are not in use.
pub(crate) fn retire_redefined(
    connections: &Connections,
    pools: &mut LocalPools,
    id: PoolId,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some(pool) = pools.known(id, out) else {
        return Vec::new();
    };
    let redefined = orders::outdated_servers(
        connections,
        pool,
        |shared| shared.defaults.load(Ordering::Acquire),
        |pool| &mut pool.orders.defaults,
        |server| server.retirement.defaults(),
    );
    let redefined = redefined.into_iter();
    redefined
        .map(|conn| Effect::Server(ServerEffect::RetireRedefined(conn)))
        .collect()
}

/// Closes a server that was opened under other session defaults, as soon as it is not in use.
pub(crate) fn retire_server(connections: &mut Connections, conn: Token) -> Option<Effect> {
    // A server that belongs to one client, or that listens, stays.
    let server = connections
        .server(conn)
        .filter(|server| server.is_shared())?;
    if server.client().is_none() {
        return Some(Effect::close(conn, REDEFINED));
    }
    server.retirement.require(REDEFINED);
    Some(Effect::Settle(conn))
}

/// Returns whether a client that logs in on this server would get outdated session defaults.
pub(crate) fn is_redefined(server: &Server) -> bool {
    server.retirement.reason() == Some(REDEFINED)
}
