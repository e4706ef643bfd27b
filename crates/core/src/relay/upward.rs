//! A client's messages on their way to its server: clients' names of prepared statements become the
//! server's, and a server that lacks a statement gets it just before it is used, in the same write.

use std::{ops::Range, sync::Arc};

use pgweir_wire::{Header, tag::backend, tag::frontend};

use super::named::Named;
use crate::{
    Actions, ReadMode, Token,
    backend::{Change, Mark, MarkKind, Server},
    fault::Fault,
    frontend::{Client, Head, Held, Upstream},
    session::{
        BindingId, Bindings, Certificates, NO_SUCH_NAME, Names, RESERVED, Statement, Statements,
    },
    stats::Stats,
};

/// The longest names that are read in a message.
const NAMES_MAX: usize = 64 * 1024;

/// One client's messages on their way to its server.
pub(super) struct Upward<'w> {
    pub(super) client_conn: Token,
    pub(super) client: &'w mut Client,
    pub(super) server_conn: Token,
    pub(super) server: &'w mut Server,
    pub(super) bindings: &'w mut Bindings,
    pub(super) statements: &'w Statements,
    pub(super) stats: &'w mut Stats,
    /// Most statements on a server; 0 if names are not followed.
    pub(super) most: usize,
    /// `max_client_prepared_bytes`.
    pub(super) most_bytes: usize,
    /// Most bytes of a request that is kept to be repeated; 0 if none is.
    pub(super) retry_max: usize,
    /// The statement of the unnamed portal, as far as these messages say.
    pub(super) bound: Option<BindingId>,
    /// The client's session is carried from server to server.
    pub(super) is_carried: bool,
    /// What is certified of its database.
    pub(super) certificates: &'w Certificates,
    /// What ends a connection in PgBouncer ends it here (`session_state = off`).
    pub(super) as_pgbouncer: bool,
    /// The longest message (`max_packet_size`).
    pub(super) longest: u32,
    /// No simple queries (`disable_pqexec`).
    pub(super) no_simple: bool,
}

/// Why a client's bytes go no further.
pub(super) enum Stopped {
    /// It said Terminate.
    Terminated,
    /// It must be refused.
    Refused(Fault),
}

/// What a name of a client stands for.
#[derive(Debug, Clone, Copy)]
enum Ours {
    /// A statement, by its binding.
    Statement(BindingId),
    /// None that is there already.
    Nothing,
}

