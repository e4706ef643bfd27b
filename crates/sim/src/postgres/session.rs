//! A session of the model: transactions, settings, both query protocols, COPY.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use pgweir_wire::{MessageWriter, Severity, tag::backend, tag::frontend};

use super::{
    extended::{Portal, Prepared},
    output::Output,
    sql::{State, Values},
    statement::{Command, Text},
    work::check_known,
};
use crate::{
    checks::{Guarantee, RequestId, Violation},
    scenario::PlantedFault,
};

/// The session that a client would have with a server of its own. All statements that a client runs on servers of the
/// pooler are also run in this session.
pub(crate) type Direct = Rc<RefCell<State>>;

/// The parameters that are reported to clients by ParameterStatus.
pub(super) const REPORTED: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "IntervalStyle",
];

/// The state of a session after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    /// The backend sends FATAL and closes.
    Die,
    /// The client has sent Terminate.
    End,
}

/// The command that is running.
#[derive(Debug)]
pub(super) enum RunningCommand {
    None,
    CopyIn {
        simple: bool,
        fails_at: Option<u32>,
        pieces: u32,
    },
    Slow {
        simple: bool,
        left: u32,
    },
}

/// The result of a command.
pub(super) enum Outcome {
    Done,
    /// The command goes on with later messages or steps.
    Goes,
    Failed(&'static str, String),
    /// One of the pooler's own texts has failed that must never fail.
    Broken(Violation),
    Die,
}

/// A session: its transaction, its settings, its statements and portals.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) backend: usize,
    pub(super) status: u8,
    pub(super) state: State,
    /// The direct session of the client whose message is handled, or was handled last.
    pub(super) direct: Option<Direct>,
    reported: Values,
    /// The number of values that were taken from sequences.
    pub(super) sequence: u64,
    /// Whether messages of the extended protocol arrived after the last Sync.
    unsynced: bool,
    /// Whether an error occurred after the last Sync.
    skipping: bool,
    pub(super) statements: BTreeMap<Vec<u8>, Rc<Prepared>>,
    pub(super) portals: BTreeMap<Vec<u8>, Portal>,
    pub(super) running_command: RunningCommand,
    /// Whether changed settings are reported at once, as before PostgreSQL 14.
    pub(super) eager: bool,
    /// Whether the pool's mode is `session`, so that settings that are not reported are compared, too.
    pub(super) checks_all: bool,
    /// Notifications: those that this session has sent, and those that it has received but not reported.
    pub(super) sent: Vec<(String, String)>,
    pub(super) pending_notifications: Vec<(String, String)>,
    /// A planted fault in this session.
    pub(super) planted_fault: Option<PlantedFault>,
    /// The number of connections that PostgreSQL allows, less its reserved ones.
    pub(super) usable_connections: u32,
    /// The login user.
    pub(super) user: String,
    /// The OID of the database.
    pub(super) database: u32,
    /// The client that sent the message that is handled.
    pub(super) client: Option<usize>,
    pub(super) id: Option<RequestId>,
    /// The running prepared statement, if its text does not contain the request's id.
    pub(super) shown: Option<String>,
}

impl Session {
    pub(super) fn new(backend: usize, settings: Values, eager: bool, checks_all: bool) -> Self {
        let user = settings.get("session_authorization").cloned();
        let user = user.unwrap_or_default();
        Self {
            backend,
            status: b'I',
            reported: settings.clone(),
            state: State::new(settings),
            direct: None,
            sequence: 0,
            unsynced: false,
            skipping: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            running_command: RunningCommand::None,
            eager,
            checks_all,
            sent: Vec::new(),
            pending_notifications: Vec::new(),
            planted_fault: None,
            usable_connections: 0,
            user,
            database: 0,
            client: None,
            id: None,
            shown: None,
        }
    }

    /// Returns the session state.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Applies a change to this session and, if a client's message causes the change, to the client's direct session.
    pub(super) fn both(&mut self, change: impl Fn(&mut State)) {
        change(&mut self.state);
        if self.client.is_some()
            && let Some(direct) = &self.direct
        {
            change(&mut direct.borrow_mut());
        }
    }

