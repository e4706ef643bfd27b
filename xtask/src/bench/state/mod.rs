//! The cost of session state: one client that changes its session in each way, and many clients on few servers.
//!
//! All figures are the best of the rounds. The tables are Markdown, for `docs/session-costs.md`.

mod contended;
mod texts;

use std::{path::Path, time::Duration};

use tokio::{net::TcpStream, time::Instant};

use super::{
    ScenarioResult, client,
    measure::{Figures, Measuring},
    options::Options,
    report::{Mark, Series, median},
    scenario::{Kind as ScenarioKind, Scenario},
    subject::{self, Subject, SubjectKind},
};
use crate::stage::{
    Stage, StageError, Terminal, own_command,
    pooler::{Pooler, PoolerSettings},
    postgres,
};
use texts::{KINDS, Kind, OBJECTS};

/// The shortest time for which a client repeats a kind of statement in a round.
const KIND_TIME: Duration = Duration::from_millis(150);

/// The time of an unmeasured run before that, in which the pooler reads the catalog and servers connect.
const WARM_UP: Duration = Duration::from_millis(60);

/// The database in whose sessions the assist extension is loaded.
const ASSISTED: &str = "assisted";

/// The database with other extensions.
const EXTENDED: &str = "extended";

/// Median and worst ratio to PostgreSQL itself that pgweir may have without its extension.
const MEDIAN_MAX: f64 = 1.5;
const WORST_MAX: f64 = 3.0;

/// A path on which a client is measured.
struct Place {
    name: &'static str,
    port: u16,
    database: &'static str,
    /// The threads of pgweir, where the targets apply.
    aims: Option<u32>,
}

/// Measures a scenario of this module.
pub(super) async fn run(
    stage: &mut Stage,
    options: &Options,
    scenario: &'static Scenario,
    subjects: &[Subject],
    measuring: &Measuring<'_>,
) -> Result<ScenarioResult, StageError> {
    let terminal = stage.terminal();
    terminal.heading(&format!("{}: {}", scenario.name, scenario.what));
    let pgweir = pgweir(subjects)?;
    let (load, series, marks) = match scenario.kind {
        ScenarioKind::Contended => {
            contended::measure(stage, options, pgweir, measuring, scenario.name).await?
        }
        _ => alone(stage, options, subjects, measuring, scenario.name).await?,
    };
    for mark in &marks {
        terminal.line(&format!("  {}", super::report::describe(&terminal, mark)));
    }
    Ok(ScenarioResult {
        scenario: scenario.name,
        load,
        series,
        marks,
    })
}

/// Returns the first build, with the fewest threads that were asked for.
fn pgweir(subjects: &[Subject]) -> Result<&Subject, StageError> {
    let first = subjects.iter().find(|s| s.workers().is_some());
    first.ok_or_else(|| StageError::new("no build of pgweir is measured"))
}

type Outcome = (String, Vec<Series>, Vec<Mark>);

async fn alone(
    stage: &mut Stage,
    options: &Options,
    subjects: &[Subject],
    measuring: &Measuring<'_>,
    scenario: &'static str,
) -> Result<Outcome, StageError> {
    let terminal = stage.terminal();
    let load = format!(
        "one client, {} ms of each kind, best of {}",
        KIND_TIME.as_millis(),
        options.rounds
    );
    terminal.line(&load);
    let assisted = make_databases(stage, measuring).await?;
    let (places, poolers) = places(stage, subjects, measuring, assisted).await?;
    let mut series: Vec<Series> = places
        .iter()
        .map(|place| Series::named(place.name, place.aims))
        .collect();
    for round in 0..options.rounds as usize {
        let mut figures = vec![Ok(Figures::new()); places.len()];
        for (number, kind) in KINDS.iter().enumerate() {
            let what = format!("round {} of {}: {}", round + 1, options.rounds, kind.name);
            let turn = async {
                for step in 0..places.len() {
                    let at = (round + number + step) % places.len();
                    let cost = cost(&places[at], kind).await;
                    note(&mut figures[at], kind.name, cost);
                }
            };
            terminal
                .during(&what, async {
                    turn.await;
                    Ok::<_, StageError>(())
                })
                .await?;
        }
        for (series, figures) in series.iter_mut().zip(figures) {
            series.rounds.push(figures);
        }
    }
    for pooler in poolers {
        stage.check(pooler.id)?;
        stage.stop(pooler.id).await;
    }
    let marks = print(&terminal, scenario, &series);
    Ok((load, series, marks))
}

