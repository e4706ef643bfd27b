//! Throughput and times of each pool, from the counters of consecutive samples, and their values over the last
//! minutes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pgweir_core::base::stats::{Distribution, Percentiles};

use super::{
    sample::Sample,
    table::{Row, Table},
};

/// The age up to which figures are kept, in microseconds.
const SPAN: u64 = 15 * 60 * 1_000_000;
/// The largest number of samples that are kept.
const SAMPLES_MAX: usize = 1_000;
/// The largest number of pools whose earlier figures are kept; those of the first pools by name.
const POOLS_MAX: usize = 200;

/// A pool's name: database and user.
pub(super) type PoolName = (String, String);

/// The duration of the events between two samples, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duration {
    /// Nothing happened, or the console does not say.
    Unknown,
    /// The mean, from a console without percentiles.
    Mean(u64),
    Percentiles(Percentiles),
}

/// The figures of a pool between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Transactions a second.
    pub(super) rate: Option<f64>,
    pub(super) wait: Duration,
    pub(super) transaction: Duration,
    /// Clients that wait.
    pub(super) waiting: u64,
    /// Servers in use.
    pub(super) in_use: u64,
    /// Pinned clients.
    pub(super) pinned: u64,
}

/// Counters of a pool, or of a database.
#[derive(Debug, Clone, Copy)]
struct Counters {
    transactions: u64,
    wait: Times,
    transaction: Times,
}

#[derive(Debug, Clone, Copy)]
enum Times {
    Sum(u64),
    Distribution(Distribution),
}

/// The figures of all pools over the last minutes.
#[derive(Debug, Default)]
pub(super) struct History {
    at: VecDeque<u64>,
    /// As many figures as there are times.
    pools: BTreeMap<PoolName, VecDeque<Option<Figures>>>,
    /// The sum over all pools and databases.
    total: VecDeque<Option<f64>>,
    before: BTreeMap<PoolName, Counters>,
}

impl Duration {
    /// The value to plot and to sort by: the 95th percentile, or the mean.
    pub(super) fn high(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Mean(mean) => Some(mean),
            Self::Percentiles([_, p95, _]) => Some(p95),
        }
    }
}

impl History {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: &Sample) {
        let last = self.at.back().copied();
        let passed = last.map_or(0, |last| sample.at.saturating_sub(last));
        let counters = counters(sample);
        let difference = |name: &PoolName| {
            let (now, before) = (counters.get(name)?, self.before.get(name)?);
            (passed > 0 && now.transactions >= before.transactions).then_some((*now, *before))
        };
        let mut seen = BTreeMap::new();
        for row in sample.rows("POOLS") {
            let name = pool_name(row);
            let mut figures = counts(sample, row, &name);
            if let Some((now, before)) = difference(&source(sample, &name)) {
                figures.rate = Some(per_second(now, before, passed));
                figures.wait = duration(now, before, |counters| counters.wait);
                figures.transaction = duration(now, before, |counters| counters.transaction);
            }
            seen.insert(name, figures);
        }
        let rates = counters.keys().filter_map(&difference);
        let total = rates.map(|(now, before)| per_second(now, before, passed));
        let total = (last.is_some() && !counters.is_empty())
            .then(|| total.fold(0.0, |sum, rate| sum + rate));
        self.at.push_back(sample.at);
        self.total.push_back(total);
        self.push(&seen);
        self.before = counters;
        self.forget(sample.at);
    }

    fn push(&mut self, seen: &BTreeMap<PoolName, Figures>) {
        for name in seen.keys() {
            if self.pools.len() < POOLS_MAX && !self.pools.contains_key(name) {
                let gap = std::iter::repeat_n(None, self.at.len() - 1);
                self.pools.insert(name.clone(), gap.collect());
            }
        }
        for (name, figures) in &mut self.pools {
            figures.push_back(seen.get(name).copied());
        }
    }

    fn forget(&mut self, now: u64) {
        while self.at.len() > SAMPLES_MAX
            || self
                .at
                .front()
                .is_some_and(|at| now.saturating_sub(*at) > SPAN)
        {
            self.at.pop_front();
            self.total.pop_front();
            for figures in self.pools.values_mut() {
                figures.pop_front();
            }
        }
        self.pools
            .retain(|_, figures| figures.iter().any(Option::is_some));
    }

    /// Forgets the counters: they begin at 0 again, or at those of another process.
    pub(super) fn interrupt(&mut self) {
        self.before.clear();
    }

    /// Returns the latest figures of a pool.
    pub(super) fn latest(&self, name: &PoolName) -> Option<&Figures> {
        self.pools.get(name)?.back()?.as_ref()
    }

    /// Returns one value of a pool over time, oldest first.
    pub(super) fn values_over_time(
        &self,
        name: &PoolName,
        value: impl Fn(&Figures) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let figures = self.pools.get(name).into_iter().flatten();
        figures.map(|figures| value(figures.as_ref()?)).collect()
    }

    /// Returns the transactions a second of all pools over time, oldest first.
    pub(super) fn total(&self) -> Vec<Option<f64>> {
        self.total.iter().copied().collect()
    }
}

