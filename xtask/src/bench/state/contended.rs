//! Thirty clients on ten servers: CPU time of PostgreSQL and pgweir per transaction.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    super::{
        client,
        measure::{Figures, Measuring},
        options::Options,
        report::Series,
        subject::{self, Subject},
    },
    Outcome, cell, mark, note, query,
    texts::OBJECTS,
};
use crate::stage::{
    Stage, StageError, Terminal,
    pgbench::{Length, Load},
    pooler::{Pooler, PoolerSettings},
    postgres,
};

/// Server connections of a pooler.
pub(super) const SERVERS: u32 = 10;

const CLIENTS: &str = "30";

/// The interval at which tables are created and dropped beside the load.
const DDL_EACH: Duration = Duration::from_millis(300);

/// The work of the clients.
struct Work {
    name: &'static str,
    script: Script,
    /// Whether another client creates and drops a table at intervals.
    ddl: bool,
    base: Base,
    limit: f64,
}

enum Script {
    Builtin(&'static str),
    Text(&'static str),
}

/// The load with which the work is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The same load with `session_state = off`.
    Off,
    /// The same load without DDL.
    Quiet,
}

const WORKS: &[Work] = &[
    Work {
        name: "select-only",
        script: Script::Builtin("select-only"),
        ddl: false,
        base: Base::Off,
        limit: 1.03,
    },
    Work {
        name: "TPC-B-like",
        script: Script::Builtin("tpcb-like"),
        ddl: false,
        base: Base::Off,
        limit: 1.03,
    },
    Work {
        name: "SET app.tenant, select",
        script: Script::Text(
            "\\set id random(1, 1000)\n\
             set app.tenant = :client_id;\n\
             select name from item where id = :id;\n",
        ),
        ddl: false,
        base: Base::Off,
        limit: 1.6,
    },
    Work {
        name: "insert, uncertified trigger",
        script: Script::Text("insert into fired values (1);\n"),
        ddl: false,
        base: Base::Off,
        limit: 2.0,
    },
    Work {
        name: "select-only beside DDL",
        script: Script::Builtin("select-only"),
        ddl: true,
        base: Base::Quiet,
        limit: 1.1,
    },
];

/// pgweir with the work, and pgweir with the load that it is compared with.
struct Poolers {
    on: Pooler,
    off: Pooler,
}

pub(super) async fn measure(
    stage: &mut Stage,
    options: &Options,
    pgweir: &Subject,
    measuring: &Measuring<'_>,
    scenario: &'static str,
) -> Result<Outcome, StageError> {
    let terminal = stage.terminal();
    let load = format!(
        "pgbench -n -c {CLIENTS} -j 2 -T {}, {SERVERS} servers, best of {}",
        measuring.seconds, options.rounds
    );
    terminal.line(&load);
    let objects =
        measuring
            .postgres
            .administer(stage, postgres::NAME, "select to_regclass('item')");
    if objects.await?.is_empty() {
        measuring
            .postgres
            .administer(stage, postgres::NAME, OBJECTS)
            .await?;
    }
    let settings = |more| PoolerSettings {
        more,
        ..subject::settings(measuring.postgres.port(), SERVERS, 100)
    };
    let poolers = Poolers {
        on: pgweir
            .start(stage, measuring.postgres, settings(""))
            .await?,
        off: pgweir
            .start(stage, measuring.postgres, settings("session_state = off\n"))
            .await?,
    };
    let mut series = vec![
        Series::named("pgweir", pgweir.workers()),
        Series::named("without", None),
    ];
    for round in 0..options.rounds {
        let mut figures = vec![Ok(Figures::new()); series.len()];
        for work in WORKS {
            let what = format!("round {} of {}: {}", round + 1, options.rounds, work.name);
            let turn = async {
                for step in 0..2 {
                    let own = (round + step) % 2 == 0;
                    let at = usize::from(!own);
                    let cost = cost(stage, work, &poolers, own, measuring).await;
                    note(&mut figures[at], work.name, cost);
                }
                Ok::<_, StageError>(())
            };
            terminal.during(&what, turn).await?;
        }
        for (series, figures) in series.iter_mut().zip(figures) {
            series.rounds.push(figures);
        }
    }
    for pooler in [poolers.on, poolers.off] {
        stage.check(pooler.id)?;
        stage.stop(pooler.id).await;
    }
    let marks = print(&terminal, scenario, &series);
    Ok((load, series, marks))
}

/// Returns the CPU time in µs per transaction, of pgweir and all of PostgreSQL, for the work itself or for the load
/// that it is compared with.
async fn cost(
    stage: &Stage,
    work: &Work,
    poolers: &Poolers,
    own: bool,
    measuring: &Measuring<'_>,
) -> Result<f64, String> {
    let pooler = match own || work.base == Base::Quiet {
        true => poolers.on,
        false => poolers.off,
    };
    let file = stage.path().join("script.sql");
    let file_text = file.display().to_string();
    let script = match work.script {
        Script::Builtin(name) => ["-b", name],
        Script::Text(text) => {
            stage.write(&file, text).map_err(|e| e.to_string())?;
            ["-f", &file_text]
        }
    };
    let arguments = [&script[..], &["-c", CLIENTS, "-j", "2"]].concat();
    let load = |seconds| Load {
        program: measuring.postgres.programs().path("pgbench"),
        port: pooler.port,
        length: Length::Seconds(seconds),
        arguments: &arguments,
        tls: false,
        startup_options: "",
        log: None,
        directory: stage.path(),
    };
    load(1).run().await?;
    let read = || [pooler.id, measuring.postgres.id()].map(|id| measuring.units.read(id));
    let before = read();
    let load = load(measuring.seconds);
    let outcome = if work.ddl && own {
        tokio::select! {
            outcome = load.run() => outcome,
            Err(words) = make_tables(pooler.port) => Err(words),
        }
    } else {
        load.run().await
    }?;
    let after = read();
    if outcome.failed > 0 {
        return Err(format!("{} transactions failed", outcome.failed));
    }
    let spent = after.iter().zip(&before);
    let spent: f64 = spent
        .map(|(after, before)| after.since(before).cpu_s())
        .sum();
    Ok(spent * 1e6 / outcome.transactions as f64)
}

/// Creates and drops a table for ever.
async fn make_tables(port: u16) -> Result<std::convert::Infallible, String> {
    let mut client = client::log_in(port, postgres::NAME).await?;
    loop {
        for text in ["create table beside (v int)", "drop table beside"] {
            client::ask(&mut client, &query(text)).await?;
        }
        sleep(DDL_EACH).await;
    }
}

fn print(terminal: &Terminal, scenario: &'static str, series: &[Series]) -> Vec<super::Mark> {
    let [own, base] = series else {
        return Vec::new();
    };
    terminal.line(
        "| what the clients do | compared with | CPU us/txn | CPU us/txn of the comparison | ratio | aim |",
    );
    terminal.line("|---|---|---|---|---|---|");
    let whole = series.iter().all(|s| s.rounds.iter().all(Result::is_ok));
    let mut marks = Vec::new();
    for work in WORKS {
        let (cost, of_base) = (own.best(work.name), base.best(work.name));
        let ratio = cost.zip(of_base).map(|(cost, of_base)| cost / of_base);
        let compared = match work.base {
            Base::Off => "`session_state = off`",
            Base::Quiet => "no DDL",
        };
        terminal.line(&format!(
            "| {} | {compared} | {} | {} | **{}** | {} |",
            work.name,
            cell(cost, 0),
            cell(of_base, 0),
            cell(ratio, 2),
            work.limit
        ));
        marks.push(mark(
            scenario,
            &own.subject,
            work.name,
            work.limit,
            ratio,
            whole,
        ));
    }
    super::super::report::print_failures(terminal, series);
    marks
}
