//! Measures a subject under a load.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    idle_clients::IdleClients,
    scenario::{Access, Kind, Scenario},
    storm,
};
use crate::stage::{
    meter::Units,
    own_command,
    pgbench::{Length, Load, Outcome, TransactionLog},
    pooler::Pooler,
    postgres::{self, Postgres},
};

/// Figures of one measurement by key; the unit is the key's end.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// The number of copies of the table in a measurement.
const COPIES: usize = 4;

/// The part of the transactions whose latency is logged, unless a scenario needs more.
const SAMPLING_RATE: f64 = 0.05;

/// Files that a pooler and the process of idle clients need beside one per client.
const FILES_SPARE: u64 = 2_000;

/// `max_client_conn`, unless a scenario needs more.
const CLIENTS_MAX: u32 = 9_000;

/// Clients beside the idle ones: the benchmark's own questions.
const CLIENTS_SPARE: u32 = 100;

/// The largest number of clients of the scenario `max`.
const MAX_CLIENTS: u64 = 18_000;

/// Clients that share statements.
const PREPARING_CLIENTS: u32 = 1_000;

/// Clients that have prepared the statements before, on every worker and server, and so have paid for the texts and for
/// the memory of servers.
const PREPARED_CLIENTS: u32 = 200;

/// The parameters of a measurement.
pub(super) struct Measuring<'a> {
    /// The server behind all subjects.
    pub(super) postgres: &'a Postgres,
    /// The folder for files.
    pub(super) directory: PathBuf,
    /// The kernel's units.
    pub(super) units: Units,
    /// Seconds of a run of pgbench.
    pub(super) seconds: u32,
    /// Clients of the scenario `idle`.
    pub(super) idle_clients: u32,
    /// Open files allowed to a process.
    pub(super) files_max: u64,
    /// Bytes of one COPY of the large table.
    pub(super) copy_bytes: f64,
}

impl<'a> Measuring<'a> {
    /// Measures the subject; an error is the message of the side that failed.
    pub(super) async fn measure(
        &self,
        scenario: &Scenario,
        pooler: Pooler,
    ) -> Result<Figures, String> {
        match scenario.kind {
            Kind::Pgbench(arguments) => {
                let seconds = scenario.seconds(self.seconds);
                self.pgbench(scenario, arguments, seconds, pooler).await
            }
            Kind::Copy => self.copy(pooler).await,
            Kind::Idle => self.measure_idle_clients(pooler, self.idle_clients).await,
            Kind::Max => {
                self.measure_idle_clients(pooler, self.clients_possible())
                    .await
            }
            Kind::Statements(count) => self.statements(pooler, count).await,
            Kind::Sessions(arguments, options) => {
                self.sessions(scenario, arguments, options, pooler).await
            }
            Kind::Storm => storm::measure(self, pooler).await,
            Kind::State | Kind::Contended | Kind::Sweep(_) => {
                Err("is not measured pooler by pooler".to_owned())
            }
        }
    }

    /// Lets caches fill and servers connect before the first measurement.
    pub(super) async fn warm_up(&self, scenario: &Scenario, pooler: Pooler) -> Result<(), String> {
        let Kind::Pgbench(arguments) = scenario.kind else {
            return Ok(());
        };
        let load = self.load_of_scenario(scenario, arguments, scenario.seconds(1), pooler);
        load.run().await.map(drop)
    }

    /// Returns the load as a command line.
    pub(super) fn command_line(&self, scenario: &Scenario) -> String {
        match scenario.kind {
            Kind::Pgbench(arguments) => {
                format!(
                    "pgbench -n {} -T {} -l --sampling-rate=0.05",
                    arguments.join(" "),
                    scenario.seconds(self.seconds)
                )
            }
            Kind::Copy => format!(
                "psql{}",
                format!(" -c '{}'", copy_statement()).repeat(COPIES)
            ),
            Kind::Idle => format!("{} clients, 50 of them log in at a time", self.idle_clients),
            Kind::Max => format!(
                "{} clients, 50 of them log in at a time",
                self.clients_possible()
            ),
            Kind::Sessions(arguments, [one, other]) => format!(
                "pgbench -n {arguments} -T {seconds}, twice at once, plainly and with PGOPTIONS={one} and {other}",
                arguments = arguments.join(" "),
                seconds = self.seconds,
            ),
            Kind::State | Kind::Contended => String::new(),
            Kind::Storm => storm::command_line(self.seconds),
            Kind::Sweep(sweep) => sweep.command_line(self.seconds),
            Kind::Statements(count) => {
                format!("{PREPARING_CLIENTS} clients, {count} Parse messages and one Sync each")
            }
        }
    }

