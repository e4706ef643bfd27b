//! Deadlines: while a connection or a pool has a deadline, the worker checks all deadlines three
//! times a second, like PgBouncer's janitor.
//!
//! This module owns no state. Output: effects for deadlines that have passed, and the time at which the worker must
//! check again.

use crate::{
    Time, Token,
    backend::{Duty, Phase, Server},
    base::fault::Fault,
    clients::{stuck_messages, timeouts::Timeouts},
    connections::{Conn, Connections, INTERVAL},
    effect::{ClientEffect, Effect, Env, PoolEffect, ServerEffect},
    listeners::Listeners,
    login::surplus,
    measurement::statistics::Statistics,
    pooling::LocalPools,
    server_connections::{host_checks, maintenance},
};

/// Returns the effects for everything that is overdue: clients, logins, servers and cancel requests.
pub(crate) fn overdue(timeouts: &Timeouts<'_>) -> Vec<Effect> {
    let (mut found, mut waiters) = (Vec::new(), Vec::new());
    for (token, conn) in timeouts.connections.iter() {
        match conn {
            Conn::Client(client) if timeouts.has_left_server(client) => {
                found.push(Effect::Client(ClientEffect::EndHungUpClient(token)));
            }
            Conn::Client(client) => {
                // Clients that have waited for long get the reason with their notice or error.
                let is_notice_due = timeouts.is_wait_notice_due(client);
                waiters.extend(client.pool().filter(|_| is_notice_due));
                match timeouts.overdue(client) {
                    Some(Fault::QueryWaitTimeout(_)) if client.pool().is_some() => {
                        waiters.extend(client.pool());
                    }
                    fault => found.extend(fault.map(|fault| {
                        Effect::Client(ClientEffect::EndClient(token, Box::new(fault)))
                    })),
                }
            }
            Conn::Server(server) => found.extend(server_overdue(&timeouts.env, token, server)),
            Conn::Cancel(cancel) if cancel.until <= timeouts.env.now => {
                found.push(Effect::EndCancelRequest(token));
            }
            Conn::Cancel(_) => {}
        }
    }
    waiters.sort_unstable();
    waiters.dedup();
    let waiters = waiters.into_iter();
    found.extend(waiters.map(|pool| Effect::Pool(pool, PoolEffect::Diagnose)));
    found
}

/// Returns the effects that end peers for which pgweir has waited too long: in a login while there are too many, or
/// within a message. `planned`: the time at which this check was to be made.
pub(crate) fn end_silent_peers(
    env: &Env<'_>,
    connections: &mut Connections,
    planned: Time,
) -> Vec<Effect> {
    let mut ends = surplus::refuse(env, connections);
    ends.extend(stuck_messages::check(env, connections, planned));
    ends
}

fn server_overdue(env: &Env<'_>, token: Token, server: &Server) -> Option<Effect> {
    let config = &env.snapshot.config;
    let settings = &config.settings;
    let has_others = |server: &Server| {
        let database = config.database(&server.shared.key.database);
        database.is_some_and(|database| database.host.len() > 1)
    };
    let patience = match (server.link.addresses(), settings.host_connect_timeout.0) {
        _ if server.purpose().checks_host() => settings.host_check_timeout.0,
        (None, patience @ 1..) if has_others(server) => patience,
        _ => settings.server_connect_timeout.0,
    };
    match server.duty() {
        Duty::Login(_)
            if patience > 0 && env.now.since(server.times.connected_at()) >= patience =>
        {
            Some(Effect::Server(ServerEffect::EndLogin(token)))
        }
        Duty::Login(_) if (server.link.race().planned_at()).is_some_and(|at| at <= env.now) => {
            Some(Effect::Server(ServerEffect::BeginRace(token)))
        }
        Duty::Cleaning { until, .. } if *until <= env.now => {
            let why = "abandoned query took too long";
            Some(Effect::close(token, why))
        }
        Duty::Lent { phase, .. } => match phase {
            Phase::Checking { until } if *until <= env.now => Some(Effect::Server(
                ServerEffect::FailCheck(token, "server check timeout"),
            )),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the time of the next check: soon while something has a short deadline, or when a race between two hosts begins;
/// else the end of the first server, empty pool or period. `clients_have_deadlines`: any timeout applies to the clients of the worker.
pub(crate) fn next_deadline(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &LocalPools,
    (listeners, statistics): (&Listeners, &Statistics),
    clients_have_deadlines: bool,
) -> Option<Time> {
    let soon = env.now.after(INTERVAL);
    let has_memory_limit = env.directory.memory().limit() > 0;
    let has_deadlines = has_memory_limit || clients_have_deadlines || connections.have_deadlines();
    if has_deadlines
        || may_offer_kept(pools)
        || host_checks::has_hosts_to_check(env, pools)
        || maintenance::may_commit_lost_ddl(env)
    {
        return Time::earlier(connections.next_race(), Some(soon));
    }
    let has_servers = pools.iter().any(|pool| pool.has_servers());
    let deadlines = [
        maintenance::first_server_deadline(env, connections, pools),
        maintenance::first_pool_deadline(env, pools),
        listeners.first_deadline(env, connections),
        has_servers.then_some(statistics.period_ends()),
    ];
    let first = deadlines.into_iter().flatten().min();
    first.map(|at| at.max(soon))
}

/// Returns whether there is a pool whose kept servers may yet be needed.
fn may_offer_kept(pools: &LocalPools) -> bool {
    let mut pools = pools.iter();
    pools.any(|pool| pool.offers_to_ledger && pool.clients_keep_servers && pool.has_servers())
}
