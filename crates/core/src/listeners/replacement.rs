//! Replaces an outdated listener (RECONNECT) without an effect on clients.
//!
//! ```text
//! LogsIn -> Ready -> Listens -> Marked -> the outdated one is closed
//! ```
//!
//! The new listener logs in and listens to all channels of the outdated one. Both listen to a channel of pgweir, and
//! the new one notifies it: the mark. All listeners of a database receive notifications in the same order, that of the
//! commits. So the outdated listener forwards the notifications before the mark, and the new one those after it.
//! Meanwhile neither gets other queries. If the mark does not arrive, the two are connected to different servers, and
//! the clients must learn that they may have missed notifications.

use std::sync::Arc;

use super::{Listener, NO_CONNECTION, send_query};
use crate::{
    Actions, Time, Token,
    backend::{InternalQuery, OUTDATED},
    connections::{Conn, Connections},
    effect::{Effect, Env},
    listen::{ListenerKey, ListenerOpening, Notification, Opened, OpeningPurpose},
};

/// The channel of the mark. Only a notification that the new listener itself has sent is a mark.
const MARK: &[u8] = b"pgweir_succession";
/// The longest time that the outdated listener may take to listen, and the mark to arrive, in microseconds.
const PATIENCE: u64 = 5_000_000;
/// The time between a failed replacement and the next attempt, in microseconds.
const PAUSE: u64 = 1_000_000;

/// The connection that replaces a listener.
#[derive(Debug)]
pub(super) struct Replacement {
    conn: Token,
    stage: Stage,
    /// The time at which this stage began.
    since: Time,
    /// Whether the outdated listener has received the mark.
    outdated_is_marked: bool,
    /// Whether the new listener has received the mark.
    new_is_marked: bool,
    /// The notifications that the new listener has received since the mark.
    notifications: Vec<Arc<[u8]>>,
    /// The size of these notifications in bytes.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    LogsIn,
    /// The new listener has logged in.
    Ready,
    /// The number of the two listeners that have not confirmed their LISTEN yet.
    Listens(u8),
    /// The new listener has sent the mark.
    Marked,
}

/// The outcome of a notification to a listener or to its replacement.
pub(super) enum Received {
    /// The listener has received the notification, which is forwarded now.
    ByListener,
    /// There is nothing to do: another connection forwards the notification, or pgweir forwards it later.
    ByOther,
    /// The replacement has received more than `notification_backlog` bytes since the mark.
    TooMuch,
    /// Both have received the mark: this replacement becomes the listener.
    LastMark(Box<Replacement>),
}

impl Replacement {
    fn new(conn: Token, now: Time) -> Self {
        Self {
            conn,
            stage: Stage::LogsIn,
            since: now,
            outdated_is_marked: false,
            new_is_marked: false,
            notifications: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the connection.
    pub(super) fn conn(&self) -> Token {
        self.conn
    }

    /// Returns whether the two listeners may get no other query.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Listens(_) | Stage::Marked)
    }

    /// Returns the time at which the replacement has taken too long.
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.is_asked().then(|| self.since.after(PATIENCE))
    }
}

impl Listener {
    /// Returns whether this connection is about to replace the listener.
    pub(super) fn is_replaced_by(&self, conn: Token) -> bool {
        (self.replacement.as_ref()).is_some_and(|new| new.conn == conn)
    }

    /// Asks for a replacement if the listener is outdated.
    pub(super) fn open_replacement(
        &self,
        key: &ListenerKey,
        connections: &Connections,
        now: Time,
    ) -> Option<Effect> {
        if self.replacement.is_some() || self.replaces_at > now {
            return None;
        }
        let Some(Conn::Server(server)) = connections.get(self.conn) else {
            debug_assert!(false, "{NO_CONNECTION}");
            return None;
        };
        if server.retirement.reason() != Some(OUTDATED) {
            return None;
        }
        let endpoint = Arc::clone(server.link.endpoint());
        Some(Effect::open_listener(ListenerOpening {
            shared: Arc::clone(&server.shared),
            key: key.clone(),
            purpose: OpeningPurpose::Replacement { endpoint },
        }))
    }

    /// Notes the replacement. If none can be opened, the listener is closed.
    pub(super) fn replacement_opened(&mut self, opened: Opened, now: Time) -> Option<Effect> {
        let conn = match opened {
            Opened::Impossible => {
                return Some(Effect::close(self.conn, OUTDATED));
            }
            Opened::Connecting(conn) => Some(conn),
            Opened::CapReached => None,
        };
        self.replaces_at = now.after(PAUSE);
        self.replacement = conn.map(|conn| Box::new(Replacement::new(conn, now)));
        None
    }

