//! `cargo xtask instructions`: the cost of the code for session state in a transaction that changes no session state.
//! The cost is counted in instructions under callgrind, so that the machine's load does not matter.
//!
//! Each load runs twice with different counts of transactions; the difference is divided by the difference of the
//! counts. So the cost of the start and of the logins is not counted.
//!
//! The scanner reads every byte of a statement, with SIMD instructions where it can. So for long statements the time
//! is measured, too, without callgrind and in several rounds. The instructions are shown as well, since the machine's
//! load does not change them.
//!
//! With `--compare`, only the transactions of the baseline are counted, and a count that has grown too much is an
//! error: see [`gate`].

mod atomics;
mod baseline;
mod gate;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;

use self::atomics::AtomicInstructions;
use crate::stage::{
    Stage, StageError, Terminal,
    meter::Units,
    on_stage,
    pgbench::{Length, Load},
    pooler::{Pooler, PoolerSettings},
    postgres::{Postgres, Programs},
};

/// Server connections of the throw-away PostgreSQL.
const CONNECTIONS_MAX: u32 = 20;
/// Transactions of the two runs.
const COUNTS: [u32; 2] = [1_000, 3_000];
/// Statements up to this length may cost `MORE_MAX` more.
const SHORT_BYTES: usize = 256;
/// Instructions per transaction that `session_state = transparent` may add.
const MORE_MAX: f64 = 1_000.0;
/// Nanoseconds of user time per byte beyond `SHORT_BYTES` that `session_state = transparent` may add.
const NS_PER_BYTE_MAX: f64 = 3.0;
/// Rounds in which time is measured, and seconds of each run.
const ROUNDS: u32 = 5;
const SECONDS: u32 = 4;

const OFF: &str = "session_state = off\ncatalog_check_interval = 3600\n";
const TRANSPARENT: &str = "session_state = transparent\ncatalog_check_interval = 3600\n";

/// Counts the instructions that `session_state = transparent` adds to a transaction.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask instructions")]
struct Options {
    /// The pgweir to count. By default the one that the profile has in the folder `target`.
    #[arg(long, env = "PGWEIR_BIN")]
    pgweir: Option<PathBuf>,

    /// The cargo profile with which it was built. Each has a baseline of its own.
    #[arg(long, default_value = "release")]
    profile: Profile,

    /// Valgrind, of the Debian package of this name.
    #[arg(long, default_value = "/usr/bin/valgrind")]
    valgrind: PathBuf,

    /// Only compare with the profile's baseline in the repository: fail if a count has grown by more than 3 %.
    #[arg(long)]
    compare: bool,

    /// Only write the profile's baseline anew.
    #[arg(long, conflicts_with = "compare")]
    write_baseline: bool,
}

/// The cargo profiles that have a baseline.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Profile {
    Release,
    Quick,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "quick",
        }
    }

    /// Returns the path of the file with the baseline.
    fn baseline(self) -> PathBuf {
        let file = format!("instructions-{}.baseline", self.name());
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
    }
}

/// A kind of transaction.
struct Kind {
    what: &'static str,
    protocol: &'static str,
    /// Whether each transaction has a connection of its own.
    connects: bool,
    /// The statement; unset for pgbench's own.
    statement: Option<String>,
}

/// Counts with the arguments of the command line.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    let options = Options::parse_from(arguments);
    on_stage("instructions", async |stage: &mut Stage| {
        count_all(stage, &options).await
    })
}

