//! Online restart: clients that listen leave as others do. Until the process that comes has a listener of its own
//! that listens for them, this one hears for them, and what it hears is forwarded.
//!
//! The new process takes such a client in, asks its own listener, holds the client back meanwhile, and when the
//! listener listens asks the old one for all that was notified before ([`ListenNote::Fence`]). What both have
//! heard is told once, as where a listener takes a channel over from a server.

use std::{collections::BTreeMap, sync::Arc};

use super::Worker;
use crate::{
    Action, Actions, SharedPool, Time, Token,
    cancel::{CancelKey, Keys},
    fault::Fault,
    frontend::{Client, ClientDuty},
    listen::{Arriving, Channel, Hearing, ListenerKey, Question, Stage},
    takeover::{ClientRecord, ListenNote},
};

/// Clients that have left this process and are still heard for.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    /// By the connections that they had here.
    all: BTreeMap<Token, Forward>,
    keys: Keys,
    /// Restarts that have failed so far.
    failed: u32,
    /// Those of them whose clients are all back.
    returned: u32,
}

impl Forwards {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn insert(&mut self, conn: Token, forward: Forward) {
        self.keys.insert(&forward.key, conn);
        self.all.insert(conn, forward);
    }

    fn find(&self, key: &CancelKey) -> Option<Token> {
        let conn = self.keys.find(key)?;
        let forward = self.all.get(&conn)?;
        (forward.key == *key).then_some(conn)
    }

    fn remove(&mut self, conn: Token) -> Option<Forward> {
        let forward = self.all.remove(&conn)?;
        self.keys.remove(&forward.key, conn);
        Some(forward)
    }
}

/// A client that has left, and is still heard for.
#[derive(Debug)]
pub(crate) struct Forward {
    key: CancelKey,
    shared: Arc<SharedPool>,
    /// The restart in which it left: so many had failed before.
    restart: u32,
    /// Nothing once all has been said.
    hearing: Option<Box<Hearing>>,
    /// What was forwarded: should the client come back, it has to be told here.
    heard: Vec<u8>,
}

/// Why nobody hears for a client any more.
const FAILED: &str = "the online restart has failed";
const ENDED: &str = "the process that has heard for it before has ended";
const NOT_CARRIED: &str = "sessions are not carried any more";
const BEHIND: &str = "more was notified than notification_backlog allows";
const TIMEOUT: &str = "takeover_timeout";

impl Worker {
    /// What a client that is about to leave listens to, to be heard on.
    pub(super) fn take_hearing(&mut self, conn: Token) -> Option<Forward> {
        let client = self.table.client(conn)?;
        let (key, pool) = (client.cancel_key(), client.pool?);
        let hearing = client.hearing.take()?;
        let shared = Arc::clone(&self.pool(pool)?.shared);
        Some(Forward {
            key,
            shared,
            restart: self.forwards.failed,
            hearing: Some(hearing),
            heard: Vec::new(),
        })
    }

