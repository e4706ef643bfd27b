//! The part of a session that handles the extended protocol and COPY data.

use std::{collections::btree_map::Entry, rc::Rc};

use pgweir_wire::{Body, Malformed, tag::backend, tag::frontend};

use super::{
    output::Output,
    session::{ABORTED, Next, Outcome, RunningCommand, Session},
    statement::{Command, Text, signature},
    work::check_known,
};
use crate::checks::{Guarantee, RequestId, Violation};

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    text: Text,
    source: String,
    types: Vec<u32>,
}

/// A statement with its parameters.
#[derive(Debug)]
pub(super) struct Portal {
    statement: Rc<Prepared>,
    /// The id of the request that created the portal.
    id: Option<RequestId>,
    /// The number of rows that were not fetched yet.
    rows_left: u32,
}

/// The reason why a message gets no answer.
enum MessageError {
    Malformed,
    /// The pooler has broken a guarantee.
    Broken(Violation),
}

impl From<Malformed> for MessageError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Violation> for MessageError {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

impl Prepared {
    /// Returns whether the statement returns rows.
    fn returns_rows(&self) -> bool {
        let first = self.text.commands.first();
        first.is_some_and(Command::returns_rows)
    }

    /// Returns whether the statement ends a transaction, which is possible even in a failed one.
    fn ends(&self) -> bool {
        self.text.commands.first().is_some_and(Command::ends)
    }

    /// Returns a text that identifies the statement exactly, unless its own text contains the request's id.
    fn shown(&self) -> Option<String> {
        let shared = self.text.claim.is_none();
        shared.then(|| signature(&self.source, &self.types))
    }
}

impl Session {
    pub(super) fn extended(
        &mut self,
        tag: u8,
        body: &[u8],
        out: &mut Output,
    ) -> Result<Next, Violation> {
        let body = Body::new(body);
        let done = match tag {
            frontend::PARSE => self.parse(body, out),
            frontend::BIND => self.bind(body, out),
            frontend::DESCRIBE => self.describe(body, out),
            frontend::CLOSE => self.close(body, out),
            _ => self.execute_portal(body, out),
        };
        match done {
            Ok(next) => Ok(next),
            // The pooler has completed a message in whose middle a client disconnected.
            Err(MessageError::Malformed) => {
                self.fail(false, "08P01", "invalid message format", out);
                Ok(Next::Go)
            }
            Err(MessageError::Broken(violation)) => Err(violation),
        }
    }

    fn parse(&mut self, mut body: Body<'_>, out: &mut Output) -> Result<Next, MessageError> {
        let name = body.cstr()?.to_vec();
        let source = String::from_utf8_lossy(body.cstr()?).into_owned();
        let mut types = Vec::new();
        for _ in 0..i16(&mut body)? {
            types.push(body.i32()? as u32);
        }
        body.end()?;
        if name.is_empty() {
            // The old portal is closed, whether the new one is valid or not.
            self.statements.remove(&name);
        }
        let text = Text::parse(source.as_bytes());
        check_known(&text)?;
        self.check_claim(&text)?;
        self.id = text.claim.as_ref().map(|claim| claim.id);
        let statement = Prepared {
            text,
            source,
            types,
        };
        self.shown = statement.shown();
        let taken = about(&name, "already exists");
        let first = statement.text.commands.first();
        if first == Some(&Command::Refused) {
            self.fail(false, "42601", "syntax error", out);
        } else if self.status == b'E' && first.is_some() && !statement.ends() {
            self.fail(false, "25P02", ABORTED, out);
        } else if let Entry::Vacant(vacant) = self.statements.entry(name) {
            vacant.insert(Rc::new(statement));
            self.acknowledge(backend::PARSE_COMPLETE, out);
        } else {
            self.fail(false, "42P05", &taken, out);
        }
        Ok(Next::Go)
    }

