//! What servers answer to messages about prepared statements.

use std::sync::Arc;

use pgweir_wire::{Report, Severity, tag::backend};

use crate::{
    Actions, Level, Time, Token,
    backend::{Change, Duty, Mark, MarkKind, Request, Unnamed},
    fault::Fault,
    session::{NO_SUCH_NAME, RESERVED, Statement},
    worker::Worker,
};

impl Worker {
    /// ParseComplete or CloseComplete: `true` if the client is to see it.
    #[inline]
    pub(super) fn mark_completed(
        &mut self,
        conn: Token,
        tag: u8,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let kind = match tag {
            backend::PARSE_COMPLETE => MarkKind::Parse,
            _ => MarkKind::Close,
        };
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        if let Some(mark) = server.replies.completed(kind) {
            return !mark.swallow;
        }
        let what = format!("message of type '{}' out of place", tag.escape_ascii());
        self.server_fault(conn, &what, now, out);
        false
    }

    /// Takes back what failed or is skipped.
    pub(crate) fn undo(&mut self, conn: Token, marks: Vec<Mark>) {
        let client = self
            .table
            .server(conn)
            .and_then(|server| match server.duty {
                Duty::Lent(client) => Some(client),
                _ => None,
            });
        for mark in marks.into_iter().rev() {
            let Some(change) = mark.change else {
                if mark.kind == MarkKind::Parse {
                    self.unnamed_is_unclear(conn, client);
                }
                continue;
            };
            match *change {
                Change::Made(statement, name) => {
                    if let Some(server) = self.table.server(conn) {
                        server.prepared.forget(statement.id());
                    }
                    if let (Some(name), Some(client)) =
                        (name, client.and_then(|client| self.table.client(client)))
                    {
                        client.statements.remove(&mut self.bindings, &name);
                    }
                }
                Change::Evicted(statement) => {
                    if let Some(server) = self.table.server(conn) {
                        server.prepared.restore(statement);
                    }
                }
                Change::Unnamed(name, statement) => {
                    if let Some(client) = client.and_then(|client| self.table.client(client)) {
                        client
                            .statements
                            .define(&mut self.bindings, &name, &statement);
                    }
                }
                Change::Refused(_) => {}
            }
        }
    }

    /// A Parse of the unnamed statement failed, or was skipped.
    fn unnamed_is_unclear(&mut self, server: Token, client: Option<Token>) {
        let is_unnamed = |mark: &Mark| mark.kind == MarkKind::Parse && mark.change.is_none();
        if let Some(server) = self.table.server(server) {
            if server.replies.marks().any(is_unnamed) {
                // A later request makes it anew.
                return;
            }
            server.unnamed = Unnamed::Unknown;
        }
        if let Some(client) = client.and_then(|client| self.table.client(client)) {
            client.unnamed = None;
            client.unnamed_version = client.unnamed_version.wrapping_add(1);
        }
    }

    /// CommandComplete of a length that `DISCARD ALL` or `DEALLOCATE ALL` has.
    pub(super) fn command_completed(&mut self, conn: Token, body: &[u8]) {
        if !matches!(body, b"DISCARD ALL\0" | b"DEALLOCATE ALL\0") {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.prepared.clear();
        let is_own = matches!(server.replies.current(), Some(Request::Own(_)));
        let client = match server.duty {
            Duty::Lent(client) if !is_own => Some(client),
            _ => None,
        };
        // What was sent behind it is made after it.
        let later: Vec<_> = server
            .replies
            .marks()
            .filter_map(|mark| match mark.change.as_deref() {
                Some(Change::Made(statement, name)) => Some((Arc::clone(statement), name.clone())),
                _ => None,
            })
            .collect();
        for (statement, _) in &later {
            server.prepared.add(Arc::clone(statement));
        }
        let Some(client) = client.and_then(|client| self.table.client(client)) else {
            return;
        };
        client.statements.clear(&mut self.bindings);
        for (statement, name) in later {
            if let Some(name) = name {
                client
                    .statements
                    .define(&mut self.bindings, &name, &statement);
            }
        }
    }

    /// An error of a server, as far as statements are concerned. Gives what the client is to be told
    /// in its place, if anything.
    #[cold]
    pub(super) fn statements_failed(
        &mut self,
        conn: Token,
        marks: Vec<Mark>,
        report: &Report<'_>,
        out: &mut Actions,
    ) -> Option<Vec<u8>> {
        let refused = refusal(&marks, report);
        self.undo(conn, marks);
        let (fault, in_place) = match refused {
            Some(fault) => (fault, true),
            None => self.statement_failed(conn, report)?,
        };
        if self.snapshot.config.settings.log_pooler_errors
            && let Some(text) = fault.log_text()
        {
            let subject = self.client_subject_of(conn);
            out.log(Level::Log, subject, text);
        }
        if !in_place {
            return None;
        }
        let mut made = Vec::new();
        fault.write(Severity::Error, &mut made);
        Some(made)
    }

    /// What the server's own error says of a statement, and whether the client is to be told so in
    /// other words than the server's.
    fn statement_failed(&mut self, conn: Token, report: &Report<'_>) -> Option<(Fault, bool)> {
        let server = self.table.server(conn)?;
        let is_missing = match report.code {
            b"0A000" => {
                server.prepared.distrust();
                return None;
            }
            b"26000" => true,
            b"42P05" => false,
            _ => return None,
        };
        let id = id_in(report.message);
        if id.is_some() {
            // A client has deallocated or made a statement under a name of ours.
            let why = "its prepared statements were tampered with";
            server.retire.get_or_insert(why);
            server.prepared.clear();
        }
        let &Duty::Lent(client) = &server.duty else {
            return None;
        };
        let client = self.table.client(client)?;
        let name = match id {
            Some(id) => client.statements.name_of(&self.bindings, id)?,
            None => quoted(report.message)?,
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let fault = if is_missing {
            Fault::NoSuchStatement(name)
        } else {
            Fault::StatementExists(name)
        };
        Some((fault, id.is_some()))
    }

    fn client_subject_of(&mut self, server: Token) -> String {
        let client = self.table.server(server).and_then(|server| server.client());
        client
            .and_then(|client| self.table.client(client))
            .map(|client| client.subject())
            .unwrap_or_default()
    }
}

/// The fault that a client is to be told because its message was replaced by one that failed.
fn refusal(marks: &[Mark], report: &Report<'_>) -> Option<Fault> {
    let is_ours = contains(report.message, NO_SUCH_NAME);
    match marks.first()?.change.as_deref()? {
        Change::Refused(fault) if is_ours => Some(fault.clone()),
        _ => None,
    }
}

/// The id of the statement of ours that a message names.
fn id_in(message: &[u8]) -> Option<u64> {
    let at = find(message, RESERVED)?;
    let name = &message[at..];
    let end = name[RESERVED.len()..]
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .map_or(name.len(), |digits| RESERVED.len() + digits);
    Statement::id_of_name(&name[..end])
}

/// What stands in double quotes.
fn quoted(message: &[u8]) -> Option<&[u8]> {
    let start = message.iter().position(|&byte| byte == b'"')? + 1;
    let end = message.iter().rposition(|&byte| byte == b'"')?;
    message.get(start..end)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    find(text, part).is_some()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
