//! SHOW FDS, without the columns that PgBouncer fills for its online restart: cancel keys, passwords and SCRAM keys are
//! never shown, and the descriptors belong to the driver.

use super::connections::end;
use crate::{
    Address,
    admin::Admin,
    connections::Conn,
    console::{Cell, Collection, Column, Kind, Table},
    frontend::ClientDuty,
    session::Tracked,
};

use Kind::{Bytea, Int4, Int8, Text};

const COLUMNS: [Column; 15] = [
    ("fd", Int4),
    ("task", Text),
    ("user", Text),
    ("database", Text),
    ("addr", Text),
    ("port", Int4),
    ("cancel", Int8),
    ("link", Int4),
    ("client_encoding", Text),
    ("std_strings", Text),
    ("datestyle", Text),
    ("timezone", Text),
    ("password", Text),
    ("scram_client_key", Bytea),
    ("scram_server_key", Bytea),
];

pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection) {
    for (_, conn) in admin.connections.iter() {
        let (id, task, names, address, port, tracked) = match conn {
            Conn::Client(client) => {
                if matches!(*client.duty(), ClientDuty::Console(_)) {
                    continue;
                }
                let names = client.names().map(|names| &**names);
                let at = (client.origin.remote, client.origin.port);
                (
                    client.origin.id,
                    "client",
                    names,
                    at.0,
                    at.1,
                    &client.tracked,
                )
            }
            Conn::Server(server) => {
                let remote = server
                    .link
                    .addresses()
                    .map_or(Address::Unix, |(_, remote)| remote);
                let key = Some(&server.shared.key);
                (server.id(), "server", key, remote, 0, &server.tracked)
            }
            Conn::Cancel(_) => continue,
        };
        let mut row: Vec<Cell> = vec![Cell::Null, task.into()];
        row.push(names.map(|names| &*names.user).into());
        row.push(names.map(|names| &*names.database).into());
        row.extend(end(address, port));
        row.extend([Cell::Null, Cell::Null]);
        let names = admin.env.directory.names();
        let value = |tracked: &Tracked, name: &str| -> Cell {
            let mut pairs = names.pairs(tracked);
            let found = pairs.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                .into()
        };
        row.push(value(tracked, "client_encoding"));
        row.push(value(tracked, "standard_conforming_strings"));
        row.push(value(tracked, "DateStyle"));
        row.push(value(tracked, "TimeZone"));
        row.extend([Cell::Null, Cell::Null, Cell::Null]);
        collection.rows.push((id, row));
    }
}

pub(super) fn table(mut collection: Collection) -> Table {
    collection.rows.sort_by_key(|(id, _)| *id);
    let rows = collection.rows.into_iter().map(|(_, row)| row);
    (COLUMNS.into(), rows.collect())
}