    fn bind(&mut self, mut body: Body<'_>, out: &mut Output) -> Result<Next, MessageError> {
        let portal = body.cstr()?.to_vec();
        let name = body.cstr()?;
        for _ in 0..i16(&mut body)? {
            i16(&mut body)?;
        }
        let mut given = Vec::new();
        for _ in 0..i16(&mut body)? {
            let length = body.i32()?;
            given.push(body.bytes(length.max(0) as usize)?);
        }
        for _ in 0..i16(&mut body)? {
            i16(&mut body)?;
        }
        body.end()?;
        let of_value = given.first().and_then(|value| RequestId::find(value));
        self.id = RequestId::find(&portal).or(of_value);

        let Some(statement) = self.statements.get(name).cloned() else {
            self.shown = None;
            self.fail(false, "26000", &about(name, "does not exist"), out);
            return Ok(Next::Go);
        };
        self.shown = statement.shown();
        // The pooler makes its own statements from those that a client has sent before.
        if let Some(claim) = &statement.text.claim
            && self.client.is_some()
            && Some(claim.id.client) != self.id.map_or(self.client, |id| Some(id.client))
        {
            let what = format!("a portal is bound to a foreign statement: {claim:?}");
            return Err(Violation::new(Guarantee::Sessions, what).into());
        }
        if given.len() != statement.types.len() {
            self.fail(false, "08P01", "wrong number of parameters", out);
        } else if self.status == b'E' && (!statement.ends() || !given.is_empty()) {
            self.fail(false, "25P02", ABORTED, out);
        } else if !portal.is_empty() && self.portals.contains_key(&portal) {
            self.fail(false, "42P03", "cursor already exists", out);
        } else {
            let rows_left = match statement.text.commands.first() {
                Some(Command::Rows { count, .. }) => *count,
                _ => 0,
            };
            let id = self.id;
            self.portals.insert(
                portal,
                Portal {
                    statement,
                    id,
                    rows_left,
                },
            );
            self.acknowledge(backend::BIND_COMPLETE, out);
        }
        Ok(Next::Go)
    }

    fn describe(&mut self, mut body: Body<'_>, out: &mut Output) -> Result<Next, MessageError> {
        let kind = body.u8()?;
        let name = body.cstr()?;
        body.end()?;
        let (statement, id) = if kind == b'S' {
            (self.statements.get(name).cloned(), None)
        } else {
            let portal = self.portals.get(name);
            let statement = portal.map(|portal| Rc::clone(&portal.statement));
            (statement, portal.and_then(|portal| portal.id))
        };
        self.id = id;
        self.shown = None;
        let Some(statement) = statement else {
            let code = if kind == b'S' { "26000" } else { "34000" };
            self.fail(false, code, &about(name, "does not exist"), out);
            return Ok(Next::Go);
        };
        self.shown = statement.shown();
        if self.status == b'E' && statement.returns_rows() {
            self.fail(false, "25P02", ABORTED, out);
            return Ok(Next::Go);
        }
        if kind == b'S' {
            self.say(out, |writer| {
                writer.message(backend::PARAMETER_DESCRIPTION, |body| {
                    body.extend((statement.types.len() as u16).to_be_bytes());
                    body.extend(statement.types.iter().flat_map(|oid| oid.to_be_bytes()));
                });
            });
        }
        let column = self.shown.clone().unwrap_or_else(|| "v".to_owned());
        self.say(out, |writer| {
            if statement.returns_rows() {
                writer.message(backend::ROW_DESCRIPTION, |body| {
                    body.extend([0, 1]);
                    body.extend(column.as_bytes());
                    body.extend([0; 7]);
                    body.extend(TEXT_COLUMN);
                });
            } else {
                writer.message(backend::NO_DATA, |_| {});
            }
        });
        Ok(Next::Go)
    }

    fn close(&mut self, mut body: Body<'_>, out: &mut Output) -> Result<Next, MessageError> {
        let kind = body.u8()?;
        let name = body.cstr()?;
        body.end()?;
        if kind == b'S' {
            self.statements.remove(name);
            // SQL-prepared statements have such names, too, but no client of this world closes them by Close.
            self.forget_prepared(&String::from_utf8_lossy(name));
        } else {
            self.portals.remove(name);
        }
        self.acknowledge(backend::CLOSE_COMPLETE, out);
        Ok(Next::Go)
    }

