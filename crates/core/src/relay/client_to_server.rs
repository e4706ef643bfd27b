//! Sends a client's messages to its server. Clients' names of prepared statements come in and server names go out. If
//! the server does not have a statement, pgweir prepares it just before its use, in the same write.

use std::{ops::Range, sync::Arc};

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    fence::is_simple, message_limits::MessageLimits, named::Named, statement_hooks::Counting,
};
use crate::{
    Actions, Token,
    backend::{Change, Mark, MarkKind, Server},
    early_answers::send_early,
    fault::Fault,
    frontend::{Client, Head, Upstream},
    session::{
        BindingId, Bindings, Certificates, ChannelCommand, Effects, Literals, NO_SUCH_NAME, Names,
        RESERVED, Statement, Statements, VerdictCache,
    },
    stats::Stats,
};

/// One client's messages on their way to its server.
pub(super) struct ClientMessages<'w> {
    pub(super) client_conn: Token,
    pub(super) client: &'w mut Client,
    pub(super) server_conn: Token,
    pub(super) server: &'w mut Server,
    pub(super) bindings: &'w mut Bindings,
    pub(super) statements: &'w Statements,
    pub(super) stats: &'w mut Stats,
    /// The limits and refusals that hold for the messages.
    pub(super) limits: MessageLimits,
    /// The statement of the unnamed portal, if these messages have bound one.
    pub(super) bound: Option<BindingId>,
    /// Whether the client's session state moves from server to server.
    pub(super) is_carried: bool,
    /// The certificates of the client's database.
    pub(super) certificates: &'w Certificates,
    pub(super) verdicts: &'w mut VerdictCache,
    /// A database that can't be dropped while a server is connected to it.
    pub(super) left_database: Option<String>,
    /// A LISTEN or UNLISTEN that the client's listener answers.
    pub(super) channel_command: Option<ChannelCommand>,
    /// Whether the message that is being read makes a statement that may change the session.
    pub(super) has_effects: bool,
    pub(super) counting: Counting<'w>,
}

/// The reason why a client's bytes are not sent to the server.
pub(super) enum Stopped {
    /// The client sent Terminate.
    Terminated,
    /// The client must be refused.
    Refused(Fault),
    /// The client sent LISTEN or UNLISTEN, which its listener answers.
    Listens(ChannelCommand),
}

/// The meaning of a client's statement name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ours {
    /// A statement, by its binding.
    Statement(BindingId),
    /// No statement that exists already.
    Nothing,
}

/// How far some input is processed.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The position up to which the input is read.
    at: usize,
    /// The position up to which the input, or a replacement for it, is sent.
    sent: usize,
    /// The unnamed statement that was not used yet.
    unused: Option<Range<usize>>,
}

/// The treatment of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The message is sent as it is.
    Pass,
    /// The message was replaced, or pgweir answered it.
    Taken,
    /// The message and all that follow wait.
    Wait,
}

impl Cursor {
    /// Sends the bytes in front of a message.
    #[inline]
    pub(super) fn flush(&mut self, server: Token, head: &Head, out: &mut Actions) {
        out.send_input(server, self.sent, head.start);
        self.sent = head.start;
    }
}

