//! Throughput and latency by the number of clients: PostgreSQL itself, PgBouncer and pgweir.
//!
//! The table has a line for each number of clients and subject, with tabs between the columns. The plots of
//! `cargo xtask docs` are made of such tables: `docs/benchmark-clients.tsv` and `docs/benchmark-logins.tsv`.

use super::{
    ScenarioResult,
    measure::{Figures, Measuring},
    options::Options,
    report::{Series, print_failures},
    scenario::Scenario,
    subject::{self, Subject},
};
use crate::stage::{Stage, StageError, pooler::Pooler};

/// The largest number of clients that connect to PostgreSQL itself. Each of them has a process there.
const DIRECT_MAX: u32 = 1_000;

/// Threads of pgbench.
const THREADS: u32 = 2;

/// A load with growing numbers of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sweep {
    /// Arguments of pgbench beside the number of clients.
    pub(super) arguments: &'static [&'static str],
    /// The numbers of clients.
    pub(super) clients: &'static [u32],
    /// The part of the transactions whose latency is measured: above 0, at most 1.
    pub(super) sampling_rate: f64,
}

/// A path on which clients are measured.
struct Place {
    name: String,
    workers: Option<u32>,
    port: u16,
    /// `None` for PostgreSQL itself.
    pooler: Option<Pooler>,
}

impl Place {
    fn takes(&self, clients: u32) -> bool {
        self.pooler.is_some() || clients <= DIRECT_MAX
    }
}

/// The figures of one place and number of clients.
struct Point {
    place: usize,
    clients: u32,
    series: Series,
}

impl Sweep {
    /// Returns the load as a command line.
    pub(super) fn command_line(&self, seconds: u32) -> String {
        let counts: Vec<_> = self.clients.iter().map(u32::to_string).collect();
        format!(
            "pgbench -n {} -T {seconds} -j {THREADS} -c {} (at least 10 s for 1,000 and more), latencies of {} of the \
             transactions",
            self.arguments.join(" "),
            counts.join(", "),
            self.sampling_rate,
        )
    }

    /// Returns the connections to PostgreSQL that the load needs beside those of poolers.
    pub(super) fn direct_connections(&self) -> u32 {
        let direct = self
            .clients
            .iter()
            .filter(|clients| **clients <= DIRECT_MAX);
        direct.copied().max().unwrap_or_default()
    }

    /// Measures all subjects that take part in the scenario, in turn.
    pub(super) async fn run(
        &self,
        stage: &mut Stage,
        options: &Options,
        scenario: &'static Scenario,
        subjects: &[Subject],
        measuring: &Measuring<'_>,
    ) -> Result<ScenarioResult, StageError> {
        let terminal = stage.terminal();
        terminal.heading(&format!("{}: {}", scenario.name, scenario.what));
        let load = self.command_line(measuring.seconds);
        terminal.line(&format!("{load}; medians of {}", options.rounds));
        let subjects = subjects
            .iter()
            .filter(|subject| scenario.takes(subject.kind));
        let places = places(stage, options, scenario, subjects, measuring).await?;
        let mut points = points(self.clients, &places);
        for round in 0..options.rounds as usize {
            for step in 0..points.len() {
                let at = (round + step) % points.len();
                let (place, clients) = (&places[points[at].place], points[at].clients);
                let what = format!(
                    "round {} of {}: {clients} clients, {}",
                    round + 1,
                    options.rounds,
                    place.name
                );
                if let Some(pooler) = place.pooler {
                    stage.check(pooler.id)?;
                }
                let turn = self.measure(measuring, place, clients);
                let figures = terminal.during(&what, turn).await;
                points[at].series.rounds.push(figures);
            }
        }
        for pooler in places.iter().filter_map(|place| place.pooler) {
            stage.check(pooler.id)?;
            stage.stop(pooler.id).await;
        }
        terminal.line("clients\tsubject\ttps\tp99_ms");
        for point in &points {
            terminal.line(&line(&places[point.place].name, point));
        }
        let series: Vec<_> = points.into_iter().map(|point| point.series).collect();
        print_failures(&terminal, &series);
        Ok(ScenarioResult {
            scenario: scenario.name,
            load,
            series,
            marks: Vec::new(),
        })
    }