pub(super) fn pool_name(row: Row<'_>) -> PoolName {
    (row.text("database").to_owned(), row.text("user").to_owned())
}

fn counts(sample: &Sample, row: Row<'_>, name: &PoolName) -> Figures {
    let pinned = sample.rows_of("PINS", (&name.0, &name.1)).count();
    Figures {
        rate: None,
        wait: Duration::Unknown,
        transaction: Duration::Unknown,
        waiting: row.count("cl_waiting"),
        in_use: row.count("sv_active"),
        pinned: pinned as u64,
    }
}

/// Returns the name under which a pool's counters are kept. PgBouncer counts per database: where a database has one
/// pool, the counters are this pool's.
fn source(sample: &Sample, name: &PoolName) -> PoolName {
    if sample.table("TIMES").is_some() {
        return name.clone();
    }
    let pools = sample
        .rows("POOLS")
        .filter(|row| row.text("database") == name.0);
    let user = if pools.count() == 1 { "" } else { "?" };
    (name.0.clone(), user.to_owned())
}

fn counters(sample: &Sample) -> BTreeMap<PoolName, Counters> {
    let of_pool = |row: Row<'_>| {
        let distribution = |column: &str| Distribution::parse(row.text(column)).unwrap_or_default();
        Counters {
            transactions: row.count("total_xact_count"),
            wait: Times::Distribution(distribution("wait_counts")),
            transaction: Times::Distribution(distribution("xact_counts")),
        }
    };
    let of_database = |row: Row<'_>| Counters {
        transactions: row.count("total_xact_count"),
        wait: Times::Sum(row.count("total_wait_time")),
        transaction: Times::Sum(row.count("total_xact_time")),
    };
    let has_pools = sample
        .table("TIMES")
        .is_some_and(|times| times.has("wait_counts"));
    let (table, of): (_, &dyn Fn(Row<'_>) -> Counters) = match has_pools {
        true => ("TIMES", &of_pool),
        false => ("STATS", &of_database),
    };
    sample
        .rows(table)
        .map(|row| (pool_name(row), of(row)))
        .collect()
}

fn per_second(now: Counters, before: Counters, passed: u64) -> f64 {
    (now.transactions - before.transactions) as f64 * 1e6 / passed as f64
}

fn duration(now: Counters, before: Counters, of: impl Fn(Counters) -> Times) -> Duration {
    match (of(now), of(before)) {
        (Times::Distribution(now), Times::Distribution(before)) => {
            let percentiles = now.since(&before).percentiles();
            percentiles.map_or(Duration::Unknown, Duration::Percentiles)
        }
        (Times::Sum(last), Times::Sum(first)) => {
            let sum = last.saturating_sub(first);
            let count = now.transactions - before.transactions;
            sum.checked_div(count)
                .map_or(Duration::Unknown, Duration::Mean)
        }
        _ => Duration::Unknown,
    }
}

/// Returns the names of all databases in a table.
pub(super) fn databases(table: &Table) -> BTreeSet<&str> {
    table.iter().map(|row| row.text("database")).collect()
}
