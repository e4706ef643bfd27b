//! SHOW EVENTS: the latest events of the process.

use crate::{
    admin::Admin,
    console::{Column, Kind, Table, date},
};

use Kind::{Int8, Text};

const COLUMNS: [Column; 10] = [
    ("id", Int8),
    ("time", Text),
    ("last_time", Text),
    ("count", Int8),
    ("severity", Text),
    ("kind", Text),
    ("database", Text),
    ("user", Text),
    ("event", Text),
    ("sources", Text),
];

/// Returns the table, oldest event first.
pub(super) fn table(admin: &Admin<'_>) -> Table {
    let most = admin.env.snapshot.config.settings.event_history as usize;
    let events = admin.env.directory.events().list(most);
    let rows = events.into_iter().map(|event| {
        vec![
            event.id.into(),
            date(event.first),
            date(event.last),
            event.count.into(),
            event.kind.severity().into(),
            event.kind.name().into(),
            (*event.database).into(),
            (*event.user).into(),
            (*event.text).into(),
            event.sources.describe(event.count).into(),
        ]
    });
    (COLUMNS.into(), rows.collect())
}
