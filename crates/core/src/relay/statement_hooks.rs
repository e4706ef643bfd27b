//! Statement statistics: finds out which statement a message runs, and when a server has completed one.

use pgweir_wire::{Body, tag::frontend};

use super::{
    Relay,
    client_to_server::{ClientMessages, ResolvedName},
    message::Message,
    session_texts::until_nul,
};
use crate::{
    Action, Actions, Level, LogLine, Token,
    backend::Server,
    effect::Env,
    frontend::Client,
    session::{Dialect, Fingerprint},
    statement_statistics::{Ended, Extent, PartialText, StatementId, StatementStatistics},
};

impl ClientMessages<'_> {
    /// Notes which statement a message that was sent to the server runs, prepares or binds. `at`: the position of the
    /// message's body.
    #[inline]
    pub(super) fn note_statement(&mut self, message: &Message<'_>, at: usize) {
        let tag = message.tag();
        let is_noted = matches!(
            tag,
            frontend::QUERY | frontend::PARSE | frontend::BIND | frontend::EXECUTE
        );
        if !is_noted || !self.counting.statistics.is_on() || self.server.replies.is_skipping() {
            return;
        }
        let (body, is_whole) = (message.body(), message.is_whole());
        let end = at + body.len();
        match tag {
            frontend::QUERY => {
                let text = body.strip_suffix(b"\0");
                let statement = match text.filter(|_| is_whole) {
                    Some(text) => self.statement_of(text),
                    None => self.keep_partial(None, body),
                };
                let request = self.server.replies.next_request().saturating_sub(1);
                self.run_statement(statement, request, Extent::Request, end);
            }
            frontend::EXECUTE => {
                let mut body = Body::new(body);
                let portal = body.cstr().unwrap_or_default();
                let limit = body.rest().first_chunk().copied();
                let rows = u32::from_be_bytes(limit.unwrap_or_default());
                let statement = match self.client.socket.statement_names.portal(portal) {
                    StatementId::NONE => self
                        .counting
                        .statistics
                        .unknown(self.server.statement_pool()),
                    known => known,
                };
                let request = self.server.replies.next_request();
                self.run_statement(statement, request, Extent::Execute { rows }, end);
            }
            frontend::BIND => {
                let mut body = Body::new(body);
                if let (Ok(portal), Ok(name)) = (body.cstr(), body.cstr()) {
                    let statement = self.client.socket.statement_names.statement(name);
                    self.client.socket.statement_names.bound(portal, statement);
                }
            }
            _ => self.note_parsed(body, is_whole),
        }
    }

    fn note_parsed(&mut self, body: &[u8], is_whole: bool) {
        let mut body = Body::new(body);
        let Ok(name) = body.cstr() else { return };
        let rest = body.rest();
        let statement = match self.counting.fingerprint.take() {
            Some(fingerprint) => self.scanned_statement(fingerprint, rest),
            None => match body.cstr() {
                Ok(text) => self.statement_of(text),
                Err(_) if is_whole => return,
                Err(_) => self.keep_partial(Some(name), rest),
            },
        };
        self.client.socket.statement_names.parsed(name, statement);
        self.server.statements.running.prepared(statement);
    }

    /// Notes an execution. The bytes up to `end` are counted for it.
    #[inline]
    fn run_statement(&mut self, statement: StatementId, request: u64, extent: Extent, end: usize) {
        let received = self.counting.count_to(end) as u64;
        let now = self.counting.now();
        (self.server.statements.running).sent(statement, request, extent, received, now);
    }

    /// Counts the bytes after the last statement.
    #[inline]
    pub(super) fn count_rest(&mut self, len: usize) {
        if self.counting.statistics.is_on() {
            let received = self.counting.count_to(len);
            self.server.statements.running.add_received(received);
        }
    }

    /// Returns the statement whose text has this fingerprint. `bytes` begin with the text; a zero byte and more may
    /// follow. Only for a new statement, the end of the text is searched.
    #[inline]
    fn scanned_statement(&mut self, fingerprint: u64, bytes: &[u8]) -> StatementId {
        let dialect = self.server.session.dialect();
        let text = || Fingerprint::read(until_nul(bytes), dialect).text;
        let pool = self.server.statement_pool();
        self.counting.statistics.statement(pool, fingerprint, text)
    }

    /// Returns the statement with this text.
    #[inline]
    fn statement_of(&mut self, text: &[u8]) -> StatementId {
        if let Some(fingerprint) = self.counting.fingerprint.take() {
            return self.scanned_statement(fingerprint, text);
        }
        let dialect = self.dialect_of(text);
        let fingerprint = match dialect {
            Dialect::Unreadable => Fingerprint::hash_of(text, dialect),
            _ => {
                let verdict = self.verdicts.read(text, dialect, self.certificates);
                let find = || Fingerprint::hash_of(text, dialect);
                self.verdicts.fingerprint(verdict.place, find)
            }
        };
        let pool = self.server.statement_pool();
        self.counting
            .statistics
            .statement(pool, fingerprint, || Fingerprint::read(text, dialect).text)
    }

    /// Returns the dialect in which the server reads a text. An outstanding request may still change it.
    #[inline]
    fn dialect_of(&self, text: &[u8]) -> Dialect {
        let dialect = self.server.session.dialect();
        if self.server.statements.running.is_outstanding()
            && Fingerprint::common_dialect(text) == Dialect::Unreadable
        {
            return Dialect::Unreadable;
        }
        dialect
    }

    /// Notes the statement of a portal whose statement name pgweir has replaced.
    #[inline]
    pub(super) fn note_binding(&mut self, portal: &[u8], resolved: ResolvedName) {
        if !self.counting.statistics.is_on() {
            return;
        }
        let statement = match resolved {
            ResolvedName::Statement(binding) => self.bindings.statement(binding),
            ResolvedName::Missing => None,
        };
        let pool = self.server.statement_pool();
        let id = statement.map_or(StatementId::NONE, |statement| {
            self.counting
                .statistics
                .statement(pool, statement.fingerprint(), || {
                    Fingerprint::of_any(statement.text()).text
                })
        });
        self.client.socket.statement_names.bound(portal, id);
    }

    /// Keeps the beginning of a text whose rest has not arrived. Returns the id that stands for the statement until
    /// then.
    #[cold]
    fn keep_partial(&mut self, name: Option<&[u8]>, text: &[u8]) -> StatementId {
        self.client
            .socket
            .statement_names
            .keep_partial(PartialText {
                name: name.map(Into::into),
                text: text[..text.len().min(Fingerprint::READ_MAX)].to_vec(),
            });
        StatementId::NONE
    }

    /// Continues to read a text whose beginning was kept.
    #[inline]
    pub(super) fn continue_statement(&mut self, bytes: &[u8]) {
        if let Some(partial) = self.client.socket.statement_names.take_partial() {
            self.continue_partial(partial, bytes);
        }
    }

    #[cold]
    fn continue_partial(&mut self, mut partial: PartialText, bytes: &[u8]) {
        let (count, is_end) = self.client.socket.stream.left_of(bytes.len());
        let room = Fingerprint::READ_MAX - partial.text.len();
        partial.text.extend_from_slice(&bytes[..count.min(room)]);
        if !is_end {
            return self.client.socket.statement_names.keep_partial(partial);
        }
        let is_cut = partial.text.len() == Fingerprint::READ_MAX;
        let fingerprint = Fingerprint::of_any(until_nul(&partial.text));
        let pool = self.server.statement_pool();
        let statement = self
            .counting
            .statistics
            .statement(pool, fingerprint.hash, || fingerprint.text);
        match partial.name {
            Some(name) => {
                self.client.socket.statement_names.parsed(&name, statement);
                self.server.statements.running.prepared(statement);
            }
            None => self
                .server
                .statements
                .running
                .text_arrived(statement, is_cut),
        }
    }
}

