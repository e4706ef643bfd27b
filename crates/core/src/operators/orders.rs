//! Operators' orders on one worker: PAUSE, RESUME, RECONNECT, KILL, KILL_CLIENT, and the end of outdated servers.
//!
//! The directory holds the orders that are in force; mail, or the round of a console command, announces a change.
//! Then this module applies the orders to the worker's pools, clients and servers. The module owns no state.
//! Output: effects that close servers and clients, or serve waiting clients again.

use std::{net::IpAddr, sync::Arc};

use pgweir_config::Config;

use crate::{
    Actions, Address, Directory, Endpoint, Level, SharedPool, Time, Token, WorkerId,
    backend::{OUTDATED, Server},
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{
        ClientEffect, ConsoleEffect, Effect, Env, PoolEffect, ServerEffect, wake_waiting_consoles,
    },
    frontend::ClientDuty,
    listeners::Listeners,
    mail::Mail,
    operators::suspension::Suspension,
    pool::PoolId,
    pooling::{self, LocalPool, LocalPools},
};

/// Applies all orders, after they have changed.
pub(crate) fn apply(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    suspension: &mut Suspension,
    out: &mut Actions,
) -> Vec<Effect> {
    suspension.obey(env, connections, out);
    if env.directory.operator().departures().are_ordered() {
        connections.schedule(env.now);
    }
    let mut effects = Vec::new();
    for id in pools.ids() {
        effects.extend(apply_to_pool(env, connections, pools, id, out));
        effects.extend(retire_outdated(connections, pools, id, out));
        effects.push(Effect::Pool(id, PoolEffect::RetireRedefined));
    }
    // The order that a console waits for may have been taken back.
    let waits = env.directory.operator().waits().into_iter();
    let own = waits.filter(|&(worker, _)| worker == env.worker);
    effects.extend(own.map(|(_, console)| Effect::Console(ConsoleEffect::Check(console))));
    effects
}

/// Applies PAUSE or RESUME, whichever is in force, to one pool.
pub(crate) fn apply_to_pool(
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
    let (paused, notes) = {
        // Read under the ledger's lock: then the worker that reads the newest orders is also the last to write them.
        let mut ledger = shared.ledger.lock();
        let paused = env.directory.operator().is_halted(&shared.key.database);
        (paused, ledger.set_paused(paused, env.now))
    };
    pool.orders.paused = paused;
    pooling::deliver(env, &notes, &shared, out);
    if !paused {
        return vec![Effect::Pool(id, PoolEffect::ServeHeldClients)];
    }
    let unused = connections.tokens(|conn| match conn {
        Conn::Server(server) => server.pool() == id && server.is_unused(),
        _ => false,
    });
    let close = unused
        .into_iter()
        .map(|server| Effect::close(server, "pause mode"));
    close
        .chain([Effect::Pool(id, PoolEffect::ReleaseKept)])
        .collect()
}

/// Closes servers of earlier epochs as soon as they are not in use.
pub(crate) fn retire_outdated(
    connections: &Connections,
    pools: &mut LocalPools,
    id: PoolId,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some(pool) = pools.known(id, out) else {
        return Vec::new();
    };
    let outdated = outdated_servers(
        connections,
        pool,
        |shared| shared.epochs.lock().present(),
        |pool| &mut pool.orders.epoch,
        |server| server.retirement.epoch(),
    );
    retire_all(outdated)
}

/// Returns the servers of a pool that were opened before a counter of the pool reached its present value. Returns none
/// if this worker knows that value already. `present` reads the counter, `known` is the last value that this worker
/// knows, and `at_login` is the value when a server was opened.
pub(crate) fn outdated_servers(
    connections: &Connections,
    pool: &mut LocalPool,
    present: fn(&SharedPool) -> u32,
    known: fn(&mut LocalPool) -> &mut u32,
    at_login: fn(&Server) -> u32,
) -> Vec<Token> {
    let (id, present) = (pool.shared.id, present(&pool.shared));
    if std::mem::replace(known(pool), present) == present {
        return Vec::new();
    }
    connections.tokens(|conn| match conn {
        Conn::Server(server) => server.pool() == id && at_login(server) != present,
        _ => false,
    })
}

/// Closes the servers at a host's old addresses as soon as they are not in use.
pub(crate) fn retire_servers_at(
    connections: &Connections,
    host: &str,
    gone: &[IpAddr],
) -> Vec<Effect> {
    let is_there = |conn: &Conn| match conn {
        Conn::Server(server) => {
            matches!(&**server.link.endpoint(), Endpoint::Tcp { host: at, .. } if at == host)
                && matches!(server.link.addresses(), Some((_, Address::Tcp(remote))) if gone.contains(&remote.ip()))
        }
        _ => false,
    };
    retire_all(connections.tokens(is_there))
}

fn retire_all(servers: Vec<Token>) -> Vec<Effect> {
    let servers = servers.into_iter();
    servers
        .map(|server| Effect::Server(ServerEffect::Retire(server, OUTDATED)))
        .collect()
}

