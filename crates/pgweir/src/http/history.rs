//! Samples of each pool over the last minutes, for the plots of the live page.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use pgweir_core::{
    base::stats::{Distribution, Histogram, Percentiles},
    console::{Cell, Table},
    metrics::{Metrics, PoolMetrics},
};
use serde_json::{Value, json};

/// The time span of the samples.
const SPAN: Duration = Duration::from_secs(15 * 60);

/// A pool's name: database and user.
type Key = (Box<str>, Box<str>);

/// A pool's counts at one time, and its work since the sample before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sample {
    /// The values of [`COUNTS`].
    counts: [u64; COUNTS.len()],
    /// Transactions a second.
    rate: f64,
    wait: Option<Percentiles>,
    transaction: Option<Percentiles>,
}

/// Columns of SHOW POOLS, and their names in samples.
const COUNTS: [(&str, &str); 5] = [
    ("cl_active", "clients_active"),
    ("cl_waiting", "clients_waiting"),
    ("sv_active", "servers_active"),
    ("sv_idle", "servers_idle"),
    ("maxwait", "longest_wait_s"),
];

/// The counters of a pool at the time of a sample.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    transactions: u64,
    wait: Histogram,
    transaction: Histogram,
}

/// The samples of one pool: one for each of the times.
#[derive(Debug)]
struct Series {
    samples: VecDeque<Option<(Sample, u64)>>,
    before: Option<Totals>,
}

/// The samples of all pools.
#[derive(Debug, Default)]
pub(super) struct History {
    interval: Duration,
    pools_max: usize,
    /// The times of the samples, in microseconds since 1970.
    times: VecDeque<u64>,
    pools: BTreeMap<Key, Series>,
    /// The pools of the last sample that have no series.
    left_out: u64,
}

impl History {
    /// Sets the time between two samples (zero: none are taken), and the largest number of pools with samples.
    pub(super) fn configure(&mut self, interval: Duration, pools_max: usize) {
        if interval != self.interval {
            self.clear();
        }
        self.interval = interval;
        self.pools_max = pools_max;
    }

    /// Forgets all samples.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.pools.clear();
        self.left_out = 0;
    }

    /// Returns whether it is time for a sample.
    pub(super) fn is_due(&self, now: u64) -> bool {
        let interval = micros(self.interval);
        let last = self.times.back();
        interval > 0
            && last.is_none_or(|last| now.saturating_sub(*last) + interval / 10 >= interval)
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, metrics: &Metrics, now: u64) {
        let passed = self
            .times
            .back()
            .map_or(0, |last| now.saturating_sub(*last));
        self.times.push_back(now);
        for series in self.pools.values_mut() {
            series.samples.push_back(None);
        }
        let rows = counts(&metrics.pools);
        self.left_out = 0;
        for pool in &metrics.pool_metrics {
            let key = (pool.database.clone(), pool.user.clone());
            let Some(counts) = rows.get(&(&*pool.database, &*pool.user)) else {
                continue;
            };
            if !self.pools.contains_key(&key) && !self.make_room() {
                self.left_out += 1;
                continue;
            }
            let len = self.times.len();
            let series = self.pools.entry(key).or_insert_with(|| Series {
                samples: std::iter::repeat_n(None, len).collect(),
                before: None,
            });
            series.set(*counts, pool, passed);
        }
        self.forget(now);
    }

    /// Makes room for one more pool: removes the series of a pool that does not exist any more.
    fn make_room(&mut self) -> bool {
        if self.pools.len() < self.pools_max {
            return true;
        }
        let is_gone = |series: &Series| series.samples.iter().rev().take(2).all(Option::is_none);
        let gone = self.pools.iter().find(|(_, series)| is_gone(series));
        let gone = gone.map(|(key, _)| key.clone());
        gone.is_some_and(|key| self.pools.remove(&key).is_some())
    }

    fn forget(&mut self, now: u64) {
        let is_old = |at: &u64| now.saturating_sub(*at) > micros(SPAN);
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
            for series in self.pools.values_mut() {
                series.samples.pop_front();
            }
        }
        self.pools
            .retain(|_, series| series.samples.iter().any(Option::is_some));
    }

    /// Returns the number of pools that have no samples, since there are too many.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the samples after a time in milliseconds, as arrays: one for each value of a pool.
    pub(super) fn json(&self, since_ms: u64) -> Value {
        let from = self.times.partition_point(|at| at / 1000 <= since_ms);
        let times: Vec<u64> = self.times.range(from..).map(|at| at / 1000).collect();
        let pools = self.pools.iter().map(|((database, user), series)| {
            let mut pool = series.json(from);
            pool["database"] = (&**database).into();
            pool["user"] = (&**user).into();
            pool
        });
        let pools: Vec<Value> = pools.collect();
        json!({
            "interval_ms": u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            "times": times,
            "pools": pools,
            "left_out": self.left_out,
        })
    }
}

