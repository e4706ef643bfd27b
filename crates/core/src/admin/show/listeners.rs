//! SHOW LISTENERS: the server connections that LISTEN for clients.

use crate::{
    admin::Admin,
    backend::Duty,
    console::{Cell, Collection, Column, Kind, Table},
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 9] = [
    ("database", Text),
    ("user", Text),
    ("client_encoding", Text),
    ("state", Text),
    ("channels", Int4),
    ("workers", Int4),
    ("notifications", Int8),
    ("remote_pid", Int4),
    ("id", Int8),
];

pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection) {
    for (key, listener) in admin.listeners.iter() {
        let Some(server) = admin.connections.server(listener.conn()) else {
            continue;
        };
        let is_ready = matches!(*server.duty(), Duty::Listening { .. });
        let encoding = String::from_utf8_lossy(&key.encoding).into_owned();
        let row: Vec<Cell> = vec![
            (*server.shared.key.database).into(),
            (*server.shared.key.user).into(),
            encoding.into(),
            if is_ready { "listening" } else { "login" }.into(),
            listener.channels().channels().into(),
            listener.channels().workers().iter().count().into(),
            Cell::Int(listener.notifications()),
            server.link.pid().into(),
            server.id().into(),
        ];
        collection.rows.push((server.id(), row));
    }
}

pub(super) fn table(mut collection: Collection) -> Table {
    collection.rows.sort_by_key(|(id, _)| *id);
    let rows = collection.rows.into_iter().map(|(_, row)| row);
    (COLUMNS.into(), rows.collect())
}
