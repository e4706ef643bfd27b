//! Converts a pool of PgCat to entries of `[databases]`.

use std::collections::BTreeMap;

use pgweir_config::is_console;
use toml::{Table, Value};

use super::{
    auth_query,
    lines::Lines,
    scalar, seconds,
    users::{Share, Users},
};

/// Keys that code below converts.
const BY_NAME: &[&str] = &[
    "pool_mode",
    "default_role",
    "connect_timeout",
    "server_lifetime",
    "auth_query",
    "auth_query_user",
    "auth_query_password",
    "shards",
    "users",
];

/// Other known keys, with the reason why they have no equivalent.
const NOTHING: &[(&str, &str)] = &[
    ("load_balancing_mode", "hosts of a list are used in turn"),
    (
        "query_parser_enabled",
        "pgweir does not parse queries to choose a server: connect to the replicas' entry to read from them",
    ),
    (
        "query_parser_read_write_splitting",
        "see query_parser_enabled",
    ),
    ("query_parser_max_length", "see query_parser_enabled"),
    ("primary_reads_enabled", "see query_parser_enabled"),
    ("db_activity_based_routing", "see query_parser_enabled"),
    (
        "db_activity_based_ms_init_delay",
        "see query_parser_enabled",
    ),
    ("db_activity_init_delay", "see query_parser_enabled"),
    ("db_activity_ttl", "see query_parser_enabled"),
    ("table_mutation_cache_ms_ttl", "see query_parser_enabled"),
    (
        "sharding_function",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "sharding_key_regex",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "shard_id_regex",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "regex_search_limit",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "automatic_sharding_key",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "default_shard",
        "pgweir has no sharding: each shard becomes a database",
    ),
    (
        "idle_timeout",
        "pgweir has one setting for all databases, server_idle_timeout",
    ),
    (
        "checkout_failure_limit",
        "a client that waits too long (query_wait_timeout) is disconnected at once",
    ),
    (
        "cleanup_server_connections",
        "pgweir restores each client's session state on every server (session_state)",
    ),
    (
        "log_client_parameter_status_changes",
        "pgweir does not log this",
    ),
    (
        "prepared_statements_cache_size",
        "pgweir has one setting for all databases, max_prepared_statements",
    ),
    ("plugins", "pgweir has no plugins"),
];

/// A server of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    port: String,
    role: String,
}

/// Adds the pool's entries and users.
pub(super) fn convert(name: &str, pool: &Table, out: &mut Lines, users: &mut Users) {
    if is_console(name) || name == "*" {
        return out.comment(&format!("pools.{name}: a database can't have this name"));
    }
    let mut common = common_keys(name, pool, out, users);
    let logins = logins(name, pool, out);
    common.extend(sizes(name, &logins, out));
    for login in &logins {
        if let Some(password) = &login.password {
            users.secret(&login.name, password, name);
        }
        users.share(&login.name, login.share(name, &logins));
    }
    let nothing = Table::new();
    let shards = pool
        .get("shards")
        .and_then(Value::as_table)
        .unwrap_or(&nothing);
    if shards.len() > 1 {
        out.comment(&format!(
            "pools.{name}: pgweir has no sharding: each shard is a database, which clients choose by its name"
        ));
    }
    let role = pool
        .get("default_role")
        .and_then(Value::as_str)
        .unwrap_or("any");
    for (index, shard) in shards {
        let path = format!("pools.{name}.shards.{index}");
        let Some(shard) = shard.as_table() else {
            out.comment(&format!("{path}: not understood"));
            continue;
        };
        let entry = match shards.len() {
            1 => name.to_owned(),
            _ => format!("{name}_shard_{index}"),
        };
        let mut keys = common.clone();
        if let Some(database) = shard.get("database").and_then(Value::as_str) {
            keys.insert(0, ("dbname", database.to_owned()));
        }
        if shard.contains_key("mirrors") {
            out.comment(&format!(
                "{path}.mirrors: has no equivalent: pgweir has no mirroring"
            ));
        }
        entries(&entry, &hosts(&path, shard, out), role, &keys, &logins, out);
    }
    if shards.is_empty() {
        out.comment(&format!("pools.{name}: has no shard"));
    }
}

/// Returns the keys that all entries of the pool have.
fn common_keys(
    name: &str,
    pool: &Table,
    out: &mut Lines,
    users: &mut Users,
) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    if let Some(mode) = pool.get("pool_mode").and_then(Value::as_str) {
        keys.push(("pool_mode", mode.to_lowercase()));
    }
    for (theirs, ours) in [
        ("connect_timeout", "query_wait_timeout"),
        ("server_lifetime", "server_lifetime"),
    ] {
        match pool.get(theirs).map(seconds) {
            Some(Some(value)) => keys.push((ours, value)),
            Some(None) => out.comment(&format!("pools.{name}.{theirs}: not understood")),
            None => {}
        }
    }
    auth_query(name, pool, users, &mut |key, value| keys.push((key, value)));
    for (key, value) in pool {
        // A feature that is switched off needs no equivalent.
        if BY_NAME.contains(&key.as_str()) || value.as_bool() == Some(false) {
            continue;
        }
        let why = NOTHING.iter().find(|(known, _)| known == key);
        let why = why.map_or(String::new(), |(_, why)| format!(": {why}"));
        out.comment(&format!("pools.{name}.{key}: has no equivalent{why}"));
    }
    keys
}