    async fn measure(
        &self,
        measuring: &Measuring<'_>,
        place: &Place,
        clients: u32,
    ) -> Result<Figures, String> {
        let (count, threads) = (clients.to_string(), THREADS.min(clients).to_string());
        let arguments = [self.arguments, &["-c", &count, "-j", &threads]].concat();
        let seconds = seconds(clients, measuring.seconds);
        let load = measuring.load(place.port, &arguments, seconds, self.sampling_rate);
        let before = place.pooler.map(|pooler| measuring.units.read(pooler.id));
        let outcome = measuring.run(&load).await?;
        let mut figures = Figures::from([("tps", outcome.tps), ("lat_ms", outcome.latency_ms)]);
        if let Some((pooler, before)) = place.pooler.zip(before) {
            let spent = measuring.units.read(pooler.id).since(&before);
            let cpu_us = spent.cpu_s() * 1e6 / outcome.transactions as f64;
            figures.insert("cpu_us", cpu_us);
        }
        figures.extend(measuring.latencies());
        Ok(figures)
    }
}

/// Returns the seconds of a run, if the options say `wanted` seconds. Many clients need time to connect.
fn seconds(clients: u32, wanted: u32) -> u32 {
    match clients {
        ..1_000 => wanted,
        _ => wanted.max(10),
    }
}

/// Starts the poolers.
async fn places(
    stage: &mut Stage,
    options: &Options,
    scenario: &'static Scenario,
    subjects: impl Iterator<Item = &Subject>,
    measuring: &Measuring<'_>,
) -> Result<Vec<Place>, StageError> {
    let mut places = vec![Place {
        name: "direct".to_owned(),
        workers: None,
        port: measuring.postgres.port(),
        pooler: None,
    }];
    for subject in subjects {
        let clients_max = measuring.clients_max(scenario.kind);
        let settings = subject::settings(measuring.postgres.port(), options.pool, clients_max);
        let pooler = subject.start(stage, measuring.postgres, settings).await?;
        places.push(Place {
            name: subject.name.clone(),
            workers: subject.workers(),
            port: pooler.port,
            pooler: Some(pooler),
        });
    }
    Ok(places)
}

/// Returns a point for each number of clients and each place that can take so many.
fn points(counts: &[u32], places: &[Place]) -> Vec<Point> {
    let mut points = Vec::new();
    for &clients in counts {
        for (at, place) in places.iter().enumerate() {
            if place.takes(clients) {
                let name = format!("{}, {clients} clients", place.name);
                points.push(Point {
                    place: at,
                    clients,
                    series: Series::named(&name, place.workers),
                });
            }
        }
    }
    points
}

/// Returns a line of the table.
fn line(place: &str, point: &Point) -> String {
    let figure = |key, digits: usize| {
        let value = point.series.median(key);
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let (tps, p99) = (figure("tps", 0), figure("p99_ms", 2));
    format!("{}\t{place}\t{tps}\t{p99}", point.clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, pooler: Option<Pooler>) -> Place {
        Place {
            name: name.to_owned(),
            workers: None,
            port: 1,
            pooler,
        }
    }

    #[test]
    fn postgresql_takes_fewer_clients_than_poolers() {
        let pooler = Pooler { port: 1, id: 1 };
        let places = [place("direct", None), place("pgweir:1", Some(pooler))];
        let all = points(&[10, 1_000, 5_000], &places);
        let all: Vec<_> = all
            .iter()
            .map(|point| (point.clients, point.place))
            .collect();
        assert_eq!(all, [(10, 0), (10, 1), (1_000, 0), (1_000, 1), (5_000, 1)]);
    }

    #[test]
    fn a_figure_that_is_missing_is_a_dash() {
        let mut point = Point {
            place: 0,
            clients: 10,
            series: Series::named("direct, 10 clients", None),
        };
        let figures = Figures::from([("tps", 1234.4)]);
        point.series.rounds.push(Ok(figures));
        assert_eq!(line("direct", &point), "10\tdirect\t1234\t-");
    }
}
