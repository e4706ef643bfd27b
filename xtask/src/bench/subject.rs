//! The subjects of measurements: poolers, each started with the same settings.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use crate::stage::{
    Stage, StageError, own_command,
    pooler::{Pooler, PoolerSettings},
    postgres::Postgres,
};

/// A pooler to be measured.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// The name in the tables.
    pub(super) name: String,
    /// The kind of subject.
    pub(super) kind: SubjectKind,
    /// The program.
    pub(super) program: PathBuf,
    /// Whether pgweir is watched; `None` if the options do not ask for that difference.
    pub(super) is_watched: Option<bool>,
}

/// The kinds of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectKind {
    /// The pooler with which the others are compared.
    PgBouncer {
        /// Whether this version keeps prepared statements in transaction mode by default.
        prepares: bool,
    },
    /// A TCP forwarder.
    Haproxy,
    /// A build of pgweir.
    Pgweir {
        /// The number of threads.
        workers: u32,
        /// How the threads wait for their sockets.
        driver: Driver,
    },
}

/// How pgweir waits for its sockets: the setting `io_driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(super) enum Driver {
    /// epoll.
    Epoll,
    /// io_uring.
    IoUring,
}

impl Driver {
    /// Returns the value of the setting.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Driver::Epoll => "epoll",
            Driver::IoUring => "io_uring",
        }
    }

    /// Returns the end of the name of a subject with this driver.
    pub(super) const fn ending(self) -> &'static str {
        match self {
            Driver::Epoll => "",
            Driver::IoUring => "+io_uring",
        }
    }
}

/// The first version of PgBouncer that keeps prepared statements in transaction mode by default.
const PREPARING_VERSION: [u32; 2] = [1, 24];

/// Asks a PgBouncer for its version, and returns whether it keeps prepared statements in transaction mode by default.
///
/// # Errors
/// The program cannot be started.
pub(super) async fn prepares(pgbouncer: &Path) -> Result<bool, StageError> {
    let output = own_command(pgbouncer).arg("-V").output().await;
    let output = output
        .map_err(|e| StageError::new(format!("cannot start {}: {e}", pgbouncer.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(version(&text).is_some_and(|version| version >= PREPARING_VERSION))
}

/// Reads the version in PgBouncer's answer to `-V`.
fn version(text: &str) -> Option<[u32; 2]> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.split('.').map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    Some([major, minor])
}

impl Subject {
    /// Starts the subject.
    pub(super) async fn start(
        &self,
        stage: &mut Stage,
        postgres: &Postgres,
        mut settings: PoolerSettings,
    ) -> Result<Pooler, StageError> {
        let psql = postgres.programs().path("psql");
        match self.kind {
            SubjectKind::Haproxy => {
                return Pooler::start_haproxy(stage, &self.program, postgres.port(), &psql).await;
            }
            SubjectKind::PgBouncer { .. } => {}
            SubjectKind::Pgweir { workers, driver } => {
                settings.workers = Some(workers);
                settings
                    .own_lines
                    .push_str(&format!("io_driver = {}\n", driver.name()));
            }
        }
        Pooler::start(stage, &self.name, &self.program, &settings, &psql).await
    }

    /// Returns the thread count of a pgweir.
    pub(super) fn workers(&self) -> Option<u32> {
        match self.kind {
            SubjectKind::Pgweir { workers, .. } => Some(workers),
            SubjectKind::PgBouncer { .. } | SubjectKind::Haproxy => None,
        }
    }

    /// Returns the driver of a build of pgweir; `None` for other subjects.
    pub(super) fn driver(&self) -> Option<Driver> {
        match self.kind {
            SubjectKind::Pgweir { driver, .. } => Some(driver),
            SubjectKind::PgBouncer { .. } | SubjectKind::Haproxy => None,
        }
    }
}

/// Returns the settings that all subjects have.
pub(super) fn settings(postgres_port: u16, pool: u32, clients_max: u32) -> PoolerSettings {
    PoolerSettings {
        postgres_port,
        pool,
        clients_max,
        workers: None,
        prepared_max: None,
        tls: None,
        scram: false,
        databases: &[],
        more: "",
        own_lines: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_pgbouncer() {
        let read = |text| version(text).map(|version| version >= PREPARING_VERSION);
        assert_eq!(read("PgBouncer 1.24.1\nlibevent 2.1.12-stable"), Some(true));
        assert_eq!(read("PgBouncer 1.18.0\n"), Some(false));
        assert_eq!(read("another program"), None);
    }
}
