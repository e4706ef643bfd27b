//! Checks of the hosts of a list: what each host is, how far a standby is behind, and whether it answers at all.
//!
//! This module owns no state: the state of a check is in its connection ([`Duty`](crate::backend::Duty)), and the
//! results are in [`Hosts`](crate::shared::hosts::Hosts). While a worker has clients of a pool with several hosts, one worker
//! of the process keeps one connection to each of these hosts, under the caps, and sends a query over it every
//! `host_check_interval`.
//!
//! Input: ticks, and the events of these connections. Output: queries, effects that open and close connections, and
//! effects that close the servers of hosts that are of no use any more.

mod answer;

use std::sync::Arc;

use pgweir_config::{Database, TargetSession};
use pgweir_wire::{Body, HEADER_LEN, MessageWriter, Report, sqlstate, tag::backend};

use self::answer::Answer;
use crate::{
    Action, Actions, Directory, Endpoint, Level, Token,
    backend::{Duty, InternalQuery, Server},
    base::fault::{Fault, ServerError},
    connections::{Conn, Connections},
    effect::{Effect, Env, OwnConnection, ServerEffect},
    mail::Mail,
    pooling::{LocalPool, LocalPools},
    shared::{
        hosts::{Host, HostFacts, HostState, Need, Unfit},
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
        is_on && pool.clients > 0 && entry.is_some_and(|entry| are_checked(&env, entry))
    })
}

/// Returns whether this worker has hosts to check.
pub(crate) fn are_due(env: &Env<'_>, pools: &LocalPools) -> bool {
    checked_pools(env, pools).next().is_some()
}

/// Begins the checks that are due, and ends those that are not needed or not answered.
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
        .tokens(|conn| matches!(conn, Conn::Server(server) if server.purpose.checks_host));
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
    if !wanted.contains(&server.link.endpoint) {
        return Some(Effect::close(conn, "no client needs its host"));
    }
    let Duty::CheckingHost { asked_at } = *server.duty() else {
        return None;
    };
    let host = Arc::clone(server.link.seat.as_ref()?.host());
    let patience = env.snapshot.config.settings.host_check_timeout.0;
    match asked_at {
        Some(at) if patience > 0 && env.now.since(at) >= patience => {
            // The next check begins with a new connection.
            let why = "no answer to a check within host_check_timeout";
            unanswered(env, &host, why, out);
            Some(Effect::close(conn, why))
        }
        // A server that has sent its last words answers nothing any more.
        None if is_due(env, &host) && server.link.last_words.is_none() => {
            ask(env, connections, conn, out);
            None
        }
        _ => None,
    }
}

/// Notes that a host has not answered a check.
pub(crate) fn unanswered(env: &Env<'_>, host: &Host, why: &str, out: &mut Actions) {
    let settings = &env.snapshot.config.settings;
    let (most, pause) = (
        settings.host_check_failures,
        settings.target_session_retry.0,
    );
    let is_news = host.learn(|facts| {
        facts.failed(why, env.now);
        facts.unanswered = facts.unanswered.saturating_add(1);
        let is_down = facts.unanswered >= most;
        facts.checked(env.now, (!is_down).then_some(pause));
        if is_down {
            facts.is_not_up(HostState::Down);
        }
    });
    if is_news {
        let text = format!("{why} (host_check_failures = {most})");
        out.log(Level::Warning, format!("host {}", host.endpoint), text);
        announce(env.directory, out);
    }
}

/// Notes that a host has refused the login of a check: it answers, so it is not silent.
pub(crate) fn refused(env: &Env<'_>, host: &Host, why: &str) {
    let _ = host.learn(|facts| {
        facts.failed(why, env.now);
        facts.checked(env.now, None);
        facts.unanswered = 0;
    });
}

/// Handles the end of the login of a connection that checks its host.
pub(crate) fn logged_in(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    out: &mut Actions,
) {
    let Some(server) = connections.server(conn) else {
        return out.report_missing("a connection that checks its host");
    };
    server.check_host(None);
    ask(env, connections, conn, out);
}

