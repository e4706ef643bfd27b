//! Online restart: clients that use LISTEN are handed over like others. Until the new process has a listener that
//! listens for them, the old process receives their notifications and forwards them.
//!
//! The new process takes such a client over, asks its own listener to listen to the client's channels, and processes no
//! input of the client until then. When the listener listens, the new process asks the old one for all earlier
//! notifications ([`ListenNote::Fence`]). If both processes received a notification, the client gets it once.

use std::{collections::BTreeMap, sync::Arc};

use super::{OnlineRestart, RestartParts, serve_taken_over_client};
use crate::{
    Action, Actions, SharedPool, Token,
    base::fault::Fault,
    cancel_requests::tell_home_of_return,
    client_listen::{ListeningClients, ask_fence, send_backlog_if_idle},
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env},
    frontend::{Client, ClientDuty},
    listen::{Channel, ListenerKey, Listening, PendingRequest, Stage, TakenOverListener},
    pooling::LocalPools,
    shared::cancel::{CancelKey, Keys},
    takeover::{ClientRecord, ListenNote},
};

/// Clients that have left this process and whose notifications it still forwards.
#[derive(Debug, Default)]
pub(super) struct ForwardedClients {
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

    pub(super) fn contains(&self, key: &CancelKey) -> bool {
        self.find(key).is_some()
    }

    fn remove(&mut self, conn: Token) -> Option<ForwardedClient> {
        let forward = self.all.remove(&conn)?;
        self.keys.remove(&forward.key, conn);
        Some(forward)
    }
}

/// A client that has left, and whose notifications are still forwarded.
#[derive(Debug)]
pub(super) struct ForwardedClient {
    key: CancelKey,
    shared: Arc<SharedPool>,
    /// The restart in which the client left: the number of restarts that had failed before.
    restart: u32,
    /// The number of the client's moves between workers, with its departure.
    moves: u32,
    /// `None` once everything was forwarded.
    listening: Option<Box<Listening>>,
    /// The forwarded notifications: if the client comes back, this process has to send them.
    forwarded: Vec<u8>,
}

/// Why a client's notifications are no longer received: the text that the other process gets.
const FAILED: &str = "the online restart has failed";
const ENDED: &str = "the old process, which received its notifications, has ended";
const NOT_CARRIED: &str = "sessions are not carried any more";
const BEHIND: &str = "more was notified than notification_backlog allows";
const TIMEOUT: &str = "takeover_timeout";

impl OnlineRestart {
    /// Records the channels of a client that is about to leave, so that this process goes on receiving for it.
    pub(super) fn begin_forwarding(
        &mut self,
        connections: &mut Connections,
        pools: &LocalPools,
        conn: Token,
    ) {
        let restart = self.forwarded_clients.failed;
        let recorded = connections.client(conn).and_then(|client| {
            let (key, pool) = (client.cancel_key(), client.pool()?);
            let moves = client.key_mut().moves() + 1;
            let listening = client.listening.take()?;
            Some(ForwardedClient {
                key,
                shared: Arc::clone(&pools.get(pool)?.shared),
                restart,
                moves,
                listening: Some(listening),
                forwarded: Vec::new(),
            })
        });
        if let Some(forward) = recorded {
            self.forwarded_clients.insert(conn, forward);
        }
    }

    /// Forwards a notification for a client that has left.
    pub(crate) fn forward(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        conn: Token,
        message: &[u8],
        out: &mut Actions,
    ) {
        let most = env.snapshot.config.settings.notification_backlog as usize;
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        if forward.listening.is_none() {
            return;
        }
        if forward.forwarded.len() + message.len() > most {
            let note = ListenNote::Lost(BEHIND.to_owned());
            return self.stop_forwarding(env, clients, conn, note, out);
        }
        forward.forwarded.extend_from_slice(message);
        send_listen_note(
            &forward.key,
            ListenNote::Notification(message.to_vec()),
            out,
        );
    }

