//! The statistics of all workers together.

use std::{collections::BTreeMap, sync::Arc};

use super::{Counts, StatementStatistics, entry::Entry};
use crate::{
    base::stats::{Histogram, upper_bound},
    pool::PoolKey,
};

/// The statistics of the workers that were visited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatementReport {
    rows: BTreeMap<(Arc<PoolKey>, u64), (Arc<str>, Counts)>,
    /// The number of entries in all workers.
    pub entries: usize,
    /// The bytes that the entries take.
    pub bytes: usize,
    /// The entries that were removed to make room for others.
    pub evicted: u64,
}

/// A statement of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementRow {
    /// The pool.
    pub pool: Arc<PoolKey>,
    /// The hash of the normalized text.
    pub fingerprint: u64,
    /// The beginning of the normalized text.
    pub text: Arc<str>,
    /// The counts of all workers.
    pub counts: Counts,
}

impl StatementReport {
    /// Adds the entries of one worker.
    pub fn add(&mut self, statistics: &StatementStatistics) {
        // A statement that was only prepared has cost nothing yet.
        let has_run = |entry: &&Entry| entry.counts.calls > 0 || entry.counts.errors > 0;
        for entry in statistics.present().filter(has_run) {
            let key = (Arc::clone(&entry.pool), entry.key.fingerprint);
            let (_, counts) = self
                .rows
                .entry(key)
                .or_insert_with(|| (Arc::clone(&entry.text), Counts::default()));
            *counts += entry.counts;
        }
    }

    /// Adds the numbers of entries of one worker.
    pub fn add_totals(&mut self, statistics: &StatementStatistics) {
        self.entries += statistics.entries();
        self.bytes += statistics.bytes();
        self.evicted += statistics.evicted();
    }

    /// Returns the statements on which servers have spent most time, at most so many, and how many others there are.
    #[must_use]
    pub fn slowest(&self, most: usize) -> (Vec<StatementRow>, usize) {
        let rows = self.rows.iter();
        let mut rows: Vec<StatementRow> = rows
            .map(|((pool, fingerprint), (text, counts))| StatementRow {
                pool: Arc::clone(pool),
                fingerprint: *fingerprint,
                text: Arc::clone(text),
                counts: *counts,
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.counts.server.sum(), row.counts.calls)));
        let others = rows.len().saturating_sub(most);
        rows.truncate(most);
        (rows, others)
    }
}

impl Counts {
    /// Returns a time that 95 % of the calls did not exceed, to a power of two; at most the longest time.
    #[must_use]
    pub fn p95(&self) -> u64 {
        let wanted = (self.server.count() * 95).div_ceil(100);
        let bucket = self.server.cumulative().position(|count| count >= wanted);
        bucket.map_or(self.max_server, |bucket| {
            upper_bound(bucket).min(self.max_server)
        })
    }

    /// Returns the distribution of the servers' times.
    #[must_use]
    pub fn server_times(&self) -> &Histogram {
        &self.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Time,
        statement_statistics::{Extent, RunningStatements, StatementPool},
    };

    #[test]
    fn workers_are_added_up() {
        let key = PoolKey {
            database: "app".into(),
            user: "ann".into(),
        };
        let mut report = StatementReport::default();
        for worker in 0..2 {
            let mut statistics = StatementStatistics::default();
            statistics.set_limit(5);
            // Pools are numbered per process, but a pool may have been removed and made again.
            let pool = StatementPool {
                number: worker,
                key: &key,
            };
            for (number, time) in [(1, 100), (2, 900), (3, 10)] {
                let id = statistics.statement(pool, number, || format!("SELECT {number}").into());
                let mut server = RunningStatements::default();
                server.sent(id, 0, Extent::Request, 0, Time(0));
                server.ready(1, true, Time(time), &mut statistics);
            }
            report.add(&statistics);
            report.add_totals(&statistics);
        }
        assert_eq!((report.entries, report.evicted), (6, 0));
        assert!(report.bytes >= 6 * "SELECT 1".len());
        let (rows, others) = report.slowest(2);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.fingerprint,
                    &*row.text,
                    row.counts.calls,
                    row.counts.server.sum(),
                )
            })
            .collect();
        assert_eq!(rows, [(2, "SELECT 2", 2, 1800), (1, "SELECT 1", 2, 200)]);
        assert_eq!(others, 1);
    }

    #[test]
    fn percentiles() {
        let mut counts = Counts::default();
        assert_eq!(counts.p95(), 0);
        for (time, times) in [(50, 90), (500, 8), (70_000, 2)] {
            for _ in 0..times {
                counts.server.observe(time);
            }
        }
        counts.max_server = 70_000;
        assert_eq!(counts.p95(), 512);
        counts.server.observe(u64::from(u32::MAX));
        counts.max_server = u64::from(u32::MAX);
        for _ in 0..100 {
            counts.server.observe(u64::from(u32::MAX));
        }
        assert_eq!(counts.p95(), u64::from(u32::MAX));
    }
}
