//! Listeners: the server connections that run LISTEN for the clients of a pool, on the worker that owns them.
//!
//! This module owns the listeners of a worker, which channels each of them listens to, and which workers want these
//! channels. A listener is opened for the first client that listens, and closed some time after the last one has gone.
//!
//! Input: the requests of workers whose clients listen ([`ListenerRequest`]), and the events of listener connections.
//! Output: queries to PostgreSQL, answers and notifications to the workers ([`ListenerEvent`]), and effects: open a
//! connection, close one.

mod messages;
mod replacement;
mod resumption;

use std::{collections::BTreeMap, sync::Arc};

use pgweir_wire::MessageWriter;

use self::{
    replacement::Replacement,
    resumption::{Interrupted, Interruption, give_up},
};
use crate::{
    Actions, Directory, SharedPool, Time, Token, WorkerId,
    backend::{Credentials, Duty, InternalQuery, OUTDATED},
    connections::Connections,
    effect::{Effect, Env},
    listen::{
        Channel, ListenerChannels, ListenerEvent, ListenerKey, ListenerOpening, ListenerRequest,
        Notification, Opened, OpeningPurpose, PendingRequest,
    },
    mail::Mail,
    pool::PoolId,
    pooling::deliver,
};

/// Consecutive queries that may fail before a listener is closed.
const FAILURES_MAX: u32 = 3;
/// A listener's application_name, unless its database's entry sets another one.
const APPLICATION_NAME: &str = "pgweir listener";

/// Overrides the settings of the role and the database: a listener is idle most of the time, and its queries must not
/// fail. A commit need not wait for the disk, since no write of a listener has to survive a crash.
const SETTINGS: &[u8] =
    b"SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
    WHERE name OPERATOR(pg_catalog.=) ANY ('{statement_timeout,lock_timeout,transaction_timeout,\
    idle_session_timeout,synchronous_commit}'::pg_catalog.text[])";

const NO_CONNECTION: &str = "the connection of a listener";
const NO_KEY: &str = "the key of a listener connection";

/// The listeners that a worker owns.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// The listeners by key, in a fixed order.
    by_key: BTreeMap<ListenerKey, Listener>,
    /// The listeners that were lost in an outage, and have no connection yet.
    interrupted: BTreeMap<ListenerKey, Interrupted>,
}

/// A listener: one connection, and the channels that it listens to.
#[derive(Debug)]
pub(crate) struct Listener {
    conn: Token,
    channels: ListenerChannels,
    /// The number of notifications received so far.
    notifications: u64,
    failures: u32,
    /// The time at which the present or last query was sent.
    asked_at: Time,
    /// The connection that will replace the listener, since the listener is outdated.
    replacement: Option<Box<Replacement>>,
    /// The earliest time to open a replacement.
    replaces_at: Time,
    /// The outage in which the listener was lost, until it listens again.
    interruption: Option<Interruption>,
}

/// Returns the worker that owns the listeners of a pool.
pub(crate) fn owner(directory: &Directory, pool: PoolId) -> WorkerId {
    WorkerId((pool.index() % directory.workers()) as u8)
}

/// Completes the credentials with which a listener logs in.
pub(crate) fn complete_credentials(key: &ListenerKey, credentials: &mut Credentials) {
    let parameters = &mut credentials.parameters;
    parameters.retain(|(name, _)| name != b"client_encoding");
    parameters.push((b"client_encoding".to_vec(), key.encoding.to_vec()));
    credentials.name_application(APPLICATION_NAME);
}