fn kinds() -> Vec<Kind> {
    let join = "SELECT a.abalance, b.bbalance, t.tbalance FROM pgbench_accounts a \
                JOIN pgbench_branches b ON b.bid = a.bid JOIN pgbench_tellers t ON t.bid = b.bid \
                WHERE a.aid = :aid AND t.tid = 3 /* request :aid */ ORDER BY t.tid LIMIT 10";
    let row = "SELECT abalance AS name:aid FROM pgbench_accounts WHERE aid = :aid";
    let columns = "a.aid AS account, a.abalance AS balance_of_account, b.bid AS branch, \
                   b.bbalance AS balance_of_branch, t.tid AS teller, t.tbalance AS balance_of_teller, \
                   CASE WHEN a.abalance < 0 THEN 'overdrawn' WHEN a.abalance = 0 THEN 'empty' \
                   ELSE 'in credit' END AS state_of_account, \
                   coalesce(nullif(a.filler, ''), 'nothing') AS filler_of_account, \
                   a.abalance * 100 / greatest(b.bbalance, 1) AS part_of_branch";
    let tables = "pgbench_accounts a JOIN pgbench_branches b ON b.bid = a.bid \
                  JOIN pgbench_tellers t ON t.bid = b.bid AND t.tid BETWEEN 1 AND 3 \
                  LEFT JOIN pgbench_history h ON h.aid = a.aid AND h.tid = t.tid";
    let filter = "a.aid = :aid AND (b.bbalance IS NOT NULL OR t.tbalance > -100000) \
                  AND a.bid IN (SELECT bid FROM pgbench_branches WHERE bbalance > -1000000)";
    let report = format!(
        "SELECT {columns}, h.delta AS name:aid FROM {tables} WHERE {filter} \
         ORDER BY t.tid, h.mtime DESC NULLS LAST LIMIT 10"
    );
    let with = format!(
        "WITH chosen AS (SELECT {columns} FROM {tables} WHERE {filter}), \
         summed AS (SELECT c.branch, sum(c.balance_of_account) AS total FROM chosen c GROUP BY c.branch) \
         SELECT c.account, c.state_of_account, s.total AS name:aid FROM chosen c \
         JOIN summed s ON s.branch = c.branch ORDER BY c.account LIMIT 10"
    );
    let values = |bytes: usize| {
        let mut text = "SELECT count(*) FROM (VALUES (1, 'first')".to_owned();
        for at in 0.. {
            if text.len() + 10 >= bytes {
                break;
            }
            text += &format!(", ({at}, 'name :aid')");
        }
        text + ") v"
    };
    let of = |what, protocol, statement| Kind {
        what,
        protocol,
        connects: false,
        statement,
    };
    vec![
        of("pgbench -S", "simple", None),
        of("pgbench -S", "extended", None),
        of("pgbench -S", "prepared", None),
        of(
            "a join, other literals and comment each time",
            "simple",
            Some(join.to_owned()),
        ),
        of(
            "one row, a name never seen before",
            "simple",
            Some(row.to_owned()),
        ),
        of(
            "a join, a name never seen before",
            "simple",
            Some(join.replacen("t.tbalance", "t.tbalance AS name:aid", 1)),
        ),
        of(
            "2,000 bytes of VALUES, others each time",
            "simple",
            Some(values(2_000)),
        ),
        of(
            "a report of joins, a name never seen before",
            "simple",
            Some(report),
        ),
        of(
            "a report with WITH, a name never seen before",
            "simple",
            Some(with),
        ),
    ]
}

async fn count_all(stage: &mut Stage, options: &Options) -> Result<(), StageError> {
    let terminal = stage.terminal();
    let profile = options.profile.name();
    let pgweir = match &options.pgweir {
        Some(pgweir) => pgweir.clone(),
        None => Path::new("target").join(profile).join("pgweir"),
    };
    let build = format!("build it: cargo build --profile {profile} -p pgweir");
    for (program, next) in [
        (&options.valgrind, "install the package valgrind"),
        (&pgweir, build.as_str()),
    ] {
        if !program.is_file() {
            return Err(StageError::with_next(
                format!("there is no {}", program.display()),
                next,
            ));
        }
    }
    let programs = Programs::find()?;
    let pgweir = stage.place_program(&pgweir, "pgweir")?;
    let counts = stage.make_directory("counts")?;
    let what = "start a throw-away PostgreSQL and fill its tables";
    let postgres = terminal
        .during(what, async {
            let postgres = Postgres::start(stage, &programs, CONNECTIONS_MAX).await?;
            postgres.fill(stage, 1).await?;
            Ok(postgres)
        })
        .await?;
    let counting = Counting {
        postgres,
        atomics: AtomicInstructions::of(&pgweir)?,
        pgweir,
        valgrind: options.valgrind.to_string_lossy().into_owned(),
        counts,
    };
    if options.compare {
        return counting.compare(stage, &terminal, options.profile).await;
    }
    if options.write_baseline {
        return counting
            .write_baseline(stage, &terminal, options.profile)
            .await;
    }
    let mut missed = 0;
    let (long, short): (Vec<Kind>, Vec<Kind>) = kinds()
        .into_iter()
        .partition(|kind| kind.bytes() > SHORT_BYTES);
    print_heading(&terminal, "Instructions of pgweir per transaction");
    for kind in &short {
        missed += usize::from(
            !counting
                .count(stage, &terminal, kind, Some(MORE_MAX))
                .await?,
        );
    }
    for kind in &long {
        counting.count(stage, &terminal, kind, None).await?;
    }
    print_heading(&terminal, "Nanoseconds of user time per transaction");
    for kind in &long {
        missed += usize::from(!counting.time(stage, &terminal, kind).await?);
    }
    match missed {
        0 => Ok(()),
        missed => Err(StageError::new(format!("{missed} of them cost too much"))),
    }
}

