//! Checks of the hosts of a list: the role of each host, the lag of a standby, and whether the host answers at all.
//!
//! While a worker has clients of a pool with several hosts and `target_session_attrs`, one worker of the process keeps
//! one connection to each of these hosts, under the caps, and sends a query over it every `host_check_interval`.
//!
//! This module owns no state: the state of a check is in its connection ([`Duty`](crate::backend::Duty)), and the
//! results are in [`Hosts`](crate::shared::hosts::Hosts).
//!
//! Input: ticks, and the events of these connections. Output: queries, effects that open and close the connections, and
//! effects that close the servers of hosts that a pool must not use any more.

mod answer;
mod patroni;
mod replay;

use std::sync::Arc;

use pgweir_config::{Database, ReadAfterWrite, TargetSession};
use pgweir_wire::{Body, HEADER_LEN, MessageWriter, Report, Severity, sqlstate, tag::backend};

use self::answer::Answer;
pub(crate) use self::{
    patroni::take_news,
    replay::{
        RequestedChecks, check_replay, is_current, leave_slow_standbys, must_wait, note_news,
        request_checks,
    },
};
use crate::{
    Actions, Directory, Endpoint, Level, Token,
    backend::{Duty, InternalQuery, Server},
    base::fault::{Fault, ServerError},
    connections::{Conn, Connections},
    effect::{Effect, Env, OwnConnection, PoolEffect, ServerEffect},
    mail::Mail,
    pooling::{LocalPool, LocalPools},
    shared::{
        hosts::{Host, HostExclusion, HostFacts, HostRequirements, HostState},
        pool::ServerRole,
    },
};

/// The application_name of connections that check a host, unless the database's entry sets another one.
pub(crate) const APPLICATION_NAME: &str = "pgweir host check";

/// Returns whether the hosts of a database are checked.
fn are_checked(env: &Env<'_>, database: &Database) -> bool {
    let settings = &env.snapshot.config.settings;
    let asks = database.target_session_attrs != TargetSession::Any;
    settings.host_check_interval.0 > 0 && database.host.len() > 1 && asks
}

/// Returns the pools of this worker whose hosts are checked.
fn checked_pools<'p>(
    env: &Env<'p>,
    pools: &'p LocalPools,
) -> impl Iterator<Item = &'p LocalPool> + use<'p> {
    let env = *env;
    let is_on = env.shutdown.is_none() && !env.hands_clients_over;
    pools.iter().filter(move |pool| {
        let entry = pool.terms.entry.as_ref();
        is_on && pool.has_clients() && entry.is_some_and(|entry| are_checked(&env, entry))
    })
}

/// Returns whether this worker has hosts to check.
pub(crate) fn has_hosts_to_check(env: &Env<'_>, pools: &LocalPools) -> bool {
    checked_pools(env, pools).next().is_some()
}

/// Begins the checks that are due. Closes the connections of checks that are no longer needed or were not answered.
pub(crate) fn check(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &LocalPools,
    out: &mut Actions,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut wanted: Vec<Arc<Endpoint>> = Vec::new();
    for pool in checked_pools(env, pools) {
        for endpoint in &pool.terms.endpoints {
            if wanted.contains(endpoint) {
                continue;
            }
            wanted.push(Arc::clone(endpoint));
            let host = env.directory.hosts().at(endpoint);
            if is_due(env, &host) && host.take_check(env.worker) {
                let (shared, endpoint) = (Arc::clone(&pool.shared), Arc::clone(endpoint));
                let open = ServerEffect::OpenOwn(OwnConnection::HostCheck(shared, endpoint));
                effects.push(Effect::Server(open));
            }
        }
    }
    let own = connections
        .tokens(|conn| matches!(conn, Conn::Server(server) if server.purpose().checks_host()));
    for conn in own {
        effects.extend(continue_check(env, connections, conn, &wanted, out));
    }
    effects
}

fn is_due(env: &Env<'_>, host: &Host) -> bool {
    let interval = env.snapshot.config.settings.host_check_interval.0;
    host.facts().is_check_due(env.now, interval)
}

