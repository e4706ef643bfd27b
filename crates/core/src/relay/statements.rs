//! Processes the server's replies to messages about prepared statements.

use std::sync::Arc;

use memchr::memmem;
use pgweir_wire::{HEADER_LEN, MessageWriter, Report, Severity, tag::backend};

use super::{Relay, Treatment};
use crate::{
    Action, Actions, Level, Token,
    backend::{AnsweredUnnamed, Change, Mark, MarkKind, Request, Server, Unnamed},
    base::fault::INSUFFICIENT_PRIVILEGE,
    effect::Effect,
    frontend::Client,
    session::{Class, NO_SUCH_NAME, RESERVED, Statement, Unlisted},
};

impl Relay<'_> {
    /// Processes a ParseComplete or CloseComplete. Returns whether the client gets it.
    #[inline]
    pub(super) fn mark_completed(&mut self, conn: Token, tag: u8) -> Treatment {
        let kind = match tag {
            backend::PARSE_COMPLETE => MarkKind::Parse,
            _ => MarkKind::Close,
        };
        let Some(server) = self.connections.server(conn) else {
            return Treatment::Keep;
        };
        if let Some(mark) = server.replies.completed(kind) {
            if mark.is_unnamed_parse() {
                server.statements.answered_unnamed = AnsweredUnnamed::Later;
            }
            if let Some(Change::Duplicate(name, statement)) = mark.change() {
                // A mark of another kind belongs to a Parse that was forwarded with the client's name.
                let is_ours = mark.kind == MarkKind::Refused;
                self.note_parse_of_freed_name(conn, is_ours, name, statement);
            }
            return (!mark.is_withheld).into();
        }
        let what = format!("message of type '{}' out of place", tag.escape_ascii());
        Treatment::Act(Effect::fault(conn, &what))
    }

    /// Undoes the changes of messages that failed or are skipped.
    pub(crate) fn undo(&mut self, conn: Token, marks: Vec<Mark>) {
        let Some((mut client, server)) = self.connections.relaying(conn) else {
            return;
        };
        let schema = server.schema();
        let first = marks.first();
        let has_failed =
            first.is_some_and(|mark| mark.is_unnamed_parse() && !mark.follows_unmarked);
        if marks.iter().any(Mark::is_unnamed_parse) {
            unnamed_parse_failed(client.as_deref_mut(), server, has_failed);
        }
        for mark in marks.into_iter().rev() {
            let Some(change) = mark.change else {
                continue;
            };
            let prepared = &mut server.statements.prepared;
            match &*change {
                Change::Made(statement, _) => drop(prepared.take(statement.id())),
                Change::Evicted(statement) => prepared.restore(Arc::clone(statement)),
                Change::Given(_) => server.session.client_names.note_failed(),
                _ => {}
            }
            let Some(client) = &mut client else {
                continue;
            };
            let names = &mut client.statements;
            match *change {
                Change::Made(_, Some(name)) | Change::Named(name, _) => {
                    names.remove(self.bindings, &name);
                }
                Change::Unnamed(name, statement) => {
                    names.define(self.bindings, &name, &statement, schema);
                }
                _ => {}
            }
        }
    }

    /// Handles a successful Parse of a name that was taken when the Parse was sent, and free when it arrived. If the
    /// Parse was sent with one of pgweir's own names, the server now has the wrong statement under that name.
    #[cold]
    fn note_parse_of_freed_name(
        &mut self,
        conn: Token,
        is_ours: bool,
        name: &[u8],
        statement: &Arc<Statement>,
    ) {
        let Some((client, server)) = self.connections.relaying(conn) else {
            return;
        };
        if is_ours {
            server
                .retirement
                .require("its prepared statements are unknown");
            server.statements.prepared.clear();
        }
        let schema = server.schema();
        if let Some(client) = client {
            let names = &mut client.statements;
            names.remove(self.bindings, name);
            names.define(self.bindings, name, statement, schema);
        }
    }

    /// Processes a CommandComplete of a command that changes the session's statements or sequence values.
    pub(super) fn command_completed(&mut self, conn: Token, body: &[u8]) {
        if !matches!(
            body,
            b"DISCARD ALL\0" | b"DISCARD SEQUENCES\0" | b"DEALLOCATE ALL\0" | b"ROLLBACK\0"
        ) {
            return;
        }
        let Some((client, server)) = self.connections.relaying(conn) else {
            return;
        };
        let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
        if !is_own && body == b"ROLLBACK\0" {
            server.session.changes.forget_literal_sets();
        }
        let mut client = client.filter(|_| !is_own);
        if matches!(body, b"DISCARD ALL\0" | b"DISCARD SEQUENCES\0")
            && let Some(client) = &mut client
            && let Some(context) = &mut client.context
        {
            context.sequences_gone();
            if body == b"DISCARD ALL\0" {
                context.unlisted = Unlisted::None;
            }
        }
        if !matches!(body, b"DISCARD ALL\0" | b"DEALLOCATE ALL\0") {
            return;
        }
        let sql = server.session.sql_statements.held().clone();
        server.statements.prepared.clear();
        // Statements that were sent after the command are prepared on the server after the command, so they stay.
        let later: Vec<_> = server
            .replies
            .marks()
            .filter_map(|mark| match mark.change() {
                Some(Change::Made(statement, name)) => Some((Arc::clone(statement), name.clone())),
                Some(Change::Named(name, statement)) => {
                    Some((Arc::clone(statement), Some(name.clone())))
                }
                _ => None,
            })
            .collect();
        server.replies.statements_gone();
        let schema = server.schema();
        for (statement, _) in &later {
            server
                .statements
                .prepared
                .add(Arc::clone(statement), schema, 0, None);
        }
        let Some(client) = client else {
            return;
        };
        client.statements.clear(self.bindings);
        if let Some(context) = &mut client.context {
            // The list includes the statements that the server could not prepare.
            context.sql = sql;
        }
        for (statement, name) in later {
            if let Some(name) = name {
                client
                    .statements
                    .define(self.bindings, &name, &statement, schema);
            }
        }
    }

    /// Processes a server's error if it concerns prepared statements. Returns the message that the client gets in its
    /// place, if any.
    #[cold]
    pub(super) fn statements_failed(
        &mut self,
        conn: Token,
        marks: Vec<Mark>,
        body: &[u8],
        report: &Report<'_>,
        out: &mut Actions,
    ) -> Option<Vec<u8>> {
        let (refused, duplicate) = match marks.first().and_then(|mark| mark.change()) {
            Some(Change::Refused(fault))
                if memmem::find(report.message, NO_SUCH_NAME).is_some() =>
            {
                (Some(fault.clone()), None)
            }
            Some(Change::Duplicate(name, _)) if report.code == b"42P05" => (None, Some(&**name)),
            _ => (None, None),
        };
        // The names are those that the client had when it sent the request.
        let clients_error = self.with_clients_names(conn, &marks, duplicate, body);
        let is_duplicate = duplicate.is_some();
        if report.code == INSUFFICIENT_PRIVILEGE
            && let Some(Change::Given(name)) = marks.first().and_then(|mark| mark.change())
            && let Some(server) = self.connections.server(conn)
        {
            server.session.client_names.note_refused(name);
        }
        self.undo(conn, marks);
        if report.code == b"26000" && clients_error.is_some() {
            self.note_deallocated(conn, body, report);
        }
        if let Some(fault) = refused {
            let mut made = Vec::new();
            fault.write(Severity::Error, &mut made);
            return Some(made);
        }
        match report.code {
            b"26000" | b"42P05" => {
                self.name_failed(conn, clients_error.as_deref(), is_duplicate, report, out)
            }
            _ => {}
        }
        clients_error
    }

    /// Handles a Bind or Describe whose statement the server does not have any more. If the client has run code that
    /// pgweir has not read, then the client itself has deallocated the statement.
    fn note_deallocated(&mut self, conn: Token, body: &[u8], report: &Report<'_>) {
        let Some((Some(client), server)) = self.connections.relaying(conn) else {
            return;
        };
        let Some(id) = quoted(report.message).and_then(Statement::id_of_name) else {
            return;
        };
        // An error with a context is of an EXECUTE in a function.
        let is_of_message = server.replies.current() != Some(Request::Simple)
            && memmem::find(body, b"\0W").is_none();
        let is_made_later = || {
            let mut changes = server.replies.marks().filter_map(Mark::change);
            changes.any(|change| match change {
                Change::Made(made, _) | Change::Named(_, made) => made.id() == id,
                _ => false,
            })
        };
        let is_own_doing =
            client.context.is_some() && server.session.changes.class() == Class::Opaque;
        if !is_own_doing || !is_of_message || is_made_later() {
            return;
        }
        let names = &mut client.statements;
        while let Some(name) = names.name_of(self.bindings, id).map(Box::<[u8]>::from) {
            names.remove(self.bindings, &name);
        }
    }

    /// Processes an error about a statement name that is taken or unknown.
    fn name_failed(
        &mut self,
        conn: Token,
        clients_error: Option<&[u8]>,
        is_duplicate: bool,
        report: &Report<'_>,
        out: &mut Actions,
    ) {
        if clients_error.is_some() && !is_duplicate {
            // A client has deallocated or prepared a statement under one of pgweir's own names.
            if let Some(server) = self.connections.server(conn) {
                server
                    .retirement
                    .require("its prepared statements were tampered with");
                server.statements.prepared.clear();
            }
        }
        if !self.env.snapshot.config.settings.log_pooler_errors {
            return;
        }
        let report = clients_error
            .and_then(|clients_error| Report::parse(&clients_error[HEADER_LEN..]).ok())
            .unwrap_or(*report);
        let name = String::from_utf8_lossy(quoted(report.message).unwrap_or_default()).into_owned();
        let text = match report.code {
            b"26000" => format!("prepared statement did not exist: '{name}'"),
            _ => format!("prepared statement '{name}' was already prepared"),
        };
        let subject = self.client_subject_of(conn);
        out.log(Level::Log, subject, text);
        // The line is written at once, so that an operator who learns of the error finds it in the log.
        out.list.push(Action::WriteLog);
    }

    /// Returns the ErrorResponse with this body, with the client's names in place of pgweir's; `None` if the body has
    /// none of pgweir's names.
    fn with_clients_names(
        &mut self,
        conn: Token,
        failed: &[Mark],
        duplicate: Option<&[u8]>,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let mut rest = body;
        let mut clients_error = Vec::new();
        while let Some(at) = memmem::find(rest, RESERVED) {
            let name = name_at(&rest[at..]);
            let clients = match (duplicate, Statement::id_of_name(name)) {
                (Some(duplicate), Some(_)) => Some(duplicate.to_vec()),
                (None, Some(id)) => self.clients_name(conn, failed, id),
                (_, None) => None,
            };
            clients_error.extend_from_slice(&rest[..at]);
            clients_error.extend_from_slice(clients.as_deref().unwrap_or(name));
            rest = &rest[at + name.len()..];
        }
        if rest.len() == body.len() {
            return None;
        }
        clients_error.extend_from_slice(rest);
        let mut message = Vec::with_capacity(HEADER_LEN + clients_error.len());
        MessageWriter::new(&mut message).message(backend::ERROR_RESPONSE, |out| {
            out.append(&mut clients_error)
        });
        Some(message)
    }

    /// Returns the client's name of this statement, now or when it sent the failed request.
    fn clients_name(&mut self, server: Token, failed: &[Mark], id: u64) -> Option<Vec<u8>> {
        let (_, client, server) = self.connections.pair_of(server)?;
        server.relays_for()?;
        if let Some(name) = client.statements.name_of(self.bindings, id) {
            return Some(name.to_vec());
        }
        let mut changes = failed
            .iter()
            .chain(server.replies.marks())
            .filter_map(Mark::change);
        changes.find_map(|change| match change {
            Change::Unnamed(name, statement) if statement.id() == id => Some(name.to_vec()),
            _ => None,
        })
    }

    fn client_subject_of(&mut self, server: Token) -> String {
        let loan = self.connections.pair_of(server);
        loan.map(|(_, client, _)| client.subject())
            .unwrap_or_default()
    }
}