fn note(figures: &mut Result<Figures, String>, name: &'static str, cost: Result<f64, String>) {
    match (figures.as_mut(), cost) {
        (Ok(all), Ok(cost)) => drop(all.insert(name, cost)),
        (Ok(_), Err(words)) => *figures = Err(format!("{name}: {words}")),
        (Err(_), _) => {}
    }
}

/// Creates the objects in each database. Returns whether the assist extension could be built.
async fn make_databases(stage: &Stage, measuring: &Measuring<'_>) -> Result<bool, StageError> {
    let administer =
        async |database: &str, sql: &str| measuring.postgres.administer(stage, database, sql).await;
    administer(postgres::NAME, OBJECTS).await?;
    for database in [ASSISTED, EXTENDED] {
        let create = format!("create database {database} owner {}", postgres::NAME);
        administer("postgres", &create).await?;
        administer(database, OBJECTS).await?;
    }
    for name in ["hstore", "pg_trgm", "citext"] {
        let create = format!("create extension {name}");
        administer(EXTENDED, &create).await?;
    }
    let library = match build_assist(stage, measuring).await {
        Ok(library) => library,
        Err(words) => {
            let line = format!("  the assist extension is left out, it does not build: {words}");
            stage.terminal().line(&line);
            return Ok(false);
        }
    };
    let load = format!("alter database {ASSISTED} set session_preload_libraries = '{library}'");
    administer("postgres", &load).await?;
    Ok(true)
}