/// A user of the pool.
struct Login {
    name: String,
    password: Option<String>,
    pool_size: Option<u64>,
    min_pool_size: Option<u64>,
    pool_mode: Option<String>,
    query_timeout: Option<String>,
    /// The name and password for servers, if they differ from the client's.
    server: Option<(String, Option<String>)>,
}

impl Login {
    fn share(&self, pool: &str, all: &[Login]) -> Share {
        Share {
            pool: pool.to_owned(),
            pool_size: self
                .pool_size
                .filter(|size| Some(*size) != common_size(all)),
            pool_mode: self.pool_mode.clone(),
            query_timeout: self.query_timeout.clone(),
        }
    }
}

fn logins(pool: &str, table: &Table, out: &mut Lines) -> Vec<Login> {
    const KEYS: &[&str] = &[
        "username",
        "password",
        "pool_size",
        "min_pool_size",
        "statement_timeout",
        "pool_mode",
        "server_username",
        "server_password",
    ];
    let mut logins = Vec::new();
    let users = table.get("users").and_then(Value::as_table);
    for (index, user) in users.into_iter().flatten() {
        let text = |key: &str| user.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| user.get(key).and_then(Value::as_integer);
        let number = |key: &str| number(key).and_then(|number| u64::try_from(number).ok());
        let Some(name) = text("username") else {
            out.comment(&format!("pools.{pool}.users.{index}: has no username"));
            continue;
        };
        let other = user.as_table().into_iter().flat_map(Table::keys);
        for key in other.filter(|key| !KEYS.contains(&key.as_str())) {
            out.comment(&format!(
                "pools.{pool}.users.{index}.{key}: has no equivalent for one user of one database"
            ));
        }
        let server = match (text("server_username"), text("server_password")) {
            (None, None) => None,
            (server, password) => Some((server.unwrap_or_else(|| name.clone()), password)),
        };
        let timeout = user.get("statement_timeout").and_then(seconds);
        logins.push(Login {
            name,
            password: text("password"),
            pool_size: number("pool_size"),
            min_pool_size: number("min_pool_size").filter(|size| *size > 0),
            pool_mode: text("pool_mode").map(|mode| mode.to_lowercase()),
            query_timeout: timeout.filter(|timeout| timeout != "0"),
            server,
        });
    }
    logins
}