fn ask(env: &Env<'_>, connections: &mut Connections, conn: Token, out: &mut Actions) {
    let Some(server) = connections.server(conn) else {
        return;
    };
    server.check_host(Some(env.now));
    server.ask(InternalQuery::HostCheck);
    if let Some(seat) = &server.link.seat {
        let _ = (seat.host()).learn(|facts| facts.checked(env.now, None));
    }
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).query(answer::QUERY);
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
    let Some(seat) = &server.link.seat else {
        return;
    };
    let host = Arc::clone(seat.host());
    let body = &message[HEADER_LEN..];
    match message[0] {
        backend::DATA_ROW => {
            let columns = Body::new(body).columns();
            let Some(answer) = columns.ok().and_then(|row| Answer::parse(&row)) else {
                let text = "a check of the host was answered with something else";
                return out.log(Level::Warning, server.subject(), text);
            };
            let is_standby = answer.is_standby();
            let primary = is_standby.then(|| primary_position(env, &host)).flatten();
            let before = host.facts().lag;
            let is_news = host.learn(|facts| answer.apply(facts, primary));
            let lag_matters = before != host.facts().lag && is_lag_limited(env);
            if is_news || lag_matters {
                announce(env.directory, out);
            }
        }
        backend::ERROR_RESPONSE => {
            let Ok(report) = Report::parse(body) else {
                return;
            };
            let text = String::from_utf8_lossy(report.message).into_owned();
            let _ = host.learn(|facts| facts.failed(&text, env.now));
            reported(env, server, &report, out);
            if report.ends_session() {
                server.link.last_words = Some(ServerError::of(&report));
            }
            let text = format!("a check of the host failed: {text}");
            out.log(Level::Warning, server.subject(), text);
        }
        // The server ends all sessions: since another process has crashed, or since it was stopped in a hurry. No client could
        // have sent this notice.
        backend::NOTICE_RESPONSE => {
            if let Ok(report) = Report::parse(body) {
                ends_sessions(env, server, &report, out);
            }
        }
        backend::READY_FOR_QUERY => {
            let _ = server.replies.ready();
            server.check_host(None);
            let settings = &env.snapshot.config.settings;
            if host.learn(|facts| facts.heard(env.now, settings.host_return_after.0)) {
                announce(env.directory, out);
            }
        }
        _ => {}
    }
}

fn is_lag_limited(env: &Env<'_>) -> bool {
    let config = &env.snapshot.config;
    let mut databases = config.databases.values().chain(&config.fallback);
    databases.any(|database| database.max_replica_lag.0 > 0)
}

/// Handles an error of a server that may say something about its host, whatever the server was doing: it can't write, or
/// the host ends its sessions.
pub(crate) fn reported(env: &Env<'_>, server: &mut Server, report: &Report<'_>, out: &mut Actions) {
    let Some(seat) = &server.link.seat else {
        return;
    };
    if report.code == sqlstate::READ_ONLY_SQL_TRANSACTION.as_bytes() {
        let host = Arc::clone(seat.host());
        write_refused(env, server, &host, out);
    } else if report.ends_session() {
        ends_sessions(env, server, report, out);
    }
}

/// Handles the notice or error of a server that ends its session, or all of them.
fn ends_sessions(env: &Env<'_>, server: &Server, report: &Report<'_>, out: &mut Actions) {
    let Some(seat) = &server.link.seat else {
        return;
    };
    let host = seat.host();
    match std::str::from_utf8(report.code).unwrap_or_default() {
        // One session was ended by an operator, or all are, since the server shuts down.
        sqlstate::ADMIN_SHUTDOWN => _ = doubt(env, host, out),
        sqlstate::CRASH_SHUTDOWN | sqlstate::CANNOT_CONNECT_NOW => {
            let text = String::from_utf8_lossy(report.message);
            let is_news = host.learn(|facts| {
                facts.failed(&text, env.now);
                facts.is_not_up(HostState::Unavailable);
            });
            if is_news {
                announce(env.directory, out);
            }
            let _ = doubt(env, host, out);
        }
        _ => {}
    }
}

/// Handles the refusal of a write by a server that is to write. The client may have asked for a read-only transaction, so
/// the error alone says nothing: the host is checked, or, where hosts are not checked, the server is replaced by one whose
/// login shows its role.
fn write_refused(env: &Env<'_>, server: &mut Server, host: &Host, out: &mut Actions) {
    let Some(entry) = env.snapshot.config.database(&server.shared.key.database) else {
        return;
    };
    let target = entry.target_session_attrs;
    let is_to_write = matches!(target, TargetSession::ReadWrite | TargetSession::Primary);
    if is_to_write && doubt(env, host, out) && !are_checked(env, entry) {
        server.retirement.require("it has refused to write");
    }
}

/// Notes that a server has reported that it is a standby or no standby any more. Its host is checked at once.
pub(crate) fn role_reported(env: &Env<'_>, host: &Host, is_standby: bool, out: &mut Actions) {
    let is_known = |role: &ServerRole| role.is_standby() == is_standby;
    let is_news = host.learn(|facts| {
        if !facts.role.as_ref().is_some_and(is_known) {
            facts.role = Some(ServerRole::new(is_standby, is_standby));
            facts.timeline = None;
        }
    });
    if is_news {
        announce(env.directory, out);
    }
    let _ = doubt(env, host, out);
}

