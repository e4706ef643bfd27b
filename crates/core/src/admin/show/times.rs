//! SHOW TIMES: how long clients waited for a server connection, and how long transactions and queries lasted.

use crate::{
    admin::Admin,
    base::stats::{Distribution, Histogram, Stats},
    console::{Cell, Collection, Column, Kind, Table},
};

use Kind::{Int8, Text};

const COLUMNS: [Column; 16] = [
    ("database", Text),
    ("user", Text),
    ("total_xact_count", Int8),
    ("total_query_count", Int8),
    ("wait_p50_us", Int8),
    ("wait_p95_us", Int8),
    ("wait_p99_us", Int8),
    ("xact_p50_us", Int8),
    ("xact_p95_us", Int8),
    ("xact_p99_us", Int8),
    ("query_p50_us", Int8),
    ("query_p95_us", Int8),
    ("query_p99_us", Int8),
    ("wait_counts", Text),
    ("xact_counts", Text),
    ("query_counts", Text),
];

/// Adds one worker's part.
pub(super) fn add(admin: &Admin<'_>, collection: &mut Collection) {
    for pool in admin.pools.iter() {
        let times = collection.times.entry(pool.shared.key.clone());
        *times.or_default() += pool.times;
    }
}

/// Returns the table. Times and counts are those since the pool was created.
pub(super) fn table(admin: &Admin<'_>, mut collection: Collection) -> Table {
    for pool in admin.env.directory.pools() {
        if let Some(times) = collection.times.get_mut(&pool.key) {
            *times += pool.past_times();
        }
    }
    let rows = collection.times.iter().map(|(key, times)| {
        let mut total = Stats::default();
        if let Some(count) = collection.pools.get(key) {
            total += count.stats.total;
            total += count.past;
        }
        let mut row: Vec<Cell> = vec![
            (*key.database).into(),
            (*key.user).into(),
            total.xact_count.into(),
            total.query_count.into(),
        ];
        let histograms = [&times.wait, &times.transaction, &times.query];
        row.extend(histograms.into_iter().flat_map(percentiles));
        row.extend(histograms.map(|histogram| Distribution::of(histogram).to_text().into()));
        row
    });
    (COLUMNS.into(), rows.collect())
}

fn percentiles(histogram: &Histogram) -> [Cell; 3] {
    match Distribution::of(histogram).percentiles() {
        Some(percentiles) => percentiles.map(Cell::from),
        None => [const { Cell::Null }; 3],
    }
}
