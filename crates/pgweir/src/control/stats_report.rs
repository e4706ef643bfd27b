//! The line of `log_stats`: the counts of all workers since the last line.

use pgweir_config::Settings;
use pgweir_core::{Stats, Time};

use super::supervisor::stats_period_us;

/// The sums that are being collected, and those of the last line.
#[derive(Debug)]
pub(crate) struct StatsReport {
    due: Time,
    /// The sums of the workers that have answered, and the number of workers that have not.
    gathering: Option<(Stats, usize)>,
    before: Stats,
    since: Time,
}

impl StatsReport {
    /// Creates the report. The first line is due after `period_us`.
    fn new(now: Time, period_us: u64) -> Self {
        Self {
            due: now.after(period_us),
            gathering: None,
            before: Stats::default(),
            since: now,
        }
    }

    /// Creates the report with the period of the settings.
    pub(crate) fn of(now: Time, settings: &Settings) -> Self {
        Self::new(now, stats_period_us(settings))
    }

    /// Returns when the workers have to be asked again.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// Records that `workers` workers are asked now. Missing answers to an earlier request will not arrive any more.
    pub(crate) fn ask(&mut self, workers: usize, now: Time, period_us: u64) {
        self.gathering = Some((Stats::default(), workers));
        // The lines have even distances, unless the last one was late by more than one period.
        let next = self.due.after(period_us);
        self.due = if next > now {
            next
        } else {
            now.after(period_us)
        };
    }

    /// Adds a worker's answer. Returns the line after the last answer.
    pub(crate) fn add(&mut self, stats: &Stats, now: Time) -> Option<String> {
        let (sum, missing) = self.gathering.as_mut()?;
        *sum += *stats;
        *missing = missing.saturating_sub(1);
        if *missing > 0 {
            return None;
        }
        let (sum, _) = self.gathering.take()?;
        let text = line(&(sum - self.before), now.since(self.since).max(1));
        self.before = sum;
        self.since = now;
        Some(text)
    }
}

/// Formats the line in PgBouncer's words: rates per second, and the average times of a transaction, query and wait.
fn line(stats: &Stats, elapsed_us: u64) -> String {
    let average = stats.averages(elapsed_us);
    format!(
        "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} binds/s, \
         in {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
        average.xact_count,
        average.query_count,
        average.client_parse_count,
        average.server_parse_count,
        average.bind_count,
        average.received,
        average.sent,
        average.xact_time,
        average.query_time,
        average.wait_time,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_of_the_time_since_the_last_one() {
        let second = 1_000_000;
        let mut report = StatsReport::new(Time(second), 10 * second);
        assert_eq!(report.due(), Time(11 * second));
        let worker = Stats {
            server_assignment_count: 15,
            xact_count: 15,
            query_count: 30,
            received: 1000,
            sent: 5000,
            xact_time: 3000,
            query_time: 1500,
            wait_time: 150,
            bind_count: 5,
            ..Stats::default()
        };
        assert_eq!(report.add(&worker, Time(0)), None, "nobody asked");
        report.ask(2, Time(11 * second), 10 * second);
        assert_eq!(report.add(&worker, Time(11 * second)), None);
        assert_eq!(
            report.add(&worker, Time(11 * second)).as_deref(),
            Some(
                "stats: 3 xacts/s, 6 queries/s, 0 client parses/s, 0 server parses/s, 1 binds/s, \
                 in 200 B/s, out 1000 B/s, xact 200 us, query 50 us, wait 10 us"
            )
        );
        assert_eq!(report.due(), Time(21 * second));
        report.ask(2, Time(40 * second), 10 * second);
        assert_eq!(report.due(), Time(50 * second));
        report.add(&worker, Time(40 * second));
        let idle = report.add(&worker, Time(40 * second)).expect("a line");
        assert!(idle.starts_with("stats: 0 xacts/s") && idle.ends_with("wait 0 us"));
    }
}
