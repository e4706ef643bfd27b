//! `cargo xtask bench`: pgweir beside PgBouncer and haproxy.
//!
//! All subjects of a scenario run at once, but are measured in turn (A B C, B C A, ...), so that slow changes of
//! the machine affect all of them equally. The most reliable figure is the pooler's CPU time per transaction. The
//! CPU time of the whole machine is shown beside it, since a pooler could shift work to other processes.

mod client;
mod idle_clients;
mod machine;
mod measure;
mod monitoring;
mod options;
mod report;
mod scenario;
mod state;
mod storm;
mod subject;
mod sweep;

use std::{fs, path::Path, process::ExitCode};

use clap::Parser;
use serde::Serialize;

use crate::stage::{
    Stage, StageError, Terminal,
    meter::Units,
    on_stage,
    pooler::{Identity, Pooler},
    postgres::{self, Postgres, Programs},
    raise_descriptor_limit,
};
use measure::{LARGE_TABLE, Measuring};
use monitoring::{UNWATCHED, Watchers};
use options::Options;
use report::{Mark, Series};
use scenario::{Access, HAPROXY, Kind, PGBOUNCER, Scenario};
use subject::{Subject, SubjectKind};

const SCALE: u32 = 10;

/// The end of the name of a pgweir that is watched.
const WATCHED: &str = "+watched";

/// For 5,000 idle clients and some to spare.
const FILES_NEEDED: u64 = 8_000;

/// Runs the benchmark with the arguments of the command line.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    let options = Options::parse_from(arguments);
    on_stage("bench", async |stage: &mut Stage| {
        compare(stage, &options).await
    })
}

/// Runs the child process that holds many clients.
pub(crate) fn idle_clients(arguments: Vec<String>) -> ExitCode {
    idle_clients::serve(&arguments)
}

async fn compare(stage: &mut Stage, options: &Options) -> Result<(), StageError> {
    let terminal = stage.terminal();
    let files_max = raise_descriptor_limit(FILES_NEEDED)?;
    let programs = match &options.postgresql {
        Some(folder) => Programs::at(folder)?,
        None => Programs::find()?,
    };
    let scenarios = options.scenarios();
    let subjects = subjects(stage, options, &scenarios).await?;
    let machine = machine::describe(&programs, &subjects).await;
    terminal.heading("The machine");
    for line in &machine {
        terminal.line(line);
    }
    terminal.heading("A throw-away PostgreSQL");
    let connections_max = scenarios.iter().map(|s| s.connections_max()).max();
    let (postgres, copy_bytes) =
        prepare(stage, &programs, connections_max.unwrap_or_default()).await?;
    let measuring = Measuring {
        postgres: &postgres,
        directory: stage.path().to_path_buf(),
        units: Units::new(),
        seconds: options.secs,
        idle_clients: options.idle_clients,
        files_max,
        copy_bytes,
    };
    print_settings(&terminal, &measuring, options);
    let mut results = Vec::new();
    for scenario in scenarios {
        results.push(match scenario.kind {
            Kind::State | Kind::Contended => {
                state::run(stage, options, scenario, &subjects, &measuring).await?
            }
            Kind::Sweep(sweep) => {
                sweep
                    .run(stage, options, scenario, &subjects, &measuring)
                    .await?
            }
            _ => run_scenario(stage, options, scenario, &subjects, &measuring).await?,
        });
    }
    summarize(&terminal, &results);
    match &options.json {
        Some(path) => write_json(path, machine, options, results),
        None => Ok(()),
    }
}

