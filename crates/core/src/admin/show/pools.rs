//! SHOW POOLS and SHOW DATABASES, and the counts per pool behind several other tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pgweir_config::{Database, LoadBalance, PoolMode, RESERVED_DATABASES};

use crate::{
    SharedPool, Time,
    admin::Admin,
    backend::{Duty, Phase, Server},
    connections::Conn,
    console::{Cell, Collection, Column, Kind, PoolCount, Table},
    frontend::{Client, ClientDuty},
    lending,
    pool::PoolKey,
    shared::cancel::{CancelState, CancelTarget},
};

use Kind::{Int4, Text};

const POOL_COLUMNS: [Column; 20] = [
    ("database", Text),
    ("user", Text),
    ("cl_active", Int4),
    ("cl_waiting", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active", Int4),
    ("sv_active_cancel", Int4),
    ("sv_being_canceled", Int4),
    ("sv_idle", Int4),
    ("sv_used", Int4),
    ("sv_tested", Int4),
    ("sv_login", Int4),
    ("maxwait", Int4),
    ("maxwait_us", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
    ("wait_reason", Text),
    ("last_error", Text),
    ("retry_in", Int4),
];

const DATABASE_COLUMNS: [Column; 17] = [
    ("name", Text),
    ("host", Text),
    ("port", Int4),
    ("database", Text),
    ("force_user", Text),
    ("pool_size", Int4),
    ("min_pool_size", Int4),
    ("reserve_pool_size", Int4),
    ("server_lifetime", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
    ("max_connections", Int4),
    ("current_connections", Int4),
    ("max_client_connections", Int4),
    ("current_client_connections", Int4),
    ("paused", Int4),
    ("disabled", Int4),
];

/// The size of the console's pool, as PgBouncer shows it. The number limits nothing.
const CONSOLE_POOL_SIZE: u32 = 2;

/// Adds this worker's part of each pool, and of the connections that belong to none.
pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection, now: Time) {
    let statistics = &admin.statistics;
    collection.console.add(statistics.console());
    collection.past += statistics.removed_pools();
    collection.began = collection.began.min(statistics.began().unwrap_or(now));
    collection.statements.add_totals(&admin.pools.statements);
    for pool in admin.pools.iter() {
        let count = collection.pools.entry(pool.shared.key.clone()).or_default();
        count.stats.add(&pool.stats);
        count.mode = pool_mode(pool.terms.mode);
        collection.local_pools += 1;
    }
    let of_pool = |client: &Client| client.pool().and_then(|pool| admin.pools.get(pool));
    for (_, conn) in admin.connections.iter() {
        match conn {
            Conn::Client(client) => {
                collection.clients += 1;
                match *client.duty() {
                    ClientDuty::Console(_) => collection.console_clients += 1,
                    ClientDuty::Login(_) => collection.login_clients += 1,
                    _ => {}
                }
                let Some(pool) = of_pool(client) else {
                    continue;
                };
                let Some(count) = collection.pools.get_mut(&pool.shared.key) else {
                    continue;
                };
                add_client(client, count, now);
            }
            Conn::Server(server) => {
                collection.servers += 1;
                let count = collection
                    .pools
                    .entry(server.shared.key.clone())
                    .or_default();
                add_server(
                    server,
                    server.is_stale(
                        lending::check_after(&admin.env.snapshot.config.settings),
                        now,
                    ),
                    count,
                );
            }
            Conn::Cancel(cancel) => {
                if let CancelTarget::Server(server) = cancel.goal
                    && let Some(Conn::Server(server)) = admin.connections.get(server)
                {
                    let key = server.shared.key.clone();
                    let count = collection.pools.entry(key).or_default();
                    let sent = cancel.state == CancelState::Sent;
                    count.cancels += usize::from(sent);
                    count.cancels_waiting += usize::from(!sent);
                }
            }
        }
    }
}

fn add_client(client: &Client, count: &mut PoolCount, now: Time) {
    match *client.duty() {
        ClientDuty::Waiting { .. } | ClientDuty::Preparing(_) | ClientDuty::Opening(_) => {
            count.clients_waiting += 1;
            count.maxwait = count.maxwait.max(now.since(client.request.sent_at()));
        }
        _ => count.clients_active += 1,
    }
}

fn add_server(server: &Server, is_stale: bool, count: &mut PoolCount) {
    match *server.duty() {
        Duty::Login(_) => count.servers_login += 1,
        Duty::Idle if is_stale => count.servers_used += 1,
        Duty::Idle => count.servers_idle += 1,
        Duty::Cleaning { .. } if server.next_loan.awaits_cancels() => count.being_canceled += 1,
        Duty::Lent {
            phase: Phase::Checking { .. },
            ..
        } => {
            count.servers_tested += 1;
        }
        Duty::Lent { .. } => count.servers_active += 1,
        // Both kinds count under the caps, but not under the pool's size.
        Duty::Listening { .. } | Duty::CheckingHost { .. } => count.servers_listening += 1,
        Duty::Cleaning { .. } => count.servers_tested += 1,
    }
}

fn pool_mode(mode: PoolMode) -> &'static str {
    mode.as_str()
}

/// Returns how the hosts of a list are chosen; NULL if there is no list.
fn load_balance(database: Option<&Database>) -> Cell {
    match database {
        Some(database) if database.host.len() > 1 => match database.load_balance_hosts {
            LoadBalance::RoundRobin => "round-robin".into(),
            LoadBalance::Disable => "disable".into(),
        },
        _ => Cell::Null,
    }
}

/// Returns the columns `wait_reason`, `last_error` and `retry_in` of a pool: the limit or state for which its clients
/// wait, the error of its last login if none has succeeded since, and the seconds until the next login.
fn wait_reason_cells(pool: Option<&SharedPool>, waiting: usize, now: Time) -> [Cell; 3] {
    let Some(pool) = pool else {
        return [Cell::Null, Cell::Null, Cell::Null];
    };
    let (wait_reason, retry_at) = {
        let ledger = pool.ledger.lock();
        (
            ledger.wait_reason(now),
            ledger.retry_at().filter(|at| *at > now),
        )
    };
    let reason = wait_reason.name();
    let facts = pool.facts.lock();
    let error = facts.failure.as_ref().map(|failure| match &failure.detail {
        Some(detail) => format!("{}: {detail}", failure.text),
        None => failure.text.clone(),
    });
    let retry_in = retry_at.map(|at| at.since(now).div_ceil(1_000_000));
    [
        reason.filter(|_| waiting > 0).into(),
        error.into(),
        retry_in.into(),
    ]
}

pub(in crate::admin) fn pools(admin: &Admin<'_>, collection: &Collection, now: Time) -> Table {
    let config = &admin.env.snapshot.config;
    let living = admin.env.directory.pools();
    let living: HashMap<&PoolKey, &SharedPool> =
        living.iter().map(|pool| (&pool.key, &**pool)).collect();
    let row = |database: &str, user: &str, pool: Option<&SharedPool>, count: &PoolCount| {
        let numbers = [
            count.clients_active,
            count.clients_waiting,
            count.cancels,
            count.cancels_waiting,
            count.servers_active,
            count.cancels,
            count.being_canceled,
            count.servers_idle,
            count.servers_used,
            count.servers_tested,
            count.servers_login,
        ];
        let mut row: Vec<Cell> = vec![database.into(), user.into()];
        row.extend(numbers.map(Cell::from));
        row.extend([
            Cell::Int(count.maxwait / 1_000_000),
            Cell::Int(count.maxwait % 1_000_000),
        ]);
        row.extend([count.mode.into(), load_balance(config.database(database))]);
        row.extend(wait_reason_cells(pool, count.clients_waiting, now));
        row
    };
    let mut rows: Vec<_> = collection
        .pools
        .iter()
        .map(|(key, count)| row(&key.database, &key.user, living.get(key).copied(), count))
        .collect();
    let console = PoolCount {
        clients_active: collection.console_clients,
        mode: pool_mode(PoolMode::Statement),
        ..PoolCount::default()
    };
    let [console_name, _] = RESERVED_DATABASES;
    rows.push(row(console_name, console_name, None, &console));
    (POOL_COLUMNS.into(), rows)
}

/// Returns the configured databases, and those under the entry `*` that are in use or that orders name.
pub(super) fn known_databases<'a>(
    admin: &'a Admin<'_>,
    collection: &Collection,
) -> Vec<(String, &'a Database)> {
    let config = &admin.env.snapshot.config;
    let mut known: Vec<(String, &Database)> = config
        .databases
        .iter()
        .map(|(name, database)| (name.clone(), database))
        .collect();
    let used = collection.pools.keys().map(|key| key.database.to_string());
    let others: BTreeSet<String> = used.chain(admin.env.directory.operator().named()).collect();
    for other in others {
        if let Some(database) = config.database(&other)
            && !config.databases.contains_key(&other)
        {
            known.push((other, database));
        }
    }
    known.sort_by(|(one, _), (other, _)| one.cmp(other));
    known
}