/// Sends the next query over a connection that checks its host, or closes the connection.
fn continue_check(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    wanted: &[Arc<Endpoint>],
    out: &mut Actions,
) -> Option<Effect> {
    let server = connections.server(conn)?;
    if !wanted.contains(server.link.endpoint()) {
        return Some(Effect::close(conn, "no client needs its host"));
    }
    let Duty::CheckingHost { asked_at } = *server.duty() else {
        return None;
    };
    let host = Arc::clone(server.link.host()?);
    let patience = env.snapshot.config.settings.host_check_timeout.0;
    match asked_at {
        Some(at) if patience > 0 && env.now.since(at) >= patience => {
            // The next check begins with a new connection.
            let why = "no answer to a check within host_check_timeout";
            note_unanswered(env, &host, why, out);
            Some(Effect::close(conn, why))
        }
        // A server that has announced the end of its session answers no query.
        None if is_due(env, &host) && !server.link.has_announced_end() => {
            ask(env, connections, conn, out);
            None
        }
        _ => None,
    }
}

/// Records that a host has not answered a check.
pub(crate) fn note_unanswered(env: &Env<'_>, host: &Host, why: &str, out: &mut Actions) {
    let settings = &env.snapshot.config.settings;
    let (most, pause) = (
        settings.host_check_failures,
        settings.target_session_retry.0,
    );
    let is_changed = update(env, host, out, |facts| {
        facts.note_error(why, env.now);
        facts.unanswered = facts.unanswered.saturating_add(1);
        let is_down = facts.unanswered >= most;
        facts.note_check(env.now, (!is_down).then_some(pause));
        if is_down {
            facts.note_unusable(HostState::Down);
        }
    });
    if is_changed {
        let text = format!("{why} (host_check_failures = {most})");
        out.log(Level::Warning, format!("host {}", host.endpoint), text);
    }
}

/// Records that a host has refused the login of a check. The host has answered, so it counts as responsive.
pub(crate) fn note_refusal(env: &Env<'_>, host: &Host, why: &str) {
    let _ = host.update(|facts| {
        facts.note_error(why, env.now);
        facts.note_check(env.now, None);
        facts.unanswered = 0;
    });
}

/// Begins to check a host over a connection that has logged in.
pub(crate) fn begin_checking(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    out: &mut Actions,
) {
    let Some(server) = connections.server(conn) else {
        return out.report_missing("a connection that checks its host");
    };
    server.check_host(None);
    if let Some(host) = server.link.host() {
        host.replay.begin_checks(env.worker, conn);
    }
    ask(env, connections, conn, out);
}

fn ask(env: &Env<'_>, connections: &mut Connections, conn: Token, out: &mut Actions) {
    let Some(server) = connections.server(conn) else {
        return;
    };
    server.check_host(Some(env.now));
    server.ask(InternalQuery::HostCheck);
    if let Some(host) = server.link.host() {
        host.replay
            .note_asked(env.directory.hosts().writes().count());
        let _ = host.update(|facts| facts.note_check(env.now, None));
    }
    let query = answer::query(replay::is_on_somewhere(env));
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).query(&query);
    });
    connections.schedule(env.now);
}

/// Handles bytes from a connection that checks its host.
pub(crate) fn received(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    bytes: &[u8],
    out: &mut Actions,
) -> Option<Effect> {
    let mut at = 0;
    let server = connections.server(conn)?;
    loop {
        let reads = (server.replies.is_asked(), true);
        match server.stream.next_inspected(bytes, &mut at, reads) {
            Ok(Some(message)) => take(env, server, &message, out),
            Ok(None) => return None,
            Err(violation) => return Some(Effect::fault(conn, &violation.to_string())),
        }
    }
}

