//! Runs statements on the session state, and compares the session with the direct session of its client.

use std::rc::Rc;

use pgweir_wire::tag::backend;

use super::{
    output::Output,
    session::{Direct, Outcome, Session, is_refused},
    sql::{Facts, Failure, State, Statement},
    statement::{Command, Text},
};
use crate::{
    checks::{Guarantee, Violation},
    scenario::PlantedFault,
};

impl Session {
    /// Notes that the next message is a client's. `direct` is the client's direct session.
    pub(super) fn attach(&mut self, direct: &Direct) {
        if !self.state.is_in_transaction() && direct.borrow().is_in_transaction() {
            // The client's transaction was lost with its server.
            let mut direct = direct.borrow_mut();
            direct.abort();
            direct.end();
        }
        self.direct = Some(Rc::clone(direct));
    }

    /// Makes the direct session equal to this one: the client's last server was lost before it had answered, so the
    /// pooler's result is taken as correct.
    pub(super) fn adopt_pooler_session(&self) {
        if let Some(direct) = &self.direct {
            direct.borrow_mut().copy_from(&self.state);
        }
    }

    /// Notes that the pooler deallocates an SQL-prepared statement.
    pub(super) fn forget_prepared(&mut self, name: &str) {
        self.state.forget_prepared(name);
    }

    /// Returns whether the planted fault affects this query.
    pub(super) fn is_affected_by_fault(&self, text: &Text) -> bool {
        let of_pooler = self.client.is_none();
        let sql = text.commands.iter().filter_map(|command| match command {
            Command::Sql(statement) => Some(&**statement),
            _ => None,
        });
        let mut sql = sql.peekable();
        of_pooler
            && match self.planted_fault {
                Some(PlantedFault::NoClean) => sql.any(Statement::is_of_clean),
                Some(PlantedFault::NoInspection) => {
                    sql.peek().is_some() && sql.all(Statement::only_reads_state)
                }
                _ => false,
            }
    }

    /// Runs a statement that changes or reads session state.
    pub(super) fn sql(
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
            database: self.database,
            refuses: self.client.is_none(),
        };
        self.both(State::begin);
        let found = self.state.apply(statement, source, &facts);
        if self.client.is_some()
            && let Some(direct) = &self.direct
        {
            // The results are not compared. The sessions are compared before each statement.
            let _ = direct.borrow_mut().apply(statement, source, &facts);
        }
        let rows = match found {
            Ok(rows) => rows.0,
            Err(Failure::Sql(code, what)) if self.client.is_some() || code == "22023" => {
                return Outcome::Failed(code, what);
            }
            Err(Failure::Sql(_, what) | Failure::Unknown(what)) => {
                let what = format!("the model fails {source:?}: {what}");
                return Outcome::Broken(Violation::new(Guarantee::ValidActions, what));
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

    /// Sends the rows of a SELECT, or a tag.
    pub(super) fn tell(
        &self,
        statement: &Statement,
        rows: &[Vec<Option<String>>],
        simple: bool,
        out: &mut Output,
    ) {
        let is_query = matches!(
            statement,
            Statement::Select(_) | Statement::Show(_) | Statement::ReadCatalog(_)
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
            // A client's rows contain its id.
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

    /// Sends CommandComplete as PostgreSQL does, for a statement of a simple query.
    pub(super) fn complete_as(&self, tag: &str, simple: bool, out: &mut Output) {
        if !simple {
            return self.complete(tag, out);
        }
        self.say(out, |writer| {
            writer.command_complete(tag);
        });
    }

    /// Queues a notification, which is reported when the session is idle.
    pub(super) fn queue_notification(&mut self, note: &(String, String)) {
        if self.state.channels().contains(&note.0) {
            self.pending_notifications.push(note.clone());
        }
    }

    /// Returns the notifications that this session has sent to others.
    pub(super) fn take_sent(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent)
    }

    /// Reports the queued notifications.
    pub(super) fn send_notifications(&mut self, out: &mut Output) {
        for (channel, payload) in std::mem::take(&mut self.pending_notifications) {
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

    /// Checks that the session is the one that its client would have without a pooler. `does_nothing`: the statement
    /// has no effect.
    pub(super) fn check_state(&self, does_nothing: bool) -> Result<(), Violation> {
        let (Some(client), Some(direct)) = (self.client, &self.direct) else {
            return Ok(());
        };
        let direct = direct.borrow();
        let is_refused = |state: &State| state.value("work_mem").is_some_and(is_refused);
        // A client whose statement has no effect may get a server without a setting that no server accepts any more.
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
                Err(Violation::new(Guarantee::Sessions, what))
            }
            None => Ok(()),
        }
    }
}

/// Checks that the model knows the text.
pub(super) fn check_known(text: &Text) -> Result<(), Violation> {
    match text.commands.contains(&Command::Unknown) {
        true => {
            let what = format!("the model does not know {:?}", text.source);
            Err(Violation::new(Guarantee::ValidActions, what))
        }
        false => Ok(()),
    }
}

/// Returns the tag of CommandComplete.
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
        | Statement::Show(_)
        | Statement::ReadCatalog(_) => "SELECT 1",
    }
}
