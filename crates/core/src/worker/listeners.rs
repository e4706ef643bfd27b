//! Listeners: server connections that run LISTEN for the clients of a pool.
//!
//! A listener is opened for the first client that listens, and closed some time after the last one has gone.

use std::{collections::BTreeMap, sync::Arc};

use pgweir_wire::{HEADER_LEN, MessageWriter, Report, tag::backend};

use super::{Worker, listener_replacement::ReplacementListener};
use crate::{
    Action, Actions, Level, SharedPool, Time, Token, WorkerId,
    backend::{Duty, Expected, InternalQuery, OUTDATED, Request, Step},
    fault::Words,
    listen::{Channel, ListenerChannels, ListenerKey, Message, Notification, Question},
    mail::Mail,
    pool::PoolId,
};

/// Consecutive queries that may fail before a listener is closed.
const FAILURES_MAX: u32 = 3;
/// A listener's application_name, unless its database's entry sets another one.
const APPLICATION_NAME: &str = "pgweir listener";

/// The listeners that a worker owns, in a fixed order.
pub(crate) type Listeners = BTreeMap<ListenerKey, Listener>;

/// Overrides the settings of the role and the database: a listener is idle most of the time, and its
/// queries must not fail. What they write does not have to survive a crash.
const SETTINGS: &[u8] =
    b"SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
    WHERE name OPERATOR(pg_catalog.=) ANY ('{statement_timeout,lock_timeout,transaction_timeout,\
    idle_session_timeout,synchronous_commit}'::pg_catalog.text[])";

/// A listener: one connection, and the LISTEN requests for it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) conn: Token,
    pub(crate) channels: ListenerChannels,
    /// The number of notifications received so far.
    pub(crate) notifications: u64,
    failures: u32,
    /// When its present or last query was sent.
    asked_at: Time,
    /// The connection that will replace the listener, since the listener is outdated.
    pub(super) replacement: Option<Box<ReplacementListener>>,
    /// The earliest time to open a replacement.
    pub(super) succeeds_at: Time,
}

impl Worker {
    /// Returns the worker that owns the listeners of a pool.
    pub(super) fn owner_of_listeners(&self, pool: PoolId) -> WorkerId {
        WorkerId((pool.index() % self.directory.workers()) as u8)
    }

    /// Handles a message about LISTEN.
    pub(super) fn handle_listen_mail(&mut self, mail: Message, now: Time, out: &mut Actions) {
        match mail {
            Message::Ask {
                shared,
                key,
                question,
                channels,
            } => {
                if !self.ask_listener(&shared, &key, question, &channels, now, out) {
                    answer(question, false, out);
                }
            }
            Message::Leave {
                key,
                from,
                channels,
            } => {
                if let Some(listener) = self.listeners.get_mut(&key) {
                    listener.channels.leave(from, &channels, now);
                    self.query_listener(&key, now, out);
                    self.schedule(now);
                }
            }
            Message::Answer { question, granted } => {
                self.listener_answered(question, granted, now, out)
            }
            Message::Notified { key, message } => self.notified(&key, &message, now, out),
            Message::Lost { key, why } => self.end_listening(&key, &why, now, out),
        }
    }

    /// Returns `false` if the listener can't be asked.
    fn ask_listener(
        &mut self,
        shared: &Arc<SharedPool>,
        key: &ListenerKey,
        question: Question,
        channels: &[Channel],
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let most = self.snapshot.config.settings.max_listen_channels as usize;
        if !self.listeners.contains_key(key) {
            if channels.is_empty() {
                // The message that the listener was lost is on its way to the client.
                return false;
            }
            let Some(conn) = self.open_listener(shared, key, now, out) else {
                return false;
            };
            let listener = Listener {
                conn,
                channels: ListenerChannels::new(now),
                notifications: 0,
                failures: 0,
                asked_at: now,
                replacement: None,
                succeeds_at: Time(0),
            };
            self.listeners.insert(key.clone(), listener);
        }
        let Some(listener) = self.listeners.get_mut(key) else {
            return false;
        };
        let asked = listener.channels.ask(question, channels, most).is_ok();
        self.query_listener(key, now, out);
        asked
    }

    fn open_listener(
        &mut self,
        shared: &Arc<SharedPool>,
        key: &ListenerKey,
        now: Time,
        out: &mut Actions,
    ) -> Option<Token> {
        let of_pool = self.listeners.keys().filter(|other| other.pool == key.pool);
        if of_pool.count() >= self.snapshot.config.settings.max_listeners as usize
            || self.shutdown.is_on()
        {
            return None;
        }
        self.open_listening(shared, key, now, out)
    }

