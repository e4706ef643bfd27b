//! Sends a client's messages to its server, and replaces the client's names of prepared statements by the server's
//! names. If the server does not have a statement, pgweir prepares it just before its use, in the same write.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    counting::Counting,
    message::{Cursor, Message},
    message_limits::MessageLimits,
    named::Named,
};
use crate::{
    Actions, Token,
    backend::{Change, Mark, MarkKind, Server},
    base::{fault::Fault, stats::Stats},
    clients::early_answers::send_early,
    effect::Env,
    frontend::Client,
    session::{
        BindingId, Bindings, Certificates, ChannelCommand, Effects, NO_SUCH_NAME, Names, RESERVED,
        Statement, VerdictCache,
    },
};

/// One client's messages on their way to its server.
pub(super) struct ClientMessages<'w> {
    pub(super) client_conn: Token,
    pub(super) client: &'w mut Client,
    pub(super) server_conn: Token,
    pub(super) server: &'w mut Server,
    pub(super) bindings: &'w mut Bindings,
    pub(super) env: Env<'w>,
    pub(super) stats: &'w mut Stats,
    /// The limits of the messages, and which messages are refused.
    pub(super) limits: MessageLimits,
    /// The statement of the unnamed portal, if these messages have bound one.
    pub(super) bound: Option<BindingId>,
    /// Whether the client's session state moves from server to server.
    pub(super) is_carried: bool,
    /// The certificates of the client's database.
    pub(super) certificates: &'w Certificates,
    pub(super) verdicts: &'w mut VerdictCache,
    /// The database that a text drops, renames or copies: pgweir has to close its connections to that database.
    pub(super) left_database: Option<String>,
    /// A LISTEN or UNLISTEN that the listener connection answers.
    pub(super) channel_command: Option<ChannelCommand>,
    /// Whether the present message prepares a statement that may change the session.
    pub(super) has_effects: bool,
    pub(super) counting: Counting<'w>,
}

/// The reason why the relay stops at a message of the client.
pub(super) enum RelayStop {
    /// The client sent Terminate.
    Terminated,
    /// The client gets this error, and its connection ends.
    Refused(Fault),
    /// The client sent LISTEN or UNLISTEN, which the listener connection answers.
    Listens(ChannelCommand),
}

/// The statement that a client's name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResolvedName {
    /// A statement, by its binding.
    Statement(BindingId),
    /// No statement: the name is unknown, or the message makes or closes it.
    Missing,
}

/// The result of handling one message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageOutcome {
    /// The message is still to be forwarded unchanged.
    Forward,
    /// The message was replaced, or pgweir answered it.
    Handled,
    /// The message, and all messages after it, wait for replies.
    Wait,
}

