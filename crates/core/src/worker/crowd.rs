//! Logins that are one too many are set aside before they are refused. Who has left may not have been
//! noticed by its worker yet, and whoever comes after that must find its place free: so each worker first
//! reads what has come to it, and then the login is counted again.

use pgweir_config::is_console;

use super::{Worker, authenticate::is_own_user};
use crate::{
    Action, Actions, ReadMode, Time, Token, WorkerId, client_counts::ClientLimits, fault::Fault,
    frontend::Stage, mail::Mail, pool::PoolKey,
};

/// While others are let in, a login is counted so often before it is refused.
const LOOKS_MAX: u8 = 8;

/// The logins of a worker that are aside. Each is a client that logs in: they are as few as these, and wait
/// no longer than `client_login_timeout`.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Those that are counted again when each worker has read what has come.
    present: Vec<(Token, u8)>,
    /// So many workers have not said that they have.
    awaited: usize,
    /// How many clients had been let in when they were asked.
    entries: u64,
    /// Those that came later: the others are asked once more for them.
    later: Vec<(Token, u8)>,
}

impl Worker {
    /// Counts a client, if there is room for it.
    ///
    /// # Errors
    /// It is one too many, and aside.
    pub(super) fn let_in(&mut self, conn: Token, is_aside: bool) -> Result<(), Fault> {
        let limits = self.client_limits(conn);
        let Some(client) = self.table.client(conn) else {
            return Ok(());
        };
        if let Some(names) = &client.names {
            self.directory.let_in(names, &limits, is_aside)?;
        }
        if let Some(login) = self.login(conn) {
            login.stage = Stage::Startup;
        }
        Ok(())
    }

    /// The limits that hold for a client that logs in.
    fn client_limits(&mut self, conn: Token) -> ClientLimits {
        let Some(client) = self.table.client(conn) else {
            return ClientLimits::default();
        };
        let (same_uid, names) = (client.same_uid, client.names.clone());
        let (Some(names), Some(login)) = (names, self.login(conn)) else {
            return ClientLimits::default();
        };
        let Some(request) = &login.request else {
            return ClientLimits::default();
        };
        // Who may get past the limits is looked at again once it has proven who it is.
        if request.native.as_ref().is_some_and(|native| native.bypass) {
            return ClientLimits::default();
        }
        let (user, to_console) = (request.user.clone(), is_console(&request.database));
        let settings = &self.snapshot.config.settings;
        let is_admin = is_own_user(&user, same_uid) || settings.admin_users.contains(&user);
        if to_console && is_admin {
            return ClientLimits::default();
        }
        ClientLimits {
            total: (!to_console).then_some(settings.max_client_conn as usize),
            ..self.limits_of(&names)
        }
    }

    /// How many clients a database and a user may have.
    pub(super) fn limits_of(&self, names: &PoolKey) -> ClientLimits {
        let config = &self.snapshot.config;
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

    /// A login is one too many: it waits until it is known who has left.
    ///
    /// # Errors
    /// The process ends, and workers may not answer any more.
    pub(super) fn step_aside(
        &mut self,
        conn: Token,
        fault: Fault,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        if self.shutdown.is_some() {
            return Err(fault);
        }
        out.read(conn, ReadMode::Hold);
        self.crowd.later.push((conn, 1));
        self.look_who_left(out);
        Ok(())
    }

    /// Asks each worker to read what has come, unless they have been asked and not answered yet.
    fn look_who_left(&mut self, out: &mut Actions) {
        let crowd = &mut self.crowd;
        if crowd.awaited > 0 || crowd.later.is_empty() {
            return;
        }
        std::mem::swap(&mut crowd.present, &mut crowd.later);
        crowd.awaited = self.directory.workers();
        crowd.entries = self.directory.client_counts().entries();
        for to in (0..crowd.awaited).map(|index| WorkerId(index as u8)) {
            let mail = Mail::CatchUp(self.id);
            out.list.push(Action::Mail { to, mail });
        }
    }

    /// Another worker has logins aside.
    pub(super) fn catch_up(&self, from: WorkerId, out: &mut Actions) {
        let mail = Mail::CaughtUp;
        out.list.push(Action::MailOnceRead { to: from, mail });
    }

    /// A worker has read what had come to it.
    pub(super) fn caught_up(&mut self, now: Time, out: &mut Actions) {
        self.crowd.awaited = self.crowd.awaited.saturating_sub(1);
        if self.crowd.awaited > 0 {
            return;
        }
        let mut present = std::mem::take(&mut self.crowd.present);
        for (conn, looks) in present.drain(..) {
            self.count_again(conn, looks, now, out);
        }
        self.crowd.present = present;
        self.look_who_left(out);
    }

    fn count_again(&mut self, conn: Token, looks: u8, now: Time, out: &mut Actions) {
        if !self.login(conn).is_some_and(|login| login.is_aside()) {
            return;
        }
        let outcome = match self.let_in(conn, true) {
            Ok(()) => {
                out.read(conn, ReadMode::Deliver);
                self.authenticate(conn, now, out)
                    .and_then(|()| self.login_steps(conn, now, out))
            }
            // Others have got the places of those who left; who left to come again is not seen yet.
            Err(_) if looks < LOOKS_MAX && self.others_came() => {
                self.crowd.later.push((conn, looks + 1));
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = outcome {
            self.refuse(conn, &fault, now, out);
        }
    }

    /// Has anybody been let in since the workers were asked?
    fn others_came(&self) -> bool {
        self.directory.client_counts().entries() != self.crowd.entries
    }
}