    /// Handles the listener's answer to a request that was asked for a client that has left.
    pub(crate) fn forward_answered(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        request: PendingRequest,
        granted: bool,
        out: &mut Actions,
    ) {
        let forward = self.forwarded_clients.all.get(&request.client);
        let listening = forward.and_then(|forward| forward.listening.as_ref());
        if listening.is_some_and(|listening| listening.awaits(request.number)) {
            let note = match granted {
                true => ListenNote::Fenced,
                false => ListenNote::Lost("it is closed".to_owned()),
            };
            self.stop_forwarding(env, clients, request.client, note, out);
        }
    }

    /// Stops the forwarding for a client, if the client has left, and sends the other process the reason. The client's
    /// entry stays until the other process has sent [`ListenNote::Done`].
    pub(crate) fn stop_forwarding(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        conn: Token,
        note: ListenNote,
        out: &mut Actions,
    ) {
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        let listening = forward.listening.take();
        send_listen_note(&forward.key, note, out);
        if let Some(listening) = listening {
            clients.stop(env, conn, *listening, out);
        }
    }

    /// Stops the forwarding for all clients that have left.
    pub(crate) fn end_forwarding(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        out: &mut Actions,
    ) {
        let all: Vec<Token> = self.forwarded_clients.all.keys().copied().collect();
        for conn in all {
            let note = ListenNote::Lost(TIMEOUT.to_owned());
            self.stop_forwarding(env, clients, conn, note, out);
        }
        self.forwarded_clients.all.clear();
        self.forwarded_clients.keys = Keys::default();
    }

    /// Handles a failed restart, whose clients come back. When all have come back, [`Self::forget_forwarded_clients`]
    /// is called.
    pub(super) fn await_returns(&mut self, out: &mut Actions) {
        self.forwarded_clients.failed += 1;
        out.list.push(Action::AwaitReturns);
    }

    /// Forgets the clients that left in the oldest failed restart and have not come back: none of them comes any more.
    /// Clients that left in a later restart, which may have begun already, stay in the table.
    pub(super) fn forget_forwarded_clients(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        out: &mut Actions,
    ) {
        self.forwarded_clients.returned += 1;
        let returned = self.forwarded_clients.returned;
        let all = self.forwarded_clients.all.iter();
        let left_before: Vec<Token> = all
            .filter(|(_, forward)| forward.restart < returned)
            .map(|(&conn, _)| conn)
            .collect();
        for conn in left_before {
            self.forget_forwarded_client(env, clients, conn, out);
        }
    }

    fn forget_forwarded_client(
        &mut self,
        env: &Env<'_>,
        clients: &mut ListeningClients,
        conn: Token,
        out: &mut Actions,
    ) {
        if let Some(forward) = self.forwarded_clients.remove(conn)
            && let Some(listening) = forward.listening
        {
            clients.stop(env, conn, *listening, out);
        }
    }

    /// Requests the channels of a client that was taken over from the listener. Returns whether the client has to be
    /// held back until its listener listens.
    ///
    /// # Errors
    ///
    /// No listener can be opened for the client.
    pub(crate) fn listens_on(
        &mut self,
        parts: RestartParts<'_>,
        conn: Token,
        record: &ClientRecord,
        out: &mut Actions,
    ) -> Result<bool, Fault> {
        if record.channels.is_empty() {
            return Ok(false);
        }
        let (connections, clients) = (parts.connections, parts.listening_clients);
        let (env, pools) = (&parts.env, &*parts.pools);
        let came = (conn, record.cancel_key());
        if self.listens_again(env, connections, clients, came, out) {
            return Ok(false);
        }
        ask_for_arriving(env, connections, pools, clients, (conn, record), out)?;
        Ok(true)
    }