/// Takes one message of the answer to a check.
fn take(env: &Env<'_>, server: &mut Server, message: &[u8], out: &mut Actions) {
    let Some(host) = server.link.host() else {
        return;
    };
    let host = Arc::clone(host);
    let body = &message[HEADER_LEN..];
    match message[0] {
        backend::DATA_ROW => {
            let columns = Body::new(body).columns();
            let Some(answer) = columns.ok().and_then(|row| Answer::parse(&row)) else {
                let text = "unexpected answer to a check of the host";
                return out.log(Level::Warning, server.subject(), text);
            };
            let is_standby = answer.is_standby();
            let primary = is_standby.then(|| primary_position(env, &host)).flatten();
            let before = host.facts().lag;
            let pause = env.snapshot.config.settings.target_session_retry.0;
            let is_announced = update(env, &host, out, |facts| {
                answer.apply(facts, primary);
                facts.check_announced_primary(env.now, pause);
            });
            answer.apply_replay(&host.replay);
            if let Some(usable) = answer.usable_connections() {
                note_usable_connections(env, &host, usable, out);
            }
            if !is_announced && before != host.facts().lag && is_lag_limited(env) {
                announce(env.directory, out);
            }
        }
        backend::ERROR_RESPONSE => {
            let Ok(report) = Report::parse(body) else {
                return;
            };
            let text = String::from_utf8_lossy(report.message).into_owned();
            let _ = host.update(|facts| facts.note_error(&text, env.now));
            note_error(env, server, &report, out);
            if report.ends_session() {
                server.link.note_final_error(ServerError::of(&report));
            }
            let text = format!("a check of the host failed: {text}");
            out.log(Level::Warning, server.subject(), text);
        }
        // PostgreSQL sends a notice when it ends all sessions after a crash or for an immediate shutdown. No client can
        // cause such a notice on this connection.
        backend::NOTICE_RESPONSE => {
            if let Ok(report) = Report::parse(body) {
                ends_sessions(env, server, &report, out);
            }
        }
        backend::READY_FOR_QUERY => {
            let _ = server.replies.ready();
            server.check_host(None);
            let settings = &env.snapshot.config.settings;
            let return_after = settings.host_return_after.0;
            update(env, &host, out, |facts| {
                facts.note_answer(env.now, return_after);
            });
            replay::announce(env, out);
        }
        _ => {}
    }
}

/// Notes how many connections a host allows. If the number is new and limits the servers, informs all workers.
pub(crate) fn note_usable_connections(env: &Env<'_>, host: &Host, usable: u32, out: &mut Actions) {
    let is_new = host.note_usable_connections(usable);
    if is_new && env.directory.hosts().limit_servers() {
        let text = format!("allows {usable} connections that are not reserved (max_server_conn)");
        out.log(Level::Log, format!("host {}", host.endpoint), text);
        announce(env.directory, out);
    }
}

fn is_lag_limited(env: &Env<'_>) -> bool {
    let config = &env.snapshot.config;
    let mut databases = config.databases.values().chain(&config.fallback);
    databases.any(|database| database.max_replica_lag.0 > 0)
}

/// Handles an error that shows a change of the server's host: the host refuses writes, or ends its sessions.
pub(crate) fn note_error(
    env: &Env<'_>,
    server: &mut Server,
    report: &Report<'_>,
    out: &mut Actions,
) {
    let Some(host) = server.link.host() else {
        return;
    };
    if report.code == sqlstate::READ_ONLY_SQL_TRANSACTION.as_bytes() {
        let host = Arc::clone(host);
        write_refused(env, server, &host, out);
    } else if report.ends_session() {
        ends_sessions(env, server, report, out);
    }
}

/// Handles the last message of a lost server, if pgweir has held the message back.
pub(crate) fn note_shutdown_message(env: &Env<'_>, server: &mut Server, out: &mut Actions) {
    let Some(request) = server.link.repeatable() else {
        return;
    };
    if let Some(report) = request.shutdown_message() {
        ends_sessions(env, server, &report, out);
        server.link.note_final_error(ServerError {
            severity: Severity::Fatal.as_str().to_owned(),
            ..ServerError::of(&report)
        });
    }
}

