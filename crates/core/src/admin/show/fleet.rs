//! SHOW FLEET: the processes that share `max_server_conn` through etcd, as this process last read them.

use crate::{
    admin::Admin,
    console::{Column, Kind, Table, date},
    shared::fleet::{FleetNode, FleetNodeState},
};

use Kind::{Int4, Text};

const COLUMNS: [Column; 8] = [
    ("node", Text),
    ("state", Text),
    ("addresses", Text),
    ("share", Int4),
    ("extra", Int4),
    ("wanted", Int4),
    ("version", Text),
    ("last_contact", Text),
];

/// Returns the table.
pub(super) fn table(admin: &Admin<'_>) -> Table {
    let view = admin.env.directory.fleet().view();
    let row = |node: FleetNode| {
        let share = match node.state {
            FleetNodeState::This => view.limit,
            FleetNodeState::Active | FleetNodeState::Lost => view.floor + node.extra,
            FleetNodeState::Unknown => node.extra,
        };
        vec![
            format!("{:016x}", node.id).into(),
            node.state.name().into(),
            node.addresses.into(),
            share.into(),
            node.extra.into(),
            node.wanted.into(),
            node.version.into(),
            date(node.last_contact),
        ]
    };
    let rows = view.nodes.into_iter().map(row);
    (COLUMNS.into(), rows.collect())
}
