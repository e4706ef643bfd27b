//! Logins above `max_client_conn`, and above the limits of databases and users, are parked before they are refused.
//!
//! A worker may not have processed all disconnects yet, and a client that connects after another one has disconnected
//! must find its place free. So each worker first processes all bytes that have arrived, and then the parked logins are
//! counted again. This module owns the list of parked logins. There are never more of them than clients that log in,
//! and they wait no longer than `client_login_timeout`.

use pgweir_config::{Config, Settings, is_console};

use crate::{
    Action, Actions, Token, WorkerId, effect::Env, frontend::LoginRequest, mail::Mail,
    pool::PoolKey, shared::client_counts::ClientLimits,
};

/// The number of times that a login is counted, while other clients are admitted, before it is refused.
const COUNTS_MAX: u8 = 8;

/// A login that waits to be counted again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedLogin {
    /// The client.
    pub(crate) conn: Token,
    /// The number of times that it was counted.
    counts: u8,
}

/// The parked logins of a worker.
#[derive(Debug, Default)]
pub(crate) struct ParkedLogins {
    /// The logins that are counted again when each worker has processed pending disconnects.
    asked: Vec<ParkedLogin>,
    /// The number of workers that have not confirmed this yet.
    awaited: usize,
    /// The number of clients that had been admitted when the workers were asked.
    admissions: u64,
    /// The logins that came after the workers were asked. The workers are asked once more for these.
    later: Vec<ParkedLogin>,
}

impl ParkedLogins {
    /// Parks a login that was counted once, and was above a limit.
    pub(crate) fn park(&mut self, env: &Env<'_>, conn: Token, out: &mut Actions) {
        self.later.push(ParkedLogin { conn, counts: 1 });
        self.ask(env, out);
    }

    /// Parks a login again that was above a limit again. Returns `false` if the login must be refused: no client
    /// was admitted since, or the login was counted too often.
    pub(crate) fn park_again(&mut self, env: &Env<'_>, login: ParkedLogin) -> bool {
        // Other clients have taken the places of those that left. A client that disconnected and connected again may
        // not be counted yet.
        let others_were_admitted = env.directory.client_counts().admissions() != self.admissions;
        let may = login.counts < COUNTS_MAX && others_were_admitted;
        if may {
            let counts = login.counts + 1;
            self.later.push(ParkedLogin { counts, ..login });
        }
        may
    }

    /// Asks each worker to process pending disconnects, unless the workers were asked and have not all answered
    /// yet.
    pub(crate) fn ask(&mut self, env: &Env<'_>, out: &mut Actions) {
        if self.awaited > 0 || self.later.is_empty() {
            return;
        }
        std::mem::swap(&mut self.asked, &mut self.later);
        self.awaited = env.directory.workers();
        self.admissions = env.directory.client_counts().admissions();
        for to in (0..self.awaited).map(|index| WorkerId(index as u8)) {
            let mail = Mail::ProcessPending(env.worker);
            out.mail(to, mail);
        }
    }

    /// Notes that a worker has processed pending disconnects. Returns the logins to count again, once all workers
    /// have.
    pub(crate) fn answered(&mut self) -> Vec<ParkedLogin> {
        self.awaited = self.awaited.saturating_sub(1);
        match self.awaited {
            0 => std::mem::take(&mut self.asked),
            _ => Vec::new(),
        }
    }
}

/// Confirms to another worker, which has parked logins, that this worker has processed all bytes that had arrived.
pub(crate) fn confirm_pending_processed(from: WorkerId, out: &mut Actions) {
    let mail = Box::new(Mail::PendingProcessed);
    out.list.push(Action::MailAfterPending { to: from, mail });
}

/// Returns the limits for a client that logs in. `is_own`: the client runs under this process's user id and claims
/// to be the console's user.
pub(crate) fn limits_at_login(
    config: &Config,
    names: &PoolKey,
    request: &LoginRequest,
    is_own: bool,
) -> ClientLimits {
    // Whether the limits apply to the client is checked again after its authentication.
    if request
        .exclusive
        .as_ref()
        .is_some_and(|exclusive| exclusive.bypass)
    {
        return ClientLimits::default();
    }
    let to_console = is_console(&request.database);
    let settings: &Settings = &config.settings;
    let is_admin = is_own
        || settings
            .admin_users
            .iter()
            .any(|name| **name == *request.user);
    if to_console && is_admin {
        return ClientLimits::default();
    }
    ClientLimits {
        total: (!to_console).then_some(settings.max_client_conn as usize),
        ..limits_of(config, names)
    }
}

/// Returns the limits on the clients of a database and of a user.
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
