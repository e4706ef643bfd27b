//! The subjects of measurements: poolers, each started with the same settings.

use std::path::PathBuf;

use crate::stage::{
    Stage, StageError,
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
    PgBouncer,
    /// A TCP forwarder.
    Haproxy,
    /// A build of pgweir with this number of threads.
    Pgweir(u32),
}

impl Subject {
    /// Starts the subject.
    pub(super) async fn start(
        &self,
        stage: &mut Stage,
        postgres: &Postgres,
        settings: PoolerSettings,
    ) -> Result<Pooler, StageError> {
        let psql = postgres.programs().path("psql");
        let workers = match self.kind {
            SubjectKind::Haproxy => {
                return Pooler::start_haproxy(stage, &self.program, postgres.port(), &psql).await;
            }
            SubjectKind::PgBouncer => None,
            SubjectKind::Pgweir(workers) => Some(workers),
        };
        let settings = PoolerSettings {
            workers,
            ..settings
        };
        Pooler::start(stage, &self.name, &self.program, &settings, &psql).await
    }

    /// Returns the thread count of a pgweir.
    pub(super) fn workers(&self) -> Option<u32> {
        match self.kind {
            SubjectKind::Pgweir(workers) => Some(workers),
            SubjectKind::PgBouncer | SubjectKind::Haproxy => None,
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
        databases: &[],
        more: "",
        own_lines: String::new(),
    }
}