    /// Its listener has heard this for a client that has left.
    pub(super) fn forward(&mut self, conn: Token, message: &[u8], out: &mut Actions) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(forward) = self.forwards.all.get_mut(&conn) else {
            return;
        };
        if forward.hearing.is_none() {
            return;
        }
        if forward.heard.len() + message.len() > most {
            return self.stop_forwarding(conn, ListenNote::Lost(BEHIND.to_owned()), out);
        }
        forward.heard.extend_from_slice(message);
        say(
            &forward.key,
            ListenNote::Notification(message.to_vec()),
            out,
        );
    }

    /// The owner of a listener has answered a question that was asked for a client that has left.
    pub(super) fn forward_answered(
        &mut self,
        question: Question,
        granted: bool,
        out: &mut Actions,
    ) {
        let forward = self.forwards.all.get(&question.client);
        let hearing = forward.and_then(|forward| forward.hearing.as_ref());
        if hearing.is_some_and(|hearing| hearing.awaits(question.number)) {
            let note = match granted {
                true => ListenNote::Fenced,
                false => ListenNote::Lost("it is closed".to_owned()),
            };
            self.stop_forwarding(question.client, note, out);
        }
    }

    /// The listener is lost that has heard for this client, if it has left.
    pub(super) fn lost_for_left(&mut self, conn: Token, why: &str, out: &mut Actions) -> bool {
        let has_left = self.forwards.all.contains_key(&conn);
        if has_left {
            self.stop_forwarding(conn, ListenNote::Lost(why.to_owned()), out);
        }
        has_left
    }

    /// Nothing more is forwarded, which is said. The client is still known, until the other process has done
    /// with it.
    pub(super) fn stop_forwarding(&mut self, conn: Token, note: ListenNote, out: &mut Actions) {
        let Some(forward) = self.forwards.all.get_mut(&conn) else {
            return;
        };
        let hearing = forward.hearing.take();
        say(&forward.key, note, out);
        if let Some(hearing) = hearing {
            self.stop_hearing(conn, *hearing, out);
        }
    }

    /// Those who have left are heard for no longer.
    pub(super) fn end_forwards(&mut self, out: &mut Actions) {
        for conn in self.forwards.all.keys().copied().collect::<Vec<_>>() {
            self.stop_forwarding(conn, ListenNote::Lost(TIMEOUT.to_owned()), out);
        }
        self.forwards.all.clear();
        self.forwards.keys = Keys::default();
    }

    /// The restart has failed: its clients come back, and then [`Worker::forget_forwards`] is called.
    pub(super) fn await_returns(&mut self, out: &mut Actions) {
        self.forwards.failed += 1;
        out.list.push(Action::AwaitReturns);
    }

    /// No client comes back any more that left in the oldest failed restart whose clients were awaited. The next
    /// restart may have begun: whoever left in that one is still heard for.
    pub(super) fn forget_forwards(&mut self, out: &mut Actions) {
        self.forwards.returned += 1;
        let returned = self.forwards.returned;
        let all = self.forwards.all.iter();
        let left_before: Vec<Token> = all
            .filter(|(_, forward)| forward.restart < returned)
            .map(|(&conn, _)| conn)
            .collect();
        for conn in left_before {
            if let Some(forward) = self.forwards.remove(conn)
                && let Some(hearing) = forward.hearing
            {
                self.stop_hearing(conn, *hearing, out);
            }
        }
    }

    /// A client was taken in that listens. `true` if it has to be held back until there is a listener for it.
    ///
    /// # Errors
    /// There can be none.
    pub(super) fn listens_on(
        &mut self,
        conn: Token,
        record: &ClientRecord,
        now: Time,
        out: &mut Actions,
    ) -> Result<bool, Fault> {
        if record.channels.is_empty() {
            return Ok(false);
        }
        if self.listens_again(conn, &record.cancel_key(), out) {
            return Ok(false);
        }
        self.ask_for_arriving(conn, record, now, out)?;
        Ok(true)
    }

    /// A client comes back that was still heard for here.
    fn listens_again(&mut self, conn: Token, key: &CancelKey, out: &mut Actions) -> bool {
        let Some(before) = self.forwards.find(key) else {
            return false;
        };
        let Some(forward) = self.forwards.remove(before) else {
            return false;
        };
        let (Some(mut hearing), Some(client)) = (forward.hearing, self.table.client(conn)) else {
            return false;
        };
        hearing.settle();
        hearing.heard_before(forward.heard);
        self.hub
            .renamed(&hearing.key, hearing.channels(), before, conn);
        client.hearing = Some(hearing);
        self.tell_on(conn, out);
        true
    }

    fn ask_for_arriving(
        &mut self,
        conn: Token,
        record: &ClientRecord,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let lost = |why: &str| Fault::ListenerLost(why.to_owned());
        if !self.directory.has_partner() {
            return Err(lost(FAILED));
        }
        let client = self.table.client(conn).ok_or_else(|| lost(FAILED))?;
        let (Some(pool), Some(_)) = (client.pool, &client.context) else {
            return Err(lost(NOT_CARRIED));
        };
        let key = ListenerKey {
            pool,
            encoding: client.tracked.client_encoding().into(),
        };
        let channels: Vec<Channel> = record.channels.iter().map(|name| name[..].into()).collect();
        let mut hearing = Hearing::new(key.clone());
        hearing.arriving = Some(Box::new(Arriving {
            overheard: Vec::new(),
            is_welcome: record.is_welcome,
        }));
        let number = hearing.ask(Stage::Asking(channels.clone()), now);
        client.hearing = Some(Box::new(hearing));
        client.duty = ClientDuty::Arriving;
        let pool = self.pool(pool).ok_or_else(|| lost(NOT_CARRIED))?;
        let shared = Arc::clone(&pool.shared);
        self.hub.asked(&key, &channels);
        let question = self.question(conn, number, false);
        self.ask_owner(shared, key, question, channels, out);
        Ok(())
    }

    /// The listener of a client that was taken in listens, or can't.
    pub(super) fn arriving_answered(
        &mut self,
        conn: Token,
        granted: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let key = client.cancel_key();
        match &mut client.hearing {
            Some(hearing) if granted => {
                hearing.stage = Stage::Elsewhere;
                say(&key, ListenNote::Fence, out);
            }
            _ => {
                say(&key, ListenNote::Done, out);
                let fault = Fault::ListenerLost("no listener can be had".to_owned());
                self.end_client(conn, &fault, now, out);
            }
        }
    }

    /// The other process says something of a client that listens.
    pub(super) fn heard_of_listening(
        &mut self,
        key: &CancelKey,
        note: ListenNote,
        now: Time,
        out: &mut Actions,
    ) {
        match note {
            ListenNote::Fence => self.fence_forward(key, now, out),
            ListenNote::Done => {
                if let Some(conn) = self.forwards.find(key)
                    && let Some(forward) = self.forwards.remove(conn)
                    && let Some(hearing) = forward.hearing
                {
                    self.stop_hearing(conn, *hearing, out);
                }
            }
            ListenNote::Notification(message) => self.overheard_for(key, &message, now, out),
            ListenNote::Fenced => self.fence_arriving(key, now, out),
            ListenNote::Lost(why) => {
                if let Some(conn) = self.arriving(key) {
                    self.end_client(conn, &Fault::ListenerLost(why), now, out);
                }
            }
        }
    }

    /// All that was notified until now is to be forwarded.
    fn fence_forward(&mut self, key: &CancelKey, now: Time, out: &mut Actions) {
        let Some(conn) = self.forwards.find(key) else {
            return say(key, ListenNote::Lost(FAILED.to_owned()), out);
        };
        let Some(forward) = self.forwards.all.get_mut(&conn) else {
            return;
        };
        // If there is none, that was said.
        let Some(hearing) = &mut forward.hearing else {
            return;
        };
        let number = hearing.ask(Stage::Fenced, now);
        let (shared, key) = (Arc::clone(&forward.shared), hearing.key.clone());
        let question = self.question(conn, number, true);
        self.ask_owner(shared, key, question, Vec::new(), out);
    }

    /// A client that was taken in and has yet to get its listener.
    fn arriving(&mut self, key: &CancelKey) -> Option<Token> {
        let conn = self.cancel_requests.find(key)?;
        let client = self.table.client(conn)?;
        let is_it = matches!(client.duty, ClientDuty::Arriving) && client.cancel_key() == *key;
        is_it.then_some(conn)
    }

    fn overheard_for(&mut self, key: &CancelKey, message: &[u8], now: Time, out: &mut Actions) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(conn) = self.arriving(key) else {
            return;
        };
        let arriving = self.table.client(conn).and_then(arriving_of);
        if let Some(arriving) = arriving {
            if arriving.overheard.len() + message.len() > most {
                return self.end_client(conn, &Fault::NotificationBacklog, now, out);
            }
            arriving.overheard.extend_from_slice(message);
        }
    }

    /// All that was notified before its listener listens has come. What the other process has heard since, the
    /// listener is to have heard as well: then it can be told what both have heard.
    fn fence_arriving(&mut self, key: &CancelKey, now: Time, out: &mut Actions) {
        let Some(conn) = self.arriving(key) else {
            return;
        };
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let (Some(hearing), Some(pool)) = (&mut client.hearing, client.pool) else {
            return;
        };
        let number = hearing.ask(Stage::Fenced, now);
        let listener = hearing.key.clone();
        let Some(pool) = self.pool(pool) else {
            return;
        };
        let shared = Arc::clone(&pool.shared);
        let question = self.question(conn, number, true);
        self.ask_owner(shared, listener, question, Vec::new(), out);
    }

    /// Both have said what they have heard: the client is told, and goes on.
    pub(super) fn has_arrived(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let key = client.cancel_key();
        let Some(hearing) = &mut client.hearing else {
            return;
        };
        let Some(arriving) = hearing.arriving.take() else {
            return;
        };
        hearing.settle();
        let told = hearing.take_backlog(&arriving.overheard);
        hearing.heard_before(told);
        client.duty = ClientDuty::Idle;
        say(&key, ListenNote::Done, out);
        self.tell_on(conn, out);
        self.go_on(conn, arriving.is_welcome, now, out);
    }

    /// The process before this one has ended: who has yet to get a listener may have missed something.
    pub(super) fn end_arriving(&mut self, now: Time, out: &mut Actions) {
        let is_arriving = |client: &Client| matches!(client.duty, ClientDuty::Arriving);
        let left =
            self.tokens(|conn| matches!(conn, super::Conn::Client(client) if is_arriving(client)));
        for conn in left {
            let fault = Fault::ListenerLost(ENDED.to_owned());
            self.end_client(conn, &fault, now, out);
        }
    }
}

/// What the process before this one has heard for a client so far.
fn arriving_of(client: &mut Client) -> Option<&mut Arriving> {
    client.hearing.as_mut()?.arriving.as_deref_mut()
}

/// Tells the other process something.
pub(super) fn say(key: &CancelKey, note: ListenNote, out: &mut Actions) {
    out.list.push(Action::Forward {
        key: Box::new(key.clone()),
        note,
    });
}