impl Upward<'_> {
    /// Sends on what has come.
    pub(super) fn run(&mut self, bytes: &[u8], out: &mut Actions) -> Result<(), Stopped> {
        let (mut at, mut sent, mut kept) = (0, 0, 0);
        // An unnamed statement that was not used yet.
        let mut unused: Option<Range<usize>> = None;
        if let Some(held) = self.client.held.take() {
            at = self.go_on(held, bytes, out).map_err(Stopped::Refused)?;
            sent = at;
            if self.server.replies.is_awaited() {
                return Ok(());
            }
        }
        loop {
            let next = self.client.stream.next(bytes, &mut at, self.longest);
            let head = match next {
                Ok(Some(head)) => head,
                Ok(None) => {
                    let end = self.client.stream.end(bytes.len());
                    out.send_input(self.server_conn, sent, end);
                    self.server.segment.keep(&bytes[kept..end], self.retry_max);
                    self.keep_unnamed(bytes, unused);
                    return Ok(());
                }
                Err(fault) => {
                    // What came before it was counted, and will be answered.
                    out.send_input(self.server_conn, sent, at);
                    return Err(Stopped::Refused(fault));
                }
            };
            let tag = head.header.tag;
            let len = head.header.body_len as usize;
            let body = &bytes[at..bytes.len().min(at + len)];
            self.suspect(tag, body, len);
            if let Some(stopped) = self.stopped_by(tag) {
                out.send_input(self.server_conn, sent, head.start);
                return Err(stopped);
            }
            if self.follows(tag) {
                let named = Named::read(tag, body, len);
                if named == Named::Unclear {
                    out.send_input(self.server_conn, sent, head.start);
                    return self.hold(head.header, body).map_err(Stopped::Refused);
                }
                if named.is_named() && self.server.replies.is_unsure() {
                    out.send_input(self.server_conn, sent, head.start);
                    self.keep_unnamed(bytes, unused);
                    self.put_off(head.header, &[&bytes[at..]], out);
                    return Ok(());
                }
                if let Some(fault) = self.refusal_of(&named) {
                    out.send_input(self.server_conn, sent, head.start);
                    return Err(Stopped::Refused(fault));
                }
                if named == Named::Unnamed && self.needs_unnamed(tag) {
                    out.send_input(self.server_conn, sent, head.start);
                    sent = head.start;
                    self.send_unnamed(out);
                }
                let ours = self.resolve(&named);
                self.suspect_unknown(&named, ours.is_some());
                if let Some(ours) = ours {
                    out.send_input(self.server_conn, sent, head.start);
                    let used = self.translate(len, &named, ours, out);
                    self.client.stream.advance(used);
                    at += used;
                    sent = at;
                    self.kept(&head, at, &mut kept);
                    continue;
                }
                self.mark_passing(tag, body);
                if named == Named::Unnamed {
                    self.note_unnamed(tag, at + 1..at + len, &mut unused);
                }
            }
            self.kept(&head, at, &mut kept);
            if let Some(split) = head.split {
                out.send_made(self.server_conn, |made| made.extend_from_slice(&split));
                sent = at;
            }
            match tag {
                frontend::FLUSH => self.flush_early(out),
                frontend::QUERY => {
                    self.forget_unnamed();
                    unused = None;
                }
                _ => {}
            }
            self.server.replies.client_sent(tag);
        }
    }

    /// An unnamed statement that was made and not used yet may be used later.
    fn keep_unnamed(&mut self, bytes: &[u8], unused: Option<Range<usize>>) {
        if let Some(definition) = unused {
            self.client.unnamed = Some(bytes[definition].into());
        }
    }

    #[inline]
    fn stopped_by(&mut self, tag: u8) -> Option<Stopped> {
        if tag == frontend::TERMINATE {
            return Some(Stopped::Terminated);
        }
        if self.no_simple && tag == frontend::QUERY {
            // Nothing of it goes on: the server is not in the middle of a message.
            self.client.stream = Upstream::default();
            return Some(Stopped::Refused(Fault::SimpleQuery));
        }
        None
    }

    /// What ends a client's connection in PgBouncer, and is an error of the server's otherwise.
    #[inline]
    fn refusal_of(&mut self, named: &Named<'_>) -> Option<Fault> {
        if !self.as_pgbouncer {
            return None;
        }
        let (name, fault) = match *named {
            Named::Parse { name, .. } => (name, Fault::StatementExists),
            Named::Bind { name, .. } | Named::Describe(name) => (name, Fault::NoSuchStatement),
            _ => return None,
        };
        let is_known = self.client.statements.find(self.bindings, name).is_some();
        if is_known != (fault == Fault::StatementExists) {
            return None;
        }
        self.client.stream = Upstream::default();
        Some(fault)
    }

    #[inline]
    fn follows(&self, tag: u8) -> bool {
        self.most > 0
            && matches!(
                tag,
                frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::CLOSE
            )
            && !self.server.replies.is_skipping()
    }

    /// A message was sent that may have to be repeated.
    #[inline]
    fn kept(&mut self, head: &Head, at: usize, kept: &mut usize) {
        let segment = &mut self.server.segment;
        if head.header.tag == frontend::PARSE
            && segment.is_empty()
            && head.start <= *kept
            && self.server.replies.is_fresh()
        {
            // It was answered without the server.
            *kept = at;
        } else if head.split.is_some() {
            segment.spoil();
        } else {
            segment.sent(head.header.tag);
        }
    }

    /// A Parse, Close or Describe that goes as it is.
    #[inline]
    fn mark_passing(&mut self, tag: u8, body: &[u8]) {
        let kind = match tag {
            frontend::PARSE => MarkKind::Parse,
            frontend::CLOSE => MarkKind::Close,
            frontend::DESCRIBE if body.starts_with(b"P\0") => {
                let untold = |&bound: &BindingId| self.bindings.shape(bound).columns.is_none();
                match self.bound.filter(untold) {
                    Some(binding) => MarkKind::Describe(binding),
                    None => return,
                }
            }
            _ => return,
        };
        self.server.replies.mark_sent(Mark::plain(kind));
    }

    /// What this message means is known when earlier requests are answered: until then it waits, and
    /// all that came behind it. A server that said no to an earlier one has skipped what it would
    /// have changed.
    #[cold]
    fn put_off(&mut self, header: Header, rest: &[&[u8]], out: &mut Actions) {
        let mut bytes = vec![header.tag];
        bytes.extend_from_slice(&(header.body_len + 4).to_be_bytes());
        for part in rest {
            bytes.extend_from_slice(part);
        }
        // They will be counted when they are read again.
        self.stats.received = self.stats.received.saturating_sub(bytes.len() as u64);
        self.client.stream = Upstream::default();
        self.server.segment.spoil();
        self.client.early = Some(Box::new(bytes));
        self.server.replies.wait();
        out.read(self.client_conn, ReadMode::Hold);
    }

    /// Keeps the beginning of a message until the names in it have come.
    fn hold(&mut self, header: Header, body: &[u8]) -> Result<(), Fault> {
        self.check_length(header, body)?;
        self.client.stream.advance(body.len());
        self.server.segment.spoil();
        self.client.held = Some(Box::new(Held {
            header,
            body: body.to_vec(),
        }));
        Ok(())
    }

    /// A named statement has to be kept.
    fn check_length(&self, header: Header, body: &[u8]) -> Result<(), Fault> {
        let is_named = body.first().is_some_and(|&first| first != 0);
        if header.tag == frontend::PARSE && is_named && header.body_len as usize > self.most_bytes {
            return Err(Fault::StatementTooLong);
        }
        Ok(())
    }

    /// More of a message that was held: how many bytes were used.
    #[cold]
    fn go_on(
        &mut self,
        mut held: Box<Held>,
        bytes: &[u8],
        out: &mut Actions,
    ) -> Result<usize, Fault> {
        let Header { tag, body_len } = held.header;
        let len = body_len as usize;
        let taken = bytes.len().min(len - held.body.len());
        held.body.extend_from_slice(&bytes[..taken]);
        self.client.stream.advance(taken);
        let named = Named::read(tag, &held.body, len);
        if named == Named::Unclear {
            if tag != frontend::PARSE && held.body.len() > NAMES_MAX {
                return Err(Fault::TooLong(tag));
            }
            self.check_length(held.header, &held.body)?;
            self.client.held = Some(held);
            return Ok(taken);
        }
        if named == Named::Unnamed && self.follows(tag) {
            self.go_on_unnamed(tag, &held.body, out);
        }
        if named.is_named() && self.follows(tag) && self.server.replies.is_unsure() {
            self.put_off(held.header, &[&held.body, &bytes[taken..]], out);
            return Ok(bytes.len());
        }
        if self.follows(tag)
            && let Some(fault) = self.refusal_of(&named)
        {
            return Err(fault);
        }
        let mut used = 0;
        // The server may have begun to skip in the meantime.
        let ours = self.resolve(&named).filter(|_| self.follows(tag));
        if let Some(ours) = ours {
            used = self.translate(len, &named, ours, out);
        } else {
            if self.follows(tag) {
                self.mark_passing(tag, &held.body);
            }
            self.server.replies.client_sent(tag);
            out.send_made(self.server_conn, |made| {
                made.push(tag);
                made.extend_from_slice(&(body_len + 4).to_be_bytes());
            });
        }
        out.send_made(self.server_conn, |made| {
            made.extend_from_slice(&held.body[used..]);
        });
        Ok(taken)
    }

    /// Is it about a statement that we follow, or a name that we keep to ourselves?
    #[inline]
    fn resolve(&self, named: &Named<'_>) -> Option<Ours> {
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

    /// Sends what does as the server names it; gives the bytes of the body that this replaces.
    fn translate(&mut self, len: usize, named: &Named<'_>, ours: Ours, out: &mut Actions) -> usize {
        match *named {
            Named::Parse { name, definition } => {
                self.parse(name, definition, out);
                len
            }
            Named::Bind { portal, name } => {
                let used = portal.len() + name.len() + 2;
                self.stats.bind_count += 1;
                let ours = self.make_sure(ours, out);
                if let Ours::Statement(binding) = ours
                    && portal.is_empty()
                    && self.retry_max > 0
                {
                    self.bound = Some(binding);
                }
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
                let ours = self.make_sure(ours, out);
                let statement = ours.server_name(self.bindings);
                send_target(self.server_conn, frontend::DESCRIBE, statement, out);
                if let Ours::Statement(binding) = ours
                    && self.retry_max > 0
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

    /// The client makes a statement.
    fn parse(&mut self, name: &[u8], definition: &[u8], out: &mut Actions) {
        if let Some(taken) = self.client.statements.find(self.bindings, name) {
            return self.parse_again(taken, name, definition, out);
        }
        let statement = self.statements.intern(definition);
        if self.client.statements.bytes() + Names::cost(&statement) > self.most_bytes {
            return self.refuse(Fault::TooManyStatements, out);
        }
        self.stats.client_parse_count += 1;
        self.client
            .statements
            .define(self.bindings, name, &statement);
        let (replies, prepared) = (&mut self.server.replies, &mut self.server.prepared);
        let is_good = prepared.is_fresh(statement.id()) && self.server.status != b'E';
        if is_good && replies.is_fresh() {
            prepared.touch(statement.id());
            return replies.answered_early();
        }
        if prepared.touch(statement.id()) {
            // In the middle of a pipeline, the server has to say itself that it is made.
            prepared.forget(statement.id());
            self.send_close(Arc::clone(&statement), out);
        }
        self.send_parse(statement, Some(name.into()), out);
    }

    /// The client makes a statement under a name that is taken. The server has one of that name too,
    /// and finds whatever comes before that in PostgreSQL's eyes, such as wrong syntax.
    #[cold]
    fn parse_again(&mut self, taken: BindingId, name: &[u8], definition: &[u8], out: &mut Actions) {
        let statement = self.statements.intern(definition);
        let ours = Ours::Statement(taken);
        let ours = self.make_sure(ours, out);
        let server_name = ours.server_name(self.bindings);
        send_parse(self.server_conn, server_name, definition, out);
        let mark = Mark::clients(MarkKind::Refused, Change::Duplicate(name.into(), statement));
        self.server.replies.mark_sent(mark);
    }

    /// The server gets the statement, if it lacks it.
    #[inline]
    fn make_sure(&mut self, ours: Ours, out: &mut Actions) -> Ours {
        let Ours::Statement(binding) = ours else {
            return ours;
        };
        if self.bindings.shape(binding).stale {
            let mark = Mark::clients(MarkKind::Refused, Change::Refused(Fault::StalePlan));
            self.server.replies.mark_sent(mark);
            return Ours::Nothing;
        }
        self.client.statements.used(binding);
        let Some(statement) = self.bindings.statement(binding) else {
            return ours;
        };
        if self.is_carried {
            let dialect = self.server.session.dialect;
            let suspicion = statement.suspicion(dialect, self.certificates);
            if !suspicion.is_empty() {
                let session = &mut self.server.session;
                session.suspicion |= suspicion;
                session.suspects.note(suspicion, statement.definition());
            }
        }
        if !self.server.prepared.touch(statement.id()) {
            let statement = Arc::clone(statement);
            self.send_parse(statement, None, out);
        }
        ours
    }

    /// The client gives up a name. Its statement stays on the servers, for whoever has it too.
    fn close(&mut self, name: &[u8], out: &mut Actions) {
        let known = self.client.statements.remove(self.bindings, name);
        // A name that we don't follow may be one that SQL's PREPARE made.
        let is_hidden = known.is_some() || name.starts_with(RESERVED);
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

    fn send_parse(
        &mut self,
        statement: Arc<Statement>,
        client_name: Option<Box<[u8]>>,
        out: &mut Actions,
    ) {
        while let Some(evicted) = self.server.prepared.evict(self.most) {
            self.send_close(evicted, out);
        }
        self.stats.server_parse_count += 1;
        send_parse(
            self.server_conn,
            statement.name(),
            statement.definition(),
            out,
        );
        self.server.prepared.add(Arc::clone(&statement));
        let swallow = client_name.is_none();
        self.server.replies.mark_sent(Mark {
            kind: MarkKind::Parse,
            swallow,
            change: Some(Box::new(Change::Made(statement, client_name))),
        });
    }

    fn send_close(&mut self, statement: Arc<Statement>, out: &mut Actions) {
        send_target(self.server_conn, frontend::CLOSE, statement.name(), out);
        let mark = Mark::own(MarkKind::Close, Change::Evicted(statement));
        self.server.replies.mark_sent(mark);
    }

    /// Lets the server fail at this place, so that it skips what follows, and says why in its stead.
    #[cold]
    fn refuse(&mut self, fault: Fault, out: &mut Actions) {
        send_target(self.server_conn, frontend::DESCRIBE, NO_SUCH_NAME, out);
        let mark = Mark::clients(MarkKind::Refused, Change::Refused(fault));
        self.server.replies.mark_sent(mark);
    }

    /// Flush: what we have answered ourselves goes out, unless the server's answer takes it along.
    fn flush_early(&mut self, out: &mut Actions) {
        if self.server.replies.is_fresh() {
            send_early(self.client_conn, self.server, out);
        }
    }
}

/// ParseCompletes that the client is owed.
#[inline]
pub(crate) fn send_early(client: Token, server: &mut Server, out: &mut Actions) {
    for _ in 0..server.replies.take_early() {
        out.send_made(client, |made| {
            made.extend_from_slice(&[backend::PARSE_COMPLETE, 0, 0, 0, 4]);
        });
    }
}

impl Ours {
    /// What the server knows it as.
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

/// Describe or Close of a statement.
pub(super) fn send_target(server: Token, tag: u8, name: &[u8], out: &mut Actions) {
    out.send_made(server, |made| {
        made.push(tag);
        made.extend_from_slice(&(4 + 1 + name.len() as u32 + 1).to_be_bytes());
        made.push(b'S');
        made.extend_from_slice(name);
        made.push(0);
    });
}
