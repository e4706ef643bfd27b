//! Online restart, the new process: takes over clients of the old process.
//!
//! A client arrives as a [`ClientRecord`], with its server if it keeps one. The ledgers of this process also count the
//! servers that the old process still has.

use std::sync::Arc;

use pgweir_auth::scram::ClientKeys;

use super::{
    OnlineRestart, RestartParts,
    forwarding::{end_arriving, send_listen_note},
    restart, serve_taken_over_client,
    server_handover::tracked_of,
};
use crate::{
    Actions, SharedPool, Time, Token,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, PoolEffect, RestartEffect},
    exchange::pin_at_login,
    frontend::{Client, ClientKey, Origin, UnnamedStatement, Upstream},
    pool::PoolKey,
    pooling::{self, LocalPools},
    session::{Bindings, Context, SqlStatements},
    takeover::{ClientRecord, ListenNote, PoolNote, StatementRecord},
};

/// Creates the client of a record, which has no pool yet. `blocked`: some of what was sent to the client last is still
/// unwritten.
pub(crate) fn insert_client(
    env: &Env<'_>,
    connections: &mut Connections,
    bindings: &mut Bindings,
    record: &ClientRecord,
    blocked: bool,
) -> Token {
    let mut client = client_from_record(env, record);
    client.socket.set_blocked(blocked);
    for StatementRecord {
        name,
        id,
        definition,
    } in &record.statements
    {
        let statement = env.directory.statements().intern_as(definition, *id);
        let _ = client.statements.define(bindings, name, &statement, 0);
    }
    env.directory
        .client_taken_over(client.names().map(|names| &**names));
    connections.schedule(env.now);
    connections.insert(Conn::Client(Box::new(client)), env.now)
}

/// Returns the effect that closes a client which can't be taken over; the old process need not forward its
/// notifications any more.
pub(crate) fn refuse_handover(
    conn: Token,
    record: &ClientRecord,
    fault: Fault,
    out: &mut Actions,
) -> Effect {
    if !record.channels.is_empty() {
        send_listen_note(&record.cancel_key(), ListenNote::Done, out);
    }
    Effect::Client(ClientEffect::Refuse(conn, Box::new(fault)))
}

fn client_from_record(env: &Env<'_>, record: &ClientRecord) -> Client {
    let origin = Origin {
        id: record.id,
        remote: record.remote,
        local: record.local,
        port: record.port,
        same_uid: record.same_uid,
        is_internal: false,
        uid: None,
        pid: record.process,
        connected_at: Time(env.now.0.saturating_sub(record.age)),
    };
    let mut client = Client::new(&origin, tracked_of(env.directory, &record.tracked), env.now);
    client.set_key(ClientKey::resumed(record.key_pid, &record.key_secret));
    client.set_names(Arc::new(record.names.clone()));
    if let Some(facts) = &record.tls {
        client.note_encrypted(facts.clone());
    }
    client.socket.stream = Upstream::resumed(&record.partial).unwrap_or_default();
    client.unnamed = UnnamedStatement::resumed(record.unnamed.as_deref());
    client.socket.keep_early(record.early.clone());
    client
}

/// Gives the client its pool and its session state. Returns the effects that finish the takeover of this client.
///
/// # Errors
/// The client's database is no longer in the configuration.
pub(crate) fn restore_client(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    conn: Token,
    record: &ClientRecord,
) -> Result<Vec<Effect>, Fault> {
    // The old process may have confirmed writes to the client.
    env.directory.hosts().writes().add(env.worker);
    let shared = pool_of(env, record)?;
    let pool = pools.open(env, connections, &shared);
    pool.add_client();
    let (carries_sessions, is_pinned) = (pool.terms.carries_sessions, pool.terms.dedicated);
    let mut effects = Vec::new();
    if pool.orders.paused {
        effects.push(Effect::Pool(shared.id, PoolEffect::ApplyOrders));
    }
    env.directory.stays();
    if let Some(client) = connections.client(conn) {
        client.join_pool(shared.id);
        if carries_sessions {
            client.context = Some(Box::new(context_of(env, &shared, record)));
            pin_at_login(client, is_pinned, env.now);
        }
    }
    effects.push(restart(RestartEffect::CountPoolClient(shared)));
    Ok(effects)
}

