//! The console's commands that change something: PAUSE, KILL, RECONNECT, SET, SHUTDOWN and others. A command
//! changes the operator's orders in the directory, and then visits all workers or is passed to the control thread.

use std::collections::BTreeSet;

use pgweir_config::is_console;

use super::Admin;
use crate::{
    Actions, Control, Halt, Level, SharedPool, Shutdown, Token,
    base::fault::Fault,
    console::{Awaiting, Command, RoundTask, shown_setting, write_done},
    operators::orders,
    pooling,
};

impl Admin<'_> {
    /// Carries out a command that changes something.
    pub(super) fn run(&mut self, conn: Token, command: Command, out: &mut Actions) {
        let (shown, database) = (command.shown(), command.database().to_owned());
        let is_answered_later = matches!(command, Command::KillClient(_) | Command::OnAll(_));
        let outcome = match command {
            Command::Set { key, value } => return self.ask_for_set(conn, key, value, out),
            Command::Reload => return self.ask_for_reload(conn, out),
            Command::OnAll(command) => self.order_all_nodes(conn, command, out),
            Command::Restart => {
                out.control(Control::Restart);
                out.send_made(conn, |bytes| write_done("RESTART", bytes));
                Ok(())
            }
            Command::Shutdown(how) => {
                self.ask_for_shutdown(conn, how, out);
                Ok(())
            }
            Command::Pause(database) => self.pause(conn, database, out),
            Command::Suspend => self.suspend(conn, out),
            Command::Resume(database) => self.resume(conn, &database, out),
            Command::Kill(database) => self.order_kill(conn, database, out),
            Command::KillClient(id) => self.order_kill_client(conn, &id, out),
            Command::Unban(whom) => self.unban(conn, &whom, out),
            Command::Reconnect(database) => self.reconnect(conn, &database, out),
            Command::Disable(database) => self.set_disabled(conn, &database, true, out),
            Command::Enable(database) => self.set_disabled(conn, &database, false, out),
            Command::WaitClose(database) => self.wait_close(conn, database, out),
            Command::Empty | Command::Show(_) | Command::Parameter(..) | Command::SetParameter => {
                Ok(())
            }
        };
        // The outcome of KILL_CLIENT is known when all workers have looked for the client, and that of a command for all
        // nodes when they have answered.
        if !is_answered_later || outcome.is_err() {
            let failure = outcome.as_ref().err();
            self.audit_command(conn, shown, &database, failure, out);
        }
        if let Err(fault) = outcome {
            self.fail(conn, &fault, out);
        }
    }

    fn pause(&mut self, conn: Token, database: String, out: &mut Actions) -> Result<(), Fault> {
        let operator = self.env.directory.operator();
        if operator.halt() != Halt::No {
            return operator.pause();
        }
        issued("PAUSE", &database, out);
        let database = self.meant(database, "pause")?;
        match &database {
            None => self.env.directory.operator().pause()?,
            Some(name) => self
                .env
                .directory
                .operator()
                .pause_databases([name.clone()])?,
        }
        let task = RoundTask::ApplyOrders(Awaiting::Paused(database));
        self.begin_round(conn, task, out);
        Ok(())
    }

    fn suspend(&mut self, conn: Token, out: &mut Actions) -> Result<(), Fault> {
        let by = (self.env.worker, conn);
        let workers = self.env.directory.workers();
        self.env.directory.operator().suspend(by, workers)?;
        issued("SUSPEND", "", out);
        self.begin_round(conn, RoundTask::ApplyOrders(Awaiting::Suspended), out);
        Ok(())
    }

    fn resume(&mut self, conn: Token, database: &str, out: &mut Actions) -> Result<(), Fault> {
        issued("RESUME", database, out);
        let operator = self.env.directory.operator();
        match database {
            "" => drop(operator.resume()?),
            name if !is_console(name) && self.env.snapshot.config.database(name).is_none() => {
                return Err(no_such_database(name));
            }
            name => operator.resume_database(name)?,
        }
        self.begin_round(conn, RoundTask::Settle("RESUME".to_owned()), out);
        Ok(())
    }

    fn order_kill(
        &mut self,
        conn: Token,
        database: String,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let operator = self.env.directory.operator();
        if operator.halt() != Halt::No {
            return operator.pause();
        }
        issued("KILL", &database, out);
        let database = self.meant(database, "kill")?;
        let names: BTreeSet<String> = match &database {
            Some(name) => [name.clone()].into(),
            None => {
                let pools = self.env.directory.pools().into_iter();
                pools.map(|pool| pool.key.database.to_string()).collect()
            }
        };
        self.env.directory.operator().pause_databases(names)?;
        self.begin_round(conn, RoundTask::Kill(database), out);
        Ok(())
    }

    fn order_kill_client(&mut self, conn: Token, id: &str, out: &mut Actions) -> Result<(), Fault> {
        let id = client_id(id)
            .ok_or_else(|| Fault::Command("invalid client pointer supplied".to_owned()))?;
        let task = RoundTask::KillClient { id, found: false };
        self.begin_round(conn, task, out);
        Ok(())
    }

    fn unban(&mut self, conn: Token, whom: &str, out: &mut Actions) -> Result<(), Fault> {
        issued("UNBAN", whom, out);
        let lifted = self.env.directory.bans().lift(whom);
        if lifted == 0 && !whom.is_empty() {
            return Err(Fault::Command(format!("no failed logins of: {whom}")));
        }
        out.send_made(conn, |bytes| write_done("UNBAN", bytes));
        Ok(())
    }

    fn reconnect(&mut self, conn: Token, database: &str, out: &mut Actions) -> Result<(), Fault> {
        issued("RECONNECT", database, out);
        let database = self.meant(database.to_owned(), "reconnect")?;
        for pool in self.pools_of(database.as_deref()) {
            pool.epochs.lock().renew();
            // A failure of the old servers does not predict one of the new servers.
            let notes = {
                let mut ledger = pool.ledger.lock();
                ledger.allow_next_login();
                ledger.tick(self.env.now)
            };
            pooling::deliver(&self.env, &notes, &pool, out);
        }
        out.control(Control::RefreshNames);
        self.begin_round(conn, RoundTask::Settle("RECONNECT".to_owned()), out);
        Ok(())
    }

    fn set_disabled(
        &mut self,
        conn: Token,
        database: &str,
        disabled: bool,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        if database.is_empty() {
            return Err(Fault::Command("a database is required".to_owned()));
        }
        let verb = if disabled { "DISABLE" } else { "ENABLE" };
        issued(verb, database, out);
        // PgBouncer has the same texts for both.
        if let Some(name) = self.meant(database.to_owned(), "disable")? {
            self.env.directory.operator().set_disabled(&name, disabled);
        }
        self.begin_round(conn, RoundTask::Settle(verb.to_owned()), out);
        Ok(())
    }

    fn wait_close(
        &mut self,
        conn: Token,
        database: String,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        issued("WAIT_CLOSE", &database, out);
        if is_console(&database) {
            return Err(Fault::Command(format!(
                "cannot wait in admin db: {database}"
            )));
        }
        let database = self.meant(database, "wait in")?;
        self.wait_for(conn, Awaiting::Closed(database), out);
        Ok(())
    }

    /// Returns the database that a command is about; `None` for all.
    fn meant(&self, name: String, verb: &str) -> Result<Option<String>, Fault> {
        if name.is_empty() {
            return Ok(None);
        }
        if is_console(&name) {
            return Err(Fault::Command(format!("cannot {verb} admin db: {name}")));
        }
        match self.env.snapshot.config.database(&name) {
            Some(_) => Ok(Some(name)),
            None => Err(no_such_database(&name)),
        }
    }

    fn pools_of(&self, database: Option<&str>) -> Vec<std::sync::Arc<SharedPool>> {
        let mut pools = self.env.directory.pools();
        pools.retain(|pool| database.is_none_or(|database| *pool.key.database == *database));
        pools
    }

    /// Lets the console wait until this has happened.
    pub(super) fn wait_for(&mut self, conn: Token, what: Awaiting, out: &mut Actions) {
        let worker = self.env.worker;
        let Some(console) = self.console(conn) else {
            return;
        };
        console.begin();
        console.wait_for(what);
        self.env.directory.operator().wait(worker, conn);
        self.check_wait(conn, out);
    }

    /// Checks whether the event that a console waits for has happened, and answers the console then.
    pub(crate) fn check_wait(&mut self, conn: Token, out: &mut Actions) {
        let awaits = self
            .console(conn)
            .and_then(|console| console.awaits().cloned());
        let Some(what) = awaits else { return };
        if what.is_void(self.env.directory.operator()) {
            return self.end_await(conn, Err(&Fault::CommandCanceled), out);
        }
        let is_left = |pool: &SharedPool| {
            let epochs = pool.epochs.lock();
            match what {
                Awaiting::Paused(_) => epochs.servers() > 0,
                Awaiting::Closed(_) => epochs.outdated() > 0,
                Awaiting::Suspended => false,
            }
        };
        let done = match what {
            Awaiting::Suspended => self.env.directory.operator().are_all_quiet(),
            _ => !self
                .pools_of(what.database())
                .iter()
                .any(|pool| is_left(pool)),
        };
        if done {
            self.end_await(conn, Ok(what.tag()), out);
        }
    }

    fn end_await(&mut self, conn: Token, outcome: Result<&str, &Fault>, out: &mut Actions) {
        if let Some(console) = self.console(conn) {
            console.stop_waiting();
        }
        self.env
            .directory
            .operator()
            .wait_no_more(self.env.worker, conn);
        self.answer(conn, outcome, out);
    }

    /// Handles a cancel request for a console: takes PAUSE back, and answers the command that waits.
    pub(super) fn cancel(&mut self, conn: Token, out: &mut Actions) {
        let awaits = self
            .console(conn)
            .and_then(|console| console.awaits().cloned());
        let operator = self.env.directory.operator();
        // An error means that another console has taken the order back, or that the process ends.
        let taken_back = match &awaits {
            None => return,
            Some(Awaiting::Paused(None) | Awaiting::Suspended) => operator.resume().map(drop),
            Some(Awaiting::Paused(Some(name))) => operator.resume_database(name),
            Some(Awaiting::Closed(_)) => Ok(()),
        };
        self.end_await(conn, Err(&Fault::CommandCanceled), out);
        if taken_back.is_ok() {
            orders::announce(self.env.directory, out);
        }
    }

    /// Handles the end of a console client: its orders stay in force, but its wait for them ends.
    pub(super) fn forget(&self, conn: Token, out: &mut Actions) {
        self.env
            .directory
            .operator()
            .wait_no_more(self.env.worker, conn);
        orders::resume_without_console(self.env.directory, (self.env.worker, conn), out);
    }

    fn ask_for_set(&mut self, conn: Token, key: String, value: String, out: &mut Actions) {
        self.await_control(conn, shown_setting(&key, &value));
        out.control(Control::Set {
            worker: self.env.worker,
            console: conn,
            key,
            value,
        });
    }

    fn ask_for_reload(&mut self, conn: Token, out: &mut Actions) {
        issued("RELOAD", "", out);
        self.await_control(conn, "RELOAD".to_owned());
        out.control(Control::Reload {
            worker: self.env.worker,
            console: conn,
        });
    }

    fn ask_for_shutdown(&mut self, conn: Token, how: Shutdown, out: &mut Actions) {
        let words = match how {
            Shutdown::WaitForClients => "SHUTDOWN WAIT_FOR_CLIENTS",
            Shutdown::WaitForServers => "SHUTDOWN WAIT_FOR_SERVERS",
            Shutdown::Immediate => "SHUTDOWN",
        };
        issued(words, "", out);
        self.env.directory.operator().begin_end();
        out.control(Control::Shutdown(how));
        if how != Shutdown::Immediate {
            out.send_made(conn, |bytes| write_done("SHUTDOWN", bytes));
        }
    }
}

fn issued(command: &str, database: &str, out: &mut Actions) {
    let text = match database {
        "" => format!("{command} command issued"),
        name => format!("{command} '{name}' command issued"),
    };
    out.log(Level::Log, "", text);
}

fn no_such_database(name: &str) -> Fault {
    Fault::Command(format!("no such database: {name}"))
}

/// Parses a client's number, as in SHOW CLIENTS (`id`, or `ptr`: `0x1f`), or as in the log (`C-0x1f`). A number
/// that is too large belongs to no client.
fn client_id(text: &str) -> Option<u64> {
    let text = text.strip_prefix("C-").unwrap_or(text);
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((text, 10), |digits| (digits, 16));
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}
