//! Online restart: clients that use LISTEN are handed over like others. Until the new process has a listener that
//! listens for them, the old process receives their notifications and forwards them.
//!
//! The new process takes such a client over, orders its channels from its own listener, and holds the client back.
//! When the listener listens, the new process asks the old one for all earlier notifications
//! ([`ListenNote::Fence`]). A notification that both processes received is sent to the client once, as where a
//! listener takes a channel over from a server.

use std::{collections::BTreeMap, sync::Arc};

use super::Worker;
use crate::{
    Action, Actions, SharedPool, Time, Token,
    cancel::{CancelKey, Keys},
    client_listen::{ask_fence, send_backlog_if_idle},
    effect::{Effect, Env},
    fault::Fault,
    frontend::{Client, ClientDuty},
    listen::{Channel, ListenerKey, Listening, Question, Stage, TakenOverListener},
    takeover::{ClientRecord, ListenNote},
};

/// Clients that have left this process and whose notifications it still forwards.
#[derive(Debug, Default)]
pub(crate) struct ForwardedClients {
    /// By the connections that the clients had here.
    all: BTreeMap<Token, ForwardedClient>,
    keys: Keys,
    /// The number of restarts that have failed so far.
    failed: u32,
    /// The number of failed restarts whose clients are all back.
    returned: u32,
}

impl ForwardedClients {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn insert(&mut self, conn: Token, forward: ForwardedClient) {
        self.keys.insert(&forward.key, conn);
        self.all.insert(conn, forward);
    }

    fn find(&self, key: &CancelKey) -> Option<Token> {
        let conn = self.keys.find(key)?;
        let forward = self.all.get(&conn)?;
        (forward.key == *key).then_some(conn)
    }

    fn remove(&mut self, conn: Token) -> Option<ForwardedClient> {
        let forward = self.all.remove(&conn)?;
        self.keys.remove(&forward.key, conn);
        Some(forward)
    }
}

/// A client that has left, and whose notifications are still forwarded.
#[derive(Debug)]
pub(crate) struct ForwardedClient {
    key: CancelKey,
    shared: Arc<SharedPool>,
    /// The restart in which the client left: the number of restarts that had failed before.
    restart: u32,
    /// `None` once everything was forwarded.
    listening: Option<Box<Listening>>,
    /// The forwarded notifications: if the client comes back, this process has to send them.
    heard: Vec<u8>,
}

/// Why a client's notifications are no longer received.
const FAILED: &str = "the online restart has failed";
const ENDED: &str = "the process that has heard for it before has ended";
const NOT_CARRIED: &str = "sessions are not carried any more";
const BEHIND: &str = "more was notified than notification_backlog allows";
const TIMEOUT: &str = "takeover_timeout";

impl Worker {
    /// Records the channels of a client that is about to leave, so that this process goes on receiving for it.
    pub(super) fn begin_forwarding(&mut self, conn: Token) -> Option<ForwardedClient> {
        let client = self.table.client(conn)?;
        let (key, pool) = (client.cancel_key(), client.pool?);
        let listening = client.listening.take()?;
        let shared = Arc::clone(&self.pool(pool)?.shared);
        Some(ForwardedClient {
            key,
            shared,
            restart: self.forwarded_clients.failed,
            listening: Some(listening),
            heard: Vec::new(),
        })
    }

