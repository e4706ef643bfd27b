//! The worker's part in a fleet: counts its idle servers, closes idle servers above the node's share, and runs the
//! query that counts the backends in PostgreSQL.
//!
//! Input: mail of the control thread. Output: effects that close idle servers and release kept ones, and answers to the control
//! thread. A count runs on an idle server, or on the next one that becomes free, so it needs no server of its own.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    Actions, Control, Time, Token, WorkerId,
    backend::{InternalAnswer, InternalQuery, Phase},
    connections::{Conn, Connections},
    effect::{ConsoleEffect, Effect, Env, PoolEffect},
    mail::{FleetMail, Mail},
    pooling::{LocalPools, deliver},
    shared::fleet::{FleetCount, FleetCounted, FleetRound},
};

/// The longest time that a server may take to count the backends, in microseconds.
const PATIENCE: u64 = 30_000_000;
/// The reason for which servers are closed, for the log.
const ABOVE_SHARE: &str = "above this node's share of max_server_conn";

/// Handles the fleet's mail from the control thread or the driver.
pub(crate) fn take(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    mail: FleetMail,
    out: &mut Actions,
) -> Vec<Effect> {
    match mail {
        FleetMail::Round(round) => return visit(env, connections, pools, round, out),
        FleetMail::Count(count) => begin_count(env, connections, pools, count, out),
        FleetMail::ServerClosed(pool) => {
            let notes = pool.ledger.lock().end_closing(env.now);
            deliver(env, &notes, &pool, out);
        }
        FleetMail::CommandAnswered(console, outcome) => {
            return vec![Effect::Console(ConsoleEffect::AnswerOnAll(
                console, outcome,
            ))];
        }
    }
    Vec::new()
}

/// Adds this worker's numbers to the round, and passes it to the next worker.
fn visit(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    mut round: Box<FleetRound>,
    out: &mut Actions,
) -> Vec<Effect> {
    round.visited += 1;
    for (_, conn) in connections.iter() {
        let Conn::Server(server) = conn else { continue };
        if round.wants_pids
            && let Some(key) = server.link.key()
        {
            round.pids.push(key.pid);
        }
        let is_kept = matches!(server.duty().phase(), Some(Phase::Kept { .. }));
        round.idle += u32::from(is_kept);
    }
    round.idle += pools.iter().map(|pool| pool.idle.len() as u32).sum::<u32>();
    let effects = close_surplus(env, pools);
    let workers = env.directory.workers();
    if round.visited < workers {
        let to = WorkerId(((env.worker.index() + 1) % workers) as u8);
        let mail = Mail::Fleet(FleetMail::Round(round));
        out.mail(to, mail);
    } else {
        out.control(Control::FleetRound(round));
    }
    effects
}

/// Closes idle servers above the node's share. If the idle servers are too few, kept servers are released, and each
/// server is closed when it becomes free.
fn close_surplus(env: &Env<'_>, pools: &mut LocalPools) -> Vec<Effect> {
    let surplus = env.directory.caps().with(|caps| caps.surplus()) as usize;
    if surplus == 0 {
        return Vec::new();
    }
    let idle = pools.iter().flat_map(|pool| pool.idle.iter().copied());
    let close = idle
        .take(surplus)
        .map(|conn| Effect::close(conn, ABOVE_SHARE));
    let mut effects: Vec<_> = close.collect();
    if effects.len() < surplus {
        for id in pools.ids() {
            if let Some(pool) = pools.get_mut(id) {
                pool.offers_to_ledger = true;
            }
            effects.push(Effect::Pool(id, PoolEffect::FreeKeptServers));
        }
    }
    effects
}

/// Begins the count of the backends on an idle server of this worker. If none is idle, the next server that becomes
/// free counts.
fn begin_count(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    count: Arc<FleetCount>,
    out: &mut Actions,
) {
    let idle = pools.ids().into_iter().find_map(|id| {
        let pool = pools.get_mut(id)?;
        let may_ask = |conn: &Token| match connections.get(*conn) {
            Some(Conn::Server(server)) => !server.retirement.is_required(),
            _ => false,
        };
        let at = pool.idle.iter().rposition(may_ask)?;
        Some(pool.idle.remove(at))
    });
    match idle {
        Some(conn) => ask(env, connections, conn, &count, out),
        None => {
            // `begin_if_asked` is called for a server that becomes free only while the catalog of its pool is due.
            for id in pools.ids() {
                if let Some(pool) = pools.get_mut(id) {
                    pool.catalog.due = Time(0);
                }
            }
            pools.fleet_count = Some(count);
        }
    }
}

/// Begins the requested count on a server that has become free. Returns false if no count is requested.
pub(crate) fn begin_if_asked(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    conn: Token,
    out: &mut Actions,
) -> bool {
    let Some(count) = pools.fleet_count.take() else {
        return false;
    };
    if count.is_begun.load(Ordering::Relaxed) {
        return false;
    }
    ask(env, connections, conn, &count, out);
    true
}

fn ask(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    count: &FleetCount,
    out: &mut Actions,
) {
    let until = env.now.after(PATIENCE);
    let Some(server) = connections.begin_cleaning(conn, until, env.now, out) else {
        return;
    };
    // If a server of another worker has begun to count, this server runs an empty query, after which it becomes free
    // again.
    let query = match count.is_begun.swap(true, Ordering::Relaxed) {
        true => "",
        false => &count.query,
    };
    let user = server.shared.key.user.to_string();
    let counted = Box::new(FleetCounted {
        number: if query.is_empty() { 0 } else { count.number },
        user,
        ..FleetCounted::default()
    });
    server
        .session
        .queries
        .begin(InternalAnswer::Backends(counted));
    server.announce(env.now);
    out.ask(conn, server, InternalQuery::Backends, query.as_bytes());
}
