//! SHOW STATEMENTS: the statistics of statements, without the values in their texts.

use crate::{
    admin::Admin,
    console::{Cell, Collection, Column, Kind, Table},
    statement_statistics::StatementRow,
};

use Kind::{Int8, Text};

const COLUMNS: [Column; 16] = [
    ("database", Text),
    ("user", Text),
    ("fingerprint", Text),
    ("calls", Int8),
    ("errors", Int8),
    ("rows", Int8),
    ("server_us", Int8),
    ("max_server_us", Int8),
    ("p95_server_us", Int8),
    ("wait_us", Int8),
    ("max_wait_us", Int8),
    ("received_bytes", Int8),
    ("sent_bytes", Int8),
    ("pins", Int8),
    ("inspections", Int8),
    ("statement", Text),
];

/// Adds one worker's statements.
pub(in crate::admin) fn add(admin: &mut Admin<'_>, collection: &mut Collection) {
    let most = admin.env.snapshot.config.settings.statement_statistics;
    admin.pools.statements.set_limit(most);
    collection.statements.add(&admin.pools.statements);
}

/// Returns the table. The statements on which servers have spent most time come first.
pub(super) fn table(collection: &Collection) -> Table {
    let (rows, _) = collection.statements.slowest(usize::MAX);
    (COLUMNS.into(), rows.iter().map(row).collect())
}

fn row(row: &StatementRow) -> Vec<Cell> {
    let counts = &row.counts;
    vec![
        (*row.pool.database).into(),
        (*row.pool.user).into(),
        format!("{:016x}", row.fingerprint).into(),
        counts.calls.into(),
        counts.errors.into(),
        counts.rows.into(),
        counts.server.sum().into(),
        counts.max_server.into(),
        counts.p95().into(),
        counts.wait.into(),
        counts.max_wait.into(),
        counts.received.into(),
        counts.sent.into(),
        counts.pins.into(),
        counts.inspections.into(),
        (*row.text).into(),
    ]
}
