//! One session of the model PostgreSQL: transactions, settings, both query protocols, COPY.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use pgweir_wire::{MessageWriter, Severity, tag::backend, tag::frontend};

use super::{
    extended::{Portal, Prepared},
    output::Output,
    sql::{Facts, Failure, State, Statement, Values},
    statement::{Command, Text},
};
use crate::{
    checks::{Promise, RequestId, Violation},
    scenario::Sabotage,
};

/// The session that a client would have with a server of its own. Whatever its statements do on a server
/// of the pooler, they do there too.
pub(crate) type Direct = Rc<RefCell<State>>;

/// Reported to the client by ParameterStatus.
pub(super) const REPORTED: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "IntervalStyle",
];

/// The rest of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    /// The backend says FATAL and closes.
    Die,
    /// The client took its leave.
    End,
}

/// What is under way.
#[derive(Debug)]
pub(super) enum Business {
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

/// How a command ended.
pub(super) enum Outcome {
    Done,
    /// It goes on with later messages or steps.
    Goes,
    Failed(&'static str, String),
    /// A text of the pooler's fails that never may.
    Broken(Violation),
    Die,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) backend: usize,
    pub(super) status: u8,
    state: State,
    /// Of the client whose message is at work, or was.
    direct: Option<Direct>,
    reported: Values,
    /// How often a sequence was asked for its next value.
    sequence: u64,
    /// Messages of the extended protocol came after the last Sync.
    unsynced: bool,
    /// An error came after the last Sync.
    skipping: bool,
    pub(super) statements: BTreeMap<Vec<u8>, Rc<Prepared>>,
    pub(super) portals: BTreeMap<Vec<u8>, Portal>,
    pub(super) business: Business,
    /// Says changed settings at once, as before PostgreSQL 14.
    eager: bool,
    /// The pool's mode is `session`: settings that are not reported are checked too.
    checks_all: bool,
    /// Notifications: what this session has sent, and what it was sent and has not said.
    sent: Vec<(String, String)>,
    heard: Vec<(String, String)>,
    /// A fault that this session plays.
    pub(super) sabotage: Option<Sabotage>,
    /// The login user.
    user: String,
    /// Whom the present message belongs to.
    pub(super) client: Option<usize>,
    pub(super) id: Option<RequestId>,
    /// The prepared statement that is at work, where its text does not name the request.
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
            business: Business::None,
            eager,
            checks_all,
            sent: Vec::new(),
            heard: Vec::new(),
            sabotage: None,
            user,
            client: None,
            id: None,
            shown: None,
        }
    }

    /// What it holds.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The next message is this client's.
    pub(super) fn attach(&mut self, direct: &Direct) {
        if !self.state.is_in_transaction() && direct.borrow().is_in_transaction() {
            // The one it had was lost with its server.
            let mut direct = direct.borrow_mut();
            direct.abort();
            direct.end();
        }
        self.direct = Some(Rc::clone(direct));
    }

    /// The client's last server was lost before it had answered: what the pooler makes of that is believed.
    pub(super) fn settle_what_was_lost(&self) {
        if let Some(direct) = &self.direct {
            direct.borrow_mut().become_like(&self.state);
        }
    }

    /// The pooler takes away a statement of SQL.
    pub(super) fn forget_prepared(&mut self, name: &str) {
        self.state.forget_prepared(name);
    }

    /// Does the same to this session and, if its client has asked for it, to the client's own.
    fn both(&mut self, change: impl Fn(&mut State)) {
        change(&mut self.state);
        if self.client.is_some()
            && let Some(direct) = &self.direct
        {
            change(&mut direct.borrow_mut());
        }
    }

    /// How many named statements it holds: under the pooler's names, and under clients'.
    pub(super) fn named_statements(&self) -> (usize, usize) {
        let names = self.statements.keys().filter(|name| !name.is_empty());
        let (ours, theirs): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(b"PGWEIR"));
        (ours.len(), theirs.len())
    }

    /// In no transaction, and nothing begun.
    pub(super) fn is_clean(&self) -> bool {
        self.status == b'I'
            && !self.unsynced
            && !self.skipping
            && matches!(self.business, Business::None)
    }

    /// A query runs: messages have to wait.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.business, Business::Slow { .. })
    }

    /// A step of the query that runs.
    pub(super) fn run(&mut self, out: &mut Output) {
        let Business::Slow { simple, left } = &mut self.business else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let simple = *simple;
            self.business = Business::None;
            self.complete("SLOW", out);
            self.after(simple, out);
        }
    }

    /// A cancel request arrived. `true` if there was something to cancel.
    pub(super) fn cancel(&mut self, out: &mut Output) -> bool {
        let simple = match self.business {
            Business::Slow { simple, .. } | Business::CopyIn { simple, .. } => simple,
            Business::None => return false,
        };
        self.fail(
            simple,
            "57014",
            "canceling statement due to user request",
            out,
        );
        true
    }

    /// One whole message. `client` is whose it is; nobody for the pooler's own.
    pub(super) fn message(
        &mut self,
        tag: u8,
        body: &[u8],
        client: Option<usize>,
        out: &mut Output,
    ) -> Result<Next, Violation> {
        if let Business::CopyIn { .. } = self.business {
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
            // What is left of a COPY that failed.
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
                return Err(Violation::new(Promise::Sense, what));
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
        // A fault: what the pooler's query does, or is to see, is that of another session.
        let hidden = self.is_sabotaged(&text).then(|| {
            let shown = match self.sabotage {
                Some(Sabotage::NoLook) => State::new(self.state.defaults().clone()),
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

    /// Does the planted fault strike at this query?
    fn is_sabotaged(&self, text: &Text) -> bool {
        let of_pooler = self.client.is_none();
        let sql = text.commands.iter().filter_map(|command| match command {
            Command::Sql(statement) => Some(&**statement),
            _ => None,
        });
        let mut sql = sql.peekable();
        of_pooler
            && match self.sabotage {
                Some(Sabotage::NoClean) => sql.any(Statement::is_of_clean),
                Some(Sabotage::NoLook) => sql.peek().is_some() && sql.all(Statement::only_looks),
                _ => false,
            }
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
                self.business = Business::Slow {
                    simple,
                    left: *steps,
                };
                out.flush();
                return Outcome::Goes;
            }
            Command::Die => return Outcome::Die,
            Command::Refused => return Outcome::Failed("42601", "syntax error".to_owned()),
            Command::Unknown => {
                let what = format!("the model does not know {source:?}");
                return Outcome::Broken(Violation::new(Promise::Sense, what));
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

    /// A statement that works on the session, or looks at it.
    fn sql(
        &mut self,
        statement: &Statement,
        source: &str,
        simple: bool,
        out: &mut Output,
    ) -> Outcome {
        if *statement == Statement::DiscardAll && self.status == b'T' {
            let what = "DISCARD ALL cannot run inside a transaction block";
            return Outcome::Failed("25001", what.to_owned());
        }
        if let Statement::Execute(name) = statement
            && let Some(body) = self.state.prepared(name)
        {
            let command = Command::parse(body);
            return self.execute(&command, source, simple, out);
        }
        self.sequence += 1;
        let named = self.statements.keys();
        let named = named.map(|name| String::from_utf8_lossy(name).into_owned());
        let facts = Facts {
            named: named.filter(|name| !name.is_empty()).collect(),
            user: self.user.clone(),
            next_value: self.backend as u64 * 1_000_000 + self.sequence,
            refuses: self.client.is_none(),
        };
        self.both(State::begin);
        let found = self.state.apply(statement, source, &facts);
        if self.client.is_some()
            && let Some(direct) = &self.direct
        {
            // What comes of it is not compared: the sessions are, before each statement.
            let _ = direct.borrow_mut().apply(statement, source, &facts);
        }
        let rows = match found {
            Ok(rows) => rows.0,
            Err(Failure::Sql(code, what)) if self.client.is_some() || code == "22023" => {
                return Outcome::Failed(code, what);
            }
            Err(Failure::Sql(_, what) | Failure::Unknown(what)) => {
                let what = format!("the model fails {source:?}: {what}");
                return Outcome::Broken(Violation::new(Promise::Sense, what));
            }
        };
        match statement {
            Statement::DiscardAll | Statement::Deallocate(None) => self.statements.clear(),
            _ => {}
        }
        if self.eager {
            self.report(out);
        }
        self.tell(statement, &rows, simple, out);
        Outcome::Done
    }

    /// The rows of a SELECT, or a tag.
    fn tell(
        &self,
        statement: &Statement,
        rows: &[Vec<Option<String>>],
        simple: bool,
        out: &mut Output,
    ) {
        let is_query = matches!(
            statement,
            Statement::Select(_) | Statement::ReadCatalog | Statement::ReadAssigned
        );
        if !is_query {
            return self.complete_as(tag_of(statement), simple, out);
        }
        if simple && self.client.is_some() {
            self.say(out, |writer| {
                writer.row_description([("v", 25, -1)].into_iter());
            });
        }
        for row in rows {
            // A client's rows say whose they are.
            let mark = self.client.and(self.id).map(|id| format!("{id}|"));
            let columns = row.iter().map(|value| value.as_deref().map(str::as_bytes));
            self.say(out, |writer| {
                match &mark {
                    Some(mark) => writer.data_row([Some(mark.as_bytes())].into_iter()),
                    None => writer.data_row(columns),
                };
            });
        }
        self.complete(&format!("SELECT {}", rows.len()), out);
    }

    /// CommandComplete as PostgreSQL says it, if that is a simple query's.
    fn complete_as(&self, tag: &str, simple: bool, out: &mut Output) {
        if !simple {
            return self.complete(tag, out);
        }
        self.say(out, |writer| {
            writer.command_complete(tag);
        });
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

    /// Rows of a portal that has more.
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
            // As for a view: noticed after the response, before anything was read.
            return Outcome::Failed("42809", "cannot copy to view".to_owned());
        }
        self.business = Business::CopyIn {
            simple,
            fails_at,
            pieces: 0,
        };
        out.flush();
        Outcome::Goes
    }

    /// A simple query, or a part of a pipeline, is done.
    pub(super) fn after(&mut self, simple: bool, out: &mut Output) {
        if simple {
            // It ends what messages of the extended protocol have begun before it, as a Sync would.
            self.unsynced = false;
            if self.status == b'I' {
                self.end_transaction();
            }
            self.ready(out);
        }
    }

    pub(super) fn fail(&mut self, simple: bool, code: &str, message: &str, out: &mut Output) {
        self.business = Business::None;
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
            self.hear(&note);
            self.sent.push(note);
        }
        self.portals.clear();
    }

    /// Somebody notifies; it is said when the session is at rest.
    pub(super) fn hear(&mut self, note: &(String, String)) {
        if self.state.channels().contains(&note.0) {
            self.heard.push(note.clone());
        }
    }

    /// What this session has notified, for all others.
    pub(super) fn take_sent(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent)
    }

    /// Says what was heard.
    pub(super) fn tell_heard(&mut self, out: &mut Output) {
        for (channel, payload) in std::mem::take(&mut self.heard) {
            out.say(self.backend, None, |writer| {
                writer.message(backend::NOTIFICATION_RESPONSE, |body| {
                    body.extend([0, 0, 0, 1]);
                    body.extend(channel.as_bytes());
                    body.push(0);
                    body.extend(payload.as_bytes());
                    body.push(0);
                });
            });
        }
        out.flush();
    }

    fn ready(&mut self, out: &mut Output) {
        if self.status == b'I' {
            self.tell_heard(out);
        }
        self.report(out);
        let status = self.status;
        self.say(out, |writer| {
            writer.ready_for_query(status);
        });
        out.flush();
    }

    fn report(&mut self, out: &mut Output) {
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

    /// What a client believes of its session is what this one is.
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
                Err(Violation::new(Promise::Sessions, what))
            }
            _ => Ok(()),
        };
        check("application_name", &claim.application_name)?;
        // What does nothing comes out the same on a server that lacks what no server takes any more.
        let may_lack =
            text.commands.is_empty() && claim.work_mem.as_deref().is_some_and(is_refused);
        if self.checks_all && !may_lack {
            check("work_mem", &claim.work_mem)?;
        }
        Ok(())
    }

    /// The session is what its client would have without a pooler. `does_nothing`: so does the statement.
    pub(super) fn check_state(&self, does_nothing: bool) -> Result<(), Violation> {
        let (Some(client), Some(direct)) = (self.client, &self.direct) else {
            return Ok(());
        };
        let direct = direct.borrow();
        let is_refused = |state: &State| state.value("work_mem").is_some_and(is_refused);
        // Such a one may find a server that lacks what no server takes any more.
        let may_lack = is_refused(&direct) && !is_refused(&self.state);
        if !self.checks_all || may_lack || does_nothing {
            return Ok(());
        }
        match self.state.difference_from(&direct) {
            Some(what) => {
                let what = format!(
                    "client {client} gets backend {} as a session that is not its own: {what}",
                    self.backend
                );
                Err(Violation::new(Promise::Sessions, what))
            }
            None => Ok(()),
        }
    }
}

