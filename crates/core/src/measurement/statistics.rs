//! The statistics of a worker: the ends of their periods, and the counters that belong to no pool.
//!
//! This module owns the clock of the periods (`stats_period`), the counters of the console, and those of pools that
//! were removed. Input: the ticks of the worker, and the console's counts. Output: sums for SHOW and for metrics.

use pgweir_config::Settings;

use crate::{Stats, Time, base::stats::Periods, effect::Env, pooling::LocalPools};

/// The statistics of a worker, except those of its pools.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// The time at which counting began.
    began: Option<Time>,
    /// The number of the present period, counted from time zero.
    period: u64,
    period_ends: Time,
    console: Periods,
    removed_pools: Stats,
}

/// Returns the length of a period, in microseconds.
pub(crate) fn period(settings: &Settings) -> u64 {
    settings.stats_period.0.max(1)
}

impl Statistics {
    /// Ends a period if its time has come. Periods end at the same times on all workers, so that sums over workers
    /// cover the same span.
    pub(crate) fn turn(&mut self, env: &Env<'_>, pools: &mut LocalPools) {
        let length = period(&env.snapshot.config.settings);
        let present = env.now.0 / length;
        if self.began.is_none() {
            self.began = Some(env.now);
            self.period = present;
        }
        let ended = present.abs_diff(std::mem::replace(&mut self.period, present));
        self.console.turn(ended);
        for pool in pools.iter_mut() {
            pool.stats.turn(ended);
        }
        self.period_ends = Time((present + 1) * length);
    }

    /// Returns the time at which the present period ends.
    pub(crate) fn period_ends(&self) -> Time {
        self.period_ends
    }

    /// Returns the time at which counting began, unless no period has begun yet.
    pub(crate) fn began(&self) -> Option<Time> {
        self.began
    }

    /// Returns the counters of the console.
    pub(crate) fn console(&self) -> &Periods {
        &self.console
    }

    /// Returns the counters of the console, for counting an event.
    pub(crate) fn count_console(&mut self) -> &mut Stats {
        &mut self.console.now
    }

    /// Keeps the counters of a pool that is removed.
    pub(crate) fn add_removed_pool(&mut self, counted: Stats) {
        self.removed_pools += counted;
    }

    /// Returns the sum of the counters of pools that were removed.
    pub(crate) fn removed_pools(&self) -> Stats {
        self.removed_pools
    }

    /// Returns the sum of the counters of all pools.
    pub(crate) fn sum(&self, pools: &LocalPools) -> Stats {
        let mut sum = self.removed_pools;
        for pool in pools.iter() {
            sum += pool.stats.now;
        }
        sum
    }
}
