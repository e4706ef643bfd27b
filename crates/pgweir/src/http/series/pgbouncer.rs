//! The series of pgbouncer_exporter, with its names, labels and meaning.

use std::collections::{BTreeMap, BTreeSet};

use pgweir_core::console::{Cell, Table};

use super::{
    Source,
    rows::{self, LabelledNames, OTHER, Sums},
};
use crate::http::exposition::{Exposition, Kind};

/// Column of SHOW DATABASES, name, help.
const DATABASES: [[&str; 3]; 6] = [
    [
        "pool_size",
        "pool_size",
        "The most servers of each of its pools.",
    ],
    [
        "reserve_pool_size",
        "reserve_pool",
        "The servers of a pool's reserve.",
    ],
    [
        "max_connections",
        "max_connections",
        "The most servers of the database; 0 is no limit.",
    ],
    [
        "current_connections",
        "current_connections",
        "Server connections of the database.",
    ],
    ["paused", "paused", "1 if the database is paused."],
    ["disabled", "disabled", "1 if the database is disabled."],
];

/// Column of SHOW STATS_TOTALS, name without `_total`, help; whether it is a time.
const STATS: [(&str, &str, &str, bool); 11] = [
    (
        "query_count",
        "queries_pooled",
        "Queries: requests that ended with ReadyForQuery.",
        false,
    ),
    (
        "query_time",
        "queries_duration_seconds",
        "Time in queries.",
        true,
    ),
    (
        "bytes_received",
        "received_bytes",
        "Bytes from clients.",
        false,
    ),
    ("bytes_sent", "sent_bytes", "Bytes to clients.", false),
    (
        "wait_time",
        "client_wait_seconds",
        "Time that clients waited for a server.",
        true,
    ),
    (
        "xact_count",
        "sql_transactions_pooled",
        "Transactions.",
        false,
    ),
    (
        "xact_time",
        "server_in_transaction_seconds",
        "Time in transactions.",
        true,
    ),
    (
        "client_parse_count",
        "client_parses",
        "Statements that clients have prepared.",
        false,
    ),
    (
        "server_parse_count",
        "server_parses",
        "Statements that were prepared on servers.",
        false,
    ),
    ("bind_count", "binds", "Bind messages.", false),
    (
        "server_assignment_count",
        "server_assignments",
        "How often a server was lent.",
        false,
    ),
];

/// Column of SHOW POOLS, name, help.
const POOLS: [[&str; 3]; 11] = [
    [
        "cl_active",
        "client_active_connections",
        "Clients that have a server, or are idle.",
    ],
    [
        "cl_waiting",
        "client_waiting_connections",
        "Clients that wait for a server.",
    ],
    [
        "cl_active_cancel_req",
        "client_active_cancel_connections",
        "Cancel requests on their way to a server.",
    ],
    [
        "cl_waiting_cancel_req",
        "client_waiting_cancel_connections",
        "Cancel requests that wait for their connection.",
    ],
    [
        "sv_active",
        "server_active_connections",
        "Servers that are lent to a client.",
    ],
    [
        "sv_active_cancel",
        "server_active_cancel_connections",
        "Connections that carry a cancel request.",
    ],
    [
        "sv_being_canceled",
        "server_being_canceled_connections",
        "Servers that wait for the end of a cancel request.",
    ],
    [
        "sv_idle",
        "server_idle_connections",
        "Servers that can be lent at once.",
    ],
    [
        "sv_used",
        "server_used_connections",
        "Idle servers that are checked before they are lent.",
    ],
    [
        "sv_tested",
        "server_testing_connections",
        "Servers that are checked or cleaned.",
    ],
    [
        "sv_login",
        "server_login_connections",
        "Servers that log in.",
    ],
];

/// Row of SHOW LISTS, name, help.
const LISTS: [[&str; 3]; 11] = [
    ["databases", "databases", "Databases."],
    ["users", "users", "Users."],
    ["pools", "pools", "Pools."],
    [
        "free_clients",
        "free_clients",
        "Always 0: no memory is kept for clients that are gone.",
    ],
    ["used_clients", "used_clients", "Client connections."],
    ["login_clients", "login_clients", "Clients that log in."],
    [
        "free_servers",
        "free_servers",
        "Always 0: no memory is kept for servers that are gone.",
    ],
    ["used_servers", "used_servers", "Server connections."],
    [
        "dns_names",
        "cached_dns_names",
        "Host names that were looked up.",
    ],
    ["dns_zones", "cached_dns_zones", "Zones of these names."],
    [
        "dns_queries",
        "in_flight_dns_queries",
        "Host names that are being looked up.",
    ],
];

pub(super) fn write(
    source: Source<'_>,
    pools: &LabelledNames<(String, String)>,
    databases: &LabelledNames<String>,
    text: &mut Exposition,
) {
    write_up(true, text);
    let help = "1; the label has the version.";
    let mut family = text.family("pgbouncer_version_info", Kind::Gauge, help);
    family.add(&[("version", source.metrics.version)], 1);
    write_databases(&source.metrics.databases, databases, text);
    write_stats(&source.metrics.stats, databases, "stats_totals", text);
    if source.snapshot.config.settings.metrics_aliases {
        write_stats(&source.metrics.stats, databases, "stats", text);
    }
    write_pools(&source.metrics.pools, pools, text);
    write_clients(source, pools, text);
    let lists = &source.metrics.lists.1;
    for [list, name, help] in LISTS {
        let is_it = |row: &&Vec<Cell>| matches!(&row[0], Cell::Text(text) if text == list);
        let value = lists
            .iter()
            .find(is_it)
            .map_or(0, |row| rows::number(row, Some(1)));
        text.gauge(&format!("pgbouncer_{name}"), help, value);
    }
    let settings = &source.snapshot.config.settings;
    for (name, help, value) in [
        (
            "client",
            "The setting max_client_conn.",
            settings.max_client_conn,
        ),
        (
            "user",
            "The setting max_user_connections; 0 is no limit.",
            settings.max_user_connections,
        ),
    ] {
        text.gauge(
            &format!("pgbouncer_config_max_{name}_connections"),
            help,
            value.into(),
        );
    }
}