/// Closes a server as soon as it is not in use, for RECONNECT or a change of the configuration.
pub(crate) fn retire(
    env: &Env<'_>,
    connections: &mut Connections,
    listeners: &Listeners,
    conn: Token,
    why: &'static str,
) -> Option<Effect> {
    let server = connections.server(conn)?;
    server.retirement.replace_reason(why);
    if server.purpose().listener_key().is_some()
        && listeners.stays_until_replaced(connections, conn, why, env.now)
    {
        return None;
    }
    let server = connections.server(conn)?;
    match (server.purpose().owner(), server.client()) {
        // This server would never become free.
        (Some(owner), Some(_)) => Some(Effect::Client(ClientEffect::EndClient(
            owner,
            Box::new(Fault::DatabaseChanged),
        ))),
        (_, None) => Some(Effect::close(conn, why)),
        (None, Some(_)) => {
            // `server_fast_close` may release the server before its client does.
            connections.schedule(env.now);
            Some(Effect::Settle(conn))
        }
    }
}

/// Closes servers of a database that a client drops, renames or copies. PostgreSQL refuses the command, after some
/// seconds, while any session is connected to the database. Without a pooler, a client that has disconnected has no
/// session. So pgweir closes servers without a client, now or as soon as the last client leaves.
#[cold]
pub(crate) fn retire_servers_of_database(
    directory: &Directory,
    config: &Config,
    name: &str,
    now: Time,
    out: &mut Actions,
) {
    let mut any = false;
    for pool in directory.pools() {
        let asked_for = &*pool.key.database;
        let is_it = config
            .database(asked_for)
            .is_some_and(|entry| entry.dbname_for(asked_for) == name);
        if is_it {
            // Read under the lock: a client that leaves after that finds the request.
            let mut epochs = pool.epochs.lock();
            any |= epochs.leave(now, pool.client_count());
        }
    }
    if any {
        announce(directory, out);
    }
}

/// Closes clients and servers of this database at once (of all databases, for `None`), for KILL.
pub(crate) fn kill(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    database: Option<&str>,
    out: &mut Actions,
) -> Vec<Effect> {
    let is_meant =
        |shared: &SharedPool| database.is_none_or(|database| *shared.key.database == *database);
    let meant = pools.iter().filter(|pool| is_meant(&pool.shared));
    let ids: Vec<PoolId> = meant.map(|pool| pool.shared.id).collect();
    let mut effects = Vec::new();
    for id in ids {
        effects.extend(apply_to_pool(env, connections, pools, id, out));
        let clients = connections.tokens(|conn| conn.is_client_of(id)).into_iter();
        effects.extend(clients.map(|client| {
            Effect::Client(ClientEffect::Refuse(
                client,
                Box::new(Fault::DatabaseRemoved),
            ))
        }));
        let servers = connections.tokens(|conn| conn.is_server_of(id)).into_iter();
        effects.extend(servers.map(|server| Effect::close(server, "database removed")));
    }
    effects
}

/// Ends the client with this id, for KILL_CLIENT. If the client's server has to be cleaned, the server is closed
/// instead. Returns nothing if the client is not on this worker.
pub(crate) fn kill_client(connections: &mut Connections, id: u64) -> Vec<Effect> {
    let is_it = |conn: &Conn| match conn {
        Conn::Client(client) => {
            client.origin.id == id && !matches!(*client.duty(), ClientDuty::Login(_))
        }
        _ => false,
    };
    let Some(&conn) = connections.tokens(is_it).first() else {
        return Vec::new();
    };
    let server = connections.client(conn).and_then(|client| client.server());
    let close = server.map(|conn| Effect::Server(ServerEffect::CloseIfCleaning(conn)));
    [Effect::Client(ClientEffect::Refuse(
        conn,
        Box::new(Fault::Killed),
    ))]
    .into_iter()
    .chain(close)
    .collect()
}

/// Counts a closed server, and wakes consoles that wait if it was the last one, or the last outdated one.
pub(crate) fn count_closed(
    directory: &Directory,
    shared: &SharedPool,
    epoch: u32,
    out: &mut Actions,
) {
    let is_last = {
        let mut epochs = shared.epochs.lock();
        epochs.closed(epoch);
        epochs.servers() == 0 || epochs.outdated() == 0
    };
    if is_last {
        wake_waiting_consoles(directory, out);
    }
}

/// Ends SUSPEND when the console that ordered it has gone: no other console could resume the process.
pub(crate) fn resume_without_console(
    directory: &Directory,
    console: (WorkerId, Token),
    out: &mut Actions,
) {
    if directory.operator().abandon_suspension(console) {
        let text = "admin disappeared when suspended, doing RESUME";
        out.log(Level::Log, "", text);
        announce(directory, out);
    }
}

/// Announces changed orders to all workers, for commands that do not visit the workers in a round.
pub(crate) fn announce(directory: &Directory, out: &mut Actions) {
    for to in directory.worker_ids() {
        let mail = Mail::OperatorOrders;
        out.mail(to, mail);
    }
}
