//! Measures the memory of a worker's connections and pools, and gives unused memory back while `memory_limit` is reached.
//!
//! This module owns no state: [`Memory`](crate::base::memory::Memory) has the figures of all workers. Input: the ticks
//! of the worker, and SHOW. Output: effects that close idle servers, and an event when the memory reaches the limit, or
//! is below it again.

use crate::{
    Actions, Control, Level, WorkerId,
    backend::{Duty, Server},
    base::memory::{LOGIN_ALLOWANCE, MemoryKind, MemoryUsage, OVERHEAD},
    connections::{Conn, Connections},
    effect::{Effect, Env},
    frontend::Client,
    pooling::{LocalPool, LocalPools},
    session::{Bindings, Context},
    shared::events::EventKind,
};

/// An idle server is closed for lack of memory if its statements that no client has take more than this number of
/// bytes.
const ABANDONED_MIN: usize = 64 * 1024;
/// The reason for closing such a server, for the log.
const CLOSED: &str = "its statements take memory (memory_limit)";
/// The estimated bytes of a server connection beside its struct: parameters, cancel key, names of the session.
const SERVER_COST: usize = 1024;
/// The estimated bytes of a client connection beside its struct: its names, and its slots here and in the driver.
const CLIENT_COST: usize = 256;

/// The memory of the connections of one worker, by kind.
#[derive(Debug, Default)]
struct Usages {
    clients: MemoryUsage,
    servers: MemoryUsage,
    logins: MemoryUsage,
    client_buffers: MemoryUsage,
    server_buffers: MemoryUsage,
    notifications: MemoryUsage,
    session_state: MemoryUsage,
}

impl Usages {
    fn add_client(&mut self, client: &Client) {
        self.clients
            .add(size_of::<Client>() + CLIENT_COST + client.statements.list_bytes());
        let login = client.present_login();
        if let Some(login) = login {
            // Bytes above the allowance are counted when they arrive.
            let buffered = login.buffered().min(LOGIN_ALLOWANCE);
            self.logins.add(size_of_val(login) + buffered);
        }
        self.client_buffers.add_filled(client.buffered());
        if let Some(listening) = &client.listening {
            self.notifications.add(listening.bytes());
        }
        if let Some(context) = &client.context {
            self.session_state
                .add(size_of::<Context>() + context.sql.bytes());
        }
    }

    fn add_server(&mut self, server: &Server) {
        let statements = &server.statements;
        self.servers
            .add(size_of::<Server>() + SERVER_COST + statements.prepared.bytes());
        let repeatable = server.link.repeatable();
        let buffered = server.stream.capacity()
            + server.replies.bytes()
            + statements.running.bytes()
            + repeatable.map_or(0, |request| request.memory());
        self.server_buffers.add_filled(buffered);
    }
}

/// Measures and publishes the memory of the worker's connections and pools. The first worker also measures what all
/// workers share.
pub(crate) fn measure(
    env: &Env<'_>,
    connections: &Connections,
    pools: &LocalPools,
    bindings: &Bindings,
) {
    let memory = env.directory.memory();
    memory.begin_measurement(env.worker);
    let mut usages = Usages::default();
    for (_, conn) in connections.iter() {
        match conn {
            Conn::Client(client) => usages.add_client(client),
            Conn::Server(server) => usages.add_server(server),
            Conn::Cancel(_) => {}
        }
    }
    let (mut local_pools, mut texts) = (MemoryUsage::default(), MemoryUsage::default());
    for pool in pools.iter() {
        local_pools.add(size_of::<LocalPool>());
        let (count, bytes) = pool.catalog.verdicts.size();
        texts.count += count;
        texts.bytes += bytes + count * OVERHEAD;
    }
    let of_settings = &env.snapshot.config.settings;
    let buffer = MemoryUsage {
        count: 1,
        bytes: of_settings.read_buffer as usize,
    };
    let statistics = MemoryUsage {
        count: pools.statements.entries(),
        bytes: pools.statements.bytes(),
    };
    let publish = |kind, usage| memory.publish(env.worker, kind, usage);
    publish(MemoryKind::Client, usages.clients);
    publish(MemoryKind::Server, usages.servers);
    publish(MemoryKind::Login, usages.logins);
    publish(MemoryKind::ClientBuffer, usages.client_buffers);
    publish(MemoryKind::ServerBuffer, usages.server_buffers);
    publish(MemoryKind::Notification, usages.notifications);
    publish(MemoryKind::SessionState, usages.session_state);
    publish(MemoryKind::Pool, local_pools);
    publish(MemoryKind::CachedText, texts);
    publish(MemoryKind::Statistics, statistics);
    publish(MemoryKind::StatementName, bindings.usage());
    publish(MemoryKind::ReadBuffer, buffer);
    if env.worker == WorkerId(0) {
        publish(MemoryKind::Catalog, env.directory.catalogs().usage());
        publish(MemoryKind::AuthCache, env.directory.auth_cache().usage());
    }
}

