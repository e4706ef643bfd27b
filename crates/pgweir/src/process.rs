//! What the process is to the system: limits, user, pid file, daemon.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};
use pgweir_core::Snapshot;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit, test_kill_process};

/// Descriptors for everything that is not a connection: log, epoll, listening sockets, timers.
const RESERVE: u64 = 64;

/// Why the process could not become what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// No user was named to become.
    #[error(
        "pgweir should not run as root: name another user with -u USER, or with \"user\" in the ini file"
    )]
    Root,
    /// The user is not known here.
    #[error("there is no user \"{0}\" on this machine")]
    NoUser(String),
    /// The user could not be looked up, or not become.
    #[error("cannot become user \"{0}\": {1}")]
    User(String, #[source] io::Error),
    /// Somebody else runs.
    #[error("pid file {0} names a running process ({1}), is another instance running?")]
    Running(PathBuf, i32),
    /// The pid file can't be written.
    #[error("pid file {0}: {1}")]
    PidFile(PathBuf, #[source] io::Error),
    /// A daemon can say nothing without a log file, nor be found without a pid file.
    #[error("a daemon (-d) needs \"{0}\" in the ini file")]
    DaemonNeeds(&'static str),
    /// The system refused.
    #[error("cannot become a daemon: {0}")]
    Daemon(#[source] io::Error),
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
    let account = User::from_name(name)
        .map_err(failed)?
        .ok_or_else(|| ProcessError::NoUser(name.to_owned()))?;
    if account.uid.is_root() {
        return Err(ProcessError::Root);
    }
    if account.uid == uid {
        return Ok(());
    }
    // The name comes from the user database, so it has no NUL inside.
    let c_name = std::ffi::CString::new(name).map_err(|_| ProcessError::NoUser(name.to_owned()))?;
    nix::unistd::initgroups(&c_name, account.gid).map_err(failed)?;
    nix::unistd::setgid(account.gid).map_err(failed)?;
    nix::unistd::setuid(account.uid).map_err(failed)
}

/// Goes to the background: standard input and output are closed, the working directory stays,
/// because the configuration may name relative paths.
///
/// # Errors
/// When the system gives no process.
pub(crate) fn become_daemon() -> Result<(), ProcessError> {
    nix::unistd::daemon(true, false).map_err(|errno| ProcessError::Daemon(errno.into()))
}

/// Raises the soft limit of open files to the hard one; returns the limit (`None`: no limit).
pub(crate) fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// What to say if `limit` open files are too few for the configuration.
pub(crate) fn file_limit_warning(snapshot: &Snapshot, limit: Option<u64>) -> Option<String> {
    let (limit, clients) = (limit?, u64::from(snapshot.config.settings.max_client_conn));
    let servers = servers_estimated(snapshot);
    let needed = clients + servers + RESERVE;
    (needed > limit).then(|| {
        let served = limit.saturating_sub(servers + RESERVE);
        format!(
            "the limit of open files is {limit}, but max_client_conn = {clients}, about {servers} server \
             connections and {RESERVE} others need {needed}: only about {served} clients will be served; raise \
             the limit to {needed} (LimitNOFILE= in the systemd unit, or ulimit -n), or lower max_client_conn"
        )
    })
}

/// A pid file that is ours; removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Fails if the file names a living process.
    ///
    /// # Errors
    /// See above.
    pub(crate) fn check(path: &Path) -> Result<(), ProcessError> {
        let Ok(text) = fs::read_to_string(path) else {
            return Ok(());
        };
        match text.trim().parse().ok().and_then(Pid::from_raw) {
            // A process of somebody else lives, too.
            Some(pid) if !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)) => Err(
                ProcessError::Running(path.to_owned(), pid.as_raw_nonzero().get()),
            ),
            _ => Ok(()),
        }
    }

    /// Writes our process id.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn write(path: &Path) -> Result<Self, ProcessError> {
        fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| ProcessError::PidFile(path.to_owned(), error))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may be gone already, or in a folder that we may not write to any more.
        let _ = fs::remove_file(&self.0);
    }
}

/// Pools can't be known before there are clients. Like PgBouncer: one for each database and
/// user in the file, or for each database with a forced user.
fn servers_estimated(snapshot: &Snapshot) -> u64 {
    let config = &snapshot.config;
    let users = || snapshot.users.iter().map(|(name, _)| name);
    config
        .databases
        .values()
        .chain(&config.fallback)
        .map(|database| match &database.user {
            Some(user) => u64::from(config.pool_size(database, user)),
            None => users()
                .map(|user| u64::from(config.pool_size(database, user)))
                .sum(),
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use pgweir_auth::userlist::{Secret, Userlist};
    use pgweir_config::Config;

    use super::*;

    #[test]
    fn a_low_limit_is_explained_in_numbers() {
        let mut users = Userlist::default();
        users.insert("app", Secret::parse("secret"));
        let mut config = Config::quick_start("localhost", 5432, "shop");
        config.settings.max_client_conn = 5000;
        let snapshot = Snapshot { config, users };
        assert_eq!(file_limit_warning(&snapshot, None), None);
        assert_eq!(file_limit_warning(&snapshot, Some(5104)), None);
        let warning = file_limit_warning(&snapshot, Some(1024)).expect("too low");
        assert!(
            warning.contains("limit of open files is 1024") && warning.contains("need 5104"),
            "{warning}"
        );
        assert!(warning.contains("only about 920 clients"), "{warning}");
    }

    #[test]
    fn a_stale_pid_file_is_no_hindrance_but_a_living_one_is() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pid");
        PidFile::check(&path).expect("no file");
        let ours = PidFile::write(&path).expect("written");
        assert!(matches!(
            PidFile::check(&path),
            Err(ProcessError::Running(..))
        ));
        fs::write(&path, "nonsense").expect("written");
        PidFile::check(&path).expect("no pid");
        drop(ours);
        assert!(!path.exists());
    }
}
