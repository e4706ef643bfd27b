//! A demo that keeps running, and the file with the process ids by which it is stopped later.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::stage::{
    Stage, StageError, Terminal,
    pooler::Pooler,
    postgres::{self, Postgres},
};

const RECORD: &str = "running.json";

/// The largest number of waits of a tenth of a second for the end of a process, before it counts as stuck.
const PATIENCE: u32 = 100;

#[derive(Serialize, Deserialize)]
struct Record {
    pgweir: u32,
    postgresql: u32,
}

/// Leaves everything running, records it in a file, and prints how to use and end it.
pub(crate) fn record(
    stage: &mut Stage,
    postgres: &Postgres,
    pooler: Pooler,
) -> Result<(), StageError> {
    let record = Record {
        pgweir: pooler.id,
        postgresql: postgres.id(),
    };
    let path = stage.path().join(RECORD);
    let written = serde_json::to_string(&record).map_err(std::io::Error::from);
    written
        .and_then(|text| fs::write(&path, text))
        .map_err(|e| StageError::new(format!("cannot write {}: {e}", path.display())))?;
    stage.leave();
    let terminal = stage.terminal();
    let name = postgres::NAME;
    let port = pooler.port;
    let psql = format!("psql -h 127.0.0.1 -U {name}");
    terminal.heading("Left running");
    terminal.line(&format!("  through pgweir: {psql} -p {port} {name}"));
    let direct = postgres.port();
    terminal.line(&format!("  directly:       {psql} -p {direct} {name}"));
    terminal.line(&format!(
        "  its console:    {psql} -p {port} pgbouncer -c 'show pools'"
    ));
    let directory = stage.path().display();
    terminal.line(&format!("  files and logs: {directory}"));
    let this = env::current_exe().unwrap_or_else(|_| PathBuf::from("target/demo/xtask"));
    terminal.line(&format!(
        "  stop, remove:   {} demo --stop {directory}",
        this.display()
    ));
    Ok(())
}

/// Ends the processes that `record` has noted in this directory, and removes the directory.
///
/// # Errors
///
/// The directory is not one of a demo of this user, or a process does not end.
pub(crate) async fn stop(directory: &Path, terminal: &Terminal) -> Result<(), StageError> {
    let directory = fs::canonicalize(directory)
        .map_err(|e| StageError::new(format!("{}: {e}", directory.display())))?;
    let record = read(&directory)?;
    end("pgweir", record.pgweir, &directory, Signal::SIGQUIT).await?;
    end("PostgreSQL", record.postgresql, &directory, Signal::SIGINT).await?;
    fs::remove_dir_all(&directory)
        .map_err(|e| StageError::new(format!("cannot remove {}: {e}", directory.display())))?;
    terminal.line(&format!("stopped, and removed {}", directory.display()));
    Ok(())
}

fn read(directory: &Path) -> Result<Record, StageError> {
    let not_ours = || {
        StageError::with_next(
            format!("{} is not what a demo left", directory.display()),
            "give the directory that `make demo KEEP=1` printed, as the same user",
        )
    };
    let named = directory
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("pgweir-demo."));
    let owner = fs::metadata(directory).map_err(|_| not_ours())?.uid();
    if !named || owner != geteuid().as_raw() {
        return Err(not_ours());
    }
    let text = fs::read_to_string(directory.join(RECORD)).map_err(|_| not_ours())?;
    serde_json::from_str(&text).map_err(|_| not_ours())
}

async fn end(name: &str, id: u32, directory: &Path, signal: Signal) -> Result<(), StageError> {
    for wait in 0..PATIENCE {
        if !runs_from(id, directory) {
            return Ok(());
        }
        if wait == 0
            && let Ok(id) = i32::try_from(id)
        {
            kill(Pid::from_raw(id), signal)
                .map_err(|e| StageError::new(format!("cannot end {name} (process {id}): {e}")))?;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(StageError::with_next(
        format!("{name} (process {id}) does not end"),
        format!("look at its log in {}", directory.display()),
    ))
}

/// Returns whether the process still is the one of this directory: ids are used again.
fn runs_from(id: u32, directory: &Path) -> bool {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*directory.to_string_lossy())
}
