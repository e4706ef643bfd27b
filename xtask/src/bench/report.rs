//! Tables, medians and targets.

use serde::Serialize;

use super::{
    measure::Figures,
    scenario::{Kind, Limit, OtherProxy, PGBOUNCER, Scenario, Target},
    subject::{Driver, Subject},
};
use crate::stage::Terminal;

/// The share of the CPU that other virtual machines take, above which timings are doubtful, in percent.
const STOLEN_PERCENT_MAX: f64 = 2.0;

/// All measurements of one subject in one scenario, by round.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Series {
    /// The subject.
    pub(super) subject: String,
    /// Threads of pgweir.
    pub(super) workers: Option<u32>,
    /// The driver of pgweir.
    pub(super) driver: Option<Driver>,
    /// The figures of each round, or its error.
    pub(super) rounds: Vec<Result<Figures, String>>,
}

impl Series {
    /// Creates the series of a subject, without measurements.
    pub(super) fn new(subject: &Subject) -> Self {
        Self {
            driver: subject.driver(),
            ..Self::named(&subject.name, subject.workers())
        }
    }

    /// Creates the series of a subject with this name, without measurements.
    pub(super) fn named(name: &str, workers: Option<u32>) -> Self {
        Self {
            subject: name.to_owned(),
            workers,
            driver: None,
            rounds: Vec::new(),
        }
    }

    /// Returns the lowest value of a figure over the rounds.
    pub(super) fn best(&self, key: &str) -> Option<f64> {
        self.values(key).into_iter().min_by(f64::total_cmp)
    }

    fn values(&self, key: &str) -> Vec<f64> {
        let figures = self.rounds.iter().flatten();
        figures.filter_map(|f| f.get(key).copied()).collect()
    }

    /// Returns the median of a figure over the rounds.
    pub(super) fn median(&self, key: &str) -> Option<f64> {
        median(self.values(key))
    }

    /// Returns the median over the rounds of the ratio to the baseline in the same round.
    pub(super) fn ratio(&self, baseline: &Self, key: &str) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&baseline.rounds);
        let ratios = pairs.filter_map(|(own, base)| {
            let (own, base) = (own.as_ref().ok()?, base.as_ref().ok()?);
            let (own, base) = (own.get(key)?, base.get(key)?);
            (*base > 0.0).then(|| own / base)
        });
        median(ratios.collect())
    }
}

/// Returns the value in the middle; of an even count, the mean of the two there.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    let lower = values.get(middle.checked_sub(1)?)?;
    Some((lower + values.get(middle)?) / 2.0)
}

/// A target and its result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Mark {
    /// The scenario.
    pub(super) scenario: &'static str,
    /// The subject.
    pub(super) subject: String,
    /// The figure.
    pub(super) figure: &'static str,
    /// The target.
    pub(super) aim: String,
    /// The measured figure; unset if the measurement failed.
    pub(super) value: Option<f64>,
    /// Whether the target is reached.
    pub(super) reached: bool,
}

fn baseline<'a>(scenario: &Scenario, all: &'a [Series]) -> Option<&'a Series> {
    let compared = scenario.other_proxy.subject();
    match scenario.other_proxy {
        OtherProxy::Preparing => named(all, PGBOUNCER).or_else(|| named(all, compared)),
        OtherProxy::PgBouncer | OtherProxy::Direct | OtherProxy::Nobody => named(all, compared),
    }
}

fn named<'a>(all: &'a [Series], subject: &str) -> Option<&'a Series> {
    all.iter().find(|series| series.subject == subject)
}

/// Compares every series of pgweir with the targets.
pub(super) fn marks(scenario: &Scenario, all: &[Series]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for series in all.iter().filter(|series| series.workers.is_some()) {
        let is_compared = |limit| match limit {
            Limit::Ratio(subject, _) => named(all, subject).is_some(),
            Limit::AtMost(_) | Limit::AtLeast(_) | Limit::All(_) => true,
        };
        let apply = |target: &&Target| {
            let is_of_driver = target
                .driver
                .is_none_or(|driver| series.driver == Some(driver));
            is_of_driver && is_compared(target.limit)
        };
        for target in scenario.targets.iter().filter(apply) {
            marks.push(mark(scenario, series, all, target));
        }
    }
    marks
}