impl Listeners {
    /// Returns the listeners, for SHOW LISTENERS.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ListenerKey, &Listener)> {
        self.by_key.iter()
    }

    /// Handles the request of a worker whose clients listen.
    pub(crate) fn handle(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        request: ListenerRequest,
        out: &mut Actions,
    ) -> Option<Effect> {
        match request {
            ListenerRequest::Ask {
                shared,
                key,
                request,
                channels,
            } => {
                if let Some(listener) = self.by_key.get_mut(&key) {
                    listener.ask(env, connections, request, &channels, out);
                    return None;
                }
                if let Some(lost) = self.interrupted.get_mut(&key) {
                    lost.ask(env, request, &channels, out);
                    return None;
                }
                // A request without channels comes from a client that listens already: the message that the listener
                // was lost is on its way to it.
                if channels.is_empty() || self.are_too_many(env, key.pool) {
                    answer(request, false, out);
                    return None;
                }
                let purpose = OpeningPurpose::First { request, channels };
                return Some(Effect::open_listener(ListenerOpening {
                    shared,
                    key,
                    purpose,
                }));
            }
            ListenerRequest::Leave {
                key,
                from,
                channels,
            } => {
                if let Some(listener) = self.by_key.get_mut(&key) {
                    listener.channels.leave(from, &channels, env.now);
                    listener.query(env, connections, out);
                    connections.schedule(env.now);
                } else if let Some(lost) = self.interrupted.get_mut(&key) {
                    lost.channels.leave(from, &channels, env.now);
                }
            }
        }
        None
    }

    fn are_too_many(&self, env: &Env<'_>, pool: PoolId) -> bool {
        let of_pool = self.by_key.keys().filter(|other| other.pool == pool);
        of_pool.count() >= env.snapshot.config.settings.max_listeners as usize
    }

    /// Handles the outcome of [`Effect::open_listener`].
    pub(crate) fn opened(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        opening: ListenerOpening,
        opened: Opened,
        out: &mut Actions,
    ) -> Option<Effect> {
        match opening.purpose {
            OpeningPurpose::First { request, channels } => {
                let Opened::Connecting(conn) = opened else {
                    answer(request, false, out);
                    return None;
                };
                let listener = self
                    .by_key
                    .entry(opening.key)
                    .or_insert(Listener::new(conn, env.now));
                debug_assert_eq!(listener.conn, conn, "one listener for a key");
                listener.ask(env, connections, request, &channels, out);
                None
            }
            OpeningPurpose::Resumption => self.resumption_opened(opening.key, opened, env.now),
            OpeningPurpose::Replacement { .. } => {
                let Some(listener) = self.by_key.get_mut(&opening.key) else {
                    out.report_missing("a listener that is about to be replaced");
                    return None;
                };
                listener.replacement_opened(opened, env.now)
            }
        }
    }

    /// Handles the end of a listener's login.
    pub(crate) fn logged_in(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let Some(server) = connections.server(conn) else {
            out.report_missing(NO_CONNECTION);
            return None;
        };
        server.begin_listening();
        let Some(listener) =
            (server.purpose().listener_key()).and_then(|key| self.by_key.get_mut(key))
        else {
            out.report_missing(NO_KEY);
            return None;
        };
        send_query(connections, conn, InternalQuery::Parameters, SETTINGS, out);
        if listener.conn != conn {
            return listener.replacement_logged_in(env, connections, out);
        }
        listener.channels.logged_in();
        listener.query(env, connections, out);
        None
    }

    /// Handles the end of a listener connection that was removed from the table, or whose login has failed.
    pub(crate) fn lost(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        (conn, key, shared): (Token, &ListenerKey, &Arc<SharedPool>),
        why: &str,
        out: &mut Actions,
    ) -> Option<Effect> {
        let mut effect = None;
        let is_listener = |listener: &&mut Listener| listener.conn == conn;
        let is_current = self.by_key.get_mut(key).as_ref().is_some_and(is_listener);
        if is_current && let Some(mut listener) = self.by_key.remove(key) {
            let replacement = listener.replacement.take();
            let why: Arc<str> = why.into();
            if let Some(mut listener) = self.interrupt(env, (key, shared), &why, listener) {
                give_up(key, &mut listener.channels, &why, out);
            }
            connections.schedule(env.now);
            let why = "the listener that it was to replace is lost";
            effect = replacement.map(|new| Effect::close(new.conn(), why));
        }
        let notes = shared.ledger.lock().give_back_extra_place(env.now);
        deliver(env, &notes, shared, out);
        if let Some(listener) = self.by_key.get_mut(key)
            && listener.is_replaced_by(conn)
        {
            effect = listener.replacement_lost(env, connections, out);
        }
        effect
    }

    /// Returns whether an outdated listener, or its replacement, stays until the replacement has taken over.
    pub(crate) fn stays_until_replaced(
        &self,
        connections: &mut Connections,
        conn: Token,
        why: &str,
        now: Time,
    ) -> bool {
        let Some(server) = connections.server(conn).filter(|_| why == OUTDATED) else {
            return false;
        };
        let key = server.purpose().listener_key();
        let listener = key.and_then(|key| self.by_key.get(key));
        let is_listening = matches!(*server.duty(), Duty::Listening { .. });
        let stays = listener.is_some_and(|listener| is_listening || listener.is_replaced_by(conn));
        if stays {
            // Each tick checks the replacement, as long as it takes.
            connections.schedule(now);
        }
        stays
    }

    /// Closes listeners that no client has used for a while, and listeners that don't answer. Opens replacements for
    /// outdated ones.
    pub(crate) fn check(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let mut effects = self.resume(env, out);
        for (key, listener) in &self.by_key {
            match listener.end(env) {
                Some((at, why)) if at <= env.now => {
                    effects.push(Effect::close(listener.conn, why));
                }
                _ => effects.extend(listener.open_replacement(key, connections, env.now)),
            }
        }
        effects
    }

    /// Returns when the first listener has to be closed or replaced.
    pub(crate) fn first_deadline(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
    ) -> Option<Time> {
        let deadline = |listener: &Listener| {
            let is_retired = connections
                .server(listener.conn)
                .is_some_and(|server| server.retirement.is_required());
            match is_retired {
                true => Some(Time(0)),
                false => Some(listener.end(env)?.0),
            }
        };
        let deadlines = self.by_key.values().filter_map(deadline);
        deadlines.chain(self.resumes_at()).min()
    }
}

