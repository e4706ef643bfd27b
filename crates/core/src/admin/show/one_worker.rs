//! Tables of SHOW for which one worker has all the data. Their commands do not visit the other workers.

use crate::{
    Halt, Time,
    admin::Admin,
    console::{Cell, Collection, Column, Kind, Table, VERSION},
    login::cache_limits,
};

use Kind::{Int4, Int8, Text};

const CONFIG_COLUMNS: [Column; 4] = [
    ("key", Text),
    ("value", Text),
    ("default", Text),
    ("changeable", Text),
];

pub(super) fn config(admin: &Admin<'_>) -> Table {
    let rows = admin.env.snapshot.config.rows().into_iter().map(|row| {
        let changeable = if row.changeable { "yes" } else { "no" };
        vec![
            row.key.into(),
            row.value.into(),
            row.default.into(),
            changeable.into(),
        ]
    });
    (CONFIG_COLUMNS.into(), rows.collect())
}

pub(super) fn version() -> Table {
    (vec![("version", Text)], vec![vec![VERSION.into()]])
}

pub(super) fn state(admin: &Admin<'_>) -> Table {
    let halt = admin.env.directory.operator().halt();
    let row = |key: &str, is: bool| vec![key.into(), if is { "yes" } else { "no" }.into()];
    let rows = vec![
        row("active", halt == Halt::No),
        row("paused", halt == Halt::Paused),
        row("suspended", halt == Halt::Suspended),
    ];
    (vec![("key", Text), ("value", Text)], rows)
}

pub(super) fn dns_hosts(collection: &Collection, now: Time) -> Table {
    let rows = collection.names.hosts.iter().map(|host| {
        vec![
            host.name.as_str().into(),
            Cell::Int(host.until.since(now) / 1_000_000),
            host.addresses.as_str().into(),
        ]
    });
    let columns = vec![("hostname", Text), ("ttl", Int8), ("addrs", Text)];
    (columns, rows.collect())
}

pub(super) fn dns_zones(collection: &Collection) -> Table {
    let rows = collection.names.zones.iter().map(|zone| {
        vec![
            zone.name.as_str().into(),
            Cell::Int(zone.serial.into()),
            zone.hosts.into(),
        ]
    });
    let columns = vec![("zonename", Text), ("serial", Int8), ("count", Int4)];
    (columns, rows.collect())
}

/// Returns the cached answers of databases about users.
pub(super) fn auth_cache(admin: &Admin<'_>, now: Time) -> Table {
    let kept = admin
        .env
        .directory
        .auth_cache()
        .list(cache_limits(&admin.env.snapshot.config.settings), now);
    let rows = kept.into_iter().map(|entry| {
        vec![
            (*entry.query.database).into(),
            (*entry.query.auth_user).into(),
            (*entry.query.user).into(),
            entry.kind.into(),
            Cell::Int(entry.age / 1_000_000),
            Cell::Int(entry.left / 1_000_000),
        ]
    });
    let columns = vec![
        ("database", Text),
        ("auth_user", Text),
        ("name", Text),
        ("kind", Text),
        ("age", Int8),
        ("left", Int8),
    ];
    (columns, rows.collect())
}
