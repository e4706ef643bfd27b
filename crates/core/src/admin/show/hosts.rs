//! SHOW HOSTS: role, lag and last error of each host that pgweir has opened servers on, or that the
//! configuration lists.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Endpoint,
    admin::Admin,
    console::{Cell, Column, Kind, Table, date},
    shared::hosts::Host,
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 16] = [
    ("host", Text),
    ("state", Text),
    ("role", Text),
    ("timeline", Int4),
    ("lag_us", Int8),
    ("connections", Int4),
    ("last_answer", Text),
    ("last_error", Text),
    ("last_error_at", Text),
    ("failures", Int8),
    ("settles_at", Text),
    ("databases", Text),
    ("patroni", Text),
    ("behind", Text),
    ("usable_connections", Int4),
    ("server_limit", Int4),
];

/// The largest number of databases that are named as users of a host.
const DATABASES_MAX: usize = 20;

/// Returns the table.
pub(super) fn table(admin: &Admin<'_>) -> Table {
    let hosts = admin.env.directory.hosts();
    let config = &admin.env.snapshot.config;
    let mut uses = BTreeMap::<String, Vec<&str>>::new();
    let named = config
        .databases
        .iter()
        .map(|(name, entry)| (name.as_str(), entry));
    let fallback = config.fallback.iter().map(|entry| ("*", entry));
    for (name, database) in named.chain(fallback) {
        for endpoint in Endpoint::all_of(database) {
            uses.entry(endpoint.to_string()).or_default().push(name);
            // Hosts that no client has used yet are shown, too.
            let _ = hosts.at(&Arc::new(endpoint));
        }
    }
    let all = hosts.all();
    let rows = all.iter().map(|host| {
        let mut row = row(host);
        let databases = uses.get(&host.endpoint.to_string());
        row.push(databases.map(|names| list(names)).into());
        let facts = host.facts();
        row.push(facts.reported.text.into());
        let behind = match facts.is_behind {
            true => "yes",
            false => "no",
        };
        row.push(behind.into());
        let number = |value: Option<u32>| value.map_or(Cell::Null, Cell::from);
        row.push(number(host.usable_connections()));
        row.push(number(hosts.server_limit_at(&host.endpoint)));
        row
    });
    (COLUMNS.into(), rows.collect())
}

/// Lists the first names.
fn list(names: &[&str]) -> String {
    let shown = names[..names.len().min(DATABASES_MAX)].join(", ");
    match names.len().checked_sub(DATABASES_MAX) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

fn row(host: &Host) -> Vec<Cell> {
    let facts = host.facts();
    let number = |value: Option<u64>| value.map_or(Cell::Null, Cell::Int);
    let role = facts.role.map(|role| match role.is_standby() {
        true => "standby",
        false => "primary",
    });
    let (error, error_at) = match facts.last_error {
        Some((text, at)) => (text.into(), date(at)),
        None => (Cell::Null, Cell::Null),
    };
    vec![
        host.endpoint.to_string().into(),
        facts.state.name().into(),
        role.map_or(Cell::Null, Cell::from),
        number(facts.timeline.map(u64::from)),
        number(facts.lag),
        host.connections().into(),
        facts.answered_at.map_or(Cell::Null, date),
        error,
        error_at,
        Cell::Int(facts.failures),
        facts.probation_ends_at.map_or(Cell::Null, date),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names = vec!["a"; DATABASES_MAX];
        assert_eq!(list(&["app", "other"]), "app, other");
        assert!(list(&names).ends_with("a, a"));
        let names = vec!["a"; DATABASES_MAX + 2];
        assert!(list(&names).ends_with("a, a and 2 more"));
    }
}
