//! The tables of `pgweir check`: addresses, databases, users, limits, differences from PgBouncer.

use pgweir_config::{AuthType, Config, Database, Micros, PoolMode, SessionState};
use pgweir_core::{Endpoint, Snapshot};

use super::table::Table;
use crate::{process::FileLimit, startup::worker_count};

/// Settings that are limits, in the order of the report.
const LIMITS: &[&str] = &[
    "max_client_conn",
    "max_db_client_connections",
    "max_user_client_connections",
    "max_server_conn",
    "fleet_share",
    "max_db_connections",
    "max_user_connections",
    "max_prepared_statements",
    "client_login_timeout",
    "client_idle_timeout",
    "query_wait_timeout",
    "query_timeout",
    "transaction_timeout",
    "idle_transaction_timeout",
    "server_connect_timeout",
    "server_idle_timeout",
    "server_lifetime",
];

pub(super) fn tables(snapshot: &Snapshot, files: FileLimit) -> Vec<Table> {
    let mut tables = vec![listening(&snapshot.config), databases(snapshot)];
    if !snapshot.config.users.is_empty() {
        tables.push(users(&snapshot.config));
    }
    tables.push(limits(snapshot, files));
    tables
}

fn listening(config: &Config) -> Table {
    let settings = &config.settings;
    let port = match settings.listen_port {
        0 => "chosen by the system".to_owned(),
        port => port.to_string(),
    };
    let tcp = settings
        .listen_addr
        .iter()
        .map(|address| match address.as_str() {
            "*" => format!("all addresses, port {port}"),
            _ => format!("{address}, port {port}"),
        });
    let unix = settings.unix_socket_dir.iter();
    let unix = unix.map(|dir| format!("Unix socket {dir}/.s.PGSQL.{}", settings.listen_port));
    Table {
        title: "Listens on",
        columns: &[],
        rows: tcp.chain(unix).map(|place| vec![place]).collect(),
    }
}

fn databases(snapshot: &Snapshot) -> Table {
    let config = &snapshot.config;
    let row = |(name, database): (&str, &Database)| {
        let user = database.user.as_deref();
        let of_pool = user.unwrap_or_default();
        let mode = config.pool_mode(database, of_pool);
        vec![
            name.to_owned(),
            servers(config, database).join(","),
            database.dbname.clone().unwrap_or_else(|| match name {
                "*" => "as the client's".to_owned(),
                _ => name.to_owned(),
            }),
            user.unwrap_or("as the client's").to_owned(),
            mode.to_string(),
            session(config, database, mode).to_owned(),
            number(config.pool_size(database, of_pool)),
            config.min_pool_size(database).to_string(),
            config.reserve_pool_size(database, of_pool).to_string(),
            number(config.max_db_connections(database)),
            number(config.max_db_client_connections(database)),
            time(config.query_wait_timeout(database, of_pool)),
            logins(snapshot, database),
        ]
    };
    Table {
        title: "Databases (sizes are per pool; a database has one pool per user, or one pool if the user is forced)",
        columns: &[
            "name",
            "server",
            "dbname",
            "user",
            "pool_mode",
            "session",
            "pool_size",
            "min",
            "reserve",
            "servers",
            "clients",
            "query_wait_timeout",
            "logins",
        ],
        rows: all(config).map(row).collect(),
    }
}

/// Returns all entries of `[databases]`, `*` last.
pub(super) fn all(config: &Config) -> impl Iterator<Item = (&str, &Database)> {
    let named = config
        .databases
        .iter()
        .map(|(name, database)| (name.as_str(), database));
    named.chain(config.fallback.iter().map(|database| ("*", database)))
}

fn servers(config: &Config, database: &Database) -> Vec<String> {
    hosts(config, database)
        .map(|(host, port)| Endpoint::of(&host, port).to_string())
        .collect()
}

fn hosts(config: &Config, database: &Database) -> impl Iterator<Item = (String, u16)> {
    let own = (database.host.is_empty())
        .then(|| config.settings.unix_socket_dir.clone())
        .flatten();
    let hosts = database.host.clone().into_iter().chain(own);
    let ports = database.port.clone();
    let hosts = hosts.enumerate();
    hosts.map(move |(at, host)| (host, ports.of(at)))
}

