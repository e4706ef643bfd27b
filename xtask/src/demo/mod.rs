//! `cargo xtask demo`: shows in two minutes, on the user's own machine, that many clients share a few servers.

mod keep;
mod table;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use tokio::time::sleep;

use crate::stage::{
    Stage, StageError, Terminal, on_stage,
    pgbench::{Length, Load, Outcome},
    pooler::{Pooler, PoolerSettings},
    postgres::{Postgres, Programs},
    raise_descriptor_limit, without_stage,
};

const CONNECTIONS_MAX: u32 = 100;
const POOL: u32 = 20;
const CLIENTS_MAX: u32 = 2_000;
const SCALE: u32 = 10;

/// The files that the demo needs: 1,000 sockets of pgbench, or of pgweir plus its servers, and some to spare.
const FILES_NEEDED: u64 = 2_500;

/// Shows pgweir before a throw-away PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask demo")]
struct Options {
    /// The pgweir to show.
    #[arg(long, env = "PGWEIR_BIN", default_value = "target/release/pgweir")]
    pgweir: PathBuf,

    /// Seconds of each run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,

    /// Leave PostgreSQL and pgweir running at the end.
    #[arg(long)]
    keep: bool,

    /// Stop what an earlier `--keep` left in this directory, and remove it.
    #[arg(long, value_name = "DIRECTORY")]
    stop: Option<PathBuf>,
}

/// Runs the demo with the arguments of the command line.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    let options = Options::parse_from(arguments);
    if let Some(directory) = &options.stop {
        return without_stage(async |terminal: &Terminal| keep::stop(directory, terminal).await);
    }
    on_stage("demo", async |stage: &mut Stage| {
        show(stage, &options).await
    })
}

async fn show(stage: &mut Stage, options: &Options) -> Result<(), StageError> {
    let terminal = stage.terminal();
    raise_descriptor_limit(FILES_NEEDED)?;
    let programs = Programs::find()?;
    let pgweir = place_pgweir(stage, options)?;
    if options.keep {
        stage.keep();
    }
    terminal.heading("A throw-away PostgreSQL, and pgweir in front");
    let postgres = prepare_postgres(stage, &programs).await?;
    let pooler = prepare_pgweir(stage, &postgres, &pgweir).await?;

    terminal.heading("1,000 clients (TPC-B)");
    let clients = ["-c", "1000", "-j", "2"];
    let direct = load(stage, options, &postgres, None, &clients).await?;
    let pooled = load(stage, options, &postgres, Some(pooler), &clients).await?;

    terminal.heading("20 clients that connect anew for each query");
    let short = ["-C", "-S", "-c", "20", "-j", "2"];
    let short_direct = load(stage, options, &postgres, None, &short).await?;
    let short_pooled = load(stage, options, &postgres, Some(pooler), &short).await?;

    let runs = [
        table::Pair {
            what: "1,000 clients",
            direct,
            pooled,
        },
        table::Pair {
            what: "short connections",
            direct: short_direct,
            pooled: short_pooled,
        },
    ];
    table::print(&terminal, &runs);
    if options.keep {
        keep::record(stage, &postgres, pooler)?;
    }
    verdict(&runs)
}

fn place_pgweir(stage: &Stage, options: &Options) -> Result<PathBuf, StageError> {
    if !options.pgweir.is_file() {
        return Err(StageError::with_next(
            format!("there is no {}", options.pgweir.display()),
            "build it: cargo build --release -p pgweir (`make demo` does that, too)",
        ));
    }
    stage.place_program(&options.pgweir, "pgweir")
}

async fn prepare_postgres(stage: &mut Stage, programs: &Programs) -> Result<Postgres, StageError> {
    let terminal = stage.terminal();
    let user = stage.account().name().to_owned();
    let what = format!(
        "start PostgreSQL in {} as user {user}, max_connections = {CONNECTIONS_MAX}",
        stage.path().display()
    );
    let postgres = terminal
        .during(&what, Postgres::start(stage, programs, CONNECTIONS_MAX))
        .await?;
    let what = format!("fill its tables: pgbench -i -s {SCALE}");
    terminal.during(&what, postgres.fill(stage, SCALE)).await?;
    Ok(postgres)
}

