//! A child process of the demo or the benchmark.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::StageError;

/// The time that a server may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(8);

/// The signal that ends a server at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// PostgreSQL: INT disconnects everybody and shuts down.
    Postgres,
    /// PgBouncer and pgweir: QUIT.
    Pooler,
    /// haproxy: TERM.
    Proxy,
}

impl Ending {
    fn signal(self) -> Signal {
        match self {
            Self::Postgres => Signal::SIGINT,
            Self::Pooler => Signal::SIGQUIT,
            Self::Proxy => Signal::SIGTERM,
        }
    }

    /// The signal, in setpriv's words, that an orphan gets from the kernel.
    pub(crate) fn orphan_signal_name(self) -> &'static str {
        match self {
            Self::Postgres => "QUIT",
            Self::Pooler | Self::Proxy => "KILL",
        }
    }
}

/// A child and its log.
pub(crate) struct Process {
    name: String,
    child: Child,
    id: u32,
    log: PathBuf,
    ending: Ending,
}

impl Process {
    /// Starts `command` with all its output in `log`.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        log: PathBuf,
        ending: Ending,
    ) -> Result<Self, StageError> {
        let failed = |e| StageError::new(format!("cannot start {name}: {e}"));
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let child = command
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors))
            .spawn()
            .map_err(failed)?;
        let id = child.id().ok_or_else(|| gone(name, ""))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            id,
            log,
            ending,
        })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns an error if the child has ended.
    pub(crate) fn check(&mut self) -> Result<(), StageError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(gone(&self.name, &self.log_tail())),
        }
    }

    /// Returns the last lines that the child has written.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n    ")
    }

    /// Ends the child: by its usual signal first, and by SIGKILL after a while.
    pub(crate) async fn stop(mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(id) = i32::try_from(self.id) {
            // The process may just have ended.
            let _ = kill(Pid::from_raw(id), self.ending.signal());
        }
        if timeout(GRACE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

fn gone(name: &str, log: &str) -> StageError {
    StageError::new(format!("{name} ended; its last words:\n    {log}"))
}