    /// Returns the number of connections that a pooler must allow in this scenario.
    pub(super) fn clients_max(&self, kind: Kind) -> u32 {
        let clients = match kind {
            Kind::Pgbench(_)
            | Kind::Copy
            | Kind::Statements(_)
            | Kind::Sessions(..)
            | Kind::State
            | Kind::Contended
            | Kind::Storm
            | Kind::Sweep(_) => 0,
            Kind::Idle => self.idle_clients,
            Kind::Max => self.clients_possible(),
        };
        clients.saturating_add(CLIENTS_SPARE).max(CLIENTS_MAX)
    }

    fn clients_possible(&self) -> u32 {
        let clients = MAX_CLIENTS.min(self.files_max.saturating_sub(FILES_SPARE));
        u32::try_from(clients).unwrap_or(u32::MAX)
    }

    /// Returns a run of pgbench without TLS, which logs this part of the transactions.
    pub(super) fn load<'b>(
        &'b self,
        port: u16,
        arguments: &'b [&'b str],
        seconds: u32,
        sampling_rate: f64,
    ) -> Load<'b> {
        Load {
            program: self.postgres.programs().path("pgbench"),
            port,
            length: Length::Seconds(seconds),
            arguments,
            tls: false,
            startup_options: "",
            log: Some(TransactionLog {
                prefix: self.directory.join("transactions"),
                sampling_rate,
            }),
            directory: &self.directory,
        }
    }

    fn load_of_scenario<'b>(
        &'b self,
        scenario: &Scenario,
        arguments: &'b [&'b str],
        seconds: u32,
        pooler: Pooler,
    ) -> Load<'b> {
        Load {
            tls: scenario.access == Access::Tls,
            ..self.load(pooler.port, arguments, seconds, SAMPLING_RATE)
        }
    }

    /// Runs pgbench. Afterwards, [`latencies`](Self::latencies) has those of this run.
    ///
    /// # Errors
    /// pgbench or a transaction failed.
    pub(super) async fn run(&self, load: &Load<'_>) -> Result<Outcome, String> {
        take_latencies(&self.directory);
        let outcome = load.run().await?;
        match outcome.failed {
            0 => Ok(outcome),
            failed => Err(format!("{failed} transactions failed")),
        }
    }

    /// Returns two percentiles of the latencies that the last run has logged; none if it has logged too few.
    pub(super) fn latencies(&self) -> Figures {
        let latencies = take_latencies(&self.directory);
        let figure = |(key, part)| Some((key, percentile(&latencies, part)? / 1000.0));
        let parts = [("p50_ms", 0.5), ("p99_ms", 0.99)];
        parts.into_iter().filter_map(figure).collect()
    }

    async fn pgbench(
        &self,
        scenario: &Scenario,
        arguments: &[&str],
        seconds: u32,
        pooler: Pooler,
    ) -> Result<Figures, String> {
        let load = self.load_of_scenario(scenario, arguments, seconds, pooler);
        let before = self.units.read(pooler.id);
        let outcome = self.run(&load).await?;
        let spent = self.units.read(pooler.id).since(&before);
        let count = outcome.transactions as f64;
        let per_transaction_us = |seconds: f64| seconds * 1e6 / count;
        let mut figures = Figures::from([
            ("tps", outcome.tps),
            ("lat_ms", outcome.latency_ms),
            ("cpu_us", per_transaction_us(spent.cpu_s())),
            ("user_us", per_transaction_us(spent.user_s)),
            ("sys_us", per_transaction_us(spent.system_s)),
            ("machine_us", per_transaction_us(spent.busy_s)),
            ("client_us", per_transaction_us(spent.children_s)),
            ("cores", spent.cpu_s() / spent.wall_s),
            ("client_cores", spent.children_s / spent.wall_s),
            ("stolen_percent", spent.stolen_percent),
            ("rss_mb", self.units.resident_kb(pooler.id) / 1024.0),
        ]);
        figures.extend(self.latencies());
        Ok(figures)
    }

    async fn sessions(
        &self,
        scenario: &Scenario,
        arguments: &[&str],
        options: [&str; 2],
        pooler: Pooler,
    ) -> Result<Figures, String> {
        let plain = self.side_by_side(scenario, arguments, ["", ""], pooler);
        let plain = plain.await?;
        let mixed = self.side_by_side(scenario, arguments, options, pooler);
        let mixed = mixed.await?;
        Ok(Figures::from([
            ("plain_tps", plain),
            ("tps", mixed),
            ("kept", mixed / plain),
            ("rss_mb", self.units.resident_kb(pooler.id) / 1024.0),
        ]))
    }

    /// Returns the transactions per second of two runs together.
    async fn side_by_side(
        &self,
        scenario: &Scenario,
        arguments: &[&str],
        options: [&str; 2],
        pooler: Pooler,
    ) -> Result<f64, String> {
        let [one, other] = options.map(|startup_options| Load {
            startup_options,
            log: None,
            ..self.load_of_scenario(scenario, arguments, self.seconds, pooler)
        });
        let (one, other) = tokio::try_join!(one.run(), other.run())?;
        match one.failed + other.failed {
            0 => Ok(one.tps + other.tps),
            failed => Err(format!("{failed} transactions failed")),
        }
    }

    async fn copy(&self, pooler: Pooler) -> Result<Figures, String> {
        let mut psql = own_command(&self.postgres.programs().path("psql"));
        psql.args(["-XAtq", "-h", "127.0.0.1", "-p", &pooler.port.to_string()])
            .args(["-U", postgres::NAME, "-d", postgres::NAME])
            .args(["-v", "ON_ERROR_STOP=1"])
            .args([["-c", copy_statement()]; COPIES].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let before = self.units.read(pooler.id);
        let output = timeout(Duration::from_secs(300), psql.output()).await;
        let spent = self.units.read(pooler.id).since(&before);
        match output {
            Ok(Ok(output)) if output.status.success() => {}
            Ok(Ok(output)) => {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
            Ok(Err(e)) => return Err(format!("cannot run psql: {e}")),
            Err(_) => return Err("psql did not end within 300 s".to_owned()),
        }
        let gigabytes = self.copy_bytes * COPIES as f64 / 1e9;
        Ok(Figures::from([
            ("mb_s", gigabytes * 1000.0 / spent.wall_s),
            ("cpu_s_gb", spent.cpu_s() / gigabytes),
            ("machine_s_gb", spent.busy_s / gigabytes),
            ("stolen_percent", spent.stolen_percent),
            ("rss_mb", self.units.resident_kb(pooler.id) / 1024.0),
        ]))
    }

    /// Memory is compared with that of a pooler which has served one client already.
    async fn measure_idle_clients(&self, pooler: Pooler, clients: u32) -> Result<Figures, String> {
        let count = f64::from(clients);
        let resident = || self.units.resident_kb(pooler.id);
        let read = || self.units.read(pooler.id);
        let mut idle_clients = IdleClients::start(pooler.port).map_err(|e| e.to_string())?;
        all(idle_clients.open(1).await?, 1)?;
        for _ in 0..3 {
            all(idle_clients.ask().await?, 1)?;
        }
        let base_kb = resident();
        let before = read();
        let opened = all(idle_clients.open(clients - 1).await?, clients - 1)?;
        sleep(Duration::from_millis(500)).await;
        let connected_kb = resident();
        let connected = read();
        sleep(Duration::from_secs(3)).await;
        let rested = read();
        let asked = idle_clients.ask().await?;
        sleep(Duration::from_secs(1)).await;
        let used_kb = resident();
        idle_clients.close().await?;
        sleep(Duration::from_millis(1500)).await;
        let left_kb = resident();
        if let Some(words) = asked.failure {
            return Err(format!("{} of {clients} served: {words}", asked.clients));
        }
        let idle = rested.since(&connected);
        Ok(Figures::from([
            ("wanted", count),
            ("served", f64::from(asked.clients)),
            ("base_mb", base_kb / 1024.0),
            ("kb_client", (connected_kb - base_kb) / count),
            ("kb_used", (used_kb - base_kb) / count),
            ("rss_mb", used_kb / 1024.0),
            ("left_mb", left_kb / 1024.0),
            ("connect_s", opened.seconds),
            ("ask_s", asked.seconds),
            ("login_us", connected.since(&before).cpu_s() * 1e6 / count),
            ("idle_cpu_percent", 100.0 * idle.cpu_s() / idle.wall_s),
        ]))
    }

    /// Memory is compared with that of a pooler which knows the statements' texts and the clients.
    async fn statements(&self, pooler: Pooler, count: u32) -> Result<Figures, String> {
        let resident = || self.units.resident_kb(pooler.id);
        let begin = |clients| async move {
            let mut idle_clients = IdleClients::start(pooler.port).map_err(|e| e.to_string())?;
            all(idle_clients.open(clients).await?, clients)?;
            all(idle_clients.ask().await?, clients)?;
            Ok::<_, String>(idle_clients)
        };
        let mut first = begin(PREPARED_CLIENTS).await?;
        let bare_kb = resident();
        all(first.prepare(count).await?, PREPARED_CLIENTS)?;
        let known_kb = resident();
        let mut idle_clients = begin(PREPARING_CLIENTS).await?;
        let base_kb = resident();
        let before = self.units.read(pooler.id);
        all(idle_clients.prepare(count).await?, PREPARING_CLIENTS)?;
        let spent = self.units.read(pooler.id).since(&before);
        let used_kb = resident();
        idle_clients.close().await?;
        first.close().await?;
        sleep(Duration::from_millis(1500)).await;
        let clients = f64::from(PREPARING_CLIENTS);
        Ok(Figures::from([
            ("kb_client", (used_kb - base_kb) / clients),
            ("texts_mb", (known_kb - bare_kb) / 1024.0),
            ("base_mb", base_kb / 1024.0),
            ("rss_mb", used_kb / 1024.0),
            ("left_mb", resident() / 1024.0),
            (
                "parse_us",
                spent.cpu_s() * 1e6 / (clients * f64::from(count)),
            ),
        ]))
    }
}

/// Returns the large table's statement.
fn copy_statement() -> &'static str {
    "copy large to stdout"
}

