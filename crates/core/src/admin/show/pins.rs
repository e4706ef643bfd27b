//! SHOW PINS and SHOW PIN_STATS: clients that keep their servers between transactions.

use crate::{
    Time,
    admin::Admin,
    backend::Server,
    base::pin::{Pin, Pins},
    connections::Conn,
    console::{Cell, Collection, Column, Kind, Table, date},
    frontend::Client,
    loan::pins_of,
};

use Kind::{Int4, Int8, Text};

const PIN_COLUMNS: [Column; 11] = [
    ("database", Text),
    ("user", Text),
    ("client_id", Int4),
    ("server_id", Int4),
    ("remote_pid", Int4),
    ("reason", Text),
    ("pinned_since", Text),
    ("duration_us", Int8),
    ("idle_us", Int8),
    ("fingerprint", Text),
    ("statement", Text),
];

const STATS_COLUMNS: [Column; 5] = [
    ("database", Text),
    ("user", Text),
    ("reason", Text),
    ("total_pins", Int8),
    ("pinned", Int4),
];

pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection, now: Time) {
    for pool in admin.pools.iter() {
        let key = pool.shared.key.clone();
        let counts = collection.pins.entry(key).or_default();
        for (pin, count) in pool.pin_counts() {
            counts.total[pin as usize] += count;
        }
    }
    for (_, conn) in admin.connections.iter() {
        let Conn::Server(server) = conn else { continue };
        let client = admin.connections.client_of(server);
        let Some((client, pins)) = client.and_then(|client| Some((client, pins_of(client)?)))
        else {
            continue;
        };
        let key = server.shared.key.clone();
        let counts = collection.pins.entry(key).or_default();
        for pin in pins.iter() {
            counts.present[pin as usize] += 1;
        }
        let row = row(client, server, pins, now);
        collection.rows.push((client.origin.id, row));
    }
}

fn row(client: &Client, server: &Server, pins: Pins, now: Time) -> Vec<Cell> {
    let key = &server.shared.key;
    let context = client.context.as_ref();
    let since = context.and_then(|context| context.pinned_at);
    let by = context.and_then(|context| context.pinned_by.as_ref());
    let is_idle = server.replies.is_settled() && server.is_outside_transaction();
    let idle = if is_idle {
        now.since(client.request.sent_at())
    } else {
        0
    };
    vec![
        (*key.database).into(),
        client
            .names()
            .map_or("".into(), |names| (*names.user).into()),
        client.origin.id.into(),
        server.id().into(),
        server.link.pid().into(),
        pins.to_string().into(),
        since.map_or(Cell::Null, date),
        since.map_or(0, |since| now.since(since)).into(),
        idle.into(),
        by.map(|by| by.to_string()).into(),
        by.map(|by| by.text.to_string()).into(),
    ]
}

pub(super) fn pins(mut collection: Collection) -> Table {
    collection.rows.sort_by_key(|(id, _)| *id);
    let rows = collection.rows.into_iter().map(|(_, row)| row);
    (PIN_COLUMNS.into(), rows.collect())
}

/// Returns the table of SHOW PIN_STATS. Reasons that never occurred in a pool are left out.
pub(super) fn stats(collection: &Collection) -> Table {
    let rows = collection.pins.iter().flat_map(|(key, counts)| {
        Pin::ALL.into_iter().filter_map(move |pin| {
            let (total, present) = (counts.total[pin as usize], counts.present[pin as usize]);
            let row = vec![
                (*key.database).into(),
                (*key.user).into(),
                pin.name().into(),
                total.into(),
                present.into(),
            ];
            (total > 0 || present > 0).then_some(row)
        })
    });
    (STATS_COLUMNS.into(), rows.collect())
}