impl Listener {
    fn new(conn: Token, now: Time) -> Self {
        Self {
            conn,
            channels: ListenerChannels::new(now),
            notifications: 0,
            failures: 0,
            asked_at: now,
            replacement: None,
            replaces_at: Time(0),
            interruption: None,
        }
    }

    /// Returns the connection.
    pub(crate) fn conn(&self) -> Token {
        self.conn
    }

    /// Returns the channels.
    pub(crate) fn channels(&self) -> &ListenerChannels {
        &self.channels
    }

    /// Returns the number of notifications received so far.
    pub(crate) fn notifications(&self) -> u64 {
        self.notifications
    }

    /// Notes a request, and the channels that the listener has to listen to before it answers.
    fn ask(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        request: PendingRequest,
        channels: &[Channel],
        out: &mut Actions,
    ) {
        let most = env.snapshot.config.settings.max_listen_channels as usize;
        let asked = self.channels.ask(request, channels, most);
        self.query(env, connections, out);
        if asked.is_err() {
            answer(request, false, out);
        }
    }

    /// Sends the next query, if the last one was answered.
    fn query(&mut self, env: &Env<'_>, connections: &mut Connections, out: &mut Actions) {
        if self.replacement.as_ref().is_some_and(|new| new.is_asked()) {
            return;
        }
        let mut text = Vec::new();
        if self.channels.next_query(&mut text) {
            self.asked_at = env.now;
            send_query(connections, self.conn, InternalQuery::Listen, &text, out);
            connections.schedule(env.now);
        }
    }

    fn query_answered(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        has_failed: bool,
        out: &mut Actions,
    ) -> Option<Effect> {
        let answers = if has_failed {
            self.failures += 1;
            self.channels.failed()
        } else {
            self.failures = 0;
            self.channels.answered()
        };
        for (request, granted) in answers {
            answer(request, granted, out);
        }
        if self.failures >= FAILURES_MAX {
            return Some(Effect::close(conn, "LISTEN failed too often"));
        }
        self.begin_replacement(env, connections, out);
        self.query(env, connections, out);
        connections.schedule(env.now);
        None
    }

    /// Sends a notification to every worker with a client that listens to the channel.
    fn forward(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        key: &ListenerKey,
        message: &[u8],
        out: &mut Actions,
    ) {
        let Some(notification) = Notification::parse(message) else {
            return;
        };
        self.notifications += 1;
        let workers = self.channels.workers_of(notification.channel);
        if workers.is_empty() {
            return;
        }
        let Some(server) = connections.server(self.conn) else {
            return out.report_missing(NO_CONNECTION);
        };
        let mut message = message.to_vec();
        let holders = env.directory.holders();
        if let Some(pid) = holders.find(server.link.endpoint(), notification.pid) {
            Notification::set_pid(&mut message, pid);
        }
        let message: Arc<[u8]> = message.into();
        for to in workers.iter() {
            let event = ListenerEvent::Notified {
                key: key.clone(),
                message: Arc::clone(&message),
            };
            post_event(to, event, out);
        }
    }

    /// Returns when the listener has to be closed, and why.
    fn end(&self, env: &Env<'_>) -> Option<(Time, &'static str)> {
        let settings = &env.snapshot.config.settings;
        if let Some(since) = self.channels.idle_since() {
            let at = since.after(settings.listener_idle_timeout.0);
            return Some((at, "no client listens any more"));
        }
        if let Some(at) = self.replacement.as_ref().and_then(|new| new.ends_at()) {
            return Some((at, OUTDATED));
        }
        let patience = settings.listener_timeout.0;
        let is_asked = self.channels.is_asked() && patience > 0;
        is_asked.then(|| (self.asked_at.after(patience), "listener_timeout"))
    }
}

fn send_query(
    connections: &mut Connections,
    conn: Token,
    query: InternalQuery,
    text: &[u8],
    out: &mut Actions,
) {
    let Some(server) = connections.server(conn) else {
        return out.report_missing(NO_CONNECTION);
    };
    server.ask(query);
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).query(text);
    });
}

fn answer(request: PendingRequest, granted: bool, out: &mut Actions) {
    let event = ListenerEvent::Answer { request, granted };
    post_event(request.worker, event, out);
}

fn post_event(to: WorkerId, event: ListenerEvent, out: &mut Actions) {
    let mail = Mail::ListenerEvent(Box::new(event));
    out.mail(to, mail);
}

/// Returns the key of the listener that a connection was opened for.
fn key_of<'c>(
    connections: &'c mut Connections,
    conn: Token,
    out: &mut Actions,
) -> Option<&'c ListenerKey> {
    let key = connections.server(conn)?.purpose().listener_key();
    if key.is_none() {
        out.report_missing(NO_KEY);
    }
    key
}
