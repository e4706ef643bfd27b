//! SHOW WORKERS: the load of each worker, and whether it takes part (`worker_busy_target`).

use crate::{
    admin::Admin,
    connections::Conn,
    console::{Collection, Column, Kind, Table},
};

use Kind::{Int4, Text};

const COLUMNS: [Column; 5] = [
    ("worker", Int4),
    ("state", Text),
    ("busy_percent", Int4),
    ("clients", Int4),
    ("servers", Int4),
];

pub(super) fn add(admin: &Admin<'_>, collection: &mut Collection) {
    let (worker, loads) = (admin.env.worker, admin.env.directory.worker_loads());
    let count = |wanted: fn(&Conn) -> bool| {
        let connections = admin.connections.iter();
        connections.filter(|(_, conn)| wanted(conn)).count()
    };
    let state = match loads.takes_part(worker) {
        true => "active",
        false => "inactive",
    };
    let row = vec![
        worker.index().into(),
        state.into(),
        (loads.busy(worker, admin.env.now) / 10).into(),
        count(|conn| matches!(conn, Conn::Client(_))).into(),
        count(|conn| matches!(conn, Conn::Server(_))).into(),
    ];
    collection.rows.push((worker.index() as u64, row));
}

pub(super) fn table(mut collection: Collection) -> Table {
    collection.rows.sort_by_key(|(worker, _)| *worker);
    let rows = collection.rows.into_iter().map(|(_, row)| row);
    (COLUMNS.into(), rows.collect())
}