    /// Forwards a notification for a client that has left.
    pub(super) fn forward(&mut self, conn: Token, message: &[u8], now: Time, out: &mut Actions) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        if forward.listening.is_none() {
            return;
        }
        if forward.heard.len() + message.len() > most {
            return self.stop_forwarding(conn, ListenNote::Lost(BEHIND.to_owned()), now, out);
        }
        forward.heard.extend_from_slice(message);
        send_listen_note(
            &forward.key,
            ListenNote::Notification(message.to_vec()),
            out,
        );
    }

    /// Handles the listener's answer to a question that was asked for a client that has left.
    pub(super) fn forward_answered(
        &mut self,
        question: Question,
        granted: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let forward = self.forwarded_clients.all.get(&question.client);
        let listening = forward.and_then(|forward| forward.listening.as_ref());
        if listening.is_some_and(|listening| listening.awaits(question.number)) {
            let note = match granted {
                true => ListenNote::Fenced,
                false => ListenNote::Lost("it is closed".to_owned()),
            };
            self.stop_forwarding(question.client, note, now, out);
        }
    }

    /// Ends the forwarding for this client if it has left: its listener is lost.
    pub(super) fn fail_forwarded_client(
        &mut self,
        conn: Token,
        why: &str,
        now: Time,
        out: &mut Actions,
    ) {
        if self.forwarded_clients.all.contains_key(&conn) {
            self.stop_forwarding(conn, ListenNote::Lost(why.to_owned()), now, out);
        }
    }

    /// Stops the forwarding for a client, and sends the other process the reason. The client stays known until the
    /// other process has finished with it.
    fn stop_forwarding(&mut self, conn: Token, note: ListenNote, now: Time, out: &mut Actions) {
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        let listening = forward.listening.take();
        send_listen_note(&forward.key, note, out);
        if let Some(listening) = listening {
            self.stop_listen(conn, *listening, now, out);
        }
    }

    fn stop_listen(&mut self, conn: Token, listening: Listening, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let clients = parts.listening_clients;
        clients.stop(&parts.env, conn, listening, out);
    }

    /// Stops the forwarding for all clients that have left.
    pub(super) fn end_forwarding(&mut self, now: Time, out: &mut Actions) {
        for conn in self
            .forwarded_clients
            .all
            .keys()
            .copied()
            .collect::<Vec<_>>()
        {
            self.stop_forwarding(conn, ListenNote::Lost(TIMEOUT.to_owned()), now, out);
        }
        self.forwarded_clients.all.clear();
        self.forwarded_clients.keys = Keys::default();
    }

    /// Handles a failed restart: its clients come back, and then [`Worker::forget_forwarded_clients`] is called.
    pub(super) fn await_returns(&mut self, out: &mut Actions) {
        self.forwarded_clients.failed += 1;
        out.list.push(Action::AwaitReturns);
    }

    /// Forgets the clients that left in the oldest failed restart whose clients were awaited: none of them comes
    /// back any more. The next restart may have begun: clients that left in that one stay.
    pub(super) fn forget_forwarded_clients(&mut self, now: Time, out: &mut Actions) {
        self.forwarded_clients.returned += 1;
        let returned = self.forwarded_clients.returned;
        let all = self.forwarded_clients.all.iter();
        let left_before: Vec<Token> = all
            .filter(|(_, forward)| forward.restart < returned)
            .map(|(&conn, _)| conn)
            .collect();
        for conn in left_before {
            if let Some(forward) = self.forwarded_clients.remove(conn)
                && let Some(listening) = forward.listening
            {
                self.stop_listen(conn, *listening, now, out);
            }
        }
    }

    /// Orders the channels of a client that was taken over. Returns whether the client has to be held back until
    /// its listener listens.
    ///
    /// # Errors
    /// The client can have no listener.
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

    /// Takes a client back whose notifications were still received here.
    fn listens_again(&mut self, conn: Token, key: &CancelKey, out: &mut Actions) -> bool {
        let Some(before) = self.forwarded_clients.find(key) else {
            return false;
        };
        let Some(forward) = self.forwarded_clients.remove(before) else {
            return false;
        };
        let (Some(mut listening), Some(client)) = (forward.listening, self.table.client(conn))
        else {
            return false;
        };
        listening.settle();
        listening.prepend_backlog(forward.heard);
        self.listening_clients.rename(&listening, before, conn);
        client.listening = Some(listening);
        send_backlog_if_idle(&mut self.table, conn, out);
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
        let mut listening = Box::new(Listening::new(key));
        listening.taken_over = Some(Box::new(TakenOverListener {
            notified: Vec::new(),
            ready_was_sent: record.ready_was_sent,
        }));
        client.duty = ClientDuty::TakenOver;
        let pool = self.pool(pool).ok_or_else(|| lost(NOT_CARRIED))?;
        let shared = Arc::clone(&pool.shared);
        let parts = self.parts(now);
        let listens = (conn, &mut *listening);
        (parts.listening_clients).order(&parts.env, listens, shared, channels, out);
        if let Some(client) = self.table.client(conn) {
            client.listening = Some(listening);
        }
        Ok(())
    }

    /// Handles the answer of the listener for a client that was taken over: it listens, or it can't.
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
        match &mut client.listening {
            Some(listening) if granted => {
                listening.stage = Stage::Elsewhere;
                send_listen_note(&key, ListenNote::Fence, out);
            }
            _ => {
                send_listen_note(&key, ListenNote::Done, out);
                let fault = Fault::ListenerLost("no listener can be had".to_owned());
                self.carry_out([Effect::EndClient(conn, fault)], now, out);
            }
        }
    }

    /// Handles a message of the other process about a client that listens.
    pub(super) fn handle_listen_note(
        &mut self,
        key: &CancelKey,
        note: ListenNote,
        now: Time,
        out: &mut Actions,
    ) {
        match note {
            ListenNote::Fence => self.fence_forward(key, now, out),
            ListenNote::Done => {
                if let Some(conn) = self.forwarded_clients.find(key)
                    && let Some(forward) = self.forwarded_clients.remove(conn)
                    && let Some(listening) = forward.listening
                {
                    self.stop_listen(conn, *listening, now, out);
                }
            }
            ListenNote::Notification(message) => {
                self.add_forwarded_notification(key, &message, now, out)
            }
            ListenNote::Fenced => self.fence_arriving(key, now, out),
            ListenNote::Lost(why) => {
                if let Some(conn) = self.arriving(key) {
                    self.carry_out(
                        [Effect::EndClient(conn, Fault::ListenerLost(why))],
                        now,
                        out,
                    );
                }
            }
        }
    }

    /// Makes sure that all notifications sent until now are forwarded.
    fn fence_forward(&mut self, key: &CancelKey, now: Time, out: &mut Actions) {
        let Some(conn) = self.forwarded_clients.find(key) else {
            return send_listen_note(key, ListenNote::Lost(FAILED.to_owned()), out);
        };
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        // If the listener was lost, the other process was informed before.
        let Some(listening) = &mut forward.listening else {
            return;
        };
        let shared = Arc::clone(&forward.shared);
        let env = Env {
            worker: self.id,
            directory: &self.directory,
            snapshot: &self.snapshot,
            sampler: self.sampler.as_ref(),
            now,
            shutdown: self.shutdown.order(),
            hands_clients_over: self.handover_out.is_some(),
        };
        ask_fence(&env, (conn, listening), shared, Stage::Fenced, true, out);
    }

    /// Finds a client that was taken over and does not have its listener yet.
    fn arriving(&mut self, key: &CancelKey) -> Option<Token> {
        let conn = self.cancel_requests.find(key)?;
        let client = self.table.client(conn)?;
        let is_it = matches!(client.duty, ClientDuty::TakenOver) && client.cancel_key() == *key;
        is_it.then_some(conn)
    }

    fn add_forwarded_notification(
        &mut self,
        key: &CancelKey,
        message: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(conn) = self.arriving(key) else {
            return;
        };
        let arriving = self.table.client(conn).and_then(arriving_of);
        if let Some(arriving) = arriving {
            if arriving.notified.len() + message.len() > most {
                return self.carry_out(
                    [Effect::EndClient(conn, Fault::NotificationBacklog)],
                    now,
                    out,
                );
            }
            arriving.notified.extend_from_slice(message);
        }
    }

    /// Handles the end of the earlier notifications. The new listener must also have received what the old process
    /// received since the listener began: only then the client gets what both have received.
    fn fence_arriving(&mut self, key: &CancelKey, now: Time, out: &mut Actions) {
        let Some(conn) = self.arriving(key) else {
            return;
        };
        let pool = self.table.client(conn).and_then(|client| client.pool);
        let Some(pool) = pool.and_then(|pool| self.pool(pool)) else {
            return;
        };
        let shared = Arc::clone(&pool.shared);
        let parts = self.parts(now);
        let client = parts.connections.client(conn);
        if let Some(listening) = client.and_then(|client| client.listening.as_deref_mut()) {
            let listens = (conn, listening);
            ask_fence(&parts.env, listens, shared, Stage::Fenced, true, out);
        }
    }

    /// Sends the client what both processes have received, and lets it go on.
    pub(super) fn finish_listen_takeover(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let key = client.cancel_key();
        let Some(listening) = &mut client.listening else {
            return;
        };
        let Some(arriving) = listening.taken_over.take() else {
            return;
        };
        listening.settle();
        let told = listening.take_backlog(&arriving.notified);
        listening.prepend_backlog(told);
        client.duty = ClientDuty::Idle;
        send_listen_note(&key, ListenNote::Done, out);
        send_backlog_if_idle(&mut self.table, conn, out);
        self.serve_taken_over_client(conn, arriving.ready_was_sent, now, out);
    }

    /// Ends clients that have no listener yet when the old process has ended: they may have missed notifications.
    pub(super) fn end_arriving(&mut self, now: Time, out: &mut Actions) {
        let is_arriving = |client: &Client| matches!(client.duty, ClientDuty::TakenOver);
        let left = self
            .table
            .tokens(|conn| matches!(conn, super::Conn::Client(client) if is_arriving(client)));
        for conn in left {
            let fault = Fault::ListenerLost(ENDED.to_owned());
            self.carry_out([Effect::EndClient(conn, fault)], now, out);
        }
    }
}

/// Returns what the old process has forwarded for a client so far.
fn arriving_of(client: &mut Client) -> Option<&mut TakenOverListener> {
    client.listening.as_mut()?.taken_over.as_deref_mut()
}

/// Sends the other process a message about a client.
pub(super) fn send_listen_note(key: &CancelKey, note: ListenNote, out: &mut Actions) {
    out.list.push(Action::ForwardToNewProcess {
        key: Box::new(key.clone()),
        note,
    });
}
