//! Servers that read the catalog of their database, so that texts can be certified.
//!
//! This module owns no state. Input: a server that has become free ([`begin_if_due`]), and its answer ([`finish`]). The
//! facts that it has read are evaluated on another thread ([`Action::Evaluate`]); the resulting certificates are put in
//! force in the [`Catalog`](crate::shared::catalog::Catalog) that all workers share ([`put_in_force`]).

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::role_settings;
use crate::{
    Action, Actions, Evaluated, Evaluation, Level, Reading, Time, Token,
    backend::{CatalogRows, InternalAnswer, InternalQuery, Server},
    connections::Connections,
    effect::Env,
    pooling::LocalPools,
    session::certificates::{FACTS, Facts, IDENTITY, SYSTEM, Trust},
    shared::catalog::{Findings, LostTransaction, ProcessSearch},
};

/// The shortest time between two checks of a worker whether the catalog has to be read, in microseconds.
const CHECKED_EVERY: u64 = 250_000;
/// The shortest time between two checks if the catalog may have changed, in microseconds.
const CHECKED_AGAIN: u64 = 1_000;
/// The longest time that a server may take to answer, in microseconds.
const PATIENCE: u64 = 30_000_000;

/// Returns whether this server, which has become free, has to read the catalog before any client gets it.
#[inline]
pub(crate) fn begin_if_due(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    conn: Token,
    out: &mut Actions,
) -> bool {
    let interval = env.snapshot.config.settings.catalog_check_interval.0;
    let Some(server) = connections.known_server(conn, out) else {
        return false;
    };
    let Some(pool) = pools.get_mut(server.pool()) else {
        out.report_missing("the pool of a server that has become free");
        return false;
    };
    pool.use_current_catalog();
    if pool.catalog.due > env.now || interval == 0 {
        return false;
    }
    let lost = lost_processes(env, server, out);
    if !lost.is_empty() {
        pool.catalog.due = env.now.after(CHECKED_EVERY);
        out.ask(conn, server, InternalQuery::LostDdl, &search_for(&lost));
        let search = Box::new(ProcessSearch::of(lost));
        server
            .session
            .queries
            .begin(InternalAnswer::Processes(search));
        server.announce(env.now);
        connections.begin_cleaning(conn, env.now.after(PATIENCE), env.now, out);
        return true;
    }
    let catalog = Arc::clone(&pool.shared.catalog);
    let is_whole = pool.terms.carries_sessions;
    let reading = match is_whole {
        true => catalog.begin(interval, env.now),
        false => catalog.begin_identity(env.now),
    };
    let pause = if is_whole && reading.is_none() && catalog.is_stale() {
        CHECKED_AGAIN
    } else {
        CHECKED_EVERY
    };
    pool.catalog.due = env.now.after(pause);
    let Some(reading) = reading else {
        return false;
    };
    send_queries(env, conn, server, reading, out);
    server.announce(env.now);
    // The server is kept from clients until it has answered.
    connections.begin_cleaning(conn, env.now.after(PATIENCE), env.now, out);
    true
}

/// Returns the pids of processes on this server's host that may still commit DDL, although their connections were closed.
fn lost_processes(env: &Env<'_>, server: &Server, out: &mut Actions) -> Vec<u32> {
    let timeout = env.snapshot.config.settings.lost_ddl_timeout.0;
    let mut lost_ddl = server.shared.catalog.lost_ddl().lock();
    let given_up = lost_ddl.give_up(timeout, env.now);
    let pids = lost_ddl.pids(server.link.endpoint());
    drop(lost_ddl);
    if !given_up.is_empty() {
        let text = format!(
            "{} transactions with DDL whose connections were closed may still be committed, and their hosts could \
             not be asked for {} seconds (lost_ddl_timeout); pgweir notices a later commit after catalog_check_interval",
            given_up.len(),
            timeout / 1_000_000
        );
        out.log(Level::Warning, "", text);
    }
    end(env, given_up, out);
    pids
}

/// Ends transactions for the catalog. Their server processes have ended, or pgweir waits for them no longer.
fn end(env: &Env<'_>, transactions: Vec<LostTransaction>, out: &mut Actions) {
    for lost in transactions {
        if let Some(change) = &lost.defaults {
            role_settings::renew(env.directory, env.snapshot, &lost.endpoint, change, out);
        }
    }
}

/// Returns the query for those of these server processes that are still there, and for when they began.
fn search_for(pids: &[u32]) -> Vec<u8> {
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    let text = format!(
        "SELECT pid, pg_catalog.int8(pg_catalog.date_part('epoch', backend_start) \
         OPERATOR(pg_catalog.*) 1000000::pg_catalog.float8) FROM pg_catalog.pg_stat_activity \
         WHERE pid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int4[])",
        pids.join(",")
    );
    text.into_bytes()
}

