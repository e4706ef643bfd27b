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
}
