//! Deadlines: while anything has one, the worker checks deadlines three times a second, like PgBouncer's janitor.
//!
//! This module owns no state. It finds what is overdue, as effects that end it, and when the worker must check again.

use crate::{
    Time, Token,
    backend::{Duty, Phase, Server},
    client_timeouts::Timeouts,
    connections::{Conn, Connections, INTERVAL},
    effect::{Effect, Env, PoolEffect},
    fault::Fault,
    listeners::Listeners,
    maintenance,
    pooling::LocalPools,
    statistics::Statistics,
};

/// Returns what is overdue: clients, logins, servers and cancel requests.
pub(crate) fn overdue(timeouts: &Timeouts<'_>) -> Vec<Effect> {
    let (mut found, mut waiters) = (Vec::new(), Vec::new());
    for (token, conn) in timeouts.connections.iter() {
        match conn {
            Conn::Client(client) if timeouts.has_left_server(client) => {
                found.push(Effect::EndHungUpClient(token));
            }
            Conn::Client(client) => {
                // Clients that have waited for long get the reason with their notice or error.
                let is_notice_due = timeouts.is_wait_notice_due(client);
                waiters.extend(client.pool.filter(|_| is_notice_due));
                match timeouts.overdue(client) {
                    Some(Fault::QueryWaitTimeout(_)) if client.pool.is_some() => {
                        waiters.extend(client.pool);
                    }
                    fault => {
                        found.extend(fault.map(|fault| Effect::EndClient(token, Box::new(fault))))
                    }
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

fn server_overdue(env: &Env<'_>, token: Token, server: &Server) -> Option<Effect> {
    let patience = env.snapshot.config.settings.server_connect_timeout.0;
    match &server.duty {
        Duty::Login(_) if patience > 0 && env.now.since(server.times.connected_at) >= patience => {
            Some(Effect::EndServerLogin(token))
        }
        Duty::Cleaning { until, .. } if *until <= env.now => {
            let why = "abandoned query took too long";
            Some(Effect::CloseServer(token, why))
        }
        Duty::Lent(loan) => match loan.phase() {
            Phase::Checking { until } if *until <= env.now => {
                Some(Effect::FailCheck(token, "server check timeout"))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns when to check again: soon while something has a short deadline, else when the first server, empty pool or
/// period ends. `clients_have_deadlines`: any timeout holds for the clients of the worker.
pub(crate) fn next_deadline(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &LocalPools,
    (listeners, statistics): (&Listeners, &Statistics),
    clients_have_deadlines: bool,
) -> Option<Time> {
    let soon = env.now.after(INTERVAL);
    if clients_have_deadlines || connections.have_deadlines() || may_offer_kept(pools) {
        return Some(soon);
    }
    let has_servers = pools.iter().any(|pool| pool.servers > 0);
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
    pools.any(|pool| pool.offers_to_ledger && pool.clients_keep_servers && pool.servers > 0)
}
