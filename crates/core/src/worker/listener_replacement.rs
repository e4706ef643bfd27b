//! Replaces an outdated listener (RECONNECT) without an effect on clients.
//!
//! ```text
//! LogsIn -> Listens -> Marked -> the old one is closed
//! ```
//!
//! The new listener logs in and listens to all channels of the old one. Both listen to a channel of pgweir, and the
//! new one notifies it: the mark. All listeners of a database receive notifications in the same order, that of the
//! commits. So the old listener forwards what comes before the mark, and the new one what comes after it. Meanwhile
//! neither gets other queries. If the mark does not arrive, the two are connected to different servers, and the clients
//! must learn that they may have missed notifications.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::Worker;
use crate::{
    Actions, Time, Token,
    backend::{Duty, InternalQuery, OUTDATED},
    listen::{ListenerKey, Notification},
};

/// The channel of the mark. Only a notification that the new listener itself has sent is a mark.
const MARK: &[u8] = b"pgweir_succession";
/// How long the old listener may take to listen, and the mark to arrive, in microseconds.
const PATIENCE: u64 = 5_000_000;
/// How long to wait before the next attempt after a replacement has failed, in microseconds.
const PAUSE: u64 = 1_000_000;

/// The connection that replaces a listener.
#[derive(Debug)]
pub(crate) struct ReplacementListener {
    conn: Token,
    stage: Stage,
    /// When this stage began.
    since: Time,
    /// Whether the old listener has received the mark.
    old_is_marked: bool,
    /// Whether the new listener has received the mark.
    new_is_marked: bool,
    /// The notifications that the new listener has received since the mark.
    notifications: Vec<Arc<[u8]>>,
    /// Their size in bytes.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    LogsIn,
    /// The new listener has logged in.
    Ready,
    /// This many of the two listeners have yet to confirm their LISTEN.
    Listens(u8),
    /// The new listener has sent the mark.
    Marked,
}

impl ReplacementListener {
    /// Returns whether the two listeners may get no other query.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Listens(_) | Stage::Marked)
    }

    /// Returns when the replacement has taken too long.
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.is_asked().then(|| self.since.after(PATIENCE))
    }

    pub(super) fn conn(&self) -> Token {
        self.conn
    }
}

impl Worker {
    /// Returns whether an outdated listener, or its replacement, stays until the replacement has taken over.
    pub(super) fn is_succeeded(&mut self, conn: Token, why: &str, now: Time) -> bool {
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        let Some(key) = server.listens.clone().filter(|_| why == OUTDATED) else {
            return false;
        };
        let is_listening = matches!(server.duty, Duty::Listening);
        let Some(listener) = self.listeners.get(&key) else {
            return false;
        };
        let is_successor = listener
            .replacement
            .as_ref()
            .is_some_and(|new| new.conn == conn);
        if is_successor || is_listening {
            // Each tick checks the replacement, as long as it takes.
            self.schedule(now);
        }
        is_successor || is_listening
    }

    /// Closes an outdated listener, now or when its replacement has taken over.
    pub(super) fn replace_listener(
        &mut self,
        conn: Token,
        why: &'static str,
        now: Time,
        out: &mut Actions,
    ) {
        if !self.is_succeeded(conn, why, now) {
            self.close_server(conn, why, now, out);
        }
    }

    /// Opens replacements for outdated listeners.
    pub(super) fn open_successors(&mut self, now: Time, out: &mut Actions) {
        let outdated = self
            .listeners
            .iter()
            .filter(|(_, listener)| listener.replacement.is_none() && listener.succeeds_at <= now);
        let keys: Vec<_> = outdated
            .map(|(key, listener)| (key.clone(), listener.conn))
            .collect();
        for (key, conn) in keys {
            let Some(server) = self.table.server(conn) else {
                continue;
            };
            if server.retire != Some(OUTDATED) {
                continue;
            }
            let (shared, endpoint) = (Arc::clone(&server.shared), Arc::clone(&server.endpoint));
            let terms = self.terms_of_login(&shared, now);
            if terms.is_none_or(|(new, _)| new != endpoint) || self.shutdown.is_on() {
                self.close_server(conn, OUTDATED, now, out);
                continue;
            }
            let opened = self.open_listening(&shared, &key, now, out);
            if let Some(listener) = self.listeners.get_mut(&key) {
                listener.succeeds_at = now.after(PAUSE);
                listener.replacement =
                    opened.map(|conn| Box::new(ReplacementListener::new(conn, now)));
            }
        }
    }

    /// Returns whether any listener is outdated.
    pub(super) fn are_listeners_outdated(&self) -> bool {
        self.listeners.values().any(|listener| {
            matches!(self.table.look(listener.conn), Some(super::Conn::Server(server)) if server.retire.is_some())
        })
    }