impl ClientMessages<'_> {
    /// Sends the received bytes to the server.
    pub(super) fn run(&mut self, bytes: &[u8], out: &mut Actions) -> Result<(), RelayStop> {
        let mut cursor = Cursor::new(bytes);
        let mut is_first = true;
        if !self.client.socket.stream.is_at_boundary() {
            self.continue_statement(bytes);
            self.read_on(bytes);
        }
        if let Some(held) = self.client.socket.take_held() {
            let taken = self.continue_held_message(held, bytes, out);
            cursor.skip(taken.map_err(RelayStop::Refused)?);
            if self.server.replies.is_awaited() {
                return Ok(());
            }
        }
        loop {
            let stream = &mut self.client.socket.stream;
            let head = match stream.next(bytes, &mut cursor.at, self.limits.message_max) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    self.finish_read(cursor, out);
                    return Ok(());
                }
                Err(fault) => {
                    // The messages before the malformed one are complete, and the server will answer them.
                    out.send_input(self.server_conn, cursor.sent, cursor.at);
                    return Err(RelayStop::Refused(fault));
                }
            };
            let rest = &bytes[cursor.at..];
            let message = Message { head, rest };
            if std::mem::take(&mut is_first)
                && self.server.replies.outstanding() > self.limits.replies_max
                && self.holds_back_before(&message, &mut cursor, out)
            {
                return Ok(());
            }
            let tag = message.tag();
            if let Some(stopped) = self.stop_at(tag) {
                cursor.flush(self.server_conn, &message, out);
                return Err(stopped);
            }
            let recording = self.client.request.recording();
            if recording.is_some_and(|recording| !recording.is_unwanted()) {
                self.record_text(&message);
            }
            let mut outcome = MessageOutcome::Forward;
            if message.is_simple() && self.comes_before_sync(&message, &mut cursor, out) {
                return Ok(());
            }
            if self.is_carried && !self.server.replies.is_skipping() {
                outcome = self.text(&message, &mut cursor, out);
            } else {
                self.note_ddl_elsewhere(&message);
            }
            if outcome == MessageOutcome::Forward && self.follows(tag) {
                outcome = self.named(&message, &mut cursor, out)?;
            }
            if self.may_name_parameters(tag) {
                self.note_names_in_values(tag, message.body());
            }
            match outcome {
                MessageOutcome::Forward => {}
                MessageOutcome::Handled => continue,
                MessageOutcome::Wait => match self.channel_command.take() {
                    Some(command) => return Err(RelayStop::Listens(command)),
                    None => return Ok(()),
                },
            }
            self.mark_unfollowed(tag);
            if let Some(split) = message.head.split {
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
            self.note_statement(&message, cursor.at);
        }
    }

    /// Forwards the rest of the input. Stops reading from the client if too many replies are outstanding.
    #[inline]
    fn finish_read(&mut self, cursor: Cursor<'_>, out: &mut Actions) {
        let len = cursor.bytes.len();
        let end = self.client.socket.stream.end(len);
        out.send_input(self.server_conn, cursor.sent, end);
        self.keep_unused(cursor.unused);
        self.count_rest(len);
        if self.server.replies.outstanding() > self.limits.replies_max {
            self.hold_back(out);
        }
    }

    /// Makes a message wait for the replies to earlier messages.
    #[cold]
    pub(super) fn wait(
        &mut self,
        message: &Message<'_>,
        cursor: &mut Cursor<'_>,
        out: &mut Actions,
    ) -> MessageOutcome {
        cursor.flush(self.server_conn, message, out);
        self.keep_unused(cursor.unused.take());
        self.postpone(message.head.header, message.rest, out);
        MessageOutcome::Wait
    }

    /// Processes a message that may contain a text, for a client whose session state moves between servers.
    #[inline]
    fn text(
        &mut self,
        message: &Message<'_>,
        cursor: &mut Cursor<'_>,
        out: &mut Actions,
    ) -> MessageOutcome {
        if self.server.replies.holds_back() {
            return self.wait(message, cursor, out);
        }
        if !message.is_whole() && self.holds_text(message) {
            cursor.flush(self.server_conn, message, out);
            return MessageOutcome::Wait;
        }
        self.counting.scanned = None;
        let effects = self.note_message_effects(message);
        self.counting.fingerprint = self.counting.scanned;
        self.has_effects = message.tag() == frontend::PARSE && !effects.is_empty();
        if effects.is_empty() {
            return MessageOutcome::Forward;
        }
        cursor.flush(self.server_conn, message, out);
        if effects == Effects::LISTEN && self.takes_channels(message) {
            self.postpone(message.head.header, message.rest, out);
            return MessageOutcome::Wait;
        }
        let outcome = self.prepare_for_text(effects, message, out);
        if outcome == MessageOutcome::Handled {
            self.client.socket.stream.advance(message.len());
            cursor.skip(message.len());
            cursor.unused = None;
        }
        outcome
    }

    /// Processes a message that may refer to a prepared statement.
    #[inline]
    fn named<'b>(
        &mut self,
        message: &Message<'b>,
        cursor: &mut Cursor<'b>,
        out: &mut Actions,
    ) -> Result<MessageOutcome, RelayStop> {
        let (tag, body) = (message.tag(), message.body());
        let named = Named::read(tag, body, message.len());
        if matches!(named, Named::Unclear) {
            cursor.flush(self.server_conn, message, out);
            self.hold(message).map_err(RelayStop::Refused)?;
            return Ok(MessageOutcome::Wait);
        }
        if named.is_named() && self.is_unsure() {
            return Ok(self.wait(message, cursor, out));
        }
        if tag == frontend::BIND {
            // Any Bind replaces the unnamed portal.
            self.bound = None;
        }
        if let Some(fault) = self.refusal_of(&named, out) {
            cursor.flush(self.server_conn, message, out);
            return Err(RelayStop::Refused(fault));
        }
        if matches!(named, Named::Unnamed) {
            if cursor.unused.is_none() && self.must_recheck_unnamed(tag) {
                cursor.flush(self.server_conn, message, out);
                if self.note_unnamed_use(out) {
                    return Ok(self.wait(message, cursor, out));
                }
            }
            if self.needs_unnamed(tag) {
                cursor.flush(self.server_conn, message, out);
                self.send_unnamed(out);
            }
            if tag == frontend::PARSE {
                self.keep_unnamed_before();
            }
        }
        let mut resolved = self.resolve(&named);
        if self.refers_to_names(&named, resolved) {
            cursor.flush(self.server_conn, message, out);
            if self.prepare_for_message(&named, resolved, out) {
                return Ok(self.wait(message, cursor, out));
            }
            resolved = self.resolve(&named);
        }
        self.note_unknown_effects(&named, resolved.is_some());
        if self.is_outdated(&named, resolved) {
            cursor.flush(self.server_conn, message, out);
            self.check(resolved, out);
            return Ok(self.wait(message, cursor, out));
        }
        if let Some(resolved) = resolved {
            cursor.flush(self.server_conn, message, out);
            let used = self.translate(message.len(), &named, resolved, out);
            self.client.socket.stream.advance(used);
            cursor.skip(used);
            return Ok(MessageOutcome::Handled);
        }
        self.mark_passing(tag, body, &named);
        if matches!(named, Named::Unnamed) {
            self.note_unnamed(message, &mut cursor.unused);
        }
        Ok(MessageOutcome::Forward)
    }

    /// Queues the mark of a Parse, Close or Describe that is forwarded unchanged.
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
            frontend::DESCRIBE => match self.describe_mark(body) {
                Some(kind) => kind,
                None => return,
            },
            _ => return,
        };
        self.server.replies.mark_sent(Mark::plain(kind));
    }

    /// Returns the statement that the message refers to, if pgweir has to replace its name; `None` if the message is
    /// forwarded unchanged.
    #[inline]
    pub(super) fn resolve(&self, named: &Named<'_>) -> Option<ResolvedName> {
        if self.has_own_names() {
            return None;
        }
        match named {
            Named::Parse { .. } | Named::Close(_) => Some(ResolvedName::Missing),
            Named::Bind { name, .. } | Named::Describe(name) => {
                match self.client.statements.find(self.bindings, name) {
                    Some(binding) => Some(ResolvedName::Statement(binding)),
                    None => name.starts_with(RESERVED).then_some(ResolvedName::Missing),
                }
            }
            Named::Nothing | Named::Unclear | Named::Unnamed => None,
        }
    }

    /// Sends the message with the server's name of the statement. Returns how many bytes of the client's message this
    /// has replaced.
    pub(super) fn translate(
        &mut self,
        len: usize,
        named: &Named<'_>,
        resolved: ResolvedName,
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
                let resolved = self.ensure_prepared(resolved, out);
                if let ResolvedName::Statement(binding) = resolved
                    && portal.is_empty()
                    && self.is_carried
                {
                    self.bound = Some(binding);
                }
                self.note_binding(portal, resolved);
                let statement = resolved.server_name(self.bindings);
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
                let resolved = self.ensure_prepared(resolved, out);
                let statement = resolved.server_name(self.bindings);
                send_target(self.server_conn, frontend::DESCRIBE, statement, out);
                if let ResolvedName::Statement(binding) = resolved
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

    /// Handles a Parse of a named statement.
    fn parse(&mut self, name: &[u8], definition: &[u8], out: &mut Actions) {
        if let Some(taken) = self.client.statements.find(self.bindings, name) {
            return self.parse_again(taken, name, definition, out);
        }
        let Some(statement) = self.intern(name, definition) else {
            return self.refuse(Fault::OutOfMemory, out);
        };
        if self.client.statements.bytes() + Names::cost(&statement) > self.limits.prepared_bytes_max
        {
            return self.refuse(Fault::TooManyStatements, out);
        }
        self.stats.client_parse_count += 1;
        let schema = self.server.schema();
        let names = &mut self.client.statements;
        names.define(self.bindings, name, &statement, schema);
        let server = &mut *self.server;
        let has_failed = server.has_failed_transaction();
        let (replies, prepared) = (&mut server.replies, &mut server.statements.prepared);
        let session = &server.session;
        let is_good = !session.may_have_role()
            && prepared.is_fresh(statement.id(), schema)
            && prepared.is_made_under(statement.id(), session.settings_now())
            && !has_failed;
        if is_good && replies.is_fresh() {
            prepared.touch(statement.id());
            self.stats.statement_hit_count += 1;
            if let Some(request) = server.link.repeatable_mut() {
                request.answered_early(name);
            }
            return replies.answered_early();
        }
        // In the middle of a pipeline, ParseComplete must come from the server, in the order of its other replies.
        self.close_if_prepared(statement.id(), out);
        self.send_parse(statement, Some(name.into()), out);
    }

    /// Handles a Parse with a name that the client already uses. The server is sent the Parse with its name of that
    /// statement: so it reports the duplicate name, or an error that PostgreSQL checks first, such as a syntax error.
    #[cold]
    fn parse_again(&mut self, taken: BindingId, name: &[u8], definition: &[u8], out: &mut Actions) {
        let statements = self.env.directory.statements();
        let Some(statement) = statements.intern_within_limit(definition) else {
            return self.refuse(Fault::OutOfMemory, out);
        };
        let resolved = ResolvedName::Statement(taken);
        let resolved = self.ensure_prepared(resolved, out);
        self.close_before_parse(&statement, out);
        self.note_parse(&statement);
        let server_name = resolved.server_name(self.bindings);
        send_parse(self.server_conn, server_name, definition, out);
        let mark = Mark::clients(MarkKind::Refused, Change::Duplicate(name.into(), statement));
        self.server.replies.mark_sent(mark);
    }

    /// Handles a Close of a named statement. The statement stays on the servers, for other clients that have prepared
    /// it, too.
    fn close(&mut self, name: &[u8], out: &mut Actions) {
        self.forget_missing(name);
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
        self.close_before_parse(&statement, out);
        self.note_parse(&statement);
        let most = self.limits.statements_max;
        while let Some(evicted) = self.server.statements.prepared.evict(most) {
            self.send_close(evicted, out);
        }
        self.stats.server_parse_count += 1;
        let (name, definition) = (statement.name(), statement.definition());
        send_parse(self.server_conn, name, definition, out);
        let (schema, session) = (self.server.schema(), &self.server.session);
        let prepared = &mut self.server.statements.prepared;
        let (user, now) = (self.client.origin.id, session.settings_now());
        prepared.add(Arc::clone(&statement), schema, user, Some(now));
        if session.may_have_role() {
            prepared.analysed_under_role(statement.id());
        }
        let is_withheld = client_name.is_none();
        let change = Change::Made(statement, client_name);
        self.server.replies.mark_sent(Mark {
            is_withheld,
            ..Mark::clients(MarkKind::Parse, change)
        });
    }

    /// Closes a statement of the server's, if the server has it.
    pub(super) fn close_if_prepared(&mut self, id: u64, out: &mut Actions) {
        if let Some(statement) = self.server.statements.prepared.take(id) {
            self.send_close(statement, out);
        }
    }

    pub(super) fn send_close(&mut self, statement: Arc<Statement>, out: &mut Actions) {
        send_target(self.server_conn, frontend::CLOSE, statement.name(), out);
        let mark = Mark::own(MarkKind::Close, Change::Evicted(statement));
        self.server.replies.mark_sent(mark);
    }

    /// Handles a Flush: sends the replies that pgweir itself has given, unless they are sent with the server's next
    /// reply.
    fn flush_early(&mut self, out: &mut Actions) {
        if self.server.replies.is_fresh() {
            send_early(self.client_conn, self.server, out);
        }
    }
}

impl ResolvedName {
    /// Returns the name of the statement on the server.
    fn server_name(self, bindings: &Bindings) -> &[u8] {
        match self {
            Self::Statement(binding) => bindings
                .statement(binding)
                .map_or(NO_SUCH_NAME, |statement| statement.name()),
            Self::Missing => NO_SUCH_NAME,
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