/// SQL that creates the large table, and SQL that returns the bytes of one copy of it.
pub(super) const LARGE_TABLE: [&str; 3] = [
    "create unlogged table large as \
     select i, repeat(md5(i::text), 3) as t from generate_series(1, 800000) i",
    "grant select on large to bench",
    "select sum(length(i::text) + length(t) + 2) from large",
];

pub(super) fn all(
    done: super::idle_clients::Done,
    wanted: u32,
) -> Result<super::idle_clients::Done, String> {
    match &done.failure {
        Some(words) => Err(format!("{} of {wanted} logged in: {words}", done.clients)),
        None => Ok(done),
    }
}

/// Returns sorted latencies in µs from pgbench's logs, which are removed.
fn take_latencies(directory: &Path) -> Vec<f64> {
    let mut latencies = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .to_string_lossy()
            .starts_with("transactions")
        {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let fields = text.lines().map(|line| line.split(' ').nth(2));
        latencies.extend(
            fields
                .flatten()
                .filter_map(|field| field.parse::<f64>().ok()),
        );
        // A file that is left would be read again in the next run, and noticed there.
        let _ = fs::remove_file(entry.path());
    }
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// Returns the latency that this part of all latencies does not exceed; `None` for too few latencies.
fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    if sorted.len() < 50 {
        return None;
    }
    sorted.get((sorted.len() as f64 * part) as usize).copied()
}
