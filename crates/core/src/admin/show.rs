//! The tables behind SHOW, with PgBouncer's columns.

use pgweir_config::{Database, PoolMode, RESERVED_DATABASES};

use super::{
    command::Show,
    rows::{Cell, Column, Kind, date},
    tour::{Collection, PoolCount},
};
use crate::{
    Address, Time, Token,
    backend::{Duty, Server},
    frontend::{Client, ClientDuty},
    stats::Stats,
    worker::{Conn, Worker},
};

use Kind::{Int4, Numeric, Text};

/// Columns of SHOW CLIENTS and SHOW SERVERS.
const PEER_COLUMNS: [Column; 21] = [
    ("type", Text),
    ("user", Text),
    ("database", Text),
    ("replication", Text),
    ("state", Text),
    ("addr", Text),
    ("port", Int4),
    ("local_addr", Text),
    ("local_port", Int4),
    ("connect_time", Text),
    ("request_time", Text),
    ("wait", Int4),
    ("wait_us", Int4),
    ("close_needed", Int4),
    ("ptr", Text),
    ("link", Text),
    ("remote_pid", Int4),
    ("tls", Text),
    ("application_name", Text),
    ("prepared_statements", Int4),
    ("id", Int4),
];

const POOL_COLUMNS: [Column; 17] = [
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

const CONFIG_COLUMNS: [Column; 4] = [
    ("key", Text),
    ("value", Text),
    ("default", Text),
    ("changeable", Text),
];

/// The names of [`Stats`], with `total_` and `avg_` before them.
const STATS_COLUMNS: [(&str, &str); 12] = [
    (
        "total_server_assignment_count",
        "avg_server_assignment_count",
    ),
    ("total_xact_count", "avg_xact_count"),
    ("total_query_count", "avg_query_count"),
    ("total_received", "avg_recv"),
    ("total_sent", "avg_sent"),
    ("total_xact_time", "avg_xact_time"),
    ("total_query_time", "avg_query_time"),
    ("total_wait_time", "avg_wait_time"),
    ("total_client_parse_count", "avg_client_parse_count"),
    ("total_server_parse_count", "avg_server_parse_count"),
    ("total_bind_count", "avg_bind_count"),
    ("total_client_login_count", "avg_client_login_count"),
];

/// Adds one worker's part.
pub(super) fn add(worker: &mut Worker, collection: &mut Collection, now: Time) {
    match collection.show {
        Show::Clients | Show::Servers => add_peers(worker, collection, now),
        _ => add_pools(worker, collection, now),
    }
}

/// The whole table.
pub(super) fn table(worker: &Worker, collection: &mut Collection) -> (Vec<Column>, Vec<Vec<Cell>>) {
    match collection.show {
        Show::Clients | Show::Servers => {
            collection.rows.sort_by_key(|(id, _)| *id);
            let rows = std::mem::take(&mut collection.rows)
                .into_iter()
                .map(|(_, row)| row);
            (PEER_COLUMNS.into(), rows.collect())
        }
        Show::Pools => (POOL_COLUMNS.into(), pools(collection)),
        Show::Databases => (DATABASE_COLUMNS.into(), databases(worker, collection)),
        Show::Stats => (stats_columns(), stats(worker, collection)),
        Show::Config | Show::Help | Show::Version => (CONFIG_COLUMNS.into(), config(worker)),
    }
}

fn add_peers(worker: &mut Worker, collection: &mut Collection, now: Time) {
    let tokens: Vec<Token> = worker.table.iter().map(|(token, _)| token).collect();
    for token in tokens {
        let is_wanted = match worker.table.get(token) {
            Some(Conn::Client(client)) => {
                collection.show == Show::Clients && !matches!(client.duty, ClientDuty::Login(_))
            }
            Some(Conn::Server(_)) => collection.show == Show::Servers,
            _ => false,
        };
        if !is_wanted {
            continue;
        }
        let link = linked_id(worker, token);
        let row = match worker.table.get(token) {
            Some(Conn::Client(client)) => (client.id, client_row(client, link, now)),
            Some(Conn::Server(server)) => (server.id, server_row(server, link)),
            _ => continue,
        };
        collection.rows.push(row);
    }
}

fn linked_id(worker: &mut Worker, token: Token) -> Option<u64> {
    let other = match worker.table.get(token)? {
        Conn::Client(client) => client.server()?,
        Conn::Server(server) => server.client()?,
        Conn::Cancel(_) => return None,
    };
    match worker.table.get(other)? {
        Conn::Client(client) => Some(client.id),
        Conn::Server(server) => Some(server.id),
        Conn::Cancel(_) => None,
    }
}

fn client_row(client: &Client, link: Option<u64>, now: Time) -> Vec<Cell> {
    let state = match client.duty {
        ClientDuty::Active(_) | ClientDuty::Console(_) => "active",
        ClientDuty::Preparing(_) | ClientDuty::Waiting { .. } => "waiting",
        ClientDuty::CancelRequest => "active_cancel_req",
        ClientDuty::Idle | ClientDuty::Login(_) => "idle",
    };
    let wait = if state == "waiting" {
        now.since(client.request_at)
    } else {
        0
    };
    let (database, user) = client
        .names
        .as_ref()
        .map_or(("", ""), |names| (&names.database, &names.user));
    let mut row: Vec<Cell> = vec![
        "C".into(),
        user.into(),
        database.into(),
        "none".into(),
        state.into(),
    ];
    row.extend(end(client.remote, client.port));
    row.extend(end(client.local, client.port));
    row.extend([date(client.connected_at), date(client.request_at)]);
    row.extend([
        Cell::Int(wait / 1_000_000),
        Cell::Int(wait % 1_000_000),
        Cell::Int(0),
    ]);
    row.extend([
        pointer(client.id),
        link.map_or_else(|| "".into(), pointer),
        Cell::Int(0),
        "".into(),
    ]);
    let name = String::from_utf8_lossy(client.tracked.application_name()).into_owned();
    let prepared = Cell::Int(client.statements.len() as u64);
    row.extend([name.into(), prepared, client.id.into()]);
    row
}

fn server_row(server: &Server, link: Option<u64>) -> Vec<Cell> {
    let state = match server.duty {
        Duty::Login(_) => "new",
        Duty::Idle => "idle",
        _ if server.cancels > 0 => "being_canceled",
        Duty::Preparing(_) | Duty::Lent(_) => "active",
        Duty::Cleaning { .. } => "tested",
    };
    let key = &server.shared.key;
    let mut row: Vec<Cell> = vec![
        "S".into(),
        (*key.user).into(),
        (*key.database).into(),
        "none".into(),
        state.into(),
    ];
    let (local, remote) = server.addresses.unwrap_or((Address::Unix, Address::Unix));
    let port = match &*server.endpoint {
        crate::Endpoint::Tcp { port, .. } => *port,
        crate::Endpoint::Unix(path) => path
            .rsplit('.')
            .next()
            .and_then(|port| port.parse().ok())
            .unwrap_or(0),
    };
    row.extend(end(remote, port));
    row.extend(end(local, port));
    row.extend([
        date(server.connected_at),
        date(server.lent_at),
        Cell::Int(0),
        Cell::Int(0),
    ]);
    row.extend([
        server.retire.is_some().into(),
        pointer(server.id),
        link.map_or_else(|| "".into(), pointer),
    ]);
    row.extend([
        server.key.as_ref().map_or(0, |key| key.pid).into(),
        "".into(),
    ]);
    let name = String::from_utf8_lossy(server.tracked.application_name()).into_owned();
    let prepared = Cell::Int(server.prepared.len() as u64);
    row.extend([name.into(), prepared, server.id.into()]);
    row
}

fn end(address: Address, port: u16) -> [Cell; 2] {
    match address {
        Address::Unix => ["unix".into(), u32::from(port).into()],
        Address::Tcp(socket) => [
            socket.ip().to_string().into(),
            u32::from(socket.port()).into(),
        ],
    }
}

fn pointer(id: u64) -> Cell {
    format!("{id:#x}").into()
}

fn add_pools(worker: &mut Worker, collection: &mut Collection, now: Time) {
    for pool in worker.pools.iter().flatten() {
        let count = collection.pools.entry(pool.shared.key.clone()).or_default();
        count.total += pool.stats.now;
        count.last += pool.stats.last();
        count.mode = match pool.terms.mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        };
    }
    let of_pool = |client: &Client| {
        client
            .pool
            .and_then(|pool| worker.pools.get(pool.index())?.as_deref())
    };
    for (_, conn) in worker.table.iter() {
        match conn {
            Conn::Client(client) => {
                if matches!(client.duty, ClientDuty::Console(_)) {
                    collection.console_clients += 1;
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
                let count = collection
                    .pools
                    .entry(server.shared.key.clone())
                    .or_default();
                add_server(server, count);
            }
            Conn::Cancel(_) => {}
        }
    }
}

fn add_client(client: &Client, count: &mut PoolCount, now: Time) {
    match client.duty {
        ClientDuty::Waiting { .. } | ClientDuty::Preparing(_) => {
            count.clients_waiting += 1;
            count.maxwait = count.maxwait.max(now.since(client.request_at));
        }
        _ => count.clients_active += 1,
    }
}

fn add_server(server: &Server, count: &mut PoolCount) {
    count.cancels += server.cancels as usize;
    match server.duty {
        Duty::Login(_) => count.servers_login += 1,
        Duty::Idle => count.servers_idle += 1,
        _ if server.cancels > 0 => count.being_canceled += 1,
        Duty::Preparing(_) | Duty::Lent(_) => count.servers_active += 1,
        Duty::Cleaning { .. } => count.servers_tested += 1,
    }
}

fn pools(collection: &Collection) -> Vec<Vec<Cell>> {
    let row = |database: &str, user: &str, count: &PoolCount| {
        let numbers = [
            count.clients_active,
            count.clients_waiting,
            count.cancels,
            0,
            count.servers_active,
            count.cancels,
            count.being_canceled,
            count.servers_idle,
            0,
            count.servers_tested,
            count.servers_login,
        ];
        let mut row: Vec<Cell> = vec![database.into(), user.into()];
        row.extend(numbers.map(Cell::from));
        row.extend([
            Cell::Int(count.maxwait / 1_000_000),
            Cell::Int(count.maxwait % 1_000_000),
        ]);
        row.extend([count.mode.into(), Cell::Null]);
        row
    };
    let mut rows: Vec<_> = collection
        .pools
        .iter()
        .map(|(key, count)| row(&key.database, &key.user, count))
        .collect();
    let console = PoolCount {
        clients_active: collection.console_clients,
        mode: "statement",
        ..PoolCount::default()
    };
    rows.push(row(RESERVED_DATABASES[0], RESERVED_DATABASES[0], &console));
    rows
}

fn databases(worker: &Worker, collection: &Collection) -> Vec<Vec<Cell>> {
    let config = &worker.snapshot.config;
    let operator = worker.directory.operator();
    let ordered = operator.named();
    let mut names: Vec<(&str, &Database)> = config
        .databases
        .iter()
        .map(|(name, database)| (name.as_str(), database))
        .collect();
    // Databases that the entry `*` stands for, as far as they are in use or orders speak of them.
    let used = collection.pools.keys().map(|key| &*key.database);
    for other in used.chain(ordered.iter().map(String::as_str)) {
        if let Some(database) = config.database(other)
            && !names.iter().any(|(name, _)| *name == other)
        {
            names.push((other, database));
        }
    }
    names.sort_by_key(|(name, _)| *name);
    let rows = names.into_iter().map(|(name, database)| {
        let of = |count: fn(&PoolCount) -> usize| -> usize {
            collection
                .pools
                .iter()
                .filter(|(key, _)| &*key.database == name)
                .map(|(_, pool)| count(pool))
                .sum()
        };
        let servers = of(|pool| {
            pool.servers_active
                + pool.servers_idle
                + pool.servers_tested
                + pool.servers_login
                + pool.being_canceled
        });
        let clients = of(|pool| pool.clients_active + pool.clients_waiting);
        let host = (!database.host.is_empty()).then(|| database.host.join(","));
        vec![
            name.into(),
            host.into(),
            u32::from(database.port).into(),
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
            Cell::Null,
            config.max_db_connections(database).into(),
            servers.into(),
            config.max_db_client_connections(database).into(),
            clients.into(),
            operator.is_database_paused(name).into(),
            operator.is_disabled(name).into(),
        ]
    });
    rows.collect()
}

fn stats_columns() -> Vec<Column> {
    let mut columns = vec![("database", Text)];
    columns.extend(STATS_COLUMNS.map(|(total, _)| (total, Numeric)));
    columns.extend(STATS_COLUMNS.map(|(_, average)| (average, Numeric)));
    columns
}

fn stats(worker: &Worker, collection: &Collection) -> Vec<Vec<Cell>> {
    let mut by_database = std::collections::BTreeMap::<&str, (Stats, Stats)>::new();
    for (key, count) in &collection.pools {
        let (total, last) = by_database.entry(&key.database).or_default();
        *total += count.total;
        *last += count.last;
    }
    let period = worker.snapshot.config.settings.stats_period.0.max(1);
    let rows = by_database.into_iter().map(|(database, (total, last))| {
        let mut row: Vec<Cell> = vec![database.into()];
        row.extend(total.values().into_iter().map(Cell::Int));
        row.extend(averages(last, period).map(Cell::Int));
        row
    });
    rows.collect()
}

/// Counts per second; times per transaction, per query and per assignment.
fn averages(last: Stats, period: u64) -> [u64; 12] {
    let per_second = |count: u64| count.saturating_mul(1_000_000) / period;
    let per = |time: u64, count: u64| time / count.max(1);
    [
        per_second(last.server_assignment_count),
        per_second(last.xact_count),
        per_second(last.query_count),
        per_second(last.received),
        per_second(last.sent),
        per(last.xact_time, last.xact_count),
        per(last.query_time, last.query_count),
        per(last.wait_time, last.server_assignment_count),
        per_second(last.client_parse_count),
        per_second(last.server_parse_count),
        per_second(last.bind_count),
        per_second(last.client_login_count),
    ]
}

fn config(worker: &Worker) -> Vec<Vec<Cell>> {
    let rows = worker.snapshot.config.rows().into_iter().map(|row| {
        let changeable = if row.changeable { "yes" } else { "no" };
        vec![
            row.key.into(),
            row.value.into(),
            row.default.into(),
            changeable.into(),
        ]
    });
    rows.collect()
}
