//! SHOW USERS, LISTS and MEM.

use std::collections::BTreeSet;

use pgweir_config::RESERVED_DATABASES;

use super::pools::known_databases;
use crate::{
    admin::Admin,
    base::memory::{MemoryKind, MemoryUsage},
    console::{Collection, Column, Kind, Table},
};

use Kind::{Int4, Text};

const USER_COLUMNS: [Column; 8] = [
    ("name", Text),
    ("pool_size", Text),
    ("reserve_pool_size", Text),
    ("pool_mode", Text),
    ("max_user_connections", Int4),
    ("current_connections", Int4),
    ("max_user_client_connections", Int4),
    ("current_client_connections", Int4),
];

const MEM_COLUMNS: [Column; 5] = [
    ("name", Text),
    ("size", Int4),
    ("used", Int4),
    ("free", Int4),
    ("memtotal", Int4),
];

pub(super) fn users(admin: &Admin<'_>, collection: &Collection) -> Table {
    let config = &admin.env.snapshot.config;
    let text = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
    let rows = names(admin).into_iter().map(|name| {
        let own = config.users.get(name);
        let pools = collection.pools.iter();
        let servers: usize = pools
            .filter(|(key, _)| *key.user == *name)
            .map(|(_, pool)| pool.servers())
            .sum();
        vec![
            name.into(),
            text(own.and_then(|own| own.pool_size)).into(),
            text(own.and_then(|own| own.reserve_pool_size)).into(),
            own.and_then(|own| own.pool_mode)
                .map(|mode| mode.to_string())
                .into(),
            config.max_user_connections(name).into(),
            servers.into(),
            config.max_user_client_connections(name).into(),
            admin.env.directory.client_counts().of_user(name).into(),
        ]
    });
    (USER_COLUMNS.into(), rows.collect())
}

/// Returns the users of `auth_file` and of [users], and the console's own user.
fn names<'a>(admin: &'a Admin<'_>) -> BTreeSet<&'a str> {
    let snapshot = &admin.env.snapshot;
    let mut names: BTreeSet<&str> = snapshot.users.iter().map(|(name, _)| name).collect();
    names.extend(snapshot.config.users.keys().map(String::as_str));
    names.insert(RESERVED_DATABASES[0]);
    names
}

pub(in crate::admin) fn lists(admin: &Admin<'_>, collection: &Collection) -> Table {
    let peers = admin.env.peers().len();
    // The console counts as a database, and has a pool.
    let rows = [
        ("databases", known_databases(admin, collection).len() + 1),
        ("users", names(admin).len()),
        ("peers", peers),
        ("pools", collection.pools.len() + 1),
        ("peer_pools", peers),
        // No memory is kept for closed connections.
        ("free_clients", 0),
        ("used_clients", collection.clients),
        ("login_clients", collection.login_clients),
        ("free_servers", 0),
        ("used_servers", collection.servers),
        ("dns_names", collection.names.hosts.len()),
        ("dns_zones", collection.names.zones.len()),
        ("dns_queries", collection.names.asked),
        ("dns_pending", 0),
    ];
    let rows = rows.map(|(list, items)| vec![list.into(), items.into()]);
    (vec![("list", Text), ("items", Int4)], rows.into())
}

/// Returns the memory that clients and servers take, by kind. The workers have measured it on the round's way.
pub(in crate::admin) fn mem(admin: &Admin<'_>) -> Table {
    let memory = admin.env.directory.memory();
    let rows = MemoryKind::ALL.iter().map(|&kind| {
        let MemoryUsage { count, bytes } = memory.usage(kind);
        vec![
            kind.name().into(),
            bytes.checked_div(count).unwrap_or(0).into(),
            count.into(),
            0u32.into(),
            bytes.into(),
        ]
    });
    (MEM_COLUMNS.into(), rows.collect())
}
