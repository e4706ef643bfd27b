//! SHOW BANS: failed logins by address and user.

use crate::{
    Time,
    admin::Admin,
    console::{Cell, Column, Kind, Table, date},
    shared::bans::BanTerms,
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 7] = [
    ("address", Text),
    ("user", Text),
    ("state", Text),
    ("failures", Int4),
    ("first_failure", Text),
    ("last_failure", Text),
    ("ends_in", Int8),
];

/// Returns the table; it is empty while failures are not counted.
pub(super) fn table(admin: &Admin<'_>, now: Time) -> Table {
    let terms = BanTerms::of(&admin.env.snapshot.config.settings);
    let entries = terms.map_or_else(Vec::new, |terms| {
        admin.env.directory.bans().list(&terms, now)
    });
    let rows = entries.into_iter().map(|entry| {
        let state = if entry.until.is_some() {
            "banned"
        } else {
            "counted"
        };
        let ends_in = entry
            .until
            .map(|until| until.since(now).div_ceil(1_000_000));
        vec![
            entry.address.to_string().into(),
            (*entry.user).into(),
            state.into(),
            entry.failures.into(),
            date(entry.first),
            date(entry.last),
            ends_in.map_or(Cell::Null, Cell::Int),
        ]
    });
    (COLUMNS.into(), rows.collect())
}