    /// Takes a client back that had left in a restart that failed. This process has gone on receiving the client's
    /// notifications.
    fn listens_again(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        clients: &mut ListeningClients,
        (conn, key): (Token, CancelKey),
        out: &mut Actions,
    ) -> bool {
        let Some(before) = self.forwarded_clients.find(&key) else {
            return false;
        };
        let Some(forward) = self.forwarded_clients.remove(before) else {
            return false;
        };
        let (Some(mut listening), Some(client)) = (forward.listening, connections.client(conn))
        else {
            return false;
        };
        listening.settle();
        listening.prepend_backlog(forward.forwarded);
        clients.rename(&listening, before, conn);
        client.listening = Some(listening);
        client.key_mut().resume_moves(forward.moves);
        tell_home_of_return(env, key, forward.moves, out);
        send_backlog_if_idle(connections, conn, out);
        true
    }

    /// Handles a message of the other process about a client that listens.
    pub(super) fn handle_listen_note(
        &mut self,
        parts: RestartParts<'_>,
        key: &CancelKey,
        note: ListenNote,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let (env, connections) = (&parts.env, parts.connections);
        let arriving = parts
            .client
            .filter(|&client| is_arriving(connections, client, key));
        match note {
            ListenNote::Fence => {
                self.fence_forward(env, key, out);
                None
            }
            ListenNote::Done => {
                if let Some(conn) = self.forwarded_clients.find(key) {
                    self.forget_forwarded_client(env, parts.listening_clients, conn, out);
                }
                None
            }
            ListenNote::Notification(message) => arriving
                .and_then(|client| add_forwarded_notification(env, connections, client, &message)),
            ListenNote::Fenced => {
                if let Some(client) = arriving {
                    fence_arriving(env, connections, parts.pools, client, out);
                }
                None
            }
            ListenNote::Lost(why) => arriving.map(|client| {
                Effect::Client(ClientEffect::EndClient(
                    client,
                    Box::new(Fault::ListenerLost(why)),
                ))
            }),
        }
        .into_iter()
        .collect()
    }

    /// Asks the listener to receive all notifications that PostgreSQL has now, so that they are forwarded.
    fn fence_forward(&mut self, env: &Env<'_>, key: &CancelKey, out: &mut Actions) {
        let Some(conn) = self.forwarded_clients.find(key) else {
            return send_listen_note(key, ListenNote::Lost(FAILED.to_owned()), out);
        };
        let Some(forward) = self.forwarded_clients.all.get_mut(&conn) else {
            return;
        };
        // If the listener was lost, this process has informed the other one already.
        let Some(listening) = &mut forward.listening else {
            return;
        };
        let shared = Arc::clone(&forward.shared);
        ask_fence(env, (conn, listening), shared, Stage::Fenced, true, out);
    }
}

/// Asks this process's listener to listen to the channels of a client that has just arrived.
fn ask_for_arriving(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &LocalPools,
    clients: &mut ListeningClients,
    (conn, record): (Token, &ClientRecord),
    out: &mut Actions,
) -> Result<(), Fault> {
    let lost = |why: &str| Fault::ListenerLost(why.to_owned());
    if !env.directory.has_partner() {
        return Err(lost(FAILED));
    }
    let client = connections.client(conn).ok_or_else(|| lost(FAILED))?;
    let (Some(pool), Some(_)) = (client.pool(), &client.context) else {
        return Err(lost(NOT_CARRIED));
    };
    let key = ListenerKey {
        pool,
        encoding: client.tracked.client_encoding().into(),
    };
    let channels: Vec<Channel> = record.channels.iter().map(|name| name[..].into()).collect();
    let mut listening = Box::new(Listening::new(key));
    listening.take_over(TakenOverListener {
        notified: Vec::new(),
        ready_was_sent: record.ready_was_sent,
    });
    client.become_taken_over();
    let pool = pools.get(pool).ok_or_else(|| lost(NOT_CARRIED))?;
    let shared = Arc::clone(&pool.shared);
    clients.order(env, (conn, &mut listening), shared, channels, out);
    client.listening = Some(listening);
    Ok(())
}