async fn build_assist(stage: &Stage, measuring: &Measuring<'_>) -> Result<String, String> {
    let source = Path::new("assist").canonicalize();
    let source = source.map_err(|e| format!("assist: {e}"))?;
    let pg_config = measuring.postgres.programs().path("pg_config");
    let mut make = own_command(Path::new("make"));
    make.arg("-s")
        .arg("-C")
        .arg(stage.path())
        .arg("-f")
        .arg(source.join("Makefile"))
        .arg(format!("PG_CONFIG={}", pg_config.display()));
    let output = make.output().await.map_err(|e| format!("make: {e}"))?;
    match output.status.success() {
        true => Ok(stage.path().join("pgweir_assist").display().to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

async fn places(
    stage: &mut Stage,
    subjects: &[Subject],
    measuring: &Measuring<'_>,
    assisted: bool,
) -> Result<(Vec<Place>, Vec<Pooler>), StageError> {
    let place = |name, port, database| Place {
        name,
        port,
        database,
        aims: None,
    };
    let settings = |more, databases| PoolerSettings {
        more,
        databases,
        ..subject::settings(measuring.postgres.port(), contended::SERVERS, 100)
    };
    let mut places = vec![place("direct", measuring.postgres.port(), postgres::NAME)];
    let mut poolers = Vec::new();
    let pgbouncer = subjects
        .iter()
        .find(|s| matches!(s.kind, SubjectKind::PgBouncer { .. }));
    if let Some(pgbouncer) = pgbouncer {
        let settings = settings("pool_mode = session\n", &[]);
        let pooler = pgbouncer.start(stage, measuring.postgres, settings).await?;
        places.push(place("PgBouncer, session", pooler.port, postgres::NAME));
        poolers.push(pooler);
    }
    let pgweir = pgweir(subjects)?;
    let settings = settings("", &[ASSISTED, EXTENDED]);
    let pooler = pgweir.start(stage, measuring.postgres, settings).await?;
    poolers.push(pooler);
    places.push(Place {
        aims: pgweir.workers(),
        ..place("pgweir", pooler.port, postgres::NAME)
    });
    places.push(place("pgweir, extensions", pooler.port, EXTENDED));
    if assisted {
        places.push(place("pgweir, assist", pooler.port, ASSISTED));
    }
    Ok((places, poolers))
}

/// Returns the µs that all texts of a kind take, sent one after the other by a new client.
async fn cost(place: &Place, kind: &Kind) -> Result<f64, String> {
    let mut client = client::log_in(place.port, place.database).await?;
    for text in kind.before {
        client::ask(&mut client, &query(text)).await?;
    }
    let requests: Vec<_> = kind.texts.iter().map(|text| query(text)).collect();
    repeat(&mut client, &requests, WARM_UP).await?;
    repeat(&mut client, &requests, KIND_TIME).await
}

/// Returns the µs that nine of ten repetitions take at least. So the work of other processes that take the core now and
/// then is not counted, and neither is the pooler's own occasional work (`state-contended` counts that).
async fn repeat(
    client: &mut TcpStream,
    requests: &[Vec<u8>],
    time: Duration,
) -> Result<f64, String> {
    let began = Instant::now();
    let mut costs = Vec::new();
    while began.elapsed() < time {
        let since = Instant::now();
        for request in requests {
            client::ask(client, request).await?;
        }
        costs.push(since.elapsed().as_secs_f64() * 1e6);
    }
    costs.sort_by(f64::total_cmp);
    let lowest = costs.get(costs.len() / 10);
    lowest
        .copied()
        .ok_or_else(|| "the machine stands still".to_owned())
}

fn query(text: &str) -> Vec<u8> {
    client::message(b"Q", format!("{text}\0").as_bytes())
}

/// Prints a row per kind, with µs directly and ratios, and then median and worst.
fn print(terminal: &Terminal, scenario: &'static str, all: &[Series]) -> Vec<Mark> {
    let Some((direct, others)) = all.split_first() else {
        return Vec::new();
    };
    let names: String = others.iter().map(|s| format!(" {} |", s.subject)).collect();
    terminal.line(&format!("| statement of the client | direct, us |{names}"));
    terminal.line(&format!("|---|---|{}", "---|".repeat(others.len())));
    let mut ratios = vec![Vec::new(); others.len()];
    for kind in KINDS {
        let base = direct.best(kind.name);
        let mut row = format!("| {} | {} |", kind.name, cell(base, 0));
        for (series, ratios) in others.iter().zip(&mut ratios) {
            let ratio = series
                .best(kind.name)
                .zip(base)
                .map(|(own, base)| own / base);
            ratios.extend(ratio);
            row += &format!(" {} |", cell(ratio, 2));
        }
        terminal.line(&row);
    }
    let mut marks = Vec::new();
    for (figure, limit, summary) in [
        ("median", MEDIAN_MAX, median as fn(Vec<f64>) -> Option<f64>),
        ("worst", WORST_MAX, worst),
    ] {
        let mut row = format!("| **{figure}** | |");
        for (series, ratios) in others.iter().zip(&ratios) {
            let value = summary(ratios.clone());
            row += &format!(" **{}** |", cell(value, 2));
            if series.workers.is_some() {
                let whole = series.rounds.iter().all(Result::is_ok);
                marks.push(mark(scenario, &series.subject, figure, limit, value, whole));
            }
        }
        terminal.line(&row);
    }
    super::report::print_failures(terminal, all);
    marks
}

fn worst(ratios: Vec<f64>) -> Option<f64> {
    ratios.into_iter().max_by(f64::total_cmp)
}

fn mark(
    scenario: &'static str,
    subject: &str,
    figure: &'static str,
    limit: f64,
    value: Option<f64>,
    whole: bool,
) -> Mark {
    Mark {
        scenario,
        subject: subject.to_owned(),
        figure,
        aim: format!("<= {limit} x"),
        value,
        reached: whole && value.is_some_and(|value| value <= limit),
    }
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