async fn subjects(
    stage: &Stage,
    options: &Options,
    scenarios: &[&Scenario],
) -> Result<Vec<Subject>, StageError> {
    let mut subjects = Vec::new();
    let prepares = options.pgbouncer.is_file() && subject::prepares(&options.pgbouncer).await?;
    for (name, kind, program) in [
        (
            PGBOUNCER,
            SubjectKind::PgBouncer { prepares },
            &options.pgbouncer,
        ),
        (HAPROXY, SubjectKind::Haproxy, &options.haproxy),
    ] {
        if !scenarios.iter().any(|scenario| scenario.takes(kind)) {
            continue;
        }
        if !program.is_file() {
            return Err(StageError::with_next(
                format!("there is no {}", program.display()),
                format!("install the package {name} (`make bench` does that, too)"),
            ));
        }
        subjects.push(Subject {
            name: name.to_owned(),
            kind,
            program: program.clone(),
            is_watched: None,
        });
    }
    for build in options.builds() {
        if !build.path.is_file() {
            return Err(StageError::with_next(
                format!("there is no {}", build.path.display()),
                "build it: cargo build --release -p pgweir (`make bench` does that, too)",
            ));
        }
        let program = stage.place_program(&build.path, &build.name)?;
        let kinds = options.workers.iter().flat_map(|&workers| {
            let drivers = options.drivers.iter();
            drivers.map(move |&driver| (workers, driver))
        });
        for (workers, driver) in kinds {
            let mut push = |ending, is_watched| {
                subjects.push(Subject {
                    name: format!("{}:{workers}{}{ending}", build.name, driver.ending()),
                    kind: SubjectKind::Pgweir { workers, driver },
                    program: program.clone(),
                    is_watched,
                });
            };
            if options.watched {
                push("", Some(false));
                push(WATCHED, Some(true));
            } else {
                push("", None);
            }
        }
    }
    Ok(subjects)
}

async fn prepare(
    stage: &mut Stage,
    programs: &Programs,
    connections_max: u32,
) -> Result<(Postgres, f64), StageError> {
    let terminal = stage.terminal();
    let what = format!("start it, max_connections = {connections_max}, fsync off");
    let start = Postgres::start(stage, programs, connections_max);
    let postgres = terminal.during(&what, start).await?;
    let what = format!("fill its tables: pgbench -i -s {SCALE}, and one for COPY");
    let [create, grant, measure] = LARGE_TABLE;
    let bytes = terminal
        .during(&what, async {
            postgres.fill(stage, SCALE).await?;
            for sql in [create, grant, "vacuum analyze"] {
                postgres.administer(stage, postgres::NAME, sql).await?;
            }
            postgres.administer(stage, postgres::NAME, measure).await
        })
        .await?;
    let bytes = bytes
        .parse()
        .map_err(|_| StageError::new(format!("the large table has `{bytes}` bytes")))?;
    Ok((postgres, bytes))
}

fn print_settings(terminal: &Terminal, measuring: &Measuring<'_>, options: &Options) {
    terminal.heading("Settings of PgBouncer, and of pgweir beside `workers`");
    let settings = subject::settings(
        measuring.postgres.port(),
        options.pool,
        measuring.clients_max(Kind::Copy),
    );
    let ini = settings.ini(6432, Path::new("users.txt"));
    for line in ini.lines() {
        terminal.line(&format!("  {line}"));
    }
}

/// The results of a scenario.
#[derive(Debug, Serialize)]
struct ScenarioResult {
    scenario: &'static str,
    load: String,
    series: Vec<Series>,
    marks: Vec<Mark>,
}