/// Handles the end of a server's answer to the search for server processes that may still commit DDL.
pub(crate) fn note_lost_ddl(
    env: &Env<'_>,
    server: &mut Server,
    pools: &mut LocalPools,
    out: &mut Actions,
) {
    let Some(InternalAnswer::Processes(search)) =
        server.session.queries.end(InternalQuery::LostDdl)
    else {
        return;
    };
    let endpoint = server.link.endpoint();
    let lost_ddl = server.shared.catalog.lost_ddl();
    let ended = lost_ddl.lock().remove(endpoint, &search, env.now);
    if !ended.is_empty()
        && let Some(pool) = pools.get_mut(server.pool())
    {
        pool.catalog.due = env.now;
    }
    end(env, ended, out);
    // The message about the change reaches this worker only after a client may have got this server.
    server.retire_if_outdated();
}

#[cold]
fn send_queries(
    env: &Env<'_>,
    conn: Token,
    server: &mut Server,
    reading: Reading,
    out: &mut Actions,
) {
    // A new configuration makes the catalogs stale before this worker has it.
    let newest = env.directory.snapshot();
    let settings = &newest.config.settings;
    let names = |list: &[String]| list.iter().map(|name| name.as_str().into()).collect();
    let trust = Trust {
        certified: names(&settings.certified_functions),
        pinning: names(&settings.pin_extensions),
    };
    let query = match reading.is_of_identity {
        true => IDENTITY,
        false => FACTS,
    };
    let rows = Box::new(CatalogRows {
        reading,
        facts: Facts::new(trust),
        failed: false,
    });
    server.session.queries.begin(InternalAnswer::Catalog(rows));
    server.ask(InternalQuery::System);
    server.ask(InternalQuery::Catalog);
    out.send_made(conn, |bytes| {
        let mut writer = MessageWriter::new(bytes);
        writer.query(SYSTEM.as_bytes());
        writer.query(query.as_bytes());
    });
}

/// Handles the end of a server's answer to a catalog query. Many facts are evaluated off the event loop.
pub(crate) fn finish(env: &Env<'_>, server: &mut Server, out: &mut Actions) {
    let Some(InternalAnswer::Catalog(found)) = server.session.queries.end(InternalQuery::Catalog)
    else {
        return;
    };
    let address = server.link.endpoint().to_string();
    let database = server.shared.key.database.clone();
    if !found.failed && !found.reading.is_of_identity {
        let evaluation = Evaluation {
            reading: found.reading,
            facts: found.facts,
            address,
            database,
        };
        return match evaluation.facts.are_many() {
            true => out.list.push(Action::Evaluate(Box::new(evaluation))),
            // The client's next text should find the certificates in force.
            false => put_in_force(evaluation.run(), env.now, out),
        };
    }
    let findings = match found.failed {
        true => Findings::default(),
        false => Findings::identity(&found.facts, &address),
    };
    let evaluated = Evaluated {
        reading: found.reading,
        findings,
        database,
    };
    put_in_force(evaluated, env.now, out);
}

/// Puts the certificates in force that follow from a reading.
pub(crate) fn put_in_force(evaluated: Evaluated, now: Time, out: &mut Actions) {
    let Evaluated {
        reading,
        findings,
        database,
    } = evaluated;
    let catalog = reading.catalog();
    let code = catalog.take_code_to_log();
    catalog.finish(&reading, findings, now);
    if let Some(code) = code {
        let text = format!(
            "database {database}: {code}; after each call every statement is slow until pgweir has read the catalog again; \
             certified_functions can name a function that does no DDL and keeps nothing in the session"
        );
        out.log(Level::Warning, "", text);
    }
    if let Some((function, name)) = catalog.type_news() {
        let text = format!(
            "database {database}: PL/pgSQL keeps the types of function {function} for the session, and several schemas have \
             a type or table {name}; a server that has called the function is closed before a client with another \
             search_path or role gets it; to avoid this, name the schema in DECLARE, or add SET search_path to the function"
        );
        out.log(Level::Log, "", text);
    }
    if let Some(reason) = catalog.news() {
        let text = format!(
            "database {database}: no statement is certain to leave its session as it was: {reason}; \
             each server is cleaned before another client gets it; SHOW OPAQUE lists functions, and \
             certified_functions can name those that keep nothing in the session"
        );
        out.log(Level::Warning, "", text);
    }
}
