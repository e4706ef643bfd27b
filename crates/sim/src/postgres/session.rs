//! One session of the model PostgreSQL: transactions, settings, both query protocols, COPY.

use std::{collections::BTreeMap, rc::Rc};

use pgweir_wire::{MessageWriter, Severity, tag::backend, tag::frontend};

use super::{
    extended::{Portal, Prepared},
    output::Output,
    statement::{Command, Text},
};
use crate::checks::{Promise, RequestId, Violation};

pub(super) type Settings = BTreeMap<&'static str, String>;

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
    Failed(&'static str, &'static str),
    Die,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) backend: usize,
    pub(super) status: u8,
    settings: Settings,
    defaults: Settings,
    reported: Settings,
    /// The settings to return to when the transaction fails.
    undo: Option<Settings>,
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
    /// Whom the present message belongs to.
    pub(super) client: Option<usize>,
    pub(super) id: Option<RequestId>,
    /// The prepared statement that is at work, where its text does not name the request.
    pub(super) shown: Option<String>,
}

impl Session {
    pub(super) fn new(backend: usize, settings: Settings, eager: bool, checks_all: bool) -> Self {
        Self {
            backend,
            status: b'I',
            defaults: settings.clone(),
            reported: settings.clone(),
            settings,
            undo: None,
            unsynced: false,
            skipping: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            business: Business::None,
            eager,
            checks_all,
            client: None,
            id: None,
            shown: None,
        }
    }

