//! `read_after_write`: finds out which standbys have replayed the writes that clients know of.
//!
//! When a client's transaction has to wait, its worker asks the workers that check the hosts for a check at once. Each
//! answer is announced to all workers, and each worker compares the positions of its pools' hosts.

use std::sync::Arc;

use super::{ask, host_exclusions, request_check, requirements_of, update};
use crate::{
    Actions, Directory, Level,
    backend::{Duty, Server},
    connections::Connections,
    effect::Env,
    mail::Mail,
    pooling::{LocalPool, LocalPools},
    shared::hosts::{Host, HostExclusion, HostState, leader, replayed_writes},
};

/// Returns whether an entry of `[databases]` has `read_after_write`.
pub(super) fn is_on_somewhere(env: &Env<'_>) -> bool {
    (env.snapshot.config)
        .database_with_read_after_write()
        .is_some()
}

/// Informs all workers that a check was answered.
pub(super) fn announce(env: &Env<'_>, out: &mut Actions) {
    if is_on_somewhere(env) {
        for worker in env.directory.worker_ids() {
            out.mail(worker, Mail::ReplayChecked);
        }
    }
}

fn hosts_of(directory: &Directory, pool: &LocalPool) -> Vec<Arc<Host>> {
    let endpoints = pool.terms.endpoints.iter();
    let hosts = endpoints.map(|endpoint| directory.hosts().at(endpoint));
    hosts.collect()
}

fn leader_of(hosts: &[Arc<Host>]) -> Option<usize> {
    leader(hosts.iter().map(|host| host.eligibility()))
}

/// Returns whether the server's host has replayed this number of writes, or is the primary that confirms the writes.
#[inline]
pub(crate) fn is_current(
    directory: &Directory,
    pool: &LocalPool,
    server: &Server,
    writes: u64,
) -> bool {
    server.link.host().is_some_and(|host| {
        host.replay.has_replayed(writes)
            || host.replay.may_write() && is_leader(directory, pool, host)
    })
}

#[cold]
fn is_leader(directory: &Directory, pool: &LocalPool, host: &Arc<Host>) -> bool {
    let hosts = hosts_of(directory, pool);
    leader_of(&hosts).is_some_and(|at| Arc::ptr_eq(&hosts[at], host))
}

/// Returns the hosts of a pool that would be used for the pool's servers, and of which it is not known that they have replayed this
/// number of writes.
fn pending<'h>(
    env: &Env<'_>,
    pool: &LocalPool,
    hosts: &'h [Arc<Host>],
    writes: u64,
) -> Vec<&'h Arc<Host>> {
    let requirements = requirements_of(pool.terms.entry.as_ref());
    let exclusions = host_exclusions(env.directory, pool, requirements);
    let leader = leader_of(hosts);
    let used = hosts.iter().zip(exclusions).enumerate();
    let used = used.filter(|(at, (_, exclusion))| exclusion.is_none() && Some(*at) != leader);
    let hosts = used.map(|(_, (host, _))| host);
    let is_pending = |host: &&Arc<Host>| {
        let answers = matches!(host.facts().state, HostState::Up | HostState::Unknown);
        answers && !host.replay.has_replayed(writes)
    };
    hosts.filter(is_pending).collect()
}

/// Returns whether a client has to wait until a host of its pool has replayed this number of writes.
pub(crate) fn must_wait(env: &Env<'_>, pool: &LocalPool, writes: u64) -> bool {
    let hosts = hosts_of(env.directory, pool);
    !pending(env, pool, &hosts, writes).is_empty()
}

/// Requests checks of the hosts that have not replayed this number of writes, and of the primary if its position is not known for
/// that number.
pub(crate) fn request_checks(
    env: &Env<'_>,
    pool: &LocalPool,
    writes: u64,
    checks: RequestedChecks,
    out: &mut Actions,
) {
    let hosts = hosts_of(env.directory, pool);
    let primary = leader_of(&hosts).map(|at| &hosts[at]);
    let is_asked = |host: &&Arc<Host>| {
        let answer = host.replay.answer();
        answer.is_none_or(|answer| answer.writes < writes)
    };
    let primary = primary.filter(is_asked);
    let standbys = match checks {
        RequestedChecks::All => pending(env, pool, &hosts, writes),
        RequestedChecks::Primary => Vec::new(),
    };
    for host in primary.into_iter().chain(standbys) {
        match host.replay.connection() {
            Some((worker, _)) => out.mail(worker, Mail::CheckReplay(Arc::clone(host))),
            None => _ = request_check(env, host, out),
        }
    }
}

/// The hosts whose checks are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestedChecks {
    /// The primary, if its position is not known yet, and the standbys.
    All,
    /// The primary, if its position is not known yet.
    Primary,
}

/// Checks a host at once, if this worker has the connection for it, and no check is under way.
pub(crate) fn check_replay(
    env: &Env<'_>,
    connections: &mut Connections,
    host: &Host,
    out: &mut Actions,
) {
    let Some((worker, conn)) = host.replay.connection() else {
        return;
    };
    if worker != env.worker {
        return;
    }
    let Some(server) = connections.server(conn) else {
        return;
    };
    let is_free = matches!(server.duty(), Duty::CheckingHost { asked_at: None });
    if is_free && !server.link.has_announced_end() {
        ask(env, connections, conn, out);
    }
}

/// Compares the positions of the hosts of this worker's pools, after a check was answered. A standby that has caught up with the
/// primary's position is used again.
pub(crate) fn note_news(env: &Env<'_>, pools: &LocalPools, out: &mut Actions) {
    for pool in pools.iter() {
        if pool.terms.read_after_write.is_none() {
            continue;
        }
        let hosts = hosts_of(env.directory, pool);
        let primary = leader_of(&hosts).and_then(|at| hosts[at].replay.answer());
        for host in &hosts {
            if let (Some(primary), Some(answer)) = (primary, host.replay.answer())
                && let Some(writes) = replayed_writes(&answer, &primary)
            {
                host.replay.note_replayed(&answer, writes);
                update(env, host, out, |facts| facts.is_behind = false);
            }
        }
    }
}

/// Stops using the standbys of a pool that have not replayed this number of writes, until they have caught up.
pub(crate) fn leave_slow_standbys(env: &Env<'_>, pool: &LocalPool, writes: u64, out: &mut Actions) {
    let hosts = hosts_of(env.directory, pool);
    for host in pending(env, pool, &hosts, writes) {
        if update(env, host, out, |facts| facts.is_behind = true) {
            let subject = format!("host {}", host.endpoint);
            out.log(Level::Warning, subject, HostExclusion::Behind.reason());
        }
    }
}
