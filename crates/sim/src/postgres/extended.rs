//! The session's part of the extended protocol, and COPY data.

use pgweir_wire::{Body, tag::backend, tag::frontend};

use super::{
    output::Output,
    session::{ABORTED, Business, Next, Outcome, Session},
    statement::{Command, Text},
};
use crate::checks::{Promise, RequestId, Violation};

impl Session {
    pub(super) fn extended(
        &mut self,
        tag: u8,
        body: &[u8],
        out: &mut Output,
    ) -> Result<Next, Violation> {
        let mut fields = Body::new(body);
        let name = match tag {
            frontend::DESCRIBE | frontend::CLOSE => body.get(1..).unwrap_or_default(),
            _ => body,
        };
        let name = name
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default()
            .to_vec();
        match tag {
            frontend::PARSE => {
                let text = fields
                    .cstr()
                    .and_then(|_| fields.cstr())
                    .unwrap_or_default();
                return self.parse(text, out);
            }
            frontend::BIND => return self.bind(name, out),
            frontend::DESCRIBE => self.say(out, |writer| {
                writer.message(backend::NO_DATA, |_| {});
            }),
            frontend::CLOSE => self.say(out, |writer| {
                writer.message(backend::CLOSE_COMPLETE, |_| {});
            }),
            _ => return Ok(self.execute_portal(&name, out)),
        }
        Ok(Next::Go)
    }

    fn parse(&mut self, text: &[u8], out: &mut Output) -> Result<Next, Violation> {
        let text = Text::parse(text);
        self.check_claim(&text)?;
        self.id = text.claim.as_ref().map(|claim| claim.id);
        let ends = matches!(
            text.commands.first(),
            Some(Command::Commit | Command::Rollback)
        );
        if self.status == b'E' && !ends {
            self.fail(false, "25P02", ABORTED, out);
            return Ok(Next::Go);
        }
        self.statement = Some(text);
        self.say(out, |writer| {
            writer.message(backend::PARSE_COMPLETE, |_| {});
        });
        Ok(Next::Go)
    }

    fn bind(&mut self, portal: Vec<u8>, out: &mut Output) -> Result<Next, Violation> {
        self.id = RequestId::find(&portal);
        let Some(statement) = self.statement.clone() else {
            self.fail(
                false,
                "26000",
                "unnamed prepared statement does not exist",
                out,
            );
            return Ok(Next::Go);
        };
        if statement.claim.as_ref().map(|claim| claim.id) != self.id {
            let what = format!(
                "a portal is bound to a foreign statement: {:?}",
                statement.claim
            );
            return Err(Violation::new(Promise::Sessions, what));
        }
        self.portals.insert(portal, statement);
        self.say(out, |writer| {
            writer.message(backend::BIND_COMPLETE, |_| {});
        });
        Ok(Next::Go)
    }

    fn execute_portal(&mut self, portal: &[u8], out: &mut Output) -> Next {
        self.id = RequestId::find(portal);
        let command = self
            .portals
            .get(portal)
            .map(|text| text.commands.first().cloned());
        match command {
            None => self.fail(false, "34000", "portal does not exist", out),
            Some(None) => self.say(out, |writer| {
                writer.empty_query_response();
            }),
            Some(Some(command)) => match self.execute(&command, false, out) {
                Outcome::Done | Outcome::Goes => {}
                Outcome::Failed(code, message) => self.fail(false, code, message, out),
                Outcome::Die => return Next::Die,
            },
        }
        Next::Go
    }

    /// While COPY data is read, Sync and Flush are ignored.
    pub(super) fn copy_message(&mut self, tag: u8, body: &[u8], out: &mut Output) -> Next {
        let Business::CopyIn {
            simple,
            fails_at,
            pieces,
        } = &mut self.business
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
                self.business = Business::None;
                self.complete(&tag, out);
                self.after(simple, out);
            }
            frontend::COPY_FAIL => self.fail(simple, "57014", "COPY from stdin failed", out),
            frontend::SYNC | frontend::FLUSH => {}
            frontend::TERMINATE => return Next::End,
            _ => self.fail(simple, "08P01", "unexpected message type during COPY", out),
        }
        Next::Go
    }
}