/// Handles a Parse of the unnamed statement that failed or was skipped. A Parse that fails drops the former unnamed
/// statement, one that is skipped does not. If it is not known which message of the request has failed, the Parse
/// counts as skipped: then the next use of the former statement is sent to the server, which reports whether it
/// exists.
fn unnamed_parse_failed(client: Option<&mut Client>, server: &mut Server, has_failed: bool) {
    let Some(client) = client else {
        server.statements.unnamed = Unnamed::Unknown;
        return;
    };
    if has_failed {
        server.statements.answered_unnamed = AnsweredUnnamed::Foreign;
        client.unnamed.forget_former();
    }
    if server.replies.make_unnamed() {
        // A later request has prepared the statement again.
        return;
    }
    client.unnamed.forget();
    let own = Unnamed::Of(client.origin.id, client.unnamed.version());
    let before = client.unnamed.take_former();
    match server.statements.answered_unnamed {
        AnsweredUnnamed::Foreign => {
            server.statements.unnamed = Unnamed::Unknown;
            if let Some(definition) = before {
                client.unnamed.keep(definition);
            }
        }
        AnsweredUnnamed::Former => {
            server.statements.unnamed = own;
            match before {
                Some(definition) => client.unnamed.keep(definition),
                None => client.unnamed.set_opaque(),
            }
        }
        AnsweredUnnamed::Later => {
            server.statements.unnamed = own;
            // The unnamed statement on the server is that of a later Parse, whose definition pgweir has not stored.
            client.unnamed.set_opaque();
        }
    }
}

/// Returns the pgweir name that a text begins with.
fn name_at(text: &[u8]) -> &[u8] {
    let is_over = |byte: &u8| !byte.is_ascii_digit();
    let digits = text[RESERVED.len()..].iter().position(is_over);
    &text[..digits.map_or(text.len(), |digits| RESERVED.len() + digits)]
}

/// Returns the text in double quotes.
fn quoted(message: &[u8]) -> Option<&[u8]> {
    let start = message.iter().position(|&byte| byte == b'"')? + 1;
    let end = message.iter().rposition(|&byte| byte == b'"')?;
    message.get(start..end)
}