/// Keeps the memory of the worker's connections and pools below `memory_limit`, if there is a limit. Returns the idle servers
/// to close.
pub(crate) fn check(
    env: &Env<'_>,
    (connections, pools, bindings): (&mut Connections, &mut LocalPools, &mut Bindings),
    out: &mut Actions,
) -> Vec<Effect> {
    let memory = env.directory.memory();
    if memory.limit() == 0 && !memory.is_reported() {
        return Vec::new();
    }
    let mut ends = Vec::new();
    if memory.is_full() {
        empty_caches(env, pools, bindings);
        ends = give_back_idle_servers(connections);
    }
    if env.worker == WorkerId(0) && memory.is_half_full() {
        env.directory.statements().sweep();
        env.directory.settings().sweep();
    }
    measure(env, connections, pools, bindings);
    report_change(env, out);
    if env.worker == WorkerId(0) && memory.has_freed_much() {
        out.control(Control::ReturnMemory);
    }
    ends
}

/// Empties the caches of the worker. The first worker also empties the shared ones.
fn empty_caches(env: &Env<'_>, pools: &mut LocalPools, bindings: &mut Bindings) {
    pools.statements.give_back();
    for pool in pools.iter_mut() {
        pool.catalog.verdicts.clear();
    }
    bindings.shrink();
    if env.worker == WorkerId(0) {
        env.directory.auth_cache().clear();
    }
}

/// Frees the buffers of idle servers. Closes those that have statements which no client has.
fn give_back_idle_servers(connections: &mut Connections) -> Vec<Effect> {
    let is_idle =
        |conn: &Conn| matches!(conn, Conn::Server(server) if matches!(server.duty(), Duty::Idle));
    let mut ends = Vec::new();
    for token in connections.tokens(is_idle) {
        let Some(server) = connections.server(token) else {
            continue;
        };
        server.replies.shrink();
        if server.statements.prepared.abandoned_bytes() >= ABANDONED_MIN {
            ends.push(Effect::close(token, CLOSED));
        }
    }
    ends
}

/// Reports in the log, and as an event, that the limit is reached, or no longer is.
fn report_change(env: &Env<'_>, out: &mut Actions) {
    let memory = env.directory.memory();
    let Some(is_full) = memory.check() else {
        return;
    };
    let (kind, level, text) = match is_full {
        true => (
            EventKind::MemoryFull,
            Level::Warning,
            "memory_limit is reached: new logins and statements are refused",
        ),
        false => (
            EventKind::MemoryFreed,
            Level::Log,
            "logins and statements are accepted again: memory is below 90 % of memory_limit",
        ),
    };
    env.directory.note_event(kind, ("", ""), text, env.now);
    let (total, limit) = (memory.total() >> 10, memory.limit() >> 10);
    let figures = format!("{text} ({total} of {limit} kB are in use)");
    out.log(level, String::new(), figures);
}