fn print_heading(terminal: &Terminal, what: &str) {
    terminal.heading(&format!("{what}: one client, one server"));
    terminal.line(&format!(
        "{:<46} {:<9} {:>6} {:>8} {:>12} {:>8}",
        "transaction", "protocol", "bytes", "off", "transparent", "more"
    ));
}

impl Kind {
    /// Returns the length of the statement; zero for pgbench's own.
    fn bytes(&self) -> usize {
        self.statement.as_ref().map_or(0, String::len)
    }

    /// Prints the kind's line. Returns whether the target was reached, if there is one.
    fn print(&self, terminal: &Terminal, [off, transparent]: [f64; 2], aim: Option<f64>) -> bool {
        let more = transparent - off;
        let is_reached = aim.is_none_or(|aim| more <= aim);
        let verdict = aim.map_or_else(String::new, |aim| {
            let word = match is_reached {
                true => terminal.good("reached"),
                false => terminal.bad("MISSED "),
            };
            format!("{word} (aim <= {aim:.0})")
        });
        let bytes = match self.bytes() {
            0 => "-".to_owned(),
            bytes => bytes.to_string(),
        };
        terminal.line(&format!(
            "{:<46} {:<9} {bytes:>6} {off:>8.0} {transparent:>12.0} {more:>8.0}  {verdict}",
            self.what, self.protocol
        ));
        is_reached
    }
}

/// Numbers of instructions.
#[derive(Debug, Clone, Copy)]
struct Executed {
    all: f64,
    /// The atomic ones, by which threads share memory.
    atomic: f64,
}

struct Counting {
    postgres: Postgres,
    /// The atomic instructions of pgweir.
    atomics: AtomicInstructions,
    pgweir: PathBuf,
    valgrind: String,
    /// The folder into which callgrind writes.
    counts: PathBuf,
}

impl Counting {
    /// Counts instructions. Returns whether `session_state = transparent` adds no more than it may.
    async fn count(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        kind: &Kind,
        aim: Option<f64>,
    ) -> Result<bool, StageError> {
        let what = format!("{}, {}", kind.what, kind.protocol);
        let counted = terminal.during(&what, async {
            let off = self.per_transaction(stage, OFF, kind).await?.all;
            let transparent = self.per_transaction(stage, TRANSPARENT, kind).await?.all;
            Ok::<_, StageError>([off, transparent])
        });
        Ok(kind.print(terminal, counted.await?, aim))
    }

    async fn per_transaction(
        &self,
        stage: &mut Stage,
        more: &'static str,
        kind: &Kind,
    ) -> Result<Executed, StageError> {
        let [few, many] = COUNTS;
        let base = self.total(stage, more, kind, few).await?;
        let all = self.total(stage, more, kind, many).await?;
        let transactions = f64::from(many - few);
        Ok(Executed {
            all: (all.all - base.all) / transactions,
            atomic: ((all.atomic - base.atomic) / transactions).max(0.0),
        })
    }