/// Handles a notice or error by which a server ends its session, or its host all sessions.
fn ends_sessions(env: &Env<'_>, server: &Server, report: &Report<'_>, out: &mut Actions) {
    let Some(host) = server.link.host() else {
        return;
    };
    match std::str::from_utf8(report.code).unwrap_or_default() {
        // Either an operator has ended this session, or the host shuts down and ends all sessions.
        sqlstate::ADMIN_SHUTDOWN => _ = request_check(env, host, out),
        sqlstate::CRASH_SHUTDOWN | sqlstate::CANNOT_CONNECT_NOW => {
            let text = String::from_utf8_lossy(report.message);
            update(env, host, out, |facts| {
                facts.note_error(&text, env.now);
                facts.note_unusable(HostState::Unavailable);
            });
            let _ = request_check(env, host, out);
        }
        _ => {}
    }
}

/// Handles the refusal of a write in a pool whose servers must accept writes. The client may have begun a read-only
/// transaction, so the error does not prove that the host has become a standby: the host is checked. If hosts are not
/// checked, the server is replaced, and the login of the next server shows the role of the host.
fn write_refused(env: &Env<'_>, server: &mut Server, host: &Host, out: &mut Actions) {
    let Some(entry) = env.snapshot.config.database(&server.shared.key.database) else {
        return;
    };
    let target = entry.target_session_attrs;
    let must_accept_writes = matches!(target, TargetSession::ReadWrite | TargetSession::Primary);
    if must_accept_writes && request_check(env, host, out) && !are_checked(env, entry) {
        server.retirement.require("it has refused to write");
    }
}

/// Records the role that a server has reported by `in_hot_standby`, and requests a check of its host.
pub(crate) fn note_reported_role(env: &Env<'_>, host: &Host, is_standby: bool, out: &mut Actions) {
    let is_known = |role: &ServerRole| role.is_standby() == is_standby;
    update(env, host, out, |facts| {
        if !facts.role.as_ref().is_some_and(is_known) {
            facts.role = Some(ServerRole::new(is_standby, is_standby));
            facts.timeline = None;
        }
    });
    let _ = request_check(env, host, out);
}

/// Requests a check of a host and of the others in its lists, since their roles may have changed. Clients can cause the
/// errors that lead here any number of times, so the hosts are checked at most once in `target_session_retry`. Returns
/// `false` if they were checked within that time. Then only this host is checked, when the time has passed.
pub(crate) fn request_check(env: &Env<'_>, host: &Host, out: &mut Actions) -> bool {
    let pause = env.snapshot.config.settings.target_session_retry.0;
    let mut is_due = false;
    let _ = host.update(|facts| is_due = facts.request_check(env.now, pause));
    if !is_due {
        return false;
    }
    for listed in listed_with(env, host) {
        let _ = listed.update(|facts| facts.check_at = Some(env.now));
    }
    announce(env.directory, out);
    true
}

/// Returns the WAL position of the primary that a standby follows, as of the last check: the highest position of all
/// primaries in the lists that contain the standby.
fn primary_position(env: &Env<'_>, standby: &Host) -> Option<u64> {
    let listed = listed_with(env, standby).into_iter();
    let primaries = listed
        .map(|host| host.facts())
        .filter(|facts| facts.timeline.is_some());
    primaries.filter_map(|facts| facts.position).max()
}

/// Returns all hosts of the lists that contain this host.
fn listed_with(env: &Env<'_>, host: &Host) -> Vec<Arc<Host>> {
    let is_listed = |database: &Database, endpoint: &Endpoint| {
        Endpoint::all_of(database).any(|one| one == *endpoint)
    };
    let config = &env.snapshot.config;
    // A list of one host contains no primary beside the standby.
    let lists: Vec<_> = (config.databases.values().chain(&config.fallback))
        .filter(|database| database.host.len() > 1 && is_listed(database, &host.endpoint))
        .collect();
    let hosts = env.directory.hosts().all().into_iter();
    let listed = hosts.filter(|host| {
        let mut lists = lists.iter();
        lists.any(|database| is_listed(database, &host.endpoint))
    });
    listed.collect()
}

/// Changes the state of a host. If pools may have to use other hosts now, informs all workers and returns `true`.
pub(crate) fn update(
    env: &Env<'_>,
    host: &Host,
    out: &mut Actions,
    change: impl FnOnce(&mut HostFacts),
) -> bool {
    let is_changed = host.update(change);
    if is_changed {
        announce(env.directory, out);
    }
    is_changed
}