    /// Returns the numbers of named statements: under the pooler's names, and under clients' names.
    pub(super) fn named_statements(&self) -> (usize, usize) {
        let names = self.statements.keys().filter(|name| !name.is_empty());
        let (ours, theirs): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(b"PGWEIR"));
        (ours.len(), theirs.len())
    }

    /// Returns whether no transaction, query or pipeline is under way.
    pub(super) fn is_clean(&self) -> bool {
        self.status == b'I'
            && !self.unsynced
            && !self.skipping
            && matches!(self.running_command, RunningCommand::None)
    }

    /// Returns whether a query runs, so that messages have to wait.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.running_command, RunningCommand::Slow { .. })
    }

    /// Runs a step of the running query.
    pub(super) fn run(&mut self, out: &mut Output) {
        let RunningCommand::Slow { simple, left } = &mut self.running_command else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let simple = *simple;
            self.running_command = RunningCommand::None;
            self.complete("SLOW", out);
            self.after(simple, out);
        }
    }

    /// Handles a cancel request. Returns whether a query was cancelled.
    pub(super) fn cancel(&mut self, out: &mut Output) -> bool {
        let simple = match self.running_command {
            RunningCommand::Slow { simple, .. } | RunningCommand::CopyIn { simple, .. } => simple,
            RunningCommand::None => return false,
        };
        self.fail(
            simple,
            "57014",
            "canceling statement due to user request",
            out,
        );
        true
    }

    /// Handles a whole message. `client` is the sender; `None` for the pooler's own messages.
    pub(super) fn message(
        &mut self,
        tag: u8,
        body: &[u8],
        client: Option<usize>,
        out: &mut Output,
    ) -> Result<Next, Violation> {
        if let RunningCommand::CopyIn { .. } = self.running_command {
            return Ok(self.copy_message(tag, body, out));
        }
        self.client = client;
        match tag {
            frontend::QUERY if !self.skipping => return self.query(body, out),
            frontend::FUNCTION_CALL if !self.skipping => self.function_call(body, out),
            frontend::SYNC => {
                self.skipping = false;
                self.unsynced = false;
                if self.status == b'I' {
                    self.end_transaction();
                }
                self.ready(out);
            }
            frontend::FLUSH => out.flush(),
            frontend::TERMINATE => return Ok(Next::End),
            // The remaining data of a COPY that has failed.
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {}
            _ if self.skipping => {}
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                self.unsynced = true;
                return self.extended(tag, body, out);
            }
            other => {
                let what = format!("a server gets a message of type '{}'", other.escape_ascii());
                return Err(Violation::new(Guarantee::ValidActions, what));
            }
        }
        Ok(Next::Go)
    }

    fn query(&mut self, body: &[u8], out: &mut Output) -> Result<Next, Violation> {
        let text = Text::parse(body.strip_suffix(b"\0").unwrap_or(body));
        check_known(&text)?;
        self.check_claim(&text)?;
        self.check_state(text.commands.is_empty())?;
        self.id = text.claim.as_ref().map(|claim| claim.id);
        self.shown = None;
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        if text.commands.is_empty() {
            self.say(out, |writer| {
                writer.empty_query_response();
            });
        }
        // A planted fault: the effect of the pooler's query, or the state that it reads, belongs to another session.
        let hidden = self.is_affected_by_fault(&text).then(|| {
            let shown = match self.planted_fault {
                Some(PlantedFault::NoInspection) => State::new(self.state.defaults().clone()),
                _ => self.state.clone(),
            };
            std::mem::replace(&mut self.state, shown)
        });
        let next = self.run_all(&text, out);
        if let Some(hidden) = hidden {
            self.state = hidden;
        }
        next
    }

    fn run_all(&mut self, text: &Text, out: &mut Output) -> Result<Next, Violation> {
        for command in &text.commands {
            match self.execute(command, &text.source, true, out) {
                Outcome::Done => {}
                Outcome::Broken(violation) => return Err(violation),
                Outcome::Goes => return Ok(Next::Go),
                Outcome::Failed(code, message) => {
                    self.fail(true, code, &message, out);
                    return Ok(Next::Go);
                }
                Outcome::Die => return Ok(Next::Die),
            }
        }
        self.after(true, out);
        Ok(Next::Go)
    }

    fn function_call(&mut self, body: &[u8], out: &mut Output) {
        self.id = RequestId::of_message(frontend::FUNCTION_CALL, body);
        self.shown = None;
        if self.status == b'E' {
            return self.fail(true, "25P02", ABORTED, out);
        }
        let value = self.id.map_or_else(String::new, |id| id.to_string());
        self.say(out, |writer| {
            writer.message(backend::FUNCTION_CALL_RESPONSE, |body| {
                body.extend_from_slice(&(value.len() as u32).to_be_bytes());
                body.extend_from_slice(value.as_bytes());
            });
        });
        self.after(true, out);
    }

    pub(super) fn execute(
        &mut self,
        command: &Command,
        source: &str,
        simple: bool,
        out: &mut Output,
    ) -> Outcome {
        if self.status == b'E' && !command.ends() {
            return Outcome::Failed("25P02", ABORTED.to_owned());
        }
        match command {
            Command::Begin
            | Command::Commit
            | Command::Rollback
            | Command::Savepoint(_)
            | Command::RollbackTo(_)
            | Command::Release(_) => return self.of_transaction(command, simple, out),
            Command::Rows { count, size } => self.rows(*count, *size, simple, out),
            Command::CopyOut { count, size } => self.copy_out(*count, *size, out),
            Command::CopyIn { fails_at } => return self.copy_in(*fails_at, simple, out),
            Command::Sql(statement) => return self.sql(statement, source, simple, out),
            Command::Notice => {
                let text = self.marked("look out");
                self.say(out, |writer| {
                    writer.notice(Severity::Notice, "00000", &text);
                });
                self.complete("NOTICE", out);
            }
            Command::Fail => return Outcome::Failed("22012", "division by zero".to_owned()),
            Command::Slow(steps) => {
                self.running_command = RunningCommand::Slow {
                    simple,
                    left: *steps,
                };
                out.flush();
                return Outcome::Goes;
            }
            Command::Die => return Outcome::Die,
            Command::UsableConnections => self.show_usable_connections(out),
            Command::Refused => return Outcome::Failed("42601", "syntax error".to_owned()),
            Command::Unknown => {
                let what = format!("the model does not know {source:?}");
                return Outcome::Broken(Violation::new(Guarantee::ValidActions, what));
            }
        }
        Outcome::Done
    }

    fn of_transaction(&mut self, command: &Command, simple: bool, out: &mut Output) -> Outcome {
        let missing = || Outcome::Failed("3B001", "savepoint does not exist".to_owned());
        let tag = match command {
            Command::Begin => {
                self.both(State::begin);
                self.status = b'T';
                "BEGIN"
            }
            Command::Savepoint(name) => {
                self.both(|state| state.savepoint(name));
                "SAVEPOINT"
            }
            Command::RollbackTo(name) => {
                if !self.state.clone().roll_back_to(name) {
                    return missing();
                }
                self.both(|state| {
                    state.roll_back_to(name);
                });
                self.status = b'T';
                "ROLLBACK"
            }
            Command::Release(name) => {
                if !self.state.clone().release(name) {
                    return missing();
                }
                self.both(|state| {
                    state.release(name);
                });
                "RELEASE"
            }
            Command::Commit if self.status != b'E' => {
                self.end_transaction();
                "COMMIT"
            }
            _ => {
                self.both(State::abort);
                self.end_transaction();
                "ROLLBACK"
            }
        };
        self.complete_as(tag, simple, out);
        Outcome::Done
    }

    fn rows(&mut self, count: u32, size: usize, simple: bool, out: &mut Output) {
        if simple {
            self.say(out, |writer| {
                writer.row_description([("v", 25, -1)].into_iter());
            });
        }
        for _ in 0..count {
            out.row(self.backend, self.client, self.id, size);
        }
        self.complete(&format!("SELECT {count}"), out);
    }

    fn show_usable_connections(&self, out: &mut Output) {
        let number = self.usable_connections.to_string();
        self.say(out, |writer| {
            writer.data_row([Some(number.as_bytes())].into_iter());
        });
        self.complete("SELECT 1", out);
    }

    /// Sends the next rows of a portal.
    pub(super) fn some_rows(&mut self, count: u32, size: usize, out: &mut Output) {
        for _ in 0..count {
            out.row(self.backend, self.client, self.id, size);
        }
        self.say(out, |writer| {
            writer.message(backend::PORTAL_SUSPENDED, |_| {});
        });
    }

    fn copy_out(&mut self, count: u32, size: usize, out: &mut Output) {
        self.say(out, |writer| {
            writer.message(backend::COPY_OUT_RESPONSE, |body| body.extend(COPY_FORMAT));
        });
        for _ in 0..count {
            out.copy_row(self.backend, self.client, self.id, size);
        }
        self.say(out, |writer| {
            writer.message(backend::COPY_DONE, |_| {});
        });
        self.complete(&format!("COPY {count}"), out);
    }

    fn copy_in(&mut self, fails_at: Option<u32>, simple: bool, out: &mut Output) -> Outcome {
        self.say(out, |writer| {
            writer.message(backend::COPY_IN_RESPONSE, |body| body.extend(COPY_FORMAT));
        });
        if fails_at == Some(0) {
            // As for a view: the error comes after the response, before any data was read.
            return Outcome::Failed("42809", "cannot copy to view".to_owned());
        }
        self.running_command = RunningCommand::CopyIn {
            simple,
            fails_at,
            pieces: 0,
        };
        out.flush();
        Outcome::Goes
    }

    /// Ends a simple query, or a part of a pipeline.
    pub(super) fn after(&mut self, simple: bool, out: &mut Output) {
        if simple {
            // A simple query ends earlier messages of the extended protocol, as a Sync does.
            self.unsynced = false;
            if self.status == b'I' {
                self.end_transaction();
            }
            self.ready(out);
        }
    }

    pub(super) fn fail(&mut self, simple: bool, code: &str, message: &str, out: &mut Output) {
        self.running_command = RunningCommand::None;
        let text = self.marked(message);
        self.say(out, |writer| {
            writer.error(Severity::Error, code, &text, None, None);
        });
        self.both(State::abort);
        if self.status == b'T' {
            self.status = b'E';
        }
        if simple {
            self.after(true, out);
        } else {
            self.skipping = true;
        }
    }

    fn end_transaction(&mut self) {
        self.status = b'I';
        self.both(State::end);
        if let Some(direct) = &self.direct {
            direct.borrow_mut().take_sent();
        }
        for note in self.state.take_sent() {
            self.queue_notification(&note);
            self.sent.push(note);
        }
        self.portals.clear();
    }

    fn ready(&mut self, out: &mut Output) {
        if self.status == b'I' {
            self.send_notifications(out);
        }
        self.report(out);
        let status = self.status;
        self.say(out, |writer| {
            writer.ready_for_query(status);
        });
        out.flush();
    }

    pub(super) fn report(&mut self, out: &mut Output) {
        for name in REPORTED {
            let value = self.state.value(name).unwrap_or_default().to_owned();
            let known = self.reported.get(&name.to_ascii_lowercase());
            if known != Some(&value) {
                self.say(out, |writer| {
                    writer.parameter_status(name.as_bytes(), value.as_bytes());
                });
                self.reported.insert(name.to_ascii_lowercase(), value);
            }
        }
    }

    pub(super) fn complete(&self, tag: &str, out: &mut Output) {
        let shown = self.shown.as_deref().unwrap_or_default();
        let tag = match self.id {
            Some(id) => format!("{tag} {id} {shown}"),
            None => tag.to_owned(),
        };
        self.say(out, |writer| {
            writer.command_complete(&tag);
        });
    }

    fn marked(&self, text: &str) -> String {
        let shown = self.shown.as_deref().unwrap_or_default();
        match self.id {
            Some(id) => format!("{id}: {text} {shown}"),
            None => text.to_owned(),
        }
    }

    pub(super) fn say(&self, out: &mut Output, make: impl FnOnce(&mut MessageWriter<'_>)) {
        out.say(self.backend, self.client, make);
    }

    /// Checks that the session has the settings that the client expects.
    pub(super) fn check_claim(&self, text: &Text) -> Result<(), Violation> {
        let Some(claim) = &text.claim else {
            return Ok(());
        };
        let check = |name: &str, believed: &Option<String>| match believed {
            Some(believed) if self.state.value(name) != Some(believed) => {
                let what = format!(
                    "request {} believes {name} to be {believed:?}, and it is {:?}",
                    claim.id,
                    self.state.value(name)
                );
                Err(Violation::new(Guarantee::Sessions, what))
            }
            _ => Ok(()),
        };
        check("application_name", &claim.application_name)?;
        // A statement without effects has the same result on a server that lacks a value which no server accepts any
        // more.
        let may_lack =
            text.commands.is_empty() && claim.work_mem.as_deref().is_some_and(is_refused);
        if self.checks_all && !may_lack {
            check("work_mem", &claim.work_mem)?;
        }
        Ok(())
    }
}

/// The error for a value that only a client may set.
pub(crate) const REFUSED: &str = "what this value speaks of is gone";

/// A client may set this value, but afterwards no session accepts it.
pub(crate) fn is_refused(work_mem: &str) -> bool {
    work_mem.ends_with("3MB")
}

pub(super) const ABORTED: &str = "current transaction is aborted";
/// Writes a RowDescription with one text column.
const COPY_FORMAT: [u8; 5] = [0, 0, 1, 0, 0];