/// Writes whether the workers have answered.
pub(super) fn write_up(is_up: bool, text: &mut Exposition) {
    let help = "1 if pgweir's workers have answered in time.";
    text.gauge("pgbouncer_up", help, is_up.into());
}

fn write_databases(table: &Table, kept: &LabelledNames<String>, text: &mut Exposition) {
    const LABELS: [&str; 6] = [
        "name",
        "host",
        "port",
        "database",
        "force_user",
        "pool_mode",
    ];
    let labels = LABELS.map(|label| rows::column(table, label));
    for [column, name, help] in DATABASES {
        let column = rows::column(table, column);
        let mut sums = Sums::default();
        for row in &table.1 {
            let mut values = labels.map(|label| {
                label
                    .and_then(|at| rows::text_at(row, at))
                    .unwrap_or_default()
            });
            if kept.name(&values[0]) == OTHER {
                values = [OTHER, "", "", "", "", ""].map(str::to_owned);
            }
            sums.add(values, rows::number(row, column));
        }
        let name = format!("pgbouncer_databases_{name}");
        let mut family = text.family(&name, Kind::Gauge, help);
        for (values, value) in sums.iter() {
            family.add(&zip(LABELS, values), value);
        }
    }
}

fn write_stats(table: &Table, kept: &LabelledNames<String>, prefix: &str, text: &mut Exposition) {
    for (column, name, help, is_time) in STATS {
        let column = rows::column(table, column);
        let mut sums = Sums::default();
        for row in &table.1 {
            let database = rows::text_at(row, 0).unwrap_or_default();
            sums.add([kept.name(&database).to_owned()], rows::number(row, column));
        }
        let name = format!("pgbouncer_{prefix}_{name}");
        let mut family = text.family(&name, Kind::Counter, help);
        for ([database], value) in sums.iter() {
            let labels = [("database", database.as_str())];
            match is_time {
                true => family.add_micros(&labels, value),
                false => family.add(&labels, value),
            }
        }
    }
}

fn write_pools(table: &Table, kept: &LabelledNames<(String, String)>, text: &mut Exposition) {
    let names = |row: &[Cell]| {
        let database = rows::text_at(row, 0).unwrap_or_default();
        let user = rows::text_at(row, 1).unwrap_or_default();
        kept.names(&database, &user).map(str::to_owned)
    };
    for [column, name, help] in POOLS {
        let column = rows::column(table, column);
        let mut sums = Sums::default();
        for row in &table.1 {
            sums.add(names(row), rows::number(row, column));
        }
        let name = format!("pgbouncer_pools_{name}");
        let mut family = text.family(&name, Kind::Gauge, help);
        for (values, value) in sums.iter() {
            family.add(&zip(["database", "user"], values), value);
        }
    }
    let [seconds, micros] = ["maxwait", "maxwait_us"].map(|name| rows::column(table, name));
    let mut highest = Sums::default();
    for row in &table.1 {
        let wait = rows::number(row, seconds) * 1_000_000 + rows::number(row, micros);
        highest.raise(names(row), wait);
    }
    let help = "How long the client has waited that has waited longest.";
    let name = "pgbouncer_pools_client_maxwait_seconds";
    let mut family = text.family(name, Kind::Gauge, help);
    for (values, value) in highest.iter() {
        family.add_micros(&zip(["database", "user"], values), value);
    }
}

fn write_clients(
    source: Source<'_>,
    pools: &LabelledNames<(String, String)>,
    text: &mut Exposition,
) {
    let clients = &source.metrics.clients;
    let mut by_name = BTreeMap::<&str, u64>::new();
    for client in clients {
        *by_name.entry(&client.application_name).or_default() += client.count;
    }
    let mut names: Vec<(&str, u64)> = by_name.into_iter().collect();
    // The application with the most clients comes first; equal ones follow in the order of their names.
    names.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let most = source.snapshot.config.settings.metrics_max_applications as usize;
    let folded = names.len().saturating_sub(most) as u64;
    let kept: BTreeSet<&str> = names.into_iter().take(most).map(|(name, _)| name).collect();
    let mut sums = Sums::default();
    for client in clients {
        let [database, user] = pools.names(&client.database, &client.user);
        let name = &*client.application_name;
        let name = if kept.contains(name) { name } else { OTHER };
        let labels = [database, user, name, client.state].map(str::to_owned);
        sums.add(labels, client.count);
    }
    let help = "Clients by state.";
    let mut family = text.family("pgbouncer_client_connections", Kind::Gauge, help);
    for (values, value) in sums.iter() {
        let labels = zip(["database", "user", "application_name", "state"], values);
        family.add(&labels, value);
    }
    let help =
        "Values of application_name that are added up under (other): see metrics_max_applications.";
    text.gauge("pgweir_metrics_folded_application_names", help, folded);
}

/// Returns the labels with their values.
pub(super) fn zip<'a, const COUNT: usize>(
    names: [&'a str; COUNT],
    values: &'a [String; COUNT],
) -> [(&'a str, &'a str); COUNT] {
    std::array::from_fn(|at| (names[at], &*values[at]))
}