/// Returns the pool of a client. The pool gets the passwords and keys that came with the client.
fn pool_of(env: &Env<'_>, record: &ClientRecord) -> Result<Arc<SharedPool>, Fault> {
    let (names, config) = (&record.names, &env.snapshot.config);
    let database = config
        .database(&names.database)
        .ok_or(Fault::DatabaseRemoved)?;
    let key = PoolKey {
        database: names.database.clone(),
        user: database.user_for(&names.user).into(),
    };
    let shared = env.directory.pool(&key, config, database);
    if let Some(keys) = record.server_keys {
        let mut facts = shared.facts.lock();
        facts.keys.get_or_insert_with(|| ClientKeys::of_bytes(keys));
    }
    if let Some(password) = &record.server_password {
        let mut facts = shared.facts.lock();
        if facts.secret.is_none() {
            facts.secret = Some(Arc::new(password.secret()));
            facts.is_checked = password.is_checked;
        }
    }
    Ok(shared)
}

/// Returns the session state of a client that does not keep a server.
fn context_of(env: &Env<'_>, shared: &SharedPool, record: &ClientRecord) -> Context {
    let session = record.session.clone().unwrap_or_default();
    let settings = env.directory.settings();
    let is_utf8 = shared.is_utf8();
    let mut customs = shared.custom_parameters.lock();
    for (name, _) in session
        .wanted
        .iter()
        .filter(|(name, _)| name.contains(&b'.'))
    {
        customs.insert(name, is_utf8);
    }
    drop(customs);
    Context {
        base: settings.intern(session.base),
        wanted: settings.intern(session.wanted),
        implied: settings.intern(session.implied),
        sql: SqlStatements::read(session.sql).unwrap_or_default(),
        has_sequences: session.has_sequences,
        unproven: session.is_unproven,
        ..Context::default()
    }
}

impl OnlineRestart {
    /// Serves a client that came without a server, or holds the client back until its listener listens.
    pub(crate) fn serve_or_hold(
        &mut self,
        parts: RestartParts<'_>,
        conn: Token,
        record: &ClientRecord,
        out: &mut Actions,
    ) -> Option<Effect> {
        let RestartParts {
            env,
            connections,
            pools,
            listening_clients,
            client,
        } = parts;
        let parts = RestartParts {
            env,
            connections: &mut *connections,
            pools: &mut *pools,
            listening_clients,
            client,
        };
        match self.listens_on(parts, conn, record, out) {
            Ok(true) => None,
            Ok(false) => {
                serve_taken_over_client(connections, pools, conn, record.ready_was_sent, out)
            }
            Err(fault) => Some(refuse_handover(conn, record, fault, out)),
        }
    }
}

/// Notes how many servers of a pool the old process has.
/// If `is_wanted`, the old process asks for one more.
pub(super) fn note_old_process_servers(
    env: &Env<'_>,
    note: &PoolNote,
    is_wanted: bool,
    out: &mut Actions,
) {
    let config = &env.snapshot.config;
    let Some(database) = config.database(&note.database) else {
        return;
    };
    let key = PoolKey {
        database: note.database.as_str().into(),
        user: note.user.as_str().into(),
    };
    let shared = env.directory.pool(&key, config, database);
    let (notes, is_there) = {
        let mut ledger = shared.ledger.lock();
        let notes = match is_wanted {
            true => ledger.add_old_process_to_queue(note.lent, env.now),
            false => ledger.set_old_process_servers(note.held, note.lent, env.now),
        };
        (notes, ledger.involves_old_process())
    };
    pooling::deliver(env, &notes, &shared, out);
    env.directory
        .remember_old_process_servers(&shared, is_there);
}

/// Forgets the old process and its servers, since it has ended.
pub(super) fn predecessor_gone(
    env: &Env<'_>,
    connections: &Connections,
    out: &mut Actions,
) -> Vec<Effect> {
    for shared in env.directory.forget_old_process_servers() {
        let notes = shared.ledger.lock().end_old_process(env.now);
        pooling::deliver(env, &notes, &shared, out);
    }
    end_arriving(connections)
}

/// A client that was taken over.
#[derive(Debug, Clone, Copy)]
pub struct TakenOverClient {
    /// The client's connection.
    pub client: Token,
    /// The server's connection; if the client came with a server and this is `None`, the driver closes that server.
    pub server: Option<Token>,
}