    /// Handles the end of a replacement's login.
    pub(super) fn successor_ready(&mut self, key: &ListenerKey, now: Time, out: &mut Actions) {
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        let Some(new) = &mut listener.replacement else {
            return;
        };
        (new.stage, new.since) = (Stage::Ready, now);
        let (old, new) = (listener.conn, new.conn);
        let mut remote = |conn| {
            self.table
                .server(conn)
                .and_then(|own| Some(own.addresses?.1))
        };
        if remote(old) != remote(new) {
            return self.close_server(old, OUTDATED, now, out);
        }
        self.succeed(key, now, out);
    }

    /// Makes both listeners run LISTEN, if the old one has no query under way.
    pub(super) fn succeed(&mut self, key: &ListenerKey, now: Time, out: &mut Actions) {
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        let Some(new) = &mut listener.replacement else {
            return;
        };
        if new.stage != Stage::Ready || listener.channels.is_asked() {
            return;
        }
        (new.stage, new.since) = (Stage::Listens(2), now);
        let mut text = Vec::new();
        listener.channels.listen_again(&mut text);
        let (old, new) = (listener.conn, new.conn);
        self.ask_for_mark(new, &[&text, &listen(MARK)[..]].concat(), out);
        self.ask_for_mark(old, &listen(MARK), out);
        self.schedule(now);
    }

    fn ask_for_mark(&mut self, conn: Token, text: &[u8], out: &mut Actions) {
        if let Some(server) = self.table.server(conn) {
            server.ask(InternalQuery::Succession);
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).query(text);
            });
        }
    }

    /// Handles an answer of one of the two listeners.
    pub(super) fn succession_answered(
        &mut self,
        key: &ListenerKey,
        has_failed: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let listener = self.listeners.get_mut(key);
        let Some(new) = listener.and_then(|listener| listener.replacement.as_mut()) else {
            return;
        };
        let conn = new.conn;
        if has_failed {
            return self.close_server(conn, "it could not take a listener's place", now, out);
        }
        match new.stage {
            Stage::Listens(1) => {
                (new.stage, new.since) = (Stage::Marked, now);
                self.ask_for_mark(conn, &[b"NOTIFY ", MARK].concat(), out);
            }
            Stage::Listens(left) => new.stage = Stage::Listens(left - 1),
            _ => {}
        }
    }

    /// Handles a notification of one of the two listeners. Returns `true` if it has to be forwarded now.
    pub(super) fn is_marked_by(
        &mut self,
        key: &ListenerKey,
        conn: Token,
        message: &[u8],
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(listener) = self.listeners.get_mut(key) else {
            return false;
        };
        let Some(new) = &mut listener.replacement else {
            return listener.conn == conn;
        };
        let is_old = listener.conn == conn;
        let of_successor = self.table.server(new.conn).and_then(|own| own.key.as_ref());
        let pid = of_successor.map(|key| key.pid);
        let notification = Notification::parse(message);
        let is_mark = notification.is_some_and(|it| it.channel == MARK && Some(it.pid) == pid);
        if is_mark {
            new.old_is_marked |= is_old;
            new.new_is_marked |= !is_old;
            if new.old_is_marked && new.new_is_marked {
                self.take_place(key, now, out);
            }
            return false;
        }
        if is_old {
            return !new.old_is_marked;
        }
        if new.new_is_marked {
            new.bytes += message.len();
            new.notifications.push(message.into());
            if new.bytes > most {
                let old = listener.conn;
                self.close_server(
                    old,
                    "too much was notified while another one took over",
                    now,
                    out,
                );
            }
        }
        false
    }

    /// Makes the replacement the listener.
    fn take_place(&mut self, key: &ListenerKey, now: Time, out: &mut Actions) {
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        let Some(new) = listener.replacement.take() else {
            return;
        };
        let old = std::mem::replace(&mut listener.conn, new.conn);
        let is_wanted = !listener.channels.workers_of(MARK).is_empty();
        for message in new.notifications {
            self.spread(new.conn, &message, now, out);
        }
        if !is_wanted {
            self.ask_for_mark(new.conn, &[b"UNLISTEN ", MARK].concat(), out);
        }
        self.close_server(old, OUTDATED, now, out);
        self.query_listener(key, now, out);
    }

    /// Handles a lost replacement. If the old listener has received the mark already, it is closed too: the
    /// notifications after the mark are lost.
    pub(super) fn successor_lost(&mut self, key: &ListenerKey, now: Time, out: &mut Actions) {
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        let lost = listener.replacement.take();
        listener.succeeds_at = now.after(PAUSE);
        let old = listener.conn;
        if lost.is_some_and(|new| new.old_is_marked) {
            return self.close_server(old, OUTDATED, now, out);
        }
        self.query_listener(key, now, out);
        self.schedule(now);
    }
}

impl ReplacementListener {
    fn new(conn: Token, now: Time) -> Self {
        Self {
            conn,
            stage: Stage::LogsIn,
            since: now,
            old_is_marked: false,
            new_is_marked: false,
            notifications: Vec::new(),
            bytes: 0,
        }
    }
}

fn listen(channel: &[u8]) -> Vec<u8> {
    [b"LISTEN ", channel].concat()
}