    /// Opens a connection to listen, if the caps allow one more.
    pub(super) fn open_listening(
        &mut self,
        shared: &Arc<SharedPool>,
        key: &ListenerKey,
        now: Time,
        out: &mut Actions,
    ) -> Option<Token> {
        let (endpoint, mut credentials) = self.terms_of_login(shared, now)?;
        if !shared.ledger.lock().take_extra_place() {
            return None;
        }
        let parameters = &mut credentials.parameters;
        parameters.retain(|(name, _)| name != b"client_encoding");
        parameters.push((b"client_encoding".to_vec(), key.encoding.to_vec()));
        if parameters
            .iter()
            .all(|(name, _)| name != b"application_name")
        {
            parameters.push((b"application_name".to_vec(), APPLICATION_NAME.into()));
        }
        let listens = Some(key.clone());
        Some(self.begin_server_login(shared, endpoint, credentials, listens, now, out))
    }

    /// Handles the end of a listener's login.
    pub(super) fn listener_ready(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(key) = server.listens.clone() else {
            return;
        };
        server.duty = Duty::Listening;
        server.ask(InternalQuery::Parameters);
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(SETTINGS);
        });
        match self.listeners.get_mut(&key) {
            Some(listener) if listener.conn == conn => listener.channels.logged_in(),
            _ => return self.successor_ready(&key, now, out),
        }
        self.query_listener(&key, now, out);
    }

    /// Sends the listener's next query, if its last one was answered.
    pub(super) fn query_listener(&mut self, key: &ListenerKey, now: Time, out: &mut Actions) {
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        if listener
            .replacement
            .as_ref()
            .is_some_and(|new| new.is_asked())
        {
            return;
        }
        let Some(server) = self.table.server(listener.conn) else {
            return;
        };
        let mut text = Vec::new();
        if listener.channels.next_query(&mut text) {
            listener.asked_at = now;
            server.ask(InternalQuery::Listen);
            out.send_made(listener.conn, |bytes| {
                MessageWriter::new(bytes).query(&text);
            });
            self.schedule(now);
        }
    }

    /// Handles bytes from a listener.
    pub(super) fn listener_bytes(
        &mut self,
        conn: Token,
        bytes: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        let mut at = 0;
        while let Some(server) = self.table.server(conn) {
            let expected = Expected {
                answers: server.replies.is_asked(),
                marks: false,
                describes: false,
                checks: false,
                rows: false,
                tags: false,
            };
            match server.stream.next(bytes, &mut at, expected) {
                Ok(Some(Step::Inspect { start, end })) => {
                    self.listener_message(conn, &bytes[start..end], now, out);
                }
                Ok(Some(Step::InspectHeld)) => {
                    let message = server.stream.held().to_vec();
                    self.listener_message(conn, &message, now, out);
                }
                Ok(Some(Step::Pass { .. } | Step::PassHeld | Step::Overlong(_))) => {}
                Ok(None) => break,
                Err(violation) => return self.server_fault(conn, &violation, now, out),
            }
        }
    }

    fn listener_message(&mut self, conn: Token, message: &[u8], now: Time, out: &mut Actions) {
        match message[0] {
            backend::NOTIFICATION_RESPONSE => self.spread(conn, message, now, out),
            backend::READY_FOR_QUERY => self.listener_query_done(conn, now, out),
            backend::ERROR_RESPONSE => {
                let Some(server) = self.table.server(conn) else {
                    return;
                };
                let Ok(report) = Report::parse(&message[HEADER_LEN..]) else {
                    return;
                };
                if matches!(report.severity, b"FATAL" | b"PANIC") {
                    server.last_words = Some(Words::of(&report));
                    return;
                }
                // ReadyForQuery follows: the flag set here says then that the query has failed.
                server.needs_reset = true;
                let text = String::from_utf8_lossy(report.message).into_owned();
                let subject = self.server_subject(conn);
                out.log(Level::Warning, subject, format!("LISTEN failed: {text}"));
            }
            _ => {}
        }
    }

    fn listener_query_done(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let has_failed = std::mem::take(&mut server.needs_reset);
        match server.replies.ready() {
            Some(Request::Internal(InternalQuery::Listen)) => {}
            Some(Request::Internal(InternalQuery::Succession)) => {
                if let Some(key) = server.listens.clone() {
                    self.succession_answered(&key, has_failed, now, out);
                }
                return;
            }
            Some(_) => return,
            None => {
                let what = "ReadyForQuery that nobody asked for";
                return self.server_fault(conn, &what, now, out);
            }
        }
        let Some(key) = server.listens.clone() else {
            return;
        };
        let Some(listener) = self.listeners.get_mut(&key) else {
            return;
        };
        let answers = if has_failed {
            listener.failures += 1;
            listener.channels.failed()
        } else {
            listener.failures = 0;
            listener.channels.answered()
        };
        let is_hopeless = listener.failures >= FAILURES_MAX;
        for (question, granted) in answers {
            answer(question, granted, out);
        }
        if is_hopeless {
            return self.close_server(conn, "LISTEN failed too often", now, out);
        }
        self.succeed(&key, now, out);
        self.query_listener(&key, now, out);
        self.schedule(now);
    }

    /// Sends a notification to every worker with a client that listens to the channel.
    pub(super) fn spread(&mut self, conn: Token, message: &[u8], now: Time, out: &mut Actions) {
        let key = self
            .table
            .server(conn)
            .and_then(|server| server.listens.clone());
        if key.is_none_or(|key| !self.is_marked_by(&key, conn, message, now, out)) {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let (Some(key), Some(notification)) = (&server.listens, Notification::parse(message))
        else {
            return;
        };
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        listener.notifications += 1;
        let workers = listener.channels.workers_of(notification.channel);
        if workers.is_empty() {
            return;
        }
        let mut message = message.to_vec();
        let holders = self.directory.holders();
        if let Some(pid) = holders.find(&server.endpoint, notification.pid) {
            Notification::set_pid(&mut message, pid);
        }
        let message: Arc<[u8]> = message.into();
        for to in workers.iter() {
            let mail = Message::Notified {
                key: key.clone(),
                message: Arc::clone(&message),
            };
            post(to, mail, out);
        }
    }

    /// Handles a listener that is gone, or whose login has failed.
    pub(super) fn listener_lost(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        key: &ListenerKey,
        why: &str,
        now: Time,
        out: &mut Actions,
    ) {
        let own = self.listeners.get(key).map(|listener| {
            let successor = listener.replacement.as_ref().map(|new| new.conn());
            (listener.conn == conn, successor)
        });
        let (is_listener, successor) = own.unwrap_or_default();
        if is_listener && let Some(mut listener) = self.listeners.remove(key) {
            let why: Arc<str> = why.into();
            // This message goes first: a worker that has it ignores later answers of the listener.
            for to in listener.channels.workers().iter() {
                let (key, why) = (key.clone(), Arc::clone(&why));
                post(to, Message::Lost { key, why }, out);
            }
            for question in listener.channels.unanswered() {
                answer(question, false, out);
            }
        }
        let notes = shared.ledger.lock().give_back_extra_place(now);
        self.deliver(notes, shared, out);
        match successor {
            Some(new) if is_listener => self.close_server(new, why, now, out),
            Some(new) if new == conn => self.successor_lost(key, now, out),
            _ => {}
        }
    }

    /// Closes listeners that no client has used for a while, and listeners that don't answer.
    pub(super) fn check_listeners(&mut self, now: Time, out: &mut Actions) {
        let over: Vec<(Token, &str)> = self
            .listeners
            .values()
            .filter_map(|listener| {
                let (at, why) = self.end_of_listener(listener)?;
                (at <= now).then_some((listener.conn, why))
            })
            .collect();
        for (conn, why) in over {
            self.close_server(conn, why, now, out);
        }
        self.open_successors(now, out);
    }

    /// Returns when the first listener has to be closed.
    pub(super) fn first_listener_deadline(&self) -> Option<Time> {
        if self.are_listeners_outdated() {
            return Some(Time(0));
        }
        let ends = self.listeners.values();
        ends.filter_map(|listener| Some(self.end_of_listener(listener)?.0))
            .min()
    }

    fn end_of_listener(&self, listener: &Listener) -> Option<(Time, &'static str)> {
        let settings = &self.snapshot.config.settings;
        if let Some(since) = listener.channels.idle_since() {
            let at = since.after(settings.listener_idle_timeout.0);
            return Some((at, "nobody listens any more"));
        }
        if let Some(at) = listener.replacement.as_ref().and_then(|new| new.ends_at()) {
            return Some((at, OUTDATED));
        }
        let patience = settings.listener_timeout.0;
        let is_asked = listener.channels.is_asked() && patience > 0;
        is_asked.then(|| (listener.asked_at.after(patience), "listener_timeout"))
    }
}

fn answer(question: Question, granted: bool, out: &mut Actions) {
    post(question.worker, Message::Answer { question, granted }, out);
}

pub(super) fn post(to: WorkerId, mail: Message, out: &mut Actions) {
    let mail = Mail::Listen(Box::new(mail));
    out.list.push(Action::Mail { to, mail });
}