impl ClientMessages<'_> {
    /// Sends the received bytes to the server.
    pub(super) fn run(&mut self, bytes: &[u8], out: &mut Actions) -> Result<(), Stopped> {
        let mut cursor = Cursor::default();
        let mut is_first = true;
        if !self.client.socket.stream.is_at_boundary() {
            self.continue_statement(bytes);
            self.read_on(bytes);
        }
        if let Some(held) = self.client.socket.held.take() {
            cursor.at = self
                .continue_held_message(held, bytes, out)
                .map_err(Stopped::Refused)?;
            cursor.sent = cursor.at;
            if self.server.replies.is_awaited() {
                return Ok(());
            }
        }
        loop {
            let next =
                self.client
                    .socket
                    .stream
                    .next(bytes, &mut cursor.at, self.limits.message_max);
            let head = match next {
                Ok(Some(head)) => head,
                Ok(None) => {
                    self.finish_read(bytes, cursor, out);
                    return Ok(());
                }
                Err(fault) => {
                    // The bytes before the fault were counted, and will be answered.
                    out.send_input(self.server_conn, cursor.sent, cursor.at);
                    return Err(Stopped::Refused(fault));
                }
            };
            if std::mem::take(&mut is_first)
                && self.server.replies.outstanding() > self.limits.replies_max
                && self.holds_back_before(&head, bytes, &mut cursor, out)
            {
                return Ok(());
            }
            let tag = head.header.tag;
            if let Some(stopped) = self.stopped_by(tag) {
                out.send_input(self.server_conn, cursor.sent, head.start);
                return Err(stopped);
            }
            if self.client.request.recording.is_some() {
                self.record_text(&head, &bytes[cursor.at..]);
            }
            let mut flow = Flow::Pass;
            if is_simple(tag) && self.comes_before_sync(&head, bytes, &mut cursor, out) {
                return Ok(());
            }
            if self.is_carried && !self.server.replies.is_skipping() {
                flow = self.text(&head, bytes, &mut cursor, out);
            } else {
                self.note_ddl_elsewhere(&head, bytes, cursor.at);
            }
            if flow == Flow::Pass && self.follows(tag) {
                flow = self.named(&head, bytes, &mut cursor, out)?;
            }
            match flow {
                Flow::Pass => {}
                Flow::Taken => continue,
                Flow::Wait => match self.channel_command.take() {
                    Some(command) => return Err(Stopped::Listens(command)),
                    None => return Ok(()),
                },
            }
            self.mark_unfollowed(tag);
            if let Some(split) = head.split {
                out.send_made(self.server_conn, |made| made.extend_from_slice(&split));
                cursor.sent = cursor.at;
            }
            match tag {
                frontend::FLUSH => self.flush_early(out),
                frontend::QUERY if !self.server.replies.is_skipping() => {
                    self.forget_unnamed();
                    cursor.unused = None;
                }
                _ => {}
            }
            self.server.replies.client_sent(tag);
            self.note_statement(&head, bytes, cursor.at);
        }
    }

    /// Forwards the rest of the bytes that were read, and holds the client if too many replies are outstanding.
    #[inline]
    fn finish_read(&mut self, bytes: &[u8], cursor: Cursor, out: &mut Actions) {
        let end = self.client.socket.stream.end(bytes.len());
        out.send_input(self.server_conn, cursor.sent, end);
        self.keep_unused(bytes, cursor.unused);
        self.count_rest(bytes.len());
        if self.server.replies.outstanding() > self.limits.replies_max {
            self.hold_back(out);
        }
    }

    /// Makes a message wait for the replies to earlier messages.
    #[cold]
    pub(super) fn wait(
        &mut self,
        head: &Head,
        bytes: &[u8],
        cursor: &mut Cursor,
        out: &mut Actions,
    ) -> Flow {
        cursor.flush(self.server_conn, head, out);
        self.keep_unused(bytes, cursor.unused.take());
        self.postpone(head.header, &[&bytes[cursor.at..]], out);
        Flow::Wait
    }

    /// Processes a message of a client whose session state moves between servers: the message may hold a text.
    #[inline]
    fn text(&mut self, head: &Head, bytes: &[u8], cursor: &mut Cursor, out: &mut Actions) -> Flow {
        if self.server.replies.holds_back() {
            return self.wait(head, bytes, cursor, out);
        }
        let len = head.header.body_len as usize;
        let body = &bytes[cursor.at..bytes.len().min(cursor.at + len)];
        if body.len() < len && self.holds_text(head.header, body) {
            cursor.flush(self.server_conn, head, out);
            return Flow::Wait;
        }
        self.counting.scanned = None;
        let effects = self.note_message_effects(head.header.tag, body, len);
        self.counting.fingerprint = self.counting.scanned;
        self.has_effects = head.header.tag == frontend::PARSE && !effects.is_empty();
        if effects.is_empty() {
            return Flow::Pass;
        }
        cursor.flush(self.server_conn, head, out);
        if effects == Effects::LISTEN && self.takes_channels(head.header, &bytes[cursor.at..]) {
            self.postpone(head.header, &[&bytes[cursor.at..]], out);
            return Flow::Wait;
        }
        let flow = self.prepare_for_text(effects, head.header, &bytes[cursor.at..], out);
        if flow == Flow::Taken {
            self.client.socket.stream.advance(len);
            cursor.at += len;
            cursor.sent = cursor.at;
            cursor.unused = None;
        }
        flow
    }

    /// Processes a message about a statement.
    #[inline]
    fn named(
        &mut self,
        head: &Head,
        bytes: &[u8],
        cursor: &mut Cursor,
        out: &mut Actions,
    ) -> Result<Flow, Stopped> {
        let tag = head.header.tag;
        let len = head.header.body_len as usize;
        let body = &bytes[cursor.at..bytes.len().min(cursor.at + len)];
        let named = Named::read(tag, body, len);
        if named == Named::Unclear {
            cursor.flush(self.server_conn, head, out);
            self.hold(head.header, body).map_err(Stopped::Refused)?;
            return Ok(Flow::Wait);
        }
        if named.is_named() && self.is_unsure() {
            return Ok(self.wait(head, bytes, cursor, out));
        }
        if tag == frontend::BIND {
            // Any Bind replaces what the unnamed portal was.
            self.bound = None;
        }
        if let Some(fault) = self.refusal_of(&named, out) {
            cursor.flush(self.server_conn, head, out);
            return Err(Stopped::Refused(fault));
        }
        if named == Named::Unnamed {
            if cursor.unused.is_none() && self.is_to_judge_unnamed(tag) {
                cursor.flush(self.server_conn, head, out);
                if self.judge_unnamed(out) {
                    return Ok(self.wait(head, bytes, cursor, out));
                }
            }
            if self.needs_unnamed(tag) {
                cursor.flush(self.server_conn, head, out);
                self.send_unnamed(out);
            }
            if tag == frontend::PARSE {
                self.keep_unnamed_before();
            }
        }
        let mut ours = self.resolve(&named);
        if self.refers_to_names(&named, ours) {
            cursor.flush(self.server_conn, head, out);
            if self.prepare_for_message(&named, ours, out) {
                return Ok(self.wait(head, bytes, cursor, out));
            }
            ours = self.resolve(&named);
        }
        self.note_unknown_effects(&named, ours.is_some());
        if self.is_outdated(&named, ours) {
            cursor.flush(self.server_conn, head, out);
            self.check(ours, out);
            return Ok(self.wait(head, bytes, cursor, out));
        }
        if let Some(ours) = ours {
            cursor.flush(self.server_conn, head, out);
            let used = self.translate(len, &named, ours, out);
            self.client.socket.stream.advance(used);
            cursor.at += used;
            cursor.sent = cursor.at;
            return Ok(Flow::Taken);
        }
        self.mark_passing(tag, body, &named);
        if named == Named::Unnamed {
            let definition = cursor.at + 1..cursor.at + len;
            self.note_unnamed(tag, definition.clone(), &mut cursor.unused);
            if self.has_effects && tag == frontend::PARSE {
                let is_whole = bytes.len() >= definition.end;
                let end = definition.end.min(bytes.len());
                self.keep_suspect(&bytes[definition.start.min(end)..end], is_whole);
            }
        }
        Ok(Flow::Pass)
    }

    #[inline]
    fn stopped_by(&mut self, tag: u8) -> Option<Stopped> {
        if tag == frontend::TERMINATE {
            return Some(Stopped::Terminated);
        }
        if self.limits.refuses_simple && tag == frontend::QUERY {
            // No part of the message is sent, so the server is not in the middle of a message.
            self.client.socket.stream = Upstream::default();
            return Some(Stopped::Refused(Fault::SimpleQuery));
        }
        None
    }

    /// Notes the mark of a Parse, Close or Describe that is sent as it is.
    #[inline]
    pub(super) fn mark_passing(&mut self, tag: u8, body: &[u8], named: &Named<'_>) {
        if self.has_own_names() && named.is_named() {
            if let Some(mark) = self.mark_of_own_name(named) {
                self.server.replies.mark_sent(mark);
            }
            return;
        }
        let kind = match tag {
            frontend::PARSE => MarkKind::Parse,
            frontend::CLOSE => MarkKind::Close,
            frontend::DESCRIBE if body.starts_with(b"P\0") => {
                let untold = |&bound: &BindingId| self.bindings.shape(bound).columns.is_none();
                match self.bound.filter(untold) {
                    Some(binding) => MarkKind::Portal(binding),
                    None => return,
                }
            }
            _ => return,
        };
        self.server.replies.mark_sent(Mark::plain(kind));
    }

    /// Returns the meaning of a message about a statement that pgweir follows, or about a reserved name.
    #[inline]
    pub(super) fn resolve(&self, named: &Named<'_>) -> Option<Ours> {
        if self.has_own_names() {
            return None;
        }
        match named {
            Named::Parse { .. } | Named::Close(_) => Some(Ours::Nothing),
            Named::Bind { name, .. } | Named::Describe(name) => {
                match self.client.statements.find(self.bindings, name) {
                    Some(binding) => Some(Ours::Statement(binding)),
                    None => name.starts_with(RESERVED).then_some(Ours::Nothing),
                }
            }
            Named::Nothing | Named::Unclear | Named::Unnamed => None,
        }
    }

    /// Sends the message with the server's name of the statement. Returns how many bytes of the body this replaces.
    pub(super) fn translate(
        &mut self,
        len: usize,
        named: &Named<'_>,
        ours: Ours,
        out: &mut Actions,
    ) -> usize {
        match *named {
            Named::Parse { name, definition } => {
                self.parse(name, definition, out);
                len
            }
            Named::Bind { portal, name } => {
                let used = portal.len() + name.len() + 2;
                self.stats.bind_count += 1;
                let ours = self.ensure_prepared(ours, out);
                if let Ours::Statement(binding) = ours
                    && portal.is_empty()
                    && self.is_carried
                {
                    self.bound = Some(binding);
                }
                self.note_binding(portal, ours);
                let statement = ours.server_name(self.bindings);
                let length = 4 + len - used + portal.len() + statement.len() + 2;
                out.send_made(self.server_conn, |made| {
                    made.push(frontend::BIND);
                    made.extend_from_slice(&(length as u32).to_be_bytes());
                    for string in [portal, statement] {
                        made.extend_from_slice(string);
                        made.push(0);
                    }
                });
                self.server.replies.client_sent(frontend::BIND);
                used
            }
            Named::Describe(_) => {
                let ours = self.ensure_prepared(ours, out);
                let statement = ours.server_name(self.bindings);
                send_target(self.server_conn, frontend::DESCRIBE, statement, out);
                if let Ours::Statement(binding) = ours
                    && self.is_carried
                {
                    let mark = Mark::plain(MarkKind::Describe(binding));
                    self.server.replies.mark_sent(mark);
                }
                self.server.replies.client_sent(frontend::DESCRIBE);
                len
            }
            Named::Close(name) => {
                self.close(name, out);
                len
            }
            Named::Nothing | Named::Unclear | Named::Unnamed => 0,
        }
    }

    /// Makes a statement for the client.
    fn parse(&mut self, name: &[u8], definition: &[u8], out: &mut Actions) {
        if let Some(taken) = self.client.statements.find(self.bindings, name) {
            return self.parse_again(taken, name, definition, out);
        }
        let statement = self.statements.intern(definition);
        if self.client.statements.bytes() + Names::cost(&statement) > self.limits.prepared_bytes_max
        {
            return self.refuse(Fault::TooManyStatements, out);
        }
        self.stats.client_parse_count += 1;
        let schema = self.server.schema();
        self.client
            .statements
            .define(self.bindings, name, &statement, schema);
        let (replies, prepared) = (
            &mut self.server.replies,
            &mut self.server.statements.prepared,
        );
        let session = &self.server.session;
        let is_good = !session.may_have_role()
            && prepared.is_fresh(statement.id(), schema)
            && (statement.literals() == Literals::None
                || prepared.is_analysed_under(statement.id(), session.settings_now()))
            && self.server.status != b'E';
        if is_good && replies.is_fresh() {
            prepared.touch(statement.id());
            self.stats.statement_hit_count += 1;
            return replies.answered_early();
        }
        if prepared.touch(statement.id()) {
            // In the middle of a pipeline, the server itself has to report that the statement is made.
            prepared.forget(statement.id());
            self.send_close(Arc::clone(&statement), out);
        }
        self.send_parse(statement, Some(name.into()), out);
    }

    /// Makes a statement under a name that is taken. The server has a statement of that name too, so it reports any
    /// error that PostgreSQL finds before the duplicate name, such as wrong syntax.
    #[cold]
    fn parse_again(&mut self, taken: BindingId, name: &[u8], definition: &[u8], out: &mut Actions) {
        let statement = self.statements.intern(definition);
        let ours = Ours::Statement(taken);
        let ours = self.ensure_prepared(ours, out);
        self.note_parse(&statement);
        let server_name = ours.server_name(self.bindings);
        send_parse(self.server_conn, server_name, definition, out);
        let mark = Mark::clients(MarkKind::Refused, Change::Duplicate(name.into(), statement));
        self.server.replies.mark_sent(mark);
    }

    /// Drops a client's name. Its statement stays on the servers, for other clients that have it too.
    fn close(&mut self, name: &[u8], out: &mut Actions) {
        let known = self.client.statements.remove(self.bindings, name);
        let is_hidden = known.is_some() || name.starts_with(RESERVED);
        if !is_hidden && self.is_of_sql(name) {
            self.server.session.note(Effects::PREPARE, b"");
        }
        let mark = match known {
            Some(statement) => {
                Mark::clients(MarkKind::Close, Change::Unnamed(name.into(), statement))
            }
            None => Mark::plain(MarkKind::Close),
        };
        self.server.replies.mark_sent(mark);
        let name = if is_hidden { NO_SUCH_NAME } else { name };
        send_target(self.server_conn, frontend::CLOSE, name, out);
    }

    pub(super) fn send_parse(
        &mut self,
        statement: Arc<Statement>,
        client_name: Option<Box<[u8]>>,
        out: &mut Actions,
    ) {
        self.note_parse(&statement);
        while let Some(evicted) = self
            .server
            .statements
            .prepared
            .evict(self.limits.statements_max)
        {
            self.send_close(evicted, out);
        }
        self.stats.server_parse_count += 1;
        send_parse(
            self.server_conn,
            statement.name(),
            statement.definition(),
            out,
        );
        let schema = self.server.schema();
        let user = (
            self.client.origin.id,
            self.server.session.settings_now().cloned(),
        );
        self.server
            .statements
            .prepared
            .add(Arc::clone(&statement), schema, user);
        if self.server.session.may_have_role() {
            self.server
                .statements
                .prepared
                .analysed_under_role(statement.id());
        }
        let swallow = client_name.is_none();
        let change = Change::Made(statement, client_name);
        self.server.replies.mark_sent(match swallow {
            true => Mark::own(MarkKind::Parse, change),
            false => Mark::clients(MarkKind::Parse, change),
        });
    }

    pub(super) fn send_close(&mut self, statement: Arc<Statement>, out: &mut Actions) {
        send_target(self.server_conn, frontend::CLOSE, statement.name(), out);
        let mark = Mark::own(MarkKind::Close, Change::Evicted(statement));
        self.server.replies.mark_sent(mark);
    }

    /// Processes a Flush: sends the replies that pgweir gave itself, unless they go out with the server's next reply.
    fn flush_early(&mut self, out: &mut Actions) {
        if self.server.replies.is_fresh() {
            send_early(self.client_conn, self.server, out);
        }
    }
}

impl Ours {
    /// Returns the name of the statement on the server.
    fn server_name(self, bindings: &Bindings) -> &[u8] {
        match self {
            Self::Statement(binding) => bindings
                .statement(binding)
                .map_or(NO_SUCH_NAME, |statement| statement.name()),
            Self::Nothing => NO_SUCH_NAME,
        }
    }
}

pub(super) fn send_parse(server: Token, name: &[u8], definition: &[u8], out: &mut Actions) {
    out.send_made(server, |made| {
        made.push(frontend::PARSE);
        made.extend_from_slice(&((4 + name.len() + 1 + definition.len()) as u32).to_be_bytes());
        made.extend_from_slice(name);
        made.push(0);
        made.extend_from_slice(definition);
    });
}

/// Sends a Describe or Close of a statement.
pub(super) fn send_target(server: Token, tag: u8, name: &[u8], out: &mut Actions) {
    out.send_made(server, |made| {
        MessageWriter::new(made).statement(tag, name);
    });
}