    /// How many named statements it holds.
    pub(super) fn named_statements(&self) -> usize {
        self.statements
            .keys()
            .filter(|name| !name.is_empty())
            .count()
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
        self.check_claim(&text)?;
        self.id = text.claim.as_ref().map(|claim| claim.id);
        self.shown = None;
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        if text.commands.is_empty() {
            self.say(out, |writer| {
                writer.empty_query_response();
            });
        }
        for command in &text.commands {
            match self.execute(command, true, out) {
                Outcome::Done => {}
                Outcome::Goes => return Ok(Next::Go),
                Outcome::Failed(code, message) => {
                    self.fail(true, code, message, out);
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

    pub(super) fn execute(&mut self, command: &Command, simple: bool, out: &mut Output) -> Outcome {
        if self.status == b'E' && !command.ends() {
            return Outcome::Failed("25P02", ABORTED);
        }
        match command {
            Command::Begin => {
                self.undo.get_or_insert_with(|| self.settings.clone());
                self.status = b'T';
                self.complete("BEGIN", out);
            }
            Command::Commit if self.status != b'E' => {
                self.end_transaction();
                self.complete("COMMIT", out);
            }
            Command::Commit | Command::Rollback => {
                self.abort();
                self.end_transaction();
                self.complete("ROLLBACK", out);
            }
            Command::Rows { count, size } => self.rows(*count, *size, simple, out),
            Command::CopyOut { count, size } => self.copy_out(*count, *size, out),
            Command::CopyIn { fails_at } => return self.copy_in(*fails_at, simple, out),
            Command::Set { name, value } => return self.set(name, value, out),
            Command::Notice => {
                let text = self.marked("look out");
                self.say(out, |writer| {
                    writer.notice(Severity::Notice, "00000", &text);
                });
                self.complete("NOTICE", out);
            }
            Command::Fail => return Outcome::Failed("22012", "division by zero"),
            Command::Slow(steps) => {
                self.business = Business::Slow {
                    simple,
                    left: *steps,
                };
                out.flush();
                return Outcome::Goes;
            }
            Command::Die => return Outcome::Die,
            Command::DiscardAll if self.status == b'T' => {
                return Outcome::Failed(
                    "25001",
                    "DISCARD ALL cannot run inside a transaction block",
                );
            }
            Command::DiscardAll => {
                self.settings = self.defaults.clone();
                self.statements.clear();
                self.complete("DISCARD ALL", out);
            }
            Command::DeallocateAll => {
                self.statements.clear();
                self.complete("DEALLOCATE ALL", out);
            }
            Command::Probe => self.tell_settings(out),
            Command::SetConfig(pairs) => {
                for (name, value) in pairs {
                    if name == "work_mem" && is_refused(value) {
                        return Outcome::Failed("22023", REFUSED);
                    }
                    if let Outcome::Failed(code, why) = self.change(name, Some(value), out) {
                        return Outcome::Failed(code, why);
                    }
                }
                self.complete("SELECT 1", out);
            }
            Command::Reset(name) => return self.reset(name.as_deref(), out),
            Command::Clean => self.complete("CLEAN", out),
            Command::Unknown => return Outcome::Failed("42601", "syntax error"),
        }
        Outcome::Done
    }

    fn set(&mut self, name: &str, value: &str, out: &mut Output) -> Outcome {
        let outcome = self.change(name, Some(value), out);
        if matches!(outcome, Outcome::Done) {
            self.complete("SET", out);
        }
        outcome
    }

    fn reset(&mut self, name: Option<&str>, out: &mut Output) -> Outcome {
        let names: Vec<_> = match name {
            Some(name) => vec![name],
            None => self.defaults.keys().copied().collect(),
        };
        for name in names {
            if let Outcome::Failed(code, why) = self.change(name, None, out) {
                return Outcome::Failed(code, why);
            }
        }
        self.complete("RESET", out);
        Outcome::Done
    }

    /// What was set in this session, as the pooler asks for it.
    fn tell_settings(&mut self, out: &mut Output) {
        let set: Vec<_> = self
            .settings
            .iter()
            .filter(|(name, value)| self.defaults.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.replace('\\', "\\\\")))
            .collect();
        for (name, value) in &set {
            self.say(out, |writer| {
                let columns = [b"g", name.as_bytes(), value.as_bytes()];
                writer.data_row(columns.into_iter().map(Some));
            });
        }
        self.complete(&format!("SELECT {}", set.len()), out);
    }

    /// Gives a setting this value, or the one of the beginning.
    fn change(&mut self, name: &str, value: Option<&str>, out: &mut Output) -> Outcome {
        let Some(name) = self
            .defaults
            .keys()
            .copied()
            .find(|known| known.eq_ignore_ascii_case(name))
        else {
            return Outcome::Failed("42704", "unrecognized configuration parameter");
        };
        self.undo.get_or_insert_with(|| self.settings.clone());
        let default = || self.defaults[name].clone();
        let value = value.map_or_else(default, str::to_owned);
        self.settings.insert(name, value);
        if self.eager {
            self.report(out);
        }
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
            return Outcome::Failed("42809", "cannot copy to view");
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
        self.abort();
        if self.status == b'T' {
            self.status = b'E';
        }
        if simple {
            self.after(true, out);
        } else {
            self.skipping = true;
        }
    }

    fn abort(&mut self) {
        if let Some(before) = &self.undo {
            self.settings = before.clone();
        }
    }

    fn end_transaction(&mut self) {
        self.status = b'I';
        self.undo = None;
        self.portals.clear();
    }

    fn ready(&mut self, out: &mut Output) {
        self.report(out);
        let status = self.status;
        self.say(out, |writer| {
            writer.ready_for_query(status);
        });
        out.flush();
    }

    fn report(&mut self, out: &mut Output) {
        for name in REPORTED {
            if self.settings.get(name) != self.reported.get(name) {
                let value = self.settings[name].clone();
                self.say(out, |writer| {
                    writer.parameter_status(name.as_bytes(), value.as_bytes());
                });
                self.reported.insert(name, value);
            }
        }
    }

    pub(super) fn complete(&mut self, tag: &str, out: &mut Output) {
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
            Some(believed) if self.settings.get(name) != Some(believed) => {
                let what = format!(
                    "request {} believes {name} to be {believed:?}, and it is {:?}",
                    claim.id,
                    self.settings.get(name)
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