/// Returns the addresses of all servers, each once.
pub(super) fn endpoints(config: &Config) -> Vec<(String, u16)> {
    let mut endpoints: Vec<_> = all(config)
        .flat_map(|(_, database)| hosts(config, database))
        .collect();
    endpoints.sort();
    endpoints.dedup();
    endpoints
}

fn session(config: &Config, database: &Database, mode: PoolMode) -> &'static str {
    match (mode, config.session_state(database)) {
        (PoolMode::Transaction, SessionState::Transparent) => "transparent",
        (PoolMode::Session, _) => "own server",
        _ => "off",
    }
}

/// Returns the way in which clients of the database log in.
fn logins(snapshot: &Snapshot, database: &Database) -> String {
    let settings = &snapshot.config.settings;
    let method = settings.auth_type.to_string();
    let looked_up = database.auth_user.as_ref().or(settings.auth_user.as_ref());
    let file = match snapshot.users.len() {
        1 => "1 user".to_owned(),
        users => format!("{users} users"),
    };
    match (settings.auth_type, looked_up) {
        (AuthType::Any, _) => "any: every user".to_owned(),
        (_, Some(user)) => format!("{method}: {file} of auth_file, others looked up as {user}"),
        (_, None) => format!("{method}: {file} of auth_file"),
    }
}

fn users(config: &Config) -> Table {
    let row = |(name, own): (&String, &pgweir_config::UserSettings)| {
        vec![
            name.clone(),
            own.pool_size.map_or("as the database's".to_owned(), number),
            own.pool_mode
                .map_or("as the database's".to_owned(), |mode| mode.to_string()),
            number(config.max_user_connections(name)),
            number(config.max_user_client_connections(name)),
            time(config.query_timeout(name)),
            time(config.transaction_timeout(name)),
            time(config.idle_transaction_timeout(name)),
            time(config.client_idle_timeout(name)),
        ]
    };
    Table {
        title: "Users with their own settings",
        columns: &[
            "name",
            "pool_size",
            "pool_mode",
            "servers",
            "clients",
            "query_timeout",
            "transaction_timeout",
            "idle_transaction_timeout",
            "client_idle_timeout",
        ],
        rows: config.users.iter().map(row).collect(),
    }
}

fn limits(snapshot: &Snapshot, files: FileLimit) -> Table {
    let rows = snapshot.config.rows();
    let shown = |&name: &&str| {
        let value = rows.iter().find(|row| row.key == name)?.value.clone()?;
        let value = if value == "0" {
            "none".to_owned()
        } else {
            value
        };
        Some(vec![name.to_owned(), value])
    };
    let limit = files
        .soft
        .map_or("none".to_owned(), |limit| limit.to_string());
    let mut rows: Vec<_> = LIMITS.iter().filter_map(shown).collect();
    rows.push(vec![
        "open files".to_owned(),
        format!("{} needed, limit {limit}", files.needed(snapshot)),
    ]);
    Table {
        title: "Limits (a database or user may have its own; times in seconds)",
        columns: &["limit", "is"],
        rows,
    }
}

/// Returns the differences from PgBouncer with this configuration.
pub(super) fn differences(snapshot: &Snapshot) -> Vec<String> {
    let config = &snapshot.config;
    let transparent: Vec<_> = all(config)
        .filter(|(_, database)| {
            let mode = config.pool_mode(database, database.user.as_deref().unwrap_or_default());
            session(config, database, mode) == "transparent"
        })
        .map(|(name, _)| name)
        .collect();
    let mut lines = vec![match worker_count(&config.settings) {
        1 => "1 thread serves all connections, as in PgBouncer".to_owned(),
        count => format!("{count} threads serve connections (workers): one process uses all cores"),
    }];
    if !transparent.is_empty() {
        lines.push(format!(
            "SET, prepared statements and other session state keep working in transaction mode (session_state = \
             transparent) in {}; session_state = off works as in PgBouncer",
            transparent.join(", ")
        ));
    }
    if !config.own.is_empty() {
        let named: Vec<_> = config
            .own
            .iter()
            .map(|(scope, name)| format!("{name} in [{}]", scope.section()))
            .collect();
        lines.push(format!(
            "PgBouncer does not know {}, and refuses a file that has them",
            named.join(", ")
        ));
    }
    lines
}

fn number(number: u32) -> String {
    match number {
        0 => "no limit".to_owned(),
        number => number.to_string(),
    }
}

fn time(time: Micros) -> String {
    if time.is_zero() {
        "no limit".to_owned()
    } else {
        format!("{time} s")
    }
}
