//! SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS.

use std::collections::BTreeMap;

use pgweir_config::RESERVED_DATABASES;

use crate::{
    Time,
    admin::Admin,
    base::stats::Stats,
    console::{Cell, Collection, Column, Counted, Kind, Table},
    measurement::statistics::period,
};

use Kind::{Numeric, Text};

/// The names of a counter of [`Stats`] in the tables.
struct Names {
    /// Columns of SHOW STATS: the total, and the average.
    stats: [&'static str; 2],
    /// Columns of SHOW STATS_TOTALS and of STATS_AVERAGES.
    plain: [&'static str; 2],
    /// Rows of SHOW TOTALS: the total, and the average.
    totals: [&'static str; 2],
}

/// Names in the order of [`Stats::values`].
const NAMES: [Names; 12] = [
    regular(
        [
            "total_server_assignment_count",
            "avg_server_assignment_count",
        ],
        "server_assignment_count",
    ),
    regular(["total_xact_count", "avg_xact_count"], "xact_count"),
    regular(["total_query_count", "avg_query_count"], "query_count"),
    Names {
        stats: ["total_received", "avg_recv"],
        plain: ["bytes_received", "bytes_received"],
        totals: ["total_client_bytes", "avg_client_bytes"],
    },
    Names {
        stats: ["total_sent", "avg_sent"],
        plain: ["bytes_sent", "bytes_sent"],
        totals: ["total_server_bytes", "avg_server_bytes"],
    },
    regular(["total_xact_time", "avg_xact_time"], "xact_time"),
    regular(["total_query_time", "avg_query_time"], "query_time"),
    regular(["total_wait_time", "avg_wait_time"], "wait_time"),
    Names {
        stats: ["total_client_parse_count", "avg_client_parse_count"],
        plain: ["client_parse_count", "avg_client_parse_count"],
        totals: ["total_ps_client_parse_count", "avg_ps_client_parse_count"],
    },
    Names {
        stats: ["total_server_parse_count", "avg_server_parse_count"],
        plain: ["server_parse_count", "avg_server_parse_count"],
        totals: ["total_ps_server_parse_count", "avg_ps_server_parse_count"],
    },
    Names {
        stats: ["total_bind_count", "avg_bind_count"],
        plain: ["bind_count", "avg_bind_count"],
        totals: ["total_ps_bind_count", "avg_ps_bind_count"],
    },
    Names {
        stats: ["total_client_login_count", "avg_client_login_count"],
        plain: ["client_login_count", "avg_client_login_count"],
        totals: ["total_client_login_count", "avg_client_login_count"],
    },
];

const fn regular(stats: [&'static str; 2], plain: &'static str) -> Names {
    Names {
        stats,
        plain: [plain, plain],
        totals: stats,
    }
}

pub(super) fn stats(admin: &Admin<'_>, collection: &Collection, now: Time) -> Table {
    let span = span(admin, collection, now);
    let mut columns = vec![("database", Text)];
    columns.extend(NAMES.map(|names| (names.stats[0], Numeric)));
    columns.extend(NAMES.map(|names| (names.stats[1], Numeric)));
    let rows = by_database(collection).into_iter().map(|(name, counted)| {
        let mut row: Vec<Cell> = vec![name.into()];
        row.extend(counted.total.values().into_iter().map(Cell::Int));
        row.extend(averages(&counted.recent, span));
        row
    });
    (columns, rows.collect())
}

pub(in crate::admin) fn totals_of_databases(collection: &Collection) -> Table {
    let rows = by_database(collection).into_iter().map(|(name, counted)| {
        let mut row: Vec<Cell> = vec![name.into()];
        row.extend(counted.total.values().into_iter().map(Cell::Int));
        row
    });
    (plain_columns(0), rows.collect())
}

pub(super) fn averages_of_databases(
    admin: &Admin<'_>,
    collection: &Collection,
    now: Time,
) -> Table {
    let span = span(admin, collection, now);
    let rows = by_database(collection).into_iter().map(|(name, counted)| {
        let mut row: Vec<Cell> = vec![name.into()];
        row.extend(averages(&counted.recent, span));
        row
    });
    (plain_columns(1), rows.collect())
}

pub(super) fn totals(admin: &Admin<'_>, collection: &Collection, now: Time) -> Table {
    let mut sum = collection.console;
    for pool in collection.pools.values() {
        sum += pool.stats;
    }
    sum.total += collection.past;
    let total = sum.total.values();
    let average = sum.recent.averages(span(admin, collection, now)).values();
    let row = |name: &'static str, value| vec![name.into(), Cell::Int(value)];
    let totals = NAMES.iter().zip(total);
    let averages = NAMES.iter().zip(average);
    let rows = totals
        .map(|(names, value)| row(names.totals[0], value))
        .chain(averages.map(|(names, value)| row(names.totals[1], value)));
    (vec![("name", Text), ("value", Numeric)], rows.collect())
}

fn plain_columns(which: usize) -> Vec<Column> {
    let mut columns = vec![("database", Text)];
    columns.extend(NAMES.map(|names| (names.plain[which], Numeric)));
    columns
}

fn by_database(collection: &Collection) -> BTreeMap<&str, Counted> {
    let mut by_database = BTreeMap::<&str, Counted>::new();
    for (key, count) in &collection.pools {
        let counted = by_database.entry(&key.database).or_default();
        *counted += count.stats;
        counted.total += count.past;
    }
    by_database.insert(RESERVED_DATABASES[0], collection.console);
    by_database
}

/// Returns the time over which the averages are taken, in microseconds: since the beginning of the last whole period,
/// or of the process; at least a second.
fn span(admin: &Admin<'_>, collection: &Collection, now: Time) -> u64 {
    let period = period(&admin.env.snapshot.config.settings);
    let begin = Time((now.0 / period).saturating_sub(1) * period);
    now.since(begin.max(collection.began)).max(1_000_000)
}

fn averages(recent: &Stats, span: u64) -> impl Iterator<Item = Cell> {
    recent.averages(span).values().into_iter().map(Cell::Int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_counters() {
        for (names, counter) in NAMES.iter().zip(Stats::NAMES) {
            assert_eq!(names.stats[0], format!("total_{counter}"));
        }
    }

    #[test]
    fn averages_are_per_second_or_per_piece() {
        let recent = Stats {
            server_assignment_count: 4,
            xact_count: 10,
            query_count: 30,
            received: 1_000,
            xact_time: 5_000,
            query_time: 6_000,
            wait_time: 80,
            ..Stats::default()
        };
        let found = recent.averages(2_000_000).values();
        assert_eq!(found, [2, 5, 15, 500, 0, 500, 200, 20, 0, 0, 0, 0]);
    }
}