fn mark(scenario: &Scenario, series: &Series, all: &[Series], target: &Target) -> Mark {
    let own = series.median(target.key);
    // Other rounds do not make up for a round that failed.
    let whole = series.rounds.iter().all(Result::is_ok);
    let (value, limit, aim) = match target.limit {
        Limit::Ratio(subject, limit) => {
            let compared = named(all, subject);
            let ratio = compared.and_then(|compared| series.ratio(compared, target.key));
            (ratio, Some(limit), format!("<= {limit} x {subject}"))
        }
        Limit::AtMost(limit) => (own, Some(limit), format!("<= {limit}")),
        Limit::AtLeast(limit) => (own, Some(limit), format!(">= {limit}")),
        Limit::All(wanted) => {
            let missing = series.median(wanted).zip(own).map(|(w, o)| w - o);
            (
                own,
                own.map(|own| own - missing.unwrap_or(1.0)),
                "all".to_owned(),
            )
        }
    };
    let reached = match value.zip(limit) {
        Some((value, limit)) if matches!(target.limit, Limit::AtLeast(_)) => {
            whole && value >= limit
        }
        Some((value, limit)) => whole && value <= limit,
        None => false,
    };
    Mark {
        scenario: scenario.name,
        subject: series.subject.clone(),
        figure: target.key,
        aim,
        value,
        reached,
    }
}

/// A column: key, heading, digits after the point.
type Column = (&'static str, &'static str, usize);

fn columns(kind: Kind) -> (&'static [Column], &'static [Column]) {
    match kind {
        Kind::Pgbench(_) => (
            &[
                ("tps", "tps", 0),
                ("lat_ms", "mean ms", 2),
                ("p50_ms", "p50 ms", 2),
                ("p99_ms", "p99 ms", 2),
                ("cpu_us", "CPU us/txn", 1),
                ("user_us", "user", 1),
                ("sys_us", "sys", 1),
                ("machine_us", "machine", 1),
                ("client_us", "client", 1),
                ("client_cores", "cl.cores", 2),
                ("rss_mb", "RSS MB", 1),
            ],
            &[
                ("tps", "tps", 2),
                ("cpu_us", "CPU", 2),
                ("machine_us", "machine", 2),
            ],
        ),
        Kind::Copy => (
            &[
                ("mb_s", "MB/s", 0),
                ("cpu_s_gb", "CPU s/GB", 3),
                ("machine_s_gb", "machine", 3),
                ("rss_mb", "RSS MB", 1),
            ],
            &[("mb_s", "MB/s", 2), ("cpu_s_gb", "CPU", 2)],
        ),
        Kind::Idle | Kind::Max => (
            &[
                ("served", "served", 0),
                ("kb_client", "kB/client", 2),
                ("kb_used", "after use", 2),
                ("base_mb", "base MB", 1),
                ("rss_mb", "RSS MB", 1),
                ("left_mb", "left MB", 1),
                ("connect_s", "connect s", 2),
                ("login_us", "login us", 1),
                ("ask_s", "ask s", 2),
                ("idle_cpu_percent", "idle CPU %", 2),
            ],
            &[("kb_client", "kB", 2), ("login_us", "login", 2)],
        ),
        Kind::Sessions(..) => (
            &[
                ("plain_tps", "plain tps", 0),
                ("tps", "tps", 0),
                ("kept", "kept", 2),
                ("rss_mb", "RSS MB", 1),
            ],
            &[],
        ),
        Kind::Storm => (
            &[
                ("logins_s", "logins/s", 0),
                ("calm_p99_ms", "p99 ms", 2),
                ("p99_ms", "in storms", 2),
                ("added_ms", "added ms", 2),
            ],
            &[("logins_s", "logins", 2), ("p99_ms", "in storms", 2)],
        ),
        // These have tables of their own: a row per kind of statement.
        Kind::State | Kind::Contended | Kind::Sweep(_) => (&[], &[]),
        Kind::Statements(_) => (
            &[
                ("kb_client", "kB/client", 2),
                ("texts_mb", "texts MB", 2),
                ("base_mb", "base MB", 1),
                ("rss_mb", "RSS MB", 1),
                ("left_mb", "left MB", 1),
                ("parse_us", "us/Parse", 2),
            ],
            &[],
        ),
    }
}