    /// Handles the end of a replacement's login.
    pub(super) fn replacement_logged_in(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        out: &mut Actions,
    ) -> Option<Effect> {
        let Some(new) = &mut self.replacement else {
            out.report_missing("the replacement of a listener");
            return None;
        };
        (new.stage, new.since) = (Stage::Ready, env.now);
        let mut remote = |conn| Some(connections.server(conn)?.link.addresses()?.1);
        if remote(self.conn) != remote(new.conn) {
            return Some(Effect::close(self.conn, OUTDATED));
        }
        self.begin_replacement(env, connections, out);
        None
    }

    /// Makes both listeners run LISTEN, if the replacement has logged in and the listener has no query under way.
    pub(super) fn begin_replacement(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        out: &mut Actions,
    ) {
        let Some(new) = &mut self.replacement else {
            return;
        };
        if new.stage != Stage::Ready || self.channels.is_asked() {
            return;
        }
        (new.stage, new.since) = (Stage::Listens(2), env.now);
        let mut text = Vec::new();
        self.channels.listen_again(&mut text);
        text.extend_from_slice(&listen(MARK));
        send_query(connections, new.conn, InternalQuery::Succession, &text, out);
        let text = listen(MARK);
        send_query(
            connections,
            self.conn,
            InternalQuery::Succession,
            &text,
            out,
        );
        connections.schedule(env.now);
    }

    /// Handles an answer of one of the two listeners.
    pub(super) fn replacement_answered(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        has_failed: bool,
        out: &mut Actions,
    ) -> Option<Effect> {
        // The replacement may have become the listener, or may be lost.
        let new = self.replacement.as_mut()?;
        if has_failed {
            let why = "it could not take a listener's place";
            return Some(Effect::close(new.conn, why));
        }
        match new.stage {
            Stage::Listens(1) => {
                (new.stage, new.since) = (Stage::Marked, env.now);
                let text = [b"NOTIFY ", MARK].concat();
                send_query(connections, new.conn, InternalQuery::Succession, &text, out);
            }
            Stage::Listens(left) => new.stage = Stage::Listens(left - 1),
            _ => {}
        }
        None
    }

    /// Handles a notification to this connection: the listener or its replacement.
    pub(super) fn received(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        message: &[u8],
    ) -> Received {
        let most = env.snapshot.config.settings.notification_backlog as usize;
        let is_listener = self.conn == conn;
        let Some(mut new) = self.replacement.take() else {
            return match is_listener {
                true => Received::ByListener,
                false => Received::ByOther,
            };
        };
        let of_new = connections.server(new.conn).and_then(|own| own.link.key());
        let pid = of_new.map(|key| key.pid);
        let notification = Notification::parse(message);
        if notification.is_some_and(|it| it.channel == MARK && Some(it.pid) == pid) {
            new.outdated_is_marked |= is_listener;
            new.new_is_marked |= !is_listener;
            if new.outdated_is_marked && new.new_is_marked {
                return Received::LastMark(new);
            }
            self.replacement = Some(new);
            return Received::ByOther;
        }
        let mut received = Received::ByOther;
        if is_listener && !new.outdated_is_marked {
            received = Received::ByListener;
        } else if !is_listener && new.new_is_marked {
            new.bytes += message.len();
            new.notifications.push(message.into());
            if new.bytes > most {
                received = Received::TooMuch;
            }
        }
        self.replacement = Some(new);
        received
    }

    /// Makes the replacement the listener. Returns the outdated connection.
    pub(super) fn replace(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        key: &ListenerKey,
        new: Replacement,
        out: &mut Actions,
    ) -> Token {
        let outdated = std::mem::replace(&mut self.conn, new.conn);
        let is_wanted = !self.channels.workers_of(MARK).is_empty();
        for message in new.notifications {
            self.forward(env, connections, key, &message, out);
        }
        if !is_wanted {
            let text = [b"UNLISTEN ", MARK].concat();
            send_query(connections, new.conn, InternalQuery::Succession, &text, out);
        }
        self.query(env, connections, out);
        outdated
    }

    /// Handles a lost replacement. If the outdated listener has received the mark already, it is closed too: the
    /// notifications after the mark are lost.
    pub(super) fn replacement_lost(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        out: &mut Actions,
    ) -> Option<Effect> {
        let lost = self.replacement.take();
        self.replaces_at = env.now.after(PAUSE);
        if lost.is_some_and(|new| new.outdated_is_marked) {
            return Some(Effect::close(self.conn, OUTDATED));
        }
        self.query(env, connections, out);
        connections.schedule(env.now);
        None
    }
}

fn listen(channel: &[u8]) -> Vec<u8> {
    [b"LISTEN ", channel].concat()
}
