//! A new listener takes the place of one that is out of date (RECONNECT), and no client notices.
//!
//! ```text
//! LogsIn -> Listens -> Marked -> the old one is closed
//! ```
//!
//! The new one logs in and listens to all channels of the old one, and both to a channel of our own. Then it
//! notifies that channel. All listeners of a database hear in the same order, that of the commits: so what comes
//! before this mark is told by the old one, and what comes behind it by the new one. Meanwhile nothing else is asked
//! of either. Should the mark not come, they are connected to different servers, and clients must know that they
//! may have missed something.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::{Worker, operator_orders::OUTDATED};
use crate::{
    Actions, Time, Token,
    backend::{Duty, InternalQuery},
    listen::{ListenerKey, Notification},
};

/// The channel of the mark. Only what the new listener itself notifies there is one.
const MARK: &[u8] = b"pgweir_succession";
/// How long the old one may take to listen, and the mark to come, in microseconds.
const PATIENCE: u64 = 5_000_000;
/// How long to wait before another one is opened in place of one that could not take over, in microseconds.
const PAUSE: u64 = 1_000_000;

/// The connection that takes a listener's place.
#[derive(Debug)]
pub(crate) struct ReplacementListener {
    conn: Token,
    stage: Stage,
    /// When it came to this stage.
    since: Time,
    /// The old one has told the mark.
    old_is_marked: bool,
    /// The new one has told the mark.
    new_is_marked: bool,
    /// What the new one has told since then.
    notifications: Vec<Arc<[u8]>>,
    /// The bytes of that.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    LogsIn,
    /// It has logged in.
    Ready,
    /// So many of the two have yet to say that they listen.
    Listens(u8),
    /// It has notified.
    Marked,
}

impl ReplacementListener {
    /// Is nothing else to be asked of the two?
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Listens(_) | Stage::Marked)
    }

    /// When it has taken too long.
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.is_asked().then(|| self.since.after(PATIENCE))
    }

    pub(super) fn conn(&self) -> Token {
        self.conn
    }
}

impl Worker {
    /// A listener is out of date. `true` if it stays until another one has taken over.
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
            // Looked after at the next tick, as long as it takes.
            self.schedule(now);
        }
        is_successor || is_listening
    }

    /// Opens connections that are to take the places of listeners that are out of date.
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
            if terms.is_none_or(|(new, _)| new != endpoint) || self.shutdown.is_some() {
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

    /// Are there any that are out of date?
    pub(super) fn are_listeners_outdated(&self) -> bool {
        self.listeners.values().any(|listener| {
            matches!(self.table.look(listener.conn), Some(super::Conn::Server(server)) if server.retire.is_some())
        })
    }

    /// A connection has logged in that is to take a listener's place.
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

    /// If the old one is asked nothing, both are made to listen.
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

    /// One of the two has answered.
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

    /// One of two listeners has heard this. `true` if it is to be told now.
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

    /// The new one is the listener from here on.
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

    /// A connection that was to take a listener's place is gone. What it was to tell nobody else will, if the old
    /// one has left it to it.
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
