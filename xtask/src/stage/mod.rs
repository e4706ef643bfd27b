//! The environment of demo and benchmark: a temporary PostgreSQL and poolers in front of it, which are all removed
//! at the end, also after an error or a signal.

mod account;
mod error;
mod limits;
pub(crate) mod meter;
pub(crate) mod pgbench;
pub(crate) mod pooler;
mod ports;
pub(crate) mod postgres;
mod process;
pub(crate) mod terminal;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::ExitCode,
};

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use account::{Account, own_command};
pub(crate) use error::StageError;
pub(crate) use limits::raise_descriptor_limit;
pub(crate) use ports::free_port;
pub(crate) use process::{Ending, Process};
pub(crate) use terminal::Terminal;

/// Runs `work` with a stage of its own, and clears the stage when the work is done, has failed
/// or is interrupted (Ctrl-C, TERM, HUP).
pub(crate) fn on_stage<W>(name: &str, work: W) -> ExitCode
where
    W: AsyncFnOnce(&mut Stage) -> Result<(), StageError>,
{
    without_stage(async |terminal: &Terminal| {
        let mut stage = Stage::new(name, terminal)?;
        let outcome = tokio::select! {
            outcome = work(&mut stage) => outcome,
            interruption = interruption() => Err(interruption),
        };
        if outcome.is_err() || !stage.keep {
            stage.clear().await;
        }
        outcome
    })
}

/// Runs `work` to its end, prints its error, and returns the exit code.
pub(crate) fn without_stage<W>(work: W) -> ExitCode
where
    W: AsyncFnOnce(&Terminal) -> Result<(), StageError>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            let error = StageError::new(format!("cannot start the event loop: {e}"));
            Terminal::new().error(&error);
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        let terminal = Terminal::new();
        match work(&terminal).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                terminal.error(&error);
                ExitCode::from(error.exit_code())
            }
        }
    })
}

async fn interruption() -> StageError {
    let signals = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut int), Ok(mut term), Ok(mut hup)) = signals else {
        return StageError::new("cannot listen for signals");
    };
    tokio::select! {
        _ = int.recv() => StageError::Interrupted(2),
        _ = term.recv() => StageError::Interrupted(15),
        _ = hup.recv() => StageError::Interrupted(1),
    }
}

/// A temporary directory, an unprivileged user and the processes started so far.
pub(crate) struct Stage {
    terminal: Terminal,
    account: Account,
    directory: Option<TempDir>,
    path: PathBuf,
    processes: Vec<Process>,
    keep: bool,
}

impl Stage {
    fn new(name: &str, terminal: &Terminal) -> Result<Self, StageError> {
        let account = Account::unprivileged()?;
        let directory = tempfile::Builder::new()
            .prefix(&format!("pgweir-{name}."))
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|e| StageError::new(format!("cannot create a temporary directory: {e}")))?;
        Ok(Self {
            terminal: terminal.clone(),
            account,
            path: directory.path().to_path_buf(),
            directory: Some(directory),
            processes: Vec::new(),
            keep: false,
        })
    }

    /// Returns the terminal, on which progress is printed.
    pub(crate) fn terminal(&self) -> Terminal {
        self.terminal.clone()
    }

    /// Returns the user that servers run as.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the directory that has all files of the stage.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes processes that are started from now on survive this program, and keeps the stage if it ends well.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// Creates a directory that belongs to the unprivileged user, closed to others.
    pub(crate) fn make_directory(&self, name: &str) -> Result<PathBuf, StageError> {
        let path = self.path.join(name);
        let made = fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
            .and_then(|()| chown(&path, Some(self.account.uid()), Some(self.account.gid())));
        made.map_err(|e| StageError::new(format!("cannot make {}: {e}", path.display())))?;
        Ok(path)
    }

    /// Writes a file that the unprivileged user may read.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<(), StageError> {
        fs::write(path, text)
            .and_then(|()| chown(path, Some(self.account.uid()), Some(self.account.gid())))
            .map_err(|e| StageError::new(format!("cannot write {}: {e}", path.display())))
    }

    /// Copies a program to a folder in which the unprivileged user can run it: a checkout in a home directory is often
    /// closed to others.
    pub(crate) fn place_program(&self, program: &Path, name: &str) -> Result<PathBuf, StageError> {
        let path = self.path.join(name);
        fs::copy(program, &path)
            .and_then(|_| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(|e| {
                StageError::new(format!(
                    "cannot copy {} to {}: {e}",
                    program.display(),
                    path.display()
                ))
            })?;
        Ok(path)
    }

    /// Starts a server as the unprivileged user, its output in `name.log`. It ends with the
    /// stage. Returns its process id.
    pub(crate) fn start(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[&str],
        ending: Ending,
    ) -> Result<u32, StageError> {
        let log = self.path.join(format!("{name}.log"));
        let orphan = if self.keep { None } else { Some(ending) };
        let mut command = self.account.command(program, orphan);
        command.args(arguments).current_dir(&self.path);
        let process = Process::start(name, command, log, ending)?;
        let id = process.id();
        self.processes.push(process);
        Ok(id)
    }

    /// Returns an error with the end of the log if a process has ended.
    pub(crate) fn check(&mut self, id: u32) -> Result<(), StageError> {
        match self.processes.iter_mut().find(|p| p.id() == id) {
            Some(process) => process.check(),
            None => Err(StageError::new(format!("process {id} was never started"))),
        }
    }

    /// Returns the last lines of a process's log.
    pub(crate) fn log_tail(&self, id: u32) -> String {
        let process = self.processes.iter().find(|p| p.id() == id);
        process.map(Process::log_tail).unwrap_or_default()
    }

    /// Stops one process.
    pub(crate) async fn stop(&mut self, id: u32) {
        if let Some(at) = self.processes.iter().position(|p| p.id() == id) {
            self.processes.remove(at).stop().await;
        }
    }

    /// Leaves processes and directory as they are.
    pub(crate) fn leave(&mut self) {
        if let Some(directory) = self.directory.take() {
            let _ = directory.keep();
        }
    }

    async fn clear(&mut self) {
        while let Some(process) = self.processes.pop() {
            process.stop().await;
        }
        if let Some(directory) = self.directory.take()
            && let Err(e) = directory.close()
        {
            let path = self.path.display();
            self.terminal.line(&format!("could not remove {path}: {e}"));
        }
    }
}