async fn prepare_pgweir(
    stage: &mut Stage,
    postgres: &Postgres,
    program: &std::path::Path,
) -> Result<Pooler, StageError> {
    let settings = PoolerSettings {
        postgres_port: postgres.port(),
        pool: POOL,
        clients_max: CLIENTS_MAX,
        workers: None,
        prepared_max: None,
        tls: None,
        scram: false,
        databases: &[],
        more: "",
        own_lines: String::new(),
    };
    let psql = postgres.programs().path("psql");
    let what = format!("start pgweir: transaction mode, default_pool_size = {POOL}");
    let terminal = stage.terminal();
    let start = Pooler::start(stage, "pgweir", program, &settings, &psql);
    terminal.during(&what, start).await
}

/// A run of pgbench, and the number of PostgreSQL's connections meanwhile.
pub(crate) struct Run {
    /// The figures that pgbench reported, or its error.
    pub(crate) outcome: Result<Outcome, String>,
    /// The largest number of connections of the load's user that PostgreSQL had at once.
    pub(crate) connections_seen: Option<u32>,
}

async fn load(
    stage: &Stage,
    options: &Options,
    postgres: &Postgres,
    pooler: Option<Pooler>,
    arguments: &[&str],
) -> Result<Run, StageError> {
    let load = Load {
        program: postgres.programs().path("pgbench"),
        port: pooler.map_or(postgres.port(), |pooler| pooler.port),
        length: Length::Seconds(options.seconds),
        arguments,
        tls: false,
        startup_options: "",
        log: None,
        directory: stage.path(),
    };
    let way = if pooler.is_some() {
        "through pgweir"
    } else {
        "directly"
    };
    let command = format!("pgbench {} -T {}", arguments.join(" "), options.seconds);
    let terminal = stage.terminal();
    let mut seen = None;
    let outcome = terminal
        .during(&format!("{way:<15} {command}"), async {
            tokio::select! {
                outcome = load.run() => outcome,
                never = watch(stage, postgres, &mut seen) => match never {},
            }
        })
        .await;
    match &outcome {
        Ok(outcome) => terminal.line(&format!(
            "         {}",
            terminal.good(&format!(
                "{} transactions, {} failed",
                table::thousands(outcome.transactions as f64),
                outcome.failed
            ))
        )),
        Err(words) => terminal.line(&format!("         {}", terminal.bad(words))),
    }
    Ok(Run {
        outcome,
        connections_seen: seen,
    })
}

/// Counts PostgreSQL's connections every two seconds, until it is dropped.
async fn watch(
    stage: &Stage,
    postgres: &Postgres,
    seen: &mut Option<u32>,
) -> std::convert::Infallible {
    let sql = format!(
        "select count(*) from pg_stat_activity where usename = '{}'",
        crate::stage::postgres::NAME
    );
    loop {
        sleep(Duration::from_secs(2)).await;
        if let Ok(count) = postgres.administer(stage, "postgres", &sql).await {
            *seen = (*seen).max(count.parse().ok());
        }
    }
}

/// Returns an error if pgweir has failed. PostgreSQL alone is expected to turn clients away.
fn verdict(runs: &[table::Pair]) -> Result<(), StageError> {
    for run in runs {
        match &run.pooled.outcome {
            Ok(outcome) if outcome.failed == 0 => {}
            Ok(outcome) => {
                return Err(StageError::new(format!(
                    "{} transactions failed through pgweir ({})",
                    outcome.failed, run.what
                )));
            }
            Err(words) => {
                return Err(StageError::new(format!(
                    "pgbench failed through pgweir ({}): {words}",
                    run.what
                )));
            }
        }
    }
    Ok(())
}
