//! The process and the operating system: limits, user, pid file, daemon, service manager.

mod core_dumps;
mod descriptors;
pub(crate) mod key_file;
mod notify;
mod pid_file;

use std::{io, path::PathBuf};

use nix::unistd::{Uid, User};

use crate::setting_errors::{FileAccess, remedy};

pub(crate) use self::{
    core_dumps::forbid_core_dumps, descriptors::FileLimit, notify::Notifier, pid_file::PidFile,
};

/// The reason why the process could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// The process runs as root, and no user is configured.
    #[error(
        "pgweir should not run as root: name another user with -u USER, or with \"user\" in the ini file"
    )]
    Root,
    /// The user does not exist on this machine.
    #[error("there is no user \"{0}\" on this machine: name one that is there")]
    NoUser(String),
    /// The user could not be looked up, or switching to the user failed.
    #[error("cannot become user \"{0}\": {1}{hint}", hint = only_root(.1))]
    User(String, #[source] io::Error),
    /// Another instance runs.
    #[error("pidfile {0} names process {1}, which runs: another instance running?")]
    Running(PathBuf, i32),
    /// Another instance is starting.
    #[error("pidfile {0} is locked: another instance running?")]
    Locked(PathBuf),
    /// The file is not a pid file.
    #[error("pidfile {0} exists, but holds no process id: name another file, or remove it")]
    NoPidFile(PathBuf),
    /// The pid file can't be opened or written.
    #[error("pidfile {0}: {1}{hint}", hint = remedy(.1, FileAccess::Write))]
    PidFile(PathBuf, #[source] io::Error),
    /// A daemon can't report anything without a log file, nor be found without a pid file.
    #[error("a daemon (-d) needs {0} in the ini file")]
    DaemonNeeds(&'static str),
    /// The system refused to create a daemon.
    #[error("cannot become a daemon: {0}")]
    Daemon(#[source] io::Error),
}

impl ProcessError {
    /// Returns the name of the setting that caused the error.
    pub(crate) fn key(&self) -> Option<&'static str> {
        match self {
            Self::Root | Self::NoUser(_) | Self::User(..) => Some("user"),
            Self::Running(..) | Self::Locked(_) | Self::NoPidFile(_) | Self::PidFile(..) => {
                Some("pidfile")
            }
            Self::DaemonNeeds(_) | Self::Daemon(_) => None,
        }
    }
}

fn only_root(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": only root can: start as root or as that user, or leave \"user\" out"
        }
        _ => "",
    }
}

/// Switches to `user`, if one is given. Without one, refuses to run as root.
///
/// # Errors
/// When the user is unknown, or the process is neither root nor that user.
pub(crate) fn become_user(user: Option<&str>) -> Result<(), ProcessError> {
    let uid = Uid::effective();
    let Some(name) = user else {
        return if uid.is_root() {
            Err(ProcessError::Root)
        } else {
            Ok(())
        };
    };
    let failed = |errno: nix::Error| ProcessError::User(name.to_owned(), errno.into());
    let account = account(name)?;
    if account.uid == uid {
        return Ok(());
    }
    // The name comes from the user database, so it has no NUL inside.
    let c_name = std::ffi::CString::new(name).map_err(|_| ProcessError::NoUser(name.to_owned()))?;
    nix::unistd::initgroups(&c_name, account.gid).map_err(failed)?;
    nix::unistd::setgid(account.gid).map_err(failed)?;
    nix::unistd::setuid(account.uid).map_err(failed)
}

/// Switches to `user` if possible. Returns whether the process runs as that user now.
///
/// # Errors
/// When the user is unknown, or is root.
pub(crate) fn can_become_user(user: &str) -> Result<bool, ProcessError> {
    if Uid::effective().is_root() {
        become_user(Some(user))?;
    }
    Ok(account(user)?.uid == Uid::effective())
}

/// Returns the account of a user as whom pgweir may run.
fn account(name: &str) -> Result<User, ProcessError> {
    let account = User::from_name(name)
        .map_err(|errno| ProcessError::User(name.to_owned(), errno.into()))?
        .ok_or_else(|| ProcessError::NoUser(name.to_owned()))?;
    if account.uid.is_root() {
        return Err(ProcessError::Root);
    }
    Ok(account)
}

/// Moves to the background: standard input and output are closed. The working directory stays, because the
/// configuration may have relative paths.
///
/// # Errors
/// When the system refuses a process.
pub(crate) fn become_daemon() -> Result<(), ProcessError> {
    nix::unistd::daemon(true, false).map_err(|errno| ProcessError::Daemon(errno.into()))
}
