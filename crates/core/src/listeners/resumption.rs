//! Listeners that are lost in an outage, while `outage_hold` lets their clients stay.
//!
//! ```text
//! lost -> waits -> logs in -> listens again -> the clients get a notice
//! ```
//!
//! The channels of the lost listener, and the requests that it has not answered, wait for the next connection. That
//! connection listens to all channels before it answers any request, so a client that waits for an answer listens again
//! before it gets its ReadyForQuery. Notifications that were sent meanwhile are lost, and a notice tells the clients so. After
//! `outage_hold`, the clients are disconnected.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, Severity, sqlstate};

use super::{Listener, Listeners, answer, post_event};
use crate::{
    Actions, SharedPool, Time,
    effect::{Effect, Env},
    listen::{
        Channel, ListenerChannels, ListenerEvent, ListenerKey, ListenerOpening, Opened,
        OpeningPurpose, PendingRequest,
    },
};

/// The message of the notice to clients.
const NOTICE: &str =
    "notifications may be missing: the connection that listens was lost, and listens again now";
/// The longest time between two attempts, in microseconds.
const PAUSE_MAX: u64 = 1_000_000;

/// A listener that was lost in an outage, and has not listened again yet.
#[derive(Debug, Clone)]
pub(super) struct Interruption {
    shared: Arc<SharedPool>,
    since: Time,
    why: Arc<str>,
}

/// A lost listener without a connection.
#[derive(Debug)]
pub(super) struct Interrupted {
    pub(super) channels: ListenerChannels,
    interruption: Interruption,
    tries_at: Time,
}

/// Returns the time for which the clients of a pool are held, in microseconds; 0: they are not held.
fn hold(env: &Env<'_>, shared: &SharedPool) -> u64 {
    if env.shutdown.is_some() || env.hands_clients_over {
        return 0;
    }
    let config = &env.snapshot.config;
    let database = config.database(&shared.key.database);
    database.map_or(0, |database| config.outage_hold(database).0)
}

/// Returns the time to wait before the next attempt, in microseconds.
fn pause(env: &Env<'_>, shared: &SharedPool) -> u64 {
    let config = &env.snapshot.config;
    let database = config.database(&shared.key.database);
    let retry = database.map_or(0, |database| config.login_retry(database).0);
    retry.min(PAUSE_MAX)
}

impl Listeners {
    /// Keeps the channels of a lost listener for the next connection. Returns the listener if its clients are not held.
    pub(super) fn interrupt(
        &mut self,
        env: &Env<'_>,
        (key, shared): (&ListenerKey, &Arc<SharedPool>),
        why: &Arc<str>,
        mut listener: Listener,
    ) -> Option<Listener> {
        let interruption = listener.interruption.take().unwrap_or(Interruption {
            shared: Arc::clone(shared),
            since: env.now,
            why: Arc::clone(why),
        });
        let is_over = env.now.since(interruption.since) >= hold(env, shared);
        if is_over || listener.channels.workers().is_empty() {
            return Some(listener);
        }
        let mut channels = listener.channels;
        channels.restart();
        let interrupted = Interrupted {
            channels,
            interruption,
            tries_at: env.now.after(pause(env, shared)),
        };
        self.interrupted.insert(key.clone(), interrupted);
        None
    }

    /// Opens connections for the listeners that are due, and gives up those whose clients were held for long enough.
    pub(super) fn resume(&mut self, env: &Env<'_>, out: &mut Actions) -> Vec<Effect> {
        let mut openings = Vec::new();
        self.interrupted.retain(|key, lost| {
            let (shared, since) = (&lost.interruption.shared, lost.interruption.since);
            if lost.channels.idle_since().is_some() {
                return false;
            }
            if env.now.since(since) >= hold(env, shared) {
                give_up(key, &mut lost.channels, &lost.interruption.why, out);
                return false;
            }
            if lost.tries_at <= env.now {
                lost.tries_at = env.now.after(pause(env, shared));
                openings.push(Effect::open_listener(ListenerOpening {
                    shared: Arc::clone(shared),
                    key: key.clone(),
                    purpose: OpeningPurpose::Resumption,
                }));
            }
            true
        });
        openings
    }

    /// Returns when the next attempt is due.
    pub(super) fn resumes_at(&self) -> Option<Time> {
        self.interrupted.values().map(|lost| lost.tries_at).min()
    }

    /// Gives the new connection the channels of the lost listener.
    pub(super) fn resumption_opened(
        &mut self,
        key: ListenerKey,
        opened: Opened,
        now: Time,
    ) -> Option<Effect> {
        let Opened::Connecting(conn) = opened else {
            return None;
        };
        let Some(lost) = self.interrupted.remove(&key) else {
            // All clients of the lost listener have left while the connection was opened.
            return Some(Effect::close(conn, "no client listens any more"));
        };
        let mut listener = Listener::new(conn, now);
        listener.channels = lost.channels;
        listener.interruption = Some(lost.interruption);
        self.by_key.insert(key, listener);
        None
    }
}

impl Interrupted {
    /// Notes a request for the next connection, and the channels that it has to listen to.
    pub(super) fn ask(
        &mut self,
        env: &Env<'_>,
        request: PendingRequest,
        channels: &[Channel],
        out: &mut Actions,
    ) {
        let most = env.snapshot.config.settings.max_listen_channels as usize;
        if self.channels.ask(request, channels, most).is_err() {
            answer(request, false, out);
        }
    }
}

impl Listener {
    /// Handles the answer to the first query after an interruption: tells the clients that the listener listens again, or has
    /// it closed.
    pub(super) fn resumed(
        &mut self,
        key: &ListenerKey,
        has_failed: bool,
        out: &mut Actions,
    ) -> Option<Effect> {
        self.interruption.as_ref()?;
        if has_failed {
            return Some(Effect::close(self.conn, "LISTEN failed after an outage"));
        }
        self.interruption = None;
        let mut message = Vec::new();
        let code = sqlstate::SUCCESSFUL_COMPLETION;
        MessageWriter::new(&mut message).notice(Severity::Warning, code, NOTICE);
        let message: Arc<[u8]> = message.into();
        for to in self.channels.workers().iter() {
            let (key, message) = (key.clone(), Arc::clone(&message));
            post_event(to, ListenerEvent::Resumed { key, message }, out);
        }
        None
    }
}

/// Tells the workers whose clients listen that the listener is lost, and answers its requests.
pub(super) fn give_up(
    key: &ListenerKey,
    channels: &mut ListenerChannels,
    why: &Arc<str>,
    out: &mut Actions,
) {
    // This message goes first: a worker that has it ignores later answers of the listener.
    for to in channels.workers().iter() {
        let (key, why) = (key.clone(), Arc::clone(why));
        post_event(to, ListenerEvent::Lost { key, why }, out);
    }
    for request in channels.unanswered() {
        answer(request, false, out);
    }
}