/// Handles the answer of the listener for a client that was taken over: the listener listens, or it can't.
pub(crate) fn arriving_answered(
    connections: &mut Connections,
    conn: Token,
    granted: bool,
    out: &mut Actions,
) -> Option<Effect> {
    let client = connections.client(conn)?;
    let key = client.cancel_key();
    match &mut client.listening {
        Some(listening) if granted => {
            listening.wait_for_old_process();
            send_listen_note(&key, ListenNote::Fence, out);
            None
        }
        _ => {
            send_listen_note(&key, ListenNote::Done, out);
            let fault = Fault::ListenerLost("no listener can be had".to_owned());
            Some(Effect::Client(ClientEffect::EndClient(
                conn,
                Box::new(fault),
            )))
        }
    }
}

/// Returns whether this client has the key, was taken over, and does not have its listener yet.
fn is_arriving(connections: &mut Connections, conn: Token, key: &CancelKey) -> bool {
    let client = connections.client(conn);
    client.is_some_and(|client| {
        matches!(*client.duty(), ClientDuty::TakenOver) && client.cancel_key() == *key
    })
}

fn add_forwarded_notification(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    message: &[u8],
) -> Option<Effect> {
    let most = env.snapshot.config.settings.notification_backlog as usize;
    let arriving = connections.client(conn).and_then(arriving_of)?;
    if arriving.notified.len() + message.len() > most {
        return Some(Effect::Client(ClientEffect::EndClient(
            conn,
            Box::new(Fault::NotificationBacklog),
        )));
    }
    arriving.notified.extend_from_slice(message);
    None
}

/// Handles the message that the old process has forwarded all earlier notifications. This process's listener must also
/// have received the notifications that the old process received after the listener began to listen. Then it is known
/// which notifications both processes have.
fn fence_arriving(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &LocalPools,
    conn: Token,
    out: &mut Actions,
) {
    let Some(client) = connections.client(conn) else {
        return;
    };
    let pool = client.pool().and_then(|pool| pools.get(pool));
    if let (Some(pool), Some(listening)) = (pool, client.listening.as_deref_mut()) {
        let shared = Arc::clone(&pool.shared);
        ask_fence(env, (conn, listening), shared, Stage::Fenced, true, out);
    }
}

/// Sends the client the notifications that the two processes have received, each once, and processes the client's input
/// again.
pub(crate) fn finish_listen_takeover(
    connections: &mut Connections,
    pools: &LocalPools,
    conn: Token,
    out: &mut Actions,
) -> Option<Effect> {
    let client = connections.client(conn)?;
    let key = client.cancel_key();
    let listening = client.listening.as_mut()?;
    let arriving = listening.end_takeover()?;
    let backlog = listening.take_backlog(&arriving.notified);
    listening.prepend_backlog(backlog);
    client.become_idle();
    send_listen_note(&key, ListenNote::Done, out);
    send_backlog_if_idle(connections, conn, out);
    serve_taken_over_client(connections, pools, conn, arriving.ready_was_sent, out)
}

/// Returns the effects that disconnect clients which have no listener yet when the old process has ended: they may have
/// missed notifications.
pub(super) fn end_arriving(connections: &Connections) -> Vec<Effect> {
    let is_arriving = |client: &Client| matches!(*client.duty(), ClientDuty::TakenOver);
    let left =
        connections.tokens(|conn| matches!(conn, Conn::Client(client) if is_arriving(client)));
    let lost = || Fault::ListenerLost(ENDED.to_owned());
    left.into_iter()
        .map(|conn| Effect::Client(ClientEffect::EndClient(conn, Box::new(lost()))))
        .collect()
}

/// Returns the notifications that the old process has forwarded for a client so far, if the client was taken over and
/// still waits for its listener.
fn arriving_of(client: &mut Client) -> Option<&mut TakenOverListener> {
    client.listening.as_mut()?.taken_over()
}

/// Sends the other process a message about a client.
pub(crate) fn send_listen_note(key: &CancelKey, note: ListenNote, out: &mut Actions) {
    out.list.push(Action::ForwardToNewProcess {
        key: Box::new(key.clone()),
        note: Box::new(note),
    });
}
