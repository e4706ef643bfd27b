//! Clients that log in while logins to their servers fail: the clients that are refused at once, and the waiting
//! clients that get the error.

use crate::{
    SharedPool, Time,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env},
    frontend::{Client, ClientDuty},
    pooling::LocalPool,
    shared::pool::Failure,
};

/// Checks that there is a host to wait for, or that clients wait for one under `outage_hold`.
///
/// # Errors
/// The last logins to all hosts have failed, and no new login is due.
pub(crate) fn check_hosts(pool: &LocalPool, now: Time) -> Result<(), Fault> {
    let (hosts, shared) = (pool.terms.endpoints.len(), &pool.shared);
    if pool.terms.outage_hold > 0 && shared.facts.lock().outage.since().is_some() {
        return Ok(());
    }
    let lacks_database = {
        let facts = shared.facts.lock();
        facts.failure.as_ref().is_some_and(Failure::lacks_database)
    };
    if lacks_database {
        // The database may exist by now.
        shared.ledger.lock().allow_next_login();
    }
    let retry_at = shared.ledger.lock().retry_at();
    if retry_at.is_none_or(|at| at <= now) {
        return Ok(());
    }
    let facts = shared.facts.lock();
    match &facts.failure {
        // Hosts of a list that were not tried since may work.
        Some(why) if facts.failures >= hosts => Err(why.cached()),
        _ => Ok(()),
    }
}

/// Refuses clients that wait in a pool that has no server to lend:
///
/// - If the server has refused a login for a reason that stays, all waiting clients get the error.
/// - If the server has refused a login for a reason that may pass, clients that log in get the error. The others go on
///   waiting.
/// - If no server could be reached, clients that log in get the error, unless the next try comes within
///   `server_connect_timeout` of their login.
/// - Under `outage_hold`, only a refusal for a reason that stays ends the wait.
pub(crate) fn refuse_waiters(
    env: &Env<'_>,
    connections: &Connections,
    shared: &SharedPool,
) -> Vec<Effect> {
    let Some(failure) = shared.facts.lock().failure.clone() else {
        return Vec::new();
    };
    let only_at_login = failure.refusal.is_none();
    let Some(fault) = failure.refusal.clone().or_else(|| failure.at_login()) else {
        return Vec::new();
    };
    let config = &env.snapshot.config;
    let database = config.database(&shared.key.database);
    let holds = database.is_some_and(|database| config.outage_hold(database).0 > 0);
    if holds && !failure.is_final() {
        return Vec::new();
    }
    let settings = &config.settings;
    let patience = match settings.server_connect_timeout.0 {
        0 => u64::MAX,
        patience => patience,
    };
    let next_try = env.now.after(settings.server_login_retry.0);
    let is_final = failure.is_final();
    let is_refused = |client: &Client| match *client.duty() {
        ClientDuty::Waiting { at_login, .. } if client.pool() == Some(shared.id) => {
            let is_late = next_try.since(client.origin.connected_at) >= patience;
            let is_in_login = at_login || client.has_postponed_login();
            match only_at_login {
                true => at_login && is_late,
                false => is_in_login || is_final,
            }
        }
        _ => false,
    };
    let refused = connections.iter().filter_map(|(token, conn)| match conn {
        Conn::Client(client) if is_refused(client) => {
            let fault = match client.has_postponed_login() {
                true => fault.clone().before_authentication(),
                false => fault.clone(),
            };
            Some(Effect::Client(ClientEffect::Refuse(token, Box::new(fault))))
        }
        _ => None,
    });
    refused.collect()
}