/// Returns the most frequent pool size of the users; of equally frequent ones, the largest.
fn common_size(logins: &[Login]) -> Option<u64> {
    let mut counts = BTreeMap::new();
    for size in logins.iter().filter_map(|login| login.pool_size) {
        *counts.entry(size).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .max_by_key(|&(size, count)| (count, size))
        .map(|(size, _)| size)
}

fn sizes(pool: &str, logins: &[Login], out: &mut Lines) -> Vec<(&'static str, String)> {
    let least = logins.iter().filter_map(|login| login.min_pool_size).max();
    if let Some(least) = least
        && logins
            .iter()
            .any(|login| login.min_pool_size != Some(least))
    {
        out.comment(&format!(
            "pools.{pool}: some users have min_pool_size = {least}; here it holds for all users of the database"
        ));
    }
    let sizes = [("pool_size", common_size(logins)), ("min_pool_size", least)];
    let set = sizes
        .into_iter()
        .filter_map(|(key, size)| Some((key, size?.to_string())));
    set.collect()
}

fn hosts(path: &str, shard: &Table, out: &mut Lines) -> Vec<Host> {
    let mut hosts = Vec::new();
    let servers = shard.get("servers").and_then(Value::as_array);
    for server in servers.into_iter().flatten() {
        let part = |index: usize, name: &str| {
            server
                .get(index)
                .or_else(|| server.get(name))
                .and_then(scalar)
        };
        match (part(0, "host"), part(1, "port"), part(2, "role")) {
            (Some(name), Some(port), role) => hosts.push(Host {
                name,
                port,
                role: role.unwrap_or_default().to_lowercase(),
            }),
            _ => out.comment(&format!(
                "{path}.servers: one of the servers was not understood"
            )),
        }
    }
    hosts
}

/// Adds the entries of one shard: the entry with the shard's name, and one for its replicas.
fn entries(
    name: &str,
    hosts: &[Host],
    default_role: &str,
    keys: &[(&'static str, String)],
    logins: &[Login],
    out: &mut Lines,
) {
    let (replicas, primary): (Vec<_>, Vec<_>) = hosts
        .iter()
        .cloned()
        .partition(|host| host.role == "replica");
    let only_replicas = default_role.eq_ignore_ascii_case("replica") || primary.is_empty();
    if !only_replicas && default_role.eq_ignore_ascii_case("any") && !replicas.is_empty() {
        out.comment(&format!(
            "{name}: PgCat sent clients to any server; here {name} is the primary, and {name}_replica the replicas"
        ));
    }
    let first = match only_replicas {
        true => &replicas,
        false => &primary,
    };
    for_all(name, first, keys, logins, out);
    if !only_replicas && !replicas.is_empty() {
        for_all(&format!("{name}_replica"), &replicas, keys, logins, out);
    }
}

/// Adds an entry for these hosts, and one for each user with another name or password on the servers.
fn for_all(
    name: &str,
    hosts: &[Host],
    keys: &[(&'static str, String)],
    logins: &[Login],
    out: &mut Lines,
) {
    let first = logins.first().and_then(|login| login.server.as_ref());
    if logins.iter().all(|login| login.server.as_ref() == first) {
        return entry(name, hosts, keys, first, out);
    }
    entry(name, hosts, keys, None, out);
    for login in logins.iter().filter(|login| login.server.is_some()) {
        let own = format!("{name}_{}", login.name);
        out.comment(&format!(
            "User {:?} logs in to servers with another name or password, so this user's database is {own}",
            login.name
        ));
        entry(&own, hosts, keys, login.server.as_ref(), out);
    }
}

fn entry(
    name: &str,
    hosts: &[Host],
    keys: &[(&'static str, String)],
    server: Option<&(String, Option<String>)>,
    out: &mut Lines,
) {
    let Some(Host { port, .. }) = hosts.first() else {
        return out.comment(&format!("{name}: has no server"));
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) = hosts.iter().partition(|host| host.port == *port);
    let names: Vec<_> = here.iter().map(|host| host.name.as_str()).collect();
    let mut pairs = vec![("host", names.join(",")), ("port", port.clone())];
    if let Some((user, password)) = server {
        pairs.push(("user", user.clone()));
        pairs.extend(
            password
                .iter()
                .map(|password| ("password", password.clone())),
        );
    }
    pairs.extend(keys.iter().cloned());
    if !out.entry(name, &pairs) {
        out.comment(&format!(
            "{name}: an ini file can't represent the name or a value"
        ));
    }
    for host in elsewhere {
        out.comment(&format!(
            "{name}: all hosts of a list have the same port: host {} with port {} is left out",
            host.name, host.port
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> String {
        let pool: Table = text.parse().expect("TOML");
        let (mut lines, mut users) = (Lines::default(), Users::default());
        convert("db", &pool, &mut lines, &mut users);
        lines.section("databases")
    }

    #[test]
    fn clients_get_the_primary_and_replicas_by_name() {
        let servers = r#"shards.0 = { database = "x", servers = [["a", 1, "primary"], ["b", 2, "replica"], ["c", 2, "Replica"], ["d", 3, "replica"]] }"#;
        let text = converted(&format!("default_role = \"any\"\n{servers}"));
        assert!(
            text.contains("\ndb = host=a port=1 dbname=x\ndb_replica = host=b,c port=2 dbname=x\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "; db_replica: all hosts of a list have the same port: host d with port 3 is left out"
            ),
            "{text}"
        );
        let text = converted(&format!("default_role = \"replica\"\n{servers}"));
        assert!(
            text.contains("\ndb = host=b,c port=2 dbname=x\n") && !text.contains("host=a"),
            "{text}"
        );
    }

    #[test]
    fn shards_are_databases() {
        let text = converted(
            r#"
            sharding_function = "sha1"
            shards.0 = { database = "x", servers = [["a", 1, "primary"]] }
            shards.1 = { database = "y", servers = [{ host = "b", port = 1, role = "primary" }], mirrors = [] }"#,
        );
        assert!(
            text.contains("\ndb_shard_0 = host=a port=1 dbname=x\n"),
            "{text}"
        );
        assert!(
            text.contains("\ndb_shard_1 = host=b port=1 dbname=y\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "; pools.db.sharding_function: has no equivalent: pgweir has no sharding"
            ),
            "{text}"
        );
        assert!(text.contains("; pools.db.shards.1.mirrors: "), "{text}");
    }

    #[test]
    fn users_may_have_other_names_at_the_server() {
        let text = converted(
            r#"
            users.0 = { username = "u", password = "p", pool_size = 5, server_username = "s", server_password = "q r" }
            users.1 = { username = "v", password = "p", pool_size = 5, min_pool_size = 2 }
            shards.0 = { database = "x", servers = [["a", 1, "primary"]] }"#,
        );
        assert!(
            text.contains("\ndb = host=a port=1 dbname=x pool_size=5 min_pool_size=2\n"),
            "{text}"
        );
        assert!(
            text.contains("; pools.db: some users have min_pool_size = 2"),
            "{text}"
        );
        assert!(
            text.contains("\ndb_u = host=a port=1 user=s password='q r' dbname=x pool_size=5"),
            "{text}"
        );
        let text = converted(
            r#"
            users.0 = { username = "u", server_password = "q" }
            shards.0 = { database = "x", servers = [["a", 1, "primary"]] }"#,
        );
        assert!(
            text.contains("\ndb = host=a port=1 user=u password=q dbname=x\n"),
            "{text}"
        );
    }
}
