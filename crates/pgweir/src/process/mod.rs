//! What the process is to the system: limits, user, pid file, daemon, service.

mod core_dumps;
mod descriptors;
mod notify;
mod pid_file;

use std::{io, path::PathBuf};

use nix::unistd::{Uid, User};

use crate::placed::{Wanted, remedy};

pub(crate) use self::{
    core_dumps::forbid_core_dumps, descriptors::FileLimit, notify::Notifier, pid_file::PidFile,
};

/// Why the process could not become what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// No user was named to become.
    #[error(
        "pgweir should not run as root: name another user with -u USER, or with \"user\" in the ini file"
    )]
    Root,
    /// The user is not known here.
    #[error("there is no user \"{0}\" on this machine: name one that is there")]
    NoUser(String),
    /// The user could not be looked up, or not become.
    #[error("cannot become user \"{0}\": {1}{hint}", hint = only_root(.1))]
    User(String, #[source] io::Error),
    /// Somebody else runs.
    #[error("pidfile {0} names process {1}, which runs: another instance running?")]
    Running(PathBuf, i32),
    /// Somebody else begins to run.
    #[error("pidfile {0} is locked: another instance running?")]
    Locked(PathBuf),
    /// Something else than a pid file.
    #[error("pidfile {0} exists, but holds no process id: name another file, or remove it")]
    NoPidFile(PathBuf),
    /// The pid file can't be opened or written.
    #[error("pidfile {0}: {1}{hint}", hint = remedy(.1, Wanted::Write))]
    PidFile(PathBuf, #[source] io::Error),
    /// A daemon can say nothing without a log file, nor be found without a pid file.
    #[error("a daemon (-d) needs {0} in the ini file")]
    DaemonNeeds(&'static str),
    /// The system refused.
    #[error("cannot become a daemon: {0}")]
    Daemon(#[source] io::Error),
}

impl ProcessError {
    /// The key that it comes of.
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

/// Becomes `user`, if one is named; without one, refuses to be root.
///
/// # Errors
/// When the user is unknown, or we are not root and not that user.
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

/// Becomes `user` if we can: whether we are that one now.
///
/// # Errors
/// When the user is unknown, or is root.
pub(crate) fn rehearse_user(user: &str) -> Result<bool, ProcessError> {
    if Uid::effective().is_root() {
        become_user(Some(user))?;
    }
    Ok(account(user)?.uid == Uid::effective())
}

/// The account of a user who may run us.
fn account(name: &str) -> Result<User, ProcessError> {
    let account = User::from_name(name)
        .map_err(|errno| ProcessError::User(name.to_owned(), errno.into()))?
        .ok_or_else(|| ProcessError::NoUser(name.to_owned()))?;
    if account.uid.is_root() {
        return Err(ProcessError::Root);
    }
    Ok(account)
}

/// Goes to the background: standard input and output are closed, the working directory stays,
/// because the configuration may name relative paths.
///
/// # Errors
/// When the system gives no process.
pub(crate) fn become_daemon() -> Result<(), ProcessError> {
    nix::unistd::daemon(true, false).map_err(|errno| ProcessError::Daemon(errno.into()))
}
