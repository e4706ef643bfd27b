//! Tables that need no worker but one.

use super::{
    super::{
        VERSION,
        rows::{Cell, Column, Kind},
        tour::Collection,
    },
    Table,
};
use crate::{Halt, Time, worker::Worker};

use Kind::{Int4, Int8, Text};

const CONFIG_COLUMNS: [Column; 4] = [
    ("key", Text),
    ("value", Text),
    ("default", Text),
    ("changeable", Text),
];

const PEER_POOL_COLUMNS: [Column; 5] = [
    ("peer_id", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active_cancel", Int4),
    ("sv_login", Int4),
];

pub(super) fn config(worker: &Worker) -> Table {
    let rows = worker.snapshot.config.rows().into_iter().map(|row| {
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

pub(super) fn peers(worker: &Worker) -> Table {
    let config = &worker.snapshot.config;
    let rows = config.peers.iter().map(|(&id, peer)| {
        let size = peer.pool_size.unwrap_or(config.settings.default_pool_size);
        vec![
            id.into(),
            peer.host.as_deref().into(),
            u32::from(peer.port).into(),
            size.into(),
        ]
    });
    let columns = [
        ("peer_id", Int4),
        ("host", Text),
        ("port", Int4),
        ("pool_size", Int4),
    ];
    (columns.into(), rows.collect())
}

/// Nothing is passed on to peers yet.
pub(super) fn peer_pools(worker: &Worker) -> Table {
    let peers = worker.snapshot.config.peers.keys();
    let rows = peers.map(|&id| {
        let mut row = vec![Cell::from(id)];
        row.extend([0u32; 4].map(Cell::from));
        row
    });
    (PEER_POOL_COLUMNS.into(), rows.collect())
}

pub(super) fn state(worker: &Worker) -> Table {
    let halt = worker.directory.operator().halt();
    let row = |key: &str, is: bool| vec![key.into(), if is { "yes" } else { "no" }.into()];
    let rows = vec![
        row("active", halt == Halt::No),
        row("paused", halt == Halt::Paused),
        row("suspended", halt == Halt::Suspended),
    ];
    (vec![("key", Text), ("value", Text)], rows)
}

pub(super) fn dns_hosts(collection: &Collection, now: Time) -> Table {
    let rows = collection.hosts.iter().map(|host| {
        vec![
            host.name.as_str().into(),
            Cell::Int(host.until.since(now) / 1_000_000),
            host.addresses.as_str().into(),
        ]
    });
    let columns = vec![("hostname", Text), ("ttl", Int8), ("addrs", Text)];
    (columns, rows.collect())
}

/// Zones are not followed.
pub(super) fn dns_zones() -> Table {
    let columns = vec![("zonename", Text), ("serial", Int8), ("count", Int4)];
    (columns, Vec::new())
}