    fn execute_portal(
        &mut self,
        mut body: Body<'_>,
        out: &mut Output,
    ) -> Result<Next, MessageError> {
        let name = body.cstr()?.to_vec();
        let limit = body.i32()? as u32;
        body.end()?;
        let Some(portal) = self.portals.get_mut(&name) else {
            self.id = RequestId::find(&name);
            self.shown = None;
            self.fail(false, "34000", MISSING, out);
            return Ok(Next::Go);
        };
        self.id = portal.id;
        self.shown = portal.statement.shown();
        let source = portal.statement.source.clone();
        let command = portal.statement.text.commands.first().cloned();
        let command = match command {
            Some(Command::Rows { size, .. }) if self.status != b'E' => {
                let count = portal.rows_left;
                if limit > 0 && count >= limit {
                    portal.rows_left -= limit;
                    self.some_rows(limit, size, out);
                    return Ok(Next::Go);
                }
                portal.rows_left = 0;
                Some(Command::Rows { count, size })
            }
            other => other,
        };
        let Some(command) = command else {
            self.say(out, |writer| {
                writer.empty_query_response();
            });
            return Ok(Next::Go);
        };
        self.check_state(false)?;
        Ok(match self.execute(&command, &source, false, out) {
            Outcome::Done | Outcome::Goes => Next::Go,
            Outcome::Failed(code, message) => {
                self.fail(false, code, &message, out);
                Next::Go
            }
            Outcome::Broken(violation) => return Err(violation.into()),
            Outcome::Die => Next::Die,
        })
    }

    /// Sync and Flush are ignored while COPY data is read.
    pub(super) fn copy_message(&mut self, tag: u8, body: &[u8], out: &mut Output) -> Next {
        let RunningCommand::CopyIn {
            simple,
            fails_at,
            pieces,
        } = &mut self.running_command
        else {
            return Next::Go;
        };
        let simple = *simple;
        match tag {
            frontend::COPY_DATA => {
                *pieces += 1;
                if RequestId::find(body) != self.id {
                    self.fail(simple, "XX001", "foreign COPY data", out);
                } else if *fails_at == Some(*pieces) {
                    self.fail(simple, "22P02", "invalid input syntax", out);
                }
            }
            frontend::COPY_DONE => {
                let tag = format!("COPY {pieces}");
                self.running_command = RunningCommand::None;
                self.complete(&tag, out);
                self.after(simple, out);
            }
            frontend::COPY_FAIL => self.fail(simple, "57014", "COPY from stdin failed", out),
            frontend::SYNC | frontend::FLUSH => {}
            frontend::TERMINATE => return Next::End,
            // The backend has read only the tag, and disconnects, since it can't tell where the next message begins.
            _ => {
                self.fail(false, "08P01", "unexpected message type during COPY", out);
                return Next::Die;
            }
        }
        Next::Go
    }

    /// Sends ParseComplete, BindComplete or CloseComplete. ParseComplete and CloseComplete may answer the pooler's own
    /// messages, so it is not known whether the client will receive them.
    fn acknowledge(&self, tag: u8, out: &mut Output) {
        let client = self.client.filter(|_| tag == backend::BIND_COMPLETE);
        out.say(self.backend, client, |writer| {
            writer.message(tag, |_| {});
        });
    }
}

/// Type, length, modifier and format of a column.
const TEXT_COLUMN: [u8; 12] = [0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
/// The problem of a name, in an error that a pooler may have to recognize.
fn about(name: &[u8], what: &str) -> String {
    format!("prepared statement \"{}\" {what}", name.escape_ascii())
}

const MISSING: &str = "there is no such thing";

fn i16(body: &mut Body<'_>) -> Result<i16, Malformed> {
    let bytes = body.bytes(2)?;
    Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
}
