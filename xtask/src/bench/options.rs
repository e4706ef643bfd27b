//! The benchmark's command line.

use std::path::PathBuf;

use clap::Parser;

use super::{
    scenario::{SCENARIOS, Scenario},
    subject::Driver,
};

/// Measures pgweir beside PgBouncer and haproxy, in turn and under the same load.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
pub(super) struct Options {
    /// Which scenarios, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = scenario)]
    scenarios: Vec<&'static Scenario>,

    /// How often each subject is measured. The idle clients of `idle` and `max` are measured once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,

    /// Seconds of each run of pgbench.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(super) secs: u32,

    /// Server connections of a pooler.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=40))]
    pub(super) pool: u32,

    /// A build of pgweir, several times to compare builds. A plain path is named `pgweir`.
    #[arg(long, value_name = "NAME=PATH", value_parser = build)]
    pgweir: Vec<Build>,

    /// Thread counts that each build of pgweir is measured with.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) workers: Vec<u32>,

    /// The drivers with which each build of pgweir is measured: values of `io_driver`. With io_uring, the name of the
    /// subject ends with `+io_uring`.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "epoll")]
    pub(super) drivers: Vec<Driver>,

    /// Measure each pgweir twice: with everything for observers off, and with metrics scraped each second, the live page
    /// open, and one in a hundred transactions traced.
    #[arg(long)]
    pub(super) watched: bool,

    /// The PgBouncer to compare with.
    #[arg(long, env = "PGBOUNCER_BIN", default_value = "/usr/sbin/pgbouncer")]
    pub(super) pgbouncer: PathBuf,

    /// The haproxy to compare with; it is left out where each client would need a server.
    #[arg(long, env = "HAPROXY_BIN", default_value = "/usr/sbin/haproxy")]
    pub(super) haproxy: PathBuf,

    /// The folder of PostgreSQL's programs; if not set, the newest that is installed.
    #[arg(long, value_name = "FOLDER")]
    pub(super) postgresql: Option<PathBuf>,

    /// Clients of the scenario `idle`.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(super) idle_clients: u32,

    /// Write all figures to this file, too.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl Options {
    /// Returns the scenarios to measure, in their order.
    pub(super) fn scenarios(&self) -> Vec<&'static Scenario> {
        if self.scenarios.is_empty() {
            SCENARIOS.iter().collect()
        } else {
            self.scenarios.clone()
        }
    }

    /// Returns the builds of pgweir.
    pub(super) fn builds(&self) -> Vec<Build> {
        if self.pgweir.is_empty() {
            let path = std::env::var_os("PGWEIR_BIN");
            let path = path.map_or_else(|| PathBuf::from("target/release/pgweir"), PathBuf::from);
            return vec![Build {
                name: "pgweir".to_owned(),
                path,
            }];
        }
        self.pgweir.clone()
    }
}

/// A program and its name in the tables.
#[derive(Debug, Clone)]
pub(super) struct Build {
    /// Letters, digits, `-` and `_`.
    pub(super) name: String,
    /// The program.
    pub(super) path: PathBuf,
}

fn build(text: &str) -> Result<Build, String> {
    let (name, path) = text.split_once('=').unwrap_or(("pgweir", text));
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(fine) || ["pgbouncer", "haproxy"].contains(&name) {
        return Err(format!("`{name}` cannot be the name of a build"));
    }
    Ok(Build {
        name: name.to_owned(),
        path: PathBuf::from(path),
    })
}

fn scenario(text: &str) -> Result<&'static Scenario, String> {
    let found = SCENARIOS
        .iter()
        .find(|scenario| scenario.name == text || scenario.alias == text);
    found.ok_or_else(|| {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        format!("no such scenario; there are {}", names.join(", "))
    })
}