/// Nobody sends a text that the model does not know.
pub(super) fn check_known(text: &Text) -> Result<(), Violation> {
    match text.commands.contains(&Command::Unknown) {
        true => {
            let what = format!("the model does not know {:?}", text.source);
            Err(Violation::new(Promise::Sense, what))
        }
        false => Ok(()),
    }
}

/// CommandComplete's tag.
fn tag_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::Set { .. } | Statement::SetTransaction => "SET",
        Statement::Reset(_) | Statement::ResetAuthorization => "RESET",
        Statement::DiscardAll => "DISCARD ALL",
        Statement::DiscardTemp => "DISCARD TEMP",
        Statement::DiscardSequences => "DISCARD SEQUENCES",
        Statement::DiscardPlans => "DISCARD PLANS",
        Statement::Declare { .. } => "DECLARE CURSOR",
        Statement::Close(None) => "CLOSE CURSOR ALL",
        Statement::Close(Some(_)) => "CLOSE CURSOR",
        Statement::Listen(_) => "LISTEN",
        Statement::Unlisten(_) => "UNLISTEN",
        Statement::Notify { .. } => "NOTIFY",
        Statement::Prepare { .. } => "PREPARE",
        Statement::Deallocate(None) => "DEALLOCATE ALL",
        Statement::Deallocate(Some(_)) => "DEALLOCATE",
        Statement::CreateTemp(_) => "CREATE TABLE",
        Statement::Drop(_) => "DROP TABLE",
        Statement::Insert { .. } => "INSERT 0 1",
        Statement::Execute(_)
        | Statement::Select(_)
        | Statement::ReadCatalog
        | Statement::ReadAssigned => "SELECT 1",
    }
}

/// What is said of a value that only a client may set.
pub(crate) const REFUSED: &str = "what this value speaks of is gone";

/// A client may set this, and no session is given it later.
pub(crate) fn is_refused(work_mem: &str) -> bool {
    work_mem.ends_with("3MB")
}

pub(super) const ABORTED: &str = "current transaction is aborted";
/// Text, one column.
const COPY_FORMAT: [u8; 5] = [0, 0, 1, 0, 0];