pub(in crate::admin) fn databases(admin: &Admin<'_>, collection: &Collection) -> Table {
    let mut servers = BTreeMap::<&str, usize>::new();
    for (key, pool) in &collection.pools {
        *servers.entry(&key.database).or_default() += pool.servers();
    }
    let known = known_databases(admin, collection).into_iter();
    let mut rows: Vec<_> = known
        .map(|(name, database)| {
            let servers = servers.get(&*name).copied().unwrap_or_default();
            database_row(admin, servers, &name, database)
        })
        .collect();
    rows.push(console_row(admin));
    (DATABASE_COLUMNS.into(), rows)
}

fn database_row(admin: &Admin<'_>, servers: usize, name: &str, database: &Database) -> Vec<Cell> {
    let config = &admin.env.snapshot.config;
    let operator = admin.env.directory.operator();
    let clients = admin.env.directory.client_counts().of_database(name);
    let host = (!database.host.is_empty()).then(|| database.host.join(","));
    vec![
        name.into(),
        host.into(),
        u32::from(database.port.first()).into(),
        database.dbname_for(name).into(),
        database.user.as_deref().into(),
        database
            .pool_size
            .unwrap_or(config.settings.default_pool_size)
            .into(),
        config.min_pool_size(database).into(),
        database
            .reserve_pool_size
            .unwrap_or(config.settings.reserve_pool_size)
            .into(),
        (config.server_lifetime(database).0 / 1_000_000).into(),
        database.pool_mode.map(|mode| mode.to_string()).into(),
        load_balance(Some(database)),
        config.max_db_connections(database).into(),
        servers.into(),
        config.max_db_client_connections(database).into(),
        clients.into(),
        operator.is_database_paused(name).into(),
        operator.is_disabled(name).into(),
    ]
}

/// Returns the row of the console as a database.
fn console_row(admin: &Admin<'_>) -> Vec<Cell> {
    let settings = &admin.env.snapshot.config.settings;
    let [name, alias] = RESERVED_DATABASES;
    let clients = {
        let counts = admin.env.directory.client_counts();
        counts.of_database(name) + counts.of_database(alias)
    };
    vec![
        name.into(),
        Cell::Null,
        u32::from(settings.listen_port).into(),
        name.into(),
        name.into(),
        CONSOLE_POOL_SIZE.into(),
        settings.min_pool_size.into(),
        settings.reserve_pool_size.into(),
        (settings.server_lifetime.0 / 1_000_000).into(),
        pool_mode(PoolMode::Statement).into(),
        Cell::Null,
        settings.max_db_connections.into(),
        0u32.into(),
        settings.max_db_client_connections.into(),
        clients.into(),
        false.into(),
        false.into(),
    ]
}
