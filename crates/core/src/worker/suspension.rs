//! SUSPEND: everything that is under way is brought to the end of its message and written, and then
//! nothing is read until RESUME.
//!
//! A connection is frozen by the driver when it is quiet: its last message has come and gone whole. The
//! core goes on setting its read mode, which counts again when it is thawed.

use super::Worker;
use crate::{
    Action, Actions, Halt, Time, Token,
    connections::Conn,
    fault::Fault,
    frontend::{Client, ClientDuty},
};

/// A worker that is suspended.
#[derive(Debug)]
pub(crate) struct Suspension {
    since: Time,
    frozen: Vec<Token>,
    /// Connections that are not quiet yet.
    restless: Vec<Token>,
    told: bool,
}

impl Worker {
    /// Takes over what the operator wants: to be suspended, or not to be.
    pub(crate) fn obey_suspension(&mut self, now: Time, out: &mut Actions) {
        let wanted = self.directory.operator().halt() == Halt::Suspended;
        match (&mut self.suspension, wanted) {
            (None, true) => {
                out.list.push(Action::Accept(false));
                let restless = self.tokens(can_freeze);
                self.suspension = Some(Box::new(Suspension {
                    since: now,
                    frozen: Vec::new(),
                    restless,
                    told: false,
                }));
                self.schedule(now);
            }
            // Perhaps it was ended and begun again meanwhile.
            (Some(suspension), true) => suspension.told = false,
            (Some(_), false) => self.thaw(now, out),
            (None, false) => {}
        }
        self.check_suspension(out);
    }

    fn thaw(&mut self, now: Time, out: &mut Actions) {
        let Some(suspension) = self.suspension.take() else {
            return;
        };
        for conn in suspension.frozen {
            if self.table.get(conn).is_some() {
                out.list.push(Action::Thaw(conn));
            }
        }
        out.list.push(Action::Accept(true));
        self.schedule(now);
    }

    /// A connection has come while the worker is suspended.
    pub(crate) fn suspend_also(&mut self, conn: Token) {
        if let Some(suspension) = &mut self.suspension {
            suspension.restless.push(conn);
        }
    }

    /// Freezes what has become quiet, and says so when all is.
    #[cold]
    pub(crate) fn check_suspension(&mut self, out: &mut Actions) {
        let Some(mut suspension) = self.suspension.take() else {
            return;
        };
        suspension
            .restless
            .retain(|&conn| match self.table.get(conn) {
                Some(conn_here) if !can_freeze(conn_here) => false,
                Some(conn_here) if is_quiet(conn_here) => {
                    out.list.push(Action::Freeze(conn));
                    suspension.frozen.push(conn);
                    false
                }
                Some(_) => true,
                None => false,
            });
        if suspension.restless.is_empty() && !std::mem::replace(&mut suspension.told, true) {
            self.directory.operator().is_quiet(self.id);
            self.tell_waiting_consoles(out);
        }
        self.suspension = Some(suspension);
    }

    /// Time passes: what is not quiet after `suspend_timeout` is closed.
    pub(crate) fn check_suspend_timeout(&mut self, now: Time, out: &mut Actions) {
        let patience = self.snapshot.config.settings.suspend_timeout.0;
        let Some(suspension) = &self.suspension else {
            return;
        };
        let (since, restless) = (suspension.since, suspension.restless.clone());
        self.table.set_next_tick(None);
        if restless.is_empty() {
            return;
        }
        self.schedule(now);
        if patience == 0 || now.since(since) < patience {
            return;
        }
        for conn in restless {
            let holder = self.table.server(conn).and_then(|server| server.client());
            if let Some(client) = holder {
                self.refuse(client, &Fault::SuspendTimeout, now, out);
            }
            match self.table.get(conn) {
                Some(Conn::Client(_)) => self.refuse(conn, &Fault::SuspendTimeout, now, out),
                Some(Conn::Server(_)) => self.close_server(conn, "suspend_timeout", now, out),
                _ => {}
            }
        }
    }

    /// The console that suspended the process has gone: nobody else could resume it.
    pub(crate) fn resume_without_console(&self, conn: Token, out: &mut Actions) {
        if self
            .directory
            .operator()
            .abandon_suspension((self.id, conn))
        {
            let text = "admin disappeared when suspended, doing RESUME";
            out.log(crate::Level::Log, "", text);
            self.tell_all_to_obey(out);
        }
    }
}

fn can_freeze(conn: &Conn) -> bool {
    match conn {
        Conn::Client(client) => !matches!(
            client.duty,
            ClientDuty::Console(_) | ClientDuty::CancelRequest { .. }
        ),
        Conn::Server(_) => true,
        Conn::Cancel(_) => false,
    }
}

fn is_quiet(conn: &Conn) -> bool {
    match conn {
        Conn::Client(client) => {
            let Client { blocked, duty, .. } = client.as_ref();
            !blocked && client.stream.is_at_boundary() && !matches!(duty, ClientDuty::Login(_))
        }
        Conn::Server(server) => {
            !server.blocked
                && server.stream.is_quiet()
                && !matches!(server.duty, crate::backend::Duty::Login(_))
        }
        Conn::Cancel(_) => true,
    }
}