/// Informs all workers that pools may have to use other hosts than before, or that a check is due.
fn announce(directory: &Directory, out: &mut Actions) {
    for to in directory.worker_ids() {
        let mail = Mail::HostsChanged;
        out.mail(to, mail);
    }
}

/// Returns the conditions that a database's hosts must meet for the use of open server connections.
pub(crate) fn requirements_of(database: Option<&Database>) -> HostRequirements {
    HostRequirements {
        target: database.map_or(TargetSession::Any, |entry| entry.target_session_attrs),
        max_lag: database.map_or(0, |entry| entry.max_replica_lag.0),
        reads_writes: database.is_some_and(|entry| entry.read_after_write == ReadAfterWrite::Lsn),
        is_for_new: false,
    }
}

/// Returns for each host of a pool why the pool must not use it; `None` if it may.
pub(crate) fn host_exclusions(
    directory: &Directory,
    pool: &LocalPool,
    requirements: HostRequirements,
) -> Vec<Option<HostExclusion>> {
    let endpoints = &pool.terms.endpoints;
    if endpoints.len() < 2 || requirements.target == TargetSession::Any {
        return vec![None; endpoints.len()];
    }
    let hosts = directory.hosts();
    let facts: Vec<HostFacts> = endpoints
        .iter()
        .map(|endpoint| hosts.at(endpoint).facts())
        .collect();
    let exclusion = |at: usize| {
        let others = facts.iter().enumerate();
        let others = others.filter(move |(other, _)| *other != at);
        facts[at].exclusion(others.map(|(_, facts)| facts), requirements)
    };
    (0..facts.len()).map(exclusion).collect()
}

/// Handles changes of hosts: closes the servers of hosts that their pools must not use any more, and applies the limits that
/// depend on hosts.
pub(crate) fn take_changes(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
) -> Vec<Effect> {
    let mut effects = leave_excluded_hosts(env, connections, pools);
    if env.directory.hosts().limit_servers() {
        let pools = pools.ids().into_iter();
        effects.extend(pools.map(|pool| Effect::Pool(pool, PoolEffect::ApplyLimits)));
    }
    effects
}

/// Closes the servers of hosts that their pools must not use any more. A server is closed at once if its host is no longer
/// the primary or does not answer, otherwise when no client uses the server.
fn leave_excluded_hosts(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    for pool in pools.iter() {
        let requirements = requirements_of(pool.terms.entry.as_ref());
        let exclusions = host_exclusions(env.directory, pool, requirements);
        if exclusions.iter().all(Option::is_none) {
            continue;
        }
        let why = |server: &Server| {
            let mut hosts = pool.terms.endpoints.iter().zip(&exclusions);
            let host = hosts.find(|(endpoint, _)| *endpoint == server.link.endpoint());
            host.and_then(|(_, why)| *why)
        };
        for (token, conn) in connections.iter() {
            if let Conn::Server(server) = conn
                && server.pool() == pool.shared.id
                && !server.purpose().checks_host()
                && let Some(why) = why(server)
            {
                effects.extend(close_excluded(token, server, why));
            }
        }
    }
    effects
}

fn close_excluded(token: Token, server: &Server, why: HostExclusion) -> Option<Effect> {
    let is_login = matches!(server.duty(), Duty::Login(_));
    let effect = match why {
        // The login itself will show the state of the host.
        _ if is_login && why != HostExclusion::Superseded && why != HostExclusion::Unresponsive => {
            return None;
        }
        HostExclusion::Role
        | HostExclusion::Lagging
        | HostExclusion::Behind
        | HostExclusion::Unavailable
        | HostExclusion::OnProbation => ServerEffect::Retire(token, why.reason()),
        HostExclusion::Superseded | HostExclusion::Unresponsive => {
            let fault = Fault::HostLeft(why.reason());
            ServerEffect::Lose(token, Box::new(fault))
        }
    };
    Some(Effect::Server(effect))
}
