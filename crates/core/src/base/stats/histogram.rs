//! Histograms of times: fixed arrays of counters, so that an observation neither allocates nor locks.

use std::ops::AddAssign;

/// The number of buckets with an upper bound. One more bucket counts all longer times.
pub const BUCKETS: usize = 20;

/// The first bucket ends at 2^6 microseconds. Each further bucket ends at twice the time of the previous one.
const FIRST_BITS: u32 = 6;

/// Returns the upper bound of a bucket in microseconds. The bound itself belongs to the bucket.
#[must_use]
pub const fn upper_bound(bucket: usize) -> u64 {
    1 << (bucket as u32 + FIRST_BITS)
}

/// The distribution of observed times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Observations in each bucket, and last those above all upper bounds.
    buckets: [u64; BUCKETS + 1],
    /// The sum of all times, in microseconds.
    sum: u64,
}

impl Histogram {
    /// Adds one time, in microseconds.
    #[inline]
    pub fn observe(&mut self, micros: u64) {
        let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
        let bucket = bits.saturating_sub(FIRST_BITS) as usize;
        self.buckets[bucket.min(BUCKETS)] += 1;
        self.sum += micros;
    }

    /// Returns, for each bucket with an upper bound, the number of times up to that bound.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> {
        let bounded = self.buckets[..BUCKETS].iter();
        bounded.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    /// Returns the number of all observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all times, in microseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

/// Median, 95th and 99th percentile, in microseconds.
pub type Percentiles = [u64; 3];

/// The numbers of observations up to the upper bound of each bucket; the last number counts all observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distribution([u64; BUCKETS + 1]);

impl Distribution {
    /// Returns the distribution of all observations.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let mut cumulative = [histogram.count(); BUCKETS + 1];
        for (slot, count) in cumulative.iter_mut().zip(histogram.cumulative()) {
            *slot = count;
        }
        Self(cumulative)
    }

    /// Returns the distribution of the observations since an earlier distribution.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, before) in self.0.iter_mut().zip(before.0) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Returns the percentiles; `None` without an observation.
    #[must_use]
    pub fn percentiles(&self) -> Option<Percentiles> {
        (self.0[BUCKETS] > 0).then(|| [50, 95, 99].map(|percent| self.percentile(percent)))
    }

    /// Returns the time that this percentage of the observations does not exceed, if observations are spread evenly
    /// within a bucket.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.0[BUCKETS] * percent).div_ceil(100);
        let bucket = self.0.partition_point(|count| *count < wanted);
        if bucket >= BUCKETS {
            return upper_bound(BUCKETS - 1);
        }
        let (low, below) = match bucket {
            0 => (0, 0),
            _ => (upper_bound(bucket - 1), self.0[bucket - 1]),
        };
        let inside = self.0[bucket] - below;
        low + (upper_bound(bucket) - low) * (wanted - below) / inside.max(1)
    }

    /// Returns the counts, separated by blanks: [`Self::parse`] reads them.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.map(|count| count.to_string()).join(" ")
    }

    /// Reads what [`Self::to_text`] wrote; `None` if the text is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let counts: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
        counts.ok()?.try_into().ok().map(Self)
    }
}

/// The histograms of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The time that a client waited for a server connection, for each assignment.
    pub wait: Histogram,
    /// The time from a client's request to the end of the server's answer.
    pub query: Histogram,
    /// The duration of transactions.
    pub transaction: Histogram,
    /// The time from a client's connection to the end of its login.
    pub login: Histogram,
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.wait += other.wait;
        self.query += other.query;
        self.transaction += other.transaction;
        self.login += other.login;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (micros, bucket) in [
            (0, 0),
            (1, 0),
            (64, 0),
            (65, 1),
            (128, 1),
            (129, 2),
            (upper_bound(BUCKETS - 1), BUCKETS - 1),
            (upper_bound(BUCKETS - 1) + 1, BUCKETS),
            (u64::MAX / 2, BUCKETS),
        ] {
            let mut histogram = Histogram::default();
            histogram.observe(micros);
            let below: Vec<u64> = histogram.cumulative().collect();
            let expected: Vec<u64> = (0..BUCKETS).map(|at| u64::from(at >= bucket)).collect();
            assert_eq!(below, expected, "{micros}");
            assert_eq!((histogram.count(), histogram.sum()), (1, micros));
        }
    }

    #[test]
    fn sums_are_of_all_workers() {
        let mut one = Histogram::default();
        one.observe(100);
        let mut other = one;
        other.observe(1_000_000);
        one += other;
        assert_eq!((one.count(), one.sum()), (3, 1_000_200));
        assert_eq!(one.cumulative().nth(1), Some(2));
    }

    #[test]
    fn percentiles_of_what_was_observed_since() {
        let mut histogram = Histogram::default();
        for _ in 0..100 {
            histogram.observe(1_000_000);
        }
        let before = Distribution::of(&histogram);
        assert_eq!(before.since(&before).percentiles(), None);
        for micros in 1..=100 {
            histogram.observe(micros * 10);
        }
        let now = Distribution::of(&histogram).since(&before);
        let [median, p95, p99] = now.percentiles().expect("observations");
        assert!((400..=600).contains(&median), "{median}");
        assert!(p95 <= p99 && (850..=1024).contains(&p99), "{p95} {p99}");
        assert_eq!(Distribution::parse(&now.to_text()), Some(now));
        assert_eq!(Distribution::parse("1 2 3"), None);
        assert_eq!(Distribution::parse(""), None);
    }
}