impl Relay<'_> {
    /// Notes that a server has completed a command, or suspended a portal.
    #[inline]
    pub(super) fn statement_completed(&mut self, conn: Token, ended: Ended<'_>) {
        if let Some(server) = self.connections.server(conn) {
            let request = server.replies.present_request();
            let (now, statistics) = (self.env.now, &mut self.pools.statements);
            server
                .statements
                .running
                .completed(ended, request, now, statistics);
        }
    }
}

/// Logs a client's transaction that has ended after so many microseconds, if it was slow.
#[inline]
pub(super) fn transaction_ended(
    env: &Env<'_>,
    client: &Client,
    server: &mut Server,
    duration: u64,
    statistics: &mut StatementStatistics,
    out: &mut Actions,
) {
    let slow = env.snapshot.config.settings.log_slow_transactions.0;
    if slow > 0 && server.statements.running.length(duration) >= slow {
        log_slow_transaction(env, client, server, duration, statistics, out);
    }
    server.statements.running.end_transaction();
}

#[cold]
fn log_slow_transaction(
    env: &Env<'_>,
    client: &Client,
    server: &Server,
    duration: u64,
    statistics: &mut StatementStatistics,
    out: &mut Actions,
) {
    let Some(not_logged) = statistics.slow.add(env.now) else {
        return;
    };
    let transaction = server.statements.running.describe(duration, statistics);
    let message = transaction.message(not_logged);
    out.list.push(Action::Log(Box::new(LogLine {
        slow: Some(Box::new(transaction)),
        ..LogLine::new(Level::Log, client.subject(), message)
    })));
}