/// Checks a host and the others of its lists at once, as far as they are checked: there is a reason to believe that their
/// roles have changed. Clients can cause such errors at any rate, so this happens at most once in `target_session_retry`.
/// Returns `false` if it has just happened; then the host alone is checked later.
pub(crate) fn doubt(env: &Env<'_>, host: &Host, out: &mut Actions) -> bool {
    let pause = env.snapshot.config.settings.target_session_retry.0;
    let mut is_due = false;
    let _ = host.learn(|facts| is_due = facts.doubt(env.now, pause));
    if !is_due {
        return false;
    }
    for listed in listed_with(env, host) {
        let _ = listed.learn(|facts| facts.check_at = Some(env.now));
    }
    announce(env.directory, out);
    true
}

/// Returns the position of the primary that a standby belongs to, as the last check has found it: the greatest of all primaries in
/// the lists that have the standby.
fn primary_position(env: &Env<'_>, standby: &Host) -> Option<u64> {
    let listed = listed_with(env, standby).into_iter();
    let primaries = listed
        .map(|host| host.facts())
        .filter(|facts| facts.timeline.is_some());
    primaries.filter_map(|facts| facts.position).max()
}

/// Returns the hosts of all lists that have a host.
fn listed_with(env: &Env<'_>, host: &Host) -> Vec<Arc<Host>> {
    let is_listed = |database: &Database, endpoint: &Endpoint| {
        Endpoint::all_of(database).any(|one| one == *endpoint)
    };
    let config = &env.snapshot.config;
    // A database with one host lists no primary beside the standby.
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

/// Tells all workers that some host may be fit for other uses than before, or that a check is due.
pub(crate) fn announce(directory: &Directory, out: &mut Actions) {
    for to in directory.worker_ids() {
        let mail = Mail::HostsChanged;
        out.list.push(Action::Mail { to, mail });
    }
}

/// Returns which hosts a database uses.
pub(crate) fn need_of(database: Option<&Database>) -> Need {
    Need {
        target: database.map_or(TargetSession::Any, |entry| entry.target_session_attrs),
        max_lag: database.map_or(0, |entry| entry.max_replica_lag.0),
        is_for_new: false,
    }
}

/// Returns why each host of a pool is of no use for this need now, in their order.
pub(crate) fn unfit_hosts(
    directory: &Directory,
    pool: &LocalPool,
    need: Need,
) -> Vec<Option<Unfit>> {
    let endpoints = &pool.terms.endpoints;
    if endpoints.len() < 2 || need.target == TargetSession::Any {
        return vec![None; endpoints.len()];
    }
    let hosts = directory.hosts();
    let facts: Vec<HostFacts> = endpoints
        .iter()
        .map(|endpoint| hosts.at(endpoint).facts())
        .collect();
    let unfit = |at: usize| {
        let others = facts.iter().enumerate();
        let others = others.filter(move |(other, _)| *other != at);
        facts[at].unfit(others.map(|(_, facts)| facts), need)
    };
    (0..facts.len()).map(unfit).collect()
}

/// Closes the servers of hosts that are of no use any more: at once if their answers can't be trusted or won't come, else as
/// soon as they are not in use.
pub(crate) fn leave_hosts(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    for pool in pools.iter() {
        let need = need_of(pool.terms.entry.as_ref());
        let unfit = unfit_hosts(env.directory, pool, need);
        if unfit.iter().all(Option::is_none) {
            continue;
        }
        let why = |server: &Server| {
            let mut hosts = pool.terms.endpoints.iter().zip(&unfit);
            let host = hosts.find(|(endpoint, _)| **endpoint == server.link.endpoint);
            host.and_then(|(_, why)| *why)
        };
        for (token, conn) in connections.iter() {
            if let Conn::Server(server) = conn
                && server.pool() == pool.shared.id
                && !server.purpose.checks_host
                && let Some(why) = why(server)
            {
                effects.extend(leave(token, server, why));
            }
        }
    }
    effects
}

fn leave(token: Token, server: &Server, why: Unfit) -> Option<Effect> {
    let is_login = matches!(server.duty(), Duty::Login(_));
    let effect = match why {
        // The end of the login shows what the host is.
        _ if is_login && why != Unfit::Superseded && why != Unfit::Silent => return None,
        Unfit::Role | Unfit::Lagging | Unfit::Unavailable | Unfit::Settling => {
            ServerEffect::Retire(token, why.reason())
        }
        Unfit::Superseded | Unfit::Silent => {
            let fault = Fault::HostLeft(why.reason());
            ServerEffect::Lose(token, Box::new(fault))
        }
    };
    Some(Effect::Server(effect))
}
