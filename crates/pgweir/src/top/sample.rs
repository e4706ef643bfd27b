//! A sample: the console's tables at one time.

use std::collections::BTreeMap;

use super::table::{Row, Table};

/// The tables that each sample reads.
pub(super) const ALWAYS: [&str; 11] = [
    "STATE",
    "POOLS",
    "DATABASES",
    "STATS",
    "TIMES",
    "PINS",
    "WAITERS",
    "EVENTS",
    "STATEMENTS",
    "HOSTS",
    "FLEET",
];
/// The tables that a sample reads only while they are shown, since they have a row for each connection.
pub(super) const CONNECTIONS: [&str; 2] = ["CLIENTS", "SERVERS"];

/// Tables, and when they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// When, in microseconds since 1970.
    pub(super) at: u64,
    /// The text of SHOW VERSION.
    pub(super) version: String,
    /// Tables by their name after SHOW.
    pub(super) tables: BTreeMap<&'static str, Table>,
}

impl Sample {
    /// Returns a table, if the console has it.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    /// Returns the rows of a table; none if the console has no such table.
    pub(super) fn rows(&self, name: &str) -> impl Iterator<Item = Row<'_>> {
        self.table(name).into_iter().flat_map(Table::iter)
    }

    /// Returns the rows of a table that belong to a pool.
    pub(super) fn rows_of<'s>(
        &'s self,
        name: &str,
        (database, user): (&'s str, &'s str),
    ) -> impl Iterator<Item = Row<'s>> {
        self.rows(name)
            .filter(move |row| row.text("database") == database && row.text("user") == user)
    }
}
