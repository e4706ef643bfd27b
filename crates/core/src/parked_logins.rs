//! Logins above `max_client_conn`, and above the limits of databases and users, are parked before they are refused.
//!
//! A worker may not have noticed yet that clients have left, and a client that comes after them must find their places
//! free. So each worker first reads what has come to it, and then the parked logins are counted again. This module owns
//! the list of parked logins; they are never more than the clients that log in, and wait no longer than
//! `client_login_timeout`.

use pgweir_config::{Config, Settings, is_console};

use crate::{
    Action, Actions, Token, WorkerId, client_counts::ClientLimits, effect::Env,
    frontend::LoginRequest, mail::Mail, pool::PoolKey,
};

/// While other clients are let in, a login is counted so often before it is refused.
const COUNTS_MAX: u8 = 8;

/// A login that waits to be counted again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedLogin {
    /// The client.
    pub(crate) conn: Token,
    /// How often it was counted.
    counts: u8,
}

/// The parked logins of a worker.
#[derive(Debug, Default)]
pub(crate) struct ParkedLogins {
    /// Those that are counted again when each worker has read what has come.
    asked: Vec<ParkedLogin>,
    /// So many workers have not said yet that they have.
    awaited: usize,
    /// How many clients had been let in when the workers were asked.
    admissions: u64,
    /// Those that came after the workers were asked: they are asked once more.
    later: Vec<ParkedLogin>,
}

impl ParkedLogins {
    /// Parks a login that was counted once, and was above a limit.
    pub(crate) fn park(&mut self, env: &Env<'_>, conn: Token, out: &mut Actions) {
        self.later.push(ParkedLogin { conn, counts: 1 });
        self.ask(env, out);
    }

    /// Parks a login again, which was above a limit again. `false` if it is to be refused: nobody has been let in since,
    /// or it was counted too often.
    pub(crate) fn park_again(&mut self, env: &Env<'_>, login: ParkedLogin) -> bool {
        // Others have got the places of those who left; clients that left to come again are not seen yet.
        let others_came = env.directory.client_counts().admissions() != self.admissions;
        let may = login.counts < COUNTS_MAX && others_came;
        if may {
            let counts = login.counts + 1;
            self.later.push(ParkedLogin { counts, ..login });
        }
        may
    }

    /// Asks each worker to read what has come, unless they have been asked and not answered yet.
    pub(crate) fn ask(&mut self, env: &Env<'_>, out: &mut Actions) {
        if self.awaited > 0 || self.later.is_empty() {
            return;
        }
        std::mem::swap(&mut self.asked, &mut self.later);
        self.awaited = env.directory.workers();
        self.admissions = env.directory.client_counts().admissions();
        for to in (0..self.awaited).map(|index| WorkerId(index as u8)) {
            let mail = Mail::ProcessPending(env.worker);
            out.list.push(Action::Mail { to, mail });
        }
    }

    /// A worker has read what had come to it. The logins that are to be counted again, when all workers have.
    pub(crate) fn answered(&mut self) -> Vec<ParkedLogin> {
        self.awaited = self.awaited.saturating_sub(1);
        match self.awaited {
            0 => std::mem::take(&mut self.asked),
            _ => Vec::new(),
        }
    }
}

/// Another worker has parked logins: it is told once everything that has come to this one was read.
pub(crate) fn confirm_pending_processed(from: WorkerId, out: &mut Actions) {
    let mail = Mail::PendingProcessed;
    out.list.push(Action::MailAfterPending { to: from, mail });
}

/// The limits that hold for a client that logs in. `is_own`: the client runs under this process's user id and claims to
/// be the console's user.
pub(crate) fn limits_at_login(
    config: &Config,
    names: &PoolKey,
    request: &LoginRequest,
    is_own: bool,
) -> ClientLimits {
    // Whether the client may get past the limits is looked at again once it has proven who it is.
    if request
        .exclusive
        .as_ref()
        .is_some_and(|exclusive| exclusive.bypass)
    {
        return ClientLimits::default();
    }
    let to_console = is_console(&request.database);
    let settings: &Settings = &config.settings;
    let is_admin = is_own || settings.admin_users.contains(&request.user);
    if to_console && is_admin {
        return ClientLimits::default();
    }
    ClientLimits {
        total: (!to_console).then_some(settings.max_client_conn as usize),
        ..limits_of(config, names)
    }
}

/// How many clients a database and a user may have.
pub(crate) fn limits_of(config: &Config, names: &PoolKey) -> ClientLimits {
    let of_database = match config.database(&names.database) {
        Some(database) => config.max_db_client_connections(database),
        None => config.settings.max_db_client_connections,
    };
    let of_user = config.max_user_client_connections(&names.user);
    let limit = |most: u32| (most > 0).then_some(most as usize);
    ClientLimits {
        total: None,
        of_database: limit(of_database),
        of_user: limit(of_user),
    }
}
