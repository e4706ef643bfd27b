//! The user that servers run as: PostgreSQL and poolers refuse root.

use std::{env, ffi::OsString, path::Path, process::Stdio};

use nix::unistd::{User, getegid, geteuid};
use tokio::process::Command;

use super::{Ending, StageError};

/// The user under whose rights servers run.
pub(crate) struct Account {
    name: String,
    uid: u32,
    gid: u32,
    switch: bool,
}

impl Account {
    /// Returns `postgres` (created by the package) when this program runs as root, else its own user.
    pub(crate) fn unprivileged() -> Result<Self, StageError> {
        let own = geteuid();
        if !own.is_root() {
            let found = User::from_uid(own).ok().flatten();
            return Ok(Self {
                name: found.map_or_else(|| own.to_string(), |user| user.name),
                uid: own.as_raw(),
                gid: getegid().as_raw(),
                switch: false,
            });
        }
        let user = User::from_name("postgres").ok().flatten().ok_or_else(|| {
            StageError::with_next(
                "PostgreSQL refuses to run as root, and there is no user `postgres` to run it as",
                "install the package postgresql-15, or call this as another user than root",
            )
        })?;
        Ok(Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            switch: true,
        })
    }

    /// Returns the login name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the user id.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group id.
    pub(crate) fn gid(&self) -> u32 {
        self.gid
    }

    /// Creates a command that runs as this user, in a process group of its own, so that Ctrl-C reaches this program
    /// only, which then ends the others in order. With `orphan`, the kernel ends the command in that way if this
    /// program is killed.
    pub(crate) fn command(&self, program: &Path, orphan: Option<Ending>) -> Command {
        let mut command = own_command(Path::new("setpriv"));
        if self.switch {
            command.args(["--reuid", &self.uid.to_string()]);
            command.args(["--regid", &self.gid.to_string(), "--init-groups"]);
        }
        if let Some(ending) = orphan {
            command.args(["--pdeathsig", ending.orphan_signal_name()]);
        }
        command.arg("--").arg(program);
        command
    }
}

/// Creates a command with this program's own rights: without the settings of the caller's PostgreSQL clients, with
/// messages in English, and with an empty standard input.
pub(crate) fn own_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in client_settings() {
        command.env_remove(name);
    }
    command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(false);
    command
}

fn client_settings() -> impl Iterator<Item = OsString> {
    env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("PG"))
}