/// Prints the table of one scenario.
pub(super) fn print(terminal: &Terminal, scenario: &Scenario, all: &[Series], marks: &[Mark]) {
    let (columns, ratios) = columns(scenario.kind);
    let width = all.iter().map(|series| series.subject.len()).max();
    let width = width.unwrap_or(0).max("subject".len()) + 1;
    let mut heading = format!("{:<width$}", "subject");
    for (_, title, _) in columns {
        heading += &format!("{title:>11}");
    }
    for (_, title, _) in ratios {
        heading += &format!("{:>11}", format!("x {title}"));
    }
    terminal.line(&heading);
    let baseline = baseline(scenario, all);
    for series in all {
        let mut row = format!("{:<width$}", series.subject);
        for (key, _, digits) in columns {
            row += &cell(series.median(key), *digits);
        }
        for (key, _, digits) in ratios {
            row += &cell(baseline.and_then(|b| series.ratio(b, key)), *digits);
        }
        terminal.line(&row);
    }
    print_failures(terminal, all);
    for mark in marks {
        terminal.line(&format!("  {}", describe(terminal, mark)));
    }
}

/// Says which rounds failed, and where timings are doubtful.
pub(super) fn print_failures(terminal: &Terminal, all: &[Series]) {
    for series in all {
        let failures: Vec<_> = series
            .rounds
            .iter()
            .filter_map(|r| r.as_ref().err())
            .collect();
        if let Some(first) = failures.first() {
            terminal.line(&terminal.bad(&format!(
                "  {}: {} of {} rounds failed: {first}",
                series.subject,
                failures.len(),
                series.rounds.len()
            )));
        }
        if let Some(stolen) = series.median("stolen_percent")
            && stolen > STOLEN_PERCENT_MAX
        {
            terminal.line(&format!(
                "  {}: other machines took {stolen:.1} % of the CPU: timings are doubtful",
                series.subject
            ));
        }
    }
}

/// Returns a line: whether the target was reached, by which subject, and by how much.
pub(super) fn describe(terminal: &Terminal, mark: &Mark) -> String {
    let word = if mark.reached {
        terminal.good("reached")
    } else {
        terminal.bad("MISSED ")
    };
    let value = mark
        .value
        .map_or_else(|| "no figure".to_owned(), |v| format!("{v:.2}"));
    format!(
        "{word} {:<14} {:<14} {:<11} {value:>9}   (aim {})",
        mark.scenario, mark.subject, mark.figure, mark.aim
    )
}

fn cell(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) => format!("{value:>11.digits$}"),
        None => format!("{:>11}", "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(subject: &str, workers: Option<u32>, cpu: &[f64]) -> Series {
        let round = |value: &f64| Ok(Figures::from([("cpu_us", *value)]));
        Series {
            subject: subject.to_owned(),
            workers,
            driver: None,
            rounds: cpu.iter().map(round).collect(),
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_ratios_per_round() {
        let base = series("pgbouncer", None, &[10.0, 20.0, 40.0]);
        let own = series("pgweir:1", Some(1), &[9.0, 10.0, 44.0]);
        assert_eq!(own.ratio(&base, "cpu_us"), Some(0.9));
        assert_eq!(own.median("cpu_us"), Some(10.0));
    }

    #[test]
    fn a_round_that_failed_counts_in_no_ratio_and_is_a_miss() {
        let base = series("pgbouncer", None, &[10.0, 20.0]);
        let mut own = series("pgweir:1", Some(1), &[5.0, 5.0]);
        own.rounds[0] = Err("gone".to_owned());
        assert_eq!(own.ratio(&base, "cpu_us"), Some(0.25));
        let target = Target {
            key: "cpu_us",
            limit: Limit::Ratio("pgbouncer", 1.0),
            driver: None,
        };
        let scenario = &super::super::scenario::SCENARIOS[0];
        assert!(!mark(scenario, &own, &[base], &target).reached);
    }

    #[test]
    fn an_even_count_has_the_mean_of_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