impl Series {
    fn set(&mut self, counts: [u64; COUNTS.len()], pool: &PoolMetrics, passed: u64) {
        let now = Totals {
            transactions: pool.stats.xact_count,
            wait: pool.times.wait,
            transaction: pool.times.transaction,
        };
        let before = self.before.replace(now);
        let mut sample = Sample {
            counts,
            ..Sample::default()
        };
        if let Some(before) = before.filter(|_| passed > 0) {
            let done = now.transactions.saturating_sub(before.transactions);
            sample.rate = done as f64 * 1e6 / passed as f64;
            sample.wait = percentiles(&before.wait, &now.wait);
            sample.transaction = percentiles(&before.transaction, &now.transaction);
        }
        if let Some(last) = self.samples.back_mut() {
            *last = Some((sample, pool.pinned));
        }
    }

    fn json(&self, from: usize) -> Value {
        let column = |value: &dyn Fn(&Sample, u64) -> Value| -> Value {
            let values = self.samples.range(from..).map(|sample| match sample {
                Some((sample, pinned)) => value(sample, *pinned),
                None => Value::Null,
            });
            values.collect()
        };
        let mut pool = json!({
            "clients_pinned": column(&|_, pinned| pinned.into()),
            "transactions_per_s": column(&|sample, _| ((sample.rate * 10.0).round() / 10.0).into()),
        });
        for (at, (_, name)) in COUNTS.iter().enumerate() {
            pool[*name] = column(&|sample, _| sample.counts[at].into());
        }
        for (at, percent) in ["p50", "p95", "p99"].into_iter().enumerate() {
            let of =
                |times: Option<Percentiles>| times.map_or(Value::Null, |times| times[at].into());
            pool[format!("wait_{percent}_us")] = column(&|sample, _| of(sample.wait));
            pool[format!("transaction_{percent}_us")] = column(&|sample, _| of(sample.transaction));
        }
        pool
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the counts of each pool in SHOW POOLS.
fn counts(table: &Table) -> BTreeMap<(&str, &str), [u64; COUNTS.len()]> {
    let (columns, rows) = table;
    let at = |name: &str| columns.iter().position(|(column, _)| *column == name);
    let places = COUNTS.map(|(name, _)| at(name));
    let number = |row: &[Cell], at: Option<usize>| match at.and_then(|at| row.get(at)) {
        Some(Cell::Int(number)) => *number,
        _ => 0,
    };
    let named = rows.iter().filter_map(|row| match row.as_slice() {
        [Cell::Text(database), Cell::Text(user), ..] => {
            Some(((&**database, &**user), places.map(|at| number(row, at))))
        }
        _ => None,
    });
    named.collect()
}

/// Returns the percentiles of the observations between two states of a histogram; `None` if there were none.
fn percentiles(before: &Histogram, now: &Histogram) -> Option<Percentiles> {
    let of = |histogram: &Histogram| Distribution::of(histogram);
    of(now).since(&of(before)).percentiles()
}

#[cfg(test)]
mod tests {
    use pgweir_core::{
        base::stats::{BUCKETS, Stats, Times, upper_bound},
        console::Kind,
        metrics::HostMetrics,
    };

    use super::*;

    fn metrics(pools: &[(&str, u64)]) -> Metrics {
        let none = || (Vec::new(), Vec::new());
        let columns = vec![
            ("database", Kind::Text),
            ("user", Kind::Text),
            ("cl_waiting", Kind::Int4),
        ];
        let rows = pools
            .iter()
            .map(|(name, count)| vec![(*name).into(), "ann".into(), (*count).into()]);
        let of_pool = |(name, count): &(&str, u64)| {
            let mut times = Times::default();
            for _ in 0..*count {
                times.wait.observe(100);
            }
            PoolMetrics {
                database: (*name).into(),
                user: "ann".into(),
                stats: Stats {
                    xact_count: *count,
                    ..Stats::default()
                },
                times,
                pinned: 1,
                pins: Vec::new(),
            }
        };
        Metrics {
            statements: pgweir_core::metrics::StatementMetrics::default(),
            version: "",
            databases: none(),
            pools: (columns, rows.collect()),
            stats: none(),
            lists: none(),
            memory: pgweir_core::metrics::MemoryMetrics {
                table: none(),
                limit: 0,
                is_full: false,
                refusals: Default::default(),
            },
            clients: Vec::new(),
            pool_metrics: pools.iter().map(of_pool).collect(),
            servers: Vec::new(),
            hosts: HostMetrics::default(),
            logins: Default::default(),
            workers: 1,
            is_paused: false,
            is_suspended: false,
            events: (0, 0),
        }
    }

    fn history(pools_max: usize) -> History {
        let mut history = History::default();
        history.configure(Duration::from_secs(5), pools_max);
        history
    }

    const SECOND: u64 = 1_000_000;

    #[test]
    fn rates_and_times_are_of_the_interval() {
        let mut history = history(10);
        assert!(history.is_due(SECOND));
        history.add(&metrics(&[("app", 10)]), SECOND);
        assert!(!history.is_due(5 * SECOND) && history.is_due(6 * SECOND));
        history.add(&metrics(&[("app", 60)]), 6 * SECOND);
        let all = history.json(0);
        assert_eq!(all["times"], json!([1000, 6000]));
        let pool = &all["pools"][0];
        assert_eq!(pool["database"], "app");
        assert_eq!(pool["clients_waiting"], json!([10, 60]));
        assert_eq!(pool["clients_pinned"], json!([1, 1]));
        assert_eq!(pool["transactions_per_s"], json!([0.0, 10.0]));
        assert_eq!(pool["wait_p50_us"][0], Value::Null);
        let median = pool["wait_p50_us"][1].as_u64().expect("a time");
        assert!((64..=128).contains(&median), "{median}");
        assert_eq!(pool["transaction_p99_us"], json!([null, null]));
        let later = history.json(1000);
        assert_eq!(later["times"], json!([6000]));
        assert_eq!(later["pools"][0]["clients_waiting"], json!([60]));
    }

    #[test]
    fn pools_and_time_are_bounded() {
        let mut history = history(1);
        history.add(&metrics(&[("a", 1), ("b", 1)]), SECOND);
        assert_eq!(history.json(0)["left_out"], 1);
        // The first pool is gone. After two samples, another pool takes its place.
        for second in [6, 11] {
            history.add(&metrics(&[("b", 1)]), second * SECOND);
        }
        let all = history.json(0);
        assert_eq!(
            (&all["left_out"], &all["pools"][0]["database"]),
            (&json!(0), &json!("b"))
        );
        assert_eq!(all["pools"][0]["clients_waiting"], json!([null, null, 1]));
        for sample in 0..1000 {
            history.add(&metrics(&[("b", 1)]), (20 + 5 * sample) * SECOND);
        }
        let all = history.json(0);
        let times = all["times"].as_array().expect("times");
        assert_eq!(times.len(), 181);
        assert_eq!(
            all["pools"][0]["clients_waiting"].as_array().map(Vec::len),
            Some(181)
        );
    }

    #[test]
    fn percentiles_lie_in_their_buckets() {
        let mut now = Histogram::default();
        assert_eq!(percentiles(&now, &now), None);
        for _ in 0..98 {
            now.observe(100);
        }
        let before = now;
        now.observe(1000);
        now.observe(u64::MAX / 2);
        let [median, _, last] = percentiles(&Histogram::default(), &now).expect("times");
        assert!((64..=128).contains(&median));
        assert!((512..=1024).contains(&last), "{last}");
        let [_, _, last] = percentiles(&before, &now).expect("times");
        assert_eq!(last, upper_bound(BUCKETS - 1));
    }
}