async fn run_scenario(
    stage: &mut Stage,
    options: &Options,
    scenario: &'static Scenario,
    subjects: &[Subject],
    measuring: &Measuring<'_>,
) -> Result<ScenarioResult, StageError> {
    let terminal = stage.terminal();
    let rounds = match scenario.kind {
        Kind::Pgbench(_) | Kind::Copy | Kind::Sessions(..) | Kind::Storm => options.rounds,
        Kind::Idle
        | Kind::Max
        | Kind::Statements(_)
        | Kind::State
        | Kind::Contended
        | Kind::Sweep(_) => 1,
    };
    terminal.heading(&format!("{}: {}", scenario.name, scenario.what));
    let load = measuring.command_line(scenario);
    terminal.line(&format!("{load}; medians of {rounds}"));
    let clients_max = measuring.clients_max(scenario.kind);
    let taking_part = |subject: &&Subject| scenario.takes(subject.kind);
    let identity = match scenario.access {
        Access::Tls => Some(Identity::make(stage).await?),
        Access::Plain | Access::Scram => None,
    };
    let mut running = Vec::new();
    let mut series = Vec::new();
    let mut watchers = Vec::new();
    for subject in subjects.iter().filter(taking_part) {
        let pool = scenario.pool(options.pool);
        let mut settings = subject::settings(measuring.postgres.port(), pool, clients_max);
        if let Kind::Statements(count) = scenario.kind {
            settings.prepared_max = Some(count);
        }
        settings.tls.clone_from(&identity);
        settings.scram = scenario.access == Access::Scram;
        match subject.is_watched {
            Some(true) => {
                let (lines, own) =
                    Watchers::start(stage, &format!("{}-{}", scenario.name, subject.name))?;
                settings.own_lines = lines;
                watchers.push(own);
            }
            Some(false) => UNWATCHED.clone_into(&mut settings.own_lines),
            None => {}
        }
        let pooler = subject.start(stage, measuring.postgres, settings).await?;
        running.push(pooler);
        series.push(Series::new(subject));
    }
    for round in 0..rounds as usize {
        for step in 0..running.len() {
            let at = (round + step) % running.len();
            let what = format!("round {} of {rounds}: {}", round + 1, series[at].subject);
            let turn = take_turn(stage, measuring, scenario, running[at], round == 0);
            let figures = terminal.during(&what, turn).await;
            series[at].rounds.push(figures);
        }
    }
    // The watchers are asked while the poolers still answer.
    let watched: Vec<String> = watchers
        .iter()
        .map(Watchers::summary)
        .collect::<Result<_, _>>()?;
    drop(watchers);
    for pooler in running {
        stage.stop(pooler.id).await;
    }
    let marks = report::marks(scenario, &series);
    report::print(&terminal, scenario, &series, &marks);
    for got in watched {
        terminal.line(&format!("watchers of a pgweir got {got}"));
    }
    print_cost_of_watching(&terminal, &series);
    Ok(ScenarioResult {
        scenario: scenario.name,
        load,
        series,
        marks,
    })
}

/// Prints the CPU time per transaction of each pgweir that is watched, as a ratio to the same one without watchers.
fn print_cost_of_watching(terminal: &Terminal, series: &[Series]) {
    for own in series {
        let base = own.subject.strip_suffix(WATCHED);
        let base = base.and_then(|name| series.iter().find(|one| one.subject == name));
        if let Some(ratio) = base.and_then(|base| own.ratio(base, "cpu_us")) {
            terminal.line(&format!(
                "{}: {ratio:.3} x the CPU per transaction of the same pgweir with everything off (aim: <= 1.03)",
                own.subject
            ));
        }
    }
}

async fn take_turn(
    stage: &mut Stage,
    measuring: &Measuring<'_>,
    scenario: &Scenario,
    pooler: Pooler,
    first: bool,
) -> Result<measure::Figures, String> {
    stage.check(pooler.id).map_err(|e| e.to_string())?;
    if first {
        measuring.warm_up(scenario, pooler).await?;
    }
    let figures = measuring.measure(scenario, pooler).await;
    // If a pooler has died, its own error explains more than those of its clients.
    stage.check(pooler.id).map_err(|e| e.to_string())?;
    figures
}

fn summarize(terminal: &Terminal, results: &[ScenarioResult]) {
    let marks = || results.iter().flat_map(|result| &result.marks);
    let missed = marks().filter(|mark| !mark.reached).count();
    terminal.heading(&format!(
        "Targets: {} of {} reached",
        marks().count() - missed,
        marks().count()
    ));
    for mark in marks().filter(|mark| !mark.reached) {
        terminal.line(&report::describe(terminal, mark));
    }
}

#[derive(Serialize)]
struct Document<'a> {
    machine: Vec<String>,
    rounds: u32,
    secs: u32,
    pool: u32,
    results: &'a [ScenarioResult],
}

fn write_json(
    path: &Path,
    machine: Vec<String>,
    options: &Options,
    results: Vec<ScenarioResult>,
) -> Result<(), StageError> {
    let document = Document {
        machine,
        rounds: options.rounds,
        secs: options.secs,
        pool: options.pool,
        results: &results,
    };
    let text = serde_json::to_string_pretty(&document).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text + "\n"))
        .map_err(|e| StageError::new(format!("cannot write {}: {e}", path.display())))
}