    /// Returns the instructions of a pgweir from start to end that serves this number of transactions.
    async fn total(
        &self,
        stage: &mut Stage,
        more: &'static str,
        kind: &Kind,
        transactions: u32,
    ) -> Result<Executed, StageError> {
        let path = self.counts.join("callgrind.out");
        let option = format!("--callgrind-out-file={}", path.display());
        let valgrind = self.valgrind.as_str();
        let above = [valgrind, "--tool=callgrind", "--dump-instr=yes", &option];
        let pooler = self.start(stage, "counted", &above, more).await?;
        let length = Length::Transactions(transactions);
        let outcome = self.load(stage, kind, pooler, length).await;
        stage.stop(pooler.id).await;
        outcome?;
        let text = fs::read_to_string(&path)
            .map_err(|e| StageError::new(format!("cannot read {}: {e}", path.display())))?;
        Ok(Executed {
            all: total_of(&text)
                .ok_or_else(|| StageError::new(format!("{} has no `totals`", path.display())))?,
            atomic: self.atomics.executed(&text) as f64,
        })
    }

    /// Measures time in several rounds, in turn. Returns whether `session_state = transparent` adds no more than it
    /// may.
    async fn time(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        kind: &Kind,
    ) -> Result<bool, StageError> {
        let poolers = [
            self.start(stage, "off", &[], OFF).await?,
            self.start(stage, "transparent", &[], TRANSPARENT).await?,
        ];
        let units = Units::new();
        let mut times = [Vec::new(), Vec::new()];
        for round in 1..=ROUNDS {
            let what = format!("{}, round {round} of {ROUNDS}", kind.what);
            let measured = terminal.during(&what, async {
                for (pooler, times) in poolers.iter().zip(&mut times) {
                    let before = units.read(pooler.id);
                    let length = Length::Seconds(SECONDS);
                    let count = self.load(stage, kind, *pooler, length).await?;
                    let spent = units.read(pooler.id).since(&before);
                    times.push(spent.user_s * 1e9 / count);
                }
                Ok::<_, StageError>(())
            });
            measured.await?;
        }
        for pooler in poolers {
            stage.stop(pooler.id).await;
        }
        let medians = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        let aim = NS_PER_BYTE_MAX * (kind.bytes() - SHORT_BYTES) as f64;
        Ok(kind.print(terminal, medians, Some(aim)))
    }

    async fn start(
        &self,
        stage: &mut Stage,
        name: &str,
        above: &[&str],
        more: &'static str,
    ) -> Result<Pooler, StageError> {
        let settings = PoolerSettings {
            postgres_port: self.postgres.port(),
            pool: 1,
            clients_max: 20,
            workers: Some(1),
            prepared_max: None,
            tls: None,
            scram: false,
            databases: &[],
            more,
            // Valgrind does not know io_uring.
            own_lines: "io_driver = epoll\n".to_owned(),
        };
        let psql = self.postgres.programs().path("psql");
        Pooler::start_below(stage, name, above, &self.pgweir, &settings, &psql).await
    }

    /// Runs transactions of this kind with one client. Returns their number.
    async fn load(
        &self,
        stage: &Stage,
        kind: &Kind,
        pooler: Pooler,
        length: Length,
    ) -> Result<f64, StageError> {
        let script = self.counts.join("script.sql");
        let path = script.to_string_lossy();
        let transaction = match &kind.statement {
            None if kind.connects => vec!["-S", "-C"],
            None => vec!["-S"],
            Some(statement) => {
                let text = format!("\\set aid random(10000, 99999)\n{statement};\n");
                stage.write(&script, &text)?;
                vec!["-f", &path]
            }
        };
        let load = Load {
            program: self.postgres.programs().path("pgbench"),
            port: pooler.port,
            length,
            arguments: &[&["-c", "1", "-M", kind.protocol], &transaction[..]].concat(),
            tls: false,
            startup_options: "",
            log: None,
            directory: &self.counts,
        };
        let outcome = load.run().await;
        let outcome = outcome.map_err(|words| StageError::new(format!("pgbench: {words}")))?;
        Ok(outcome.transactions as f64)
    }
}

/// Returns the sum that callgrind has written.
fn total_of(text: &str) -> Option<f64> {
    let found = text.lines().find_map(|line| line.strip_prefix("totals: "));
    found?.trim().parse().ok()
}
