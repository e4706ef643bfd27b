//! LISTEN for clients: which clients of a worker listen to which channels, and the answer of a listener that each of
//! them waits for.
//!
//! This module owns the channels of the worker's clients. The module requests these channels from the worker that owns
//! the pool's listener ([`ListenerRequest`]). The answer says whether the listener can take them.
//!
//! Input: the LISTEN and UNLISTEN of clients, the answers and notifications of listeners ([`ListenerEvent`]), and
//! notifications of pooled servers. Output: requests for listeners, notifications to clients, and effects: go on with a
//! request that waited for its listener, end a client that may have missed a notification.

mod channel_moves;
mod delivery;

use std::sync::Arc;

pub(crate) use self::{
    channel_moves::{fence_first, fences_to_move, has_channels_to_move},
    delivery::{keep_direct_notification, send_backlog, send_backlog_if_idle},
};
use crate::{
    Actions, SharedPool, Time, Token,
    backend::Request,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, RestartEffect},
    listen::{
        Channel, ChannelClients, ListenerEvent, ListenerKey, ListenerRequest, Listening,
        PendingRequest, Stage,
    },
    listeners,
    mail::Mail,
};

/// The clients of a worker that listen.
#[derive(Debug, Default)]
pub(crate) struct ListeningClients {
    channels: ChannelClients,
}

/// The result of a change of a client's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channels {
    /// Nothing is left to do: the client's server need not listen to any channel.
    Settled,
    /// The listener was asked, and its answer follows.
    Asked,
    /// No listener can take the channels: the client keeps the server that listens to them.
    Refused,
}

impl ListeningClients {
    /// Handles an event of a listener for this worker's clients.
    pub(crate) fn handle(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        event: ListenerEvent,
        out: &mut Actions,
    ) -> Vec<Effect> {
        match event {
            ListenerEvent::Answer { request, granted } => {
                self.answered(env, connections, request, granted, out)
            }
            ListenerEvent::Notified { key, message } => {
                self.notified(env, connections, &key, &message, out)
            }
            ListenerEvent::Resumed { key, message } => {
                self.resumed(env, connections, &key, &message, out)
            }
            ListenerEvent::Lost { key, why } => self.listener_lost(connections, &key, &why),
        }
    }

    /// Returns whether this client, which listens, has received all notifications that were sent on a server before
    /// `at`, the time at which the server's last client released it.
    pub(crate) fn have_delivered_before(&self, listening: &Listening, at: Time) -> bool {
        self.channels.has_delivered_before(listening, at)
    }

    /// Asks the listener for channels that are new to the client.
    pub(crate) fn order(
        &mut self,
        env: &Env<'_>,
        (conn, listening): (Token, &mut Listening),
        shared: Arc<SharedPool>,
        channels: Vec<Channel>,
        out: &mut Actions,
    ) {
        let number = listening.ask(Stage::Asking(channels.clone()), env.now);
        self.channels.asked(listening.key(), &channels);
        let request = request(env, conn, number, false);
        ask_owner(env, shared, listening.key().clone(), request, channels, out);
    }

    /// Replaces the token of a client, which has come back from another process.
    pub(crate) fn rename(&mut self, listening: &Listening, from: Token, to: Token) {
        self.channels
            .renamed(listening.key(), listening.channels(), from, to);
    }

    /// Ends all LISTENs of a client that has left, or is about to be closed.
    pub(crate) fn stop(
        &mut self,
        env: &Env<'_>,
        conn: Token,
        mut listening: Listening,
        out: &mut Actions,
    ) {
        if let Some(channels) = listening.asking() {
            let unwanted = self.channels.answered(listening.key(), channels, None);
            post_leave(env, listening.key(), unwanted, out);
        }
        self.leave(env, conn, listening.key(), listening.channels(), out);
        if let Some((key, channels)) = listening.take_former() {
            self.leave(env, conn, &key, &channels, out);
        }
    }

    /// Updates a client's channels after a transaction that may have run LISTEN or UNLISTEN, or changed
    /// the encoding. `made`: the channels that its server listens to now, in the server's encoding.
    fn set_channels(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        made: &[Vec<u8>],
        out: &mut Actions,
    ) -> Channels {
        if let Some(listening) = listening_of(connections, conn) {
            let gone = listening.take_dropped(made);
            self.leave(env, conn, listening.key(), &gone, out);
            forget_if_not_listening(connections, conn);
        }
        if made.is_empty() && listening_of(connections, conn).is_none() {
            return Channels::Settled;
        }
        let Some((shared, key, is_native)) = listener_key_of(connections, conn) else {
            return Channels::Refused;
        };
        let is_ascii = made.iter().all(|name| name.is_ascii());
        let most = env.snapshot.config.settings.max_client_channels as usize;
        let Some(client) = connections.client(conn) else {
            out.report_missing(NO_CLIENT);
            return Channels::Settled;
        };
        let listening = client
            .listening
            .get_or_insert_with(|| Box::new(Listening::new(key.clone())));
        let (is_ascii, new) = if *listening.key() == key {
            (is_ascii, listening.channels_not_held(made))
        } else {
            let mut held = listening.channels().iter();
            let is_ascii = is_ascii && held.all(|channel| channel.is_ascii());
            (is_ascii, listening.move_to(key, made))
        };
        if new.is_empty() {
            return Channels::Settled;
        }
        // In another encoding, the same channel has other bytes as its name.
        let is_too_much = listening.channels().len() + new.len() > most;
        if is_too_much || !is_ascii && !is_native {
            listening.cancel_move();
            forget_if_not_listening(connections, conn);
            return Channels::Refused;
        }
        self.order(env, (conn, listening), shared, new, out);
        Channels::Asked
    }

    /// Handles the answer of the worker that owns the listener.
    fn answered(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        request: PendingRequest,
        granted: bool,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let conn = request.client;
        let Some(listening) = listening_of(connections, conn) else {
            return vec![Effect::Restart(RestartEffect::ForwardedAnswered(
                request, granted,
            ))];
        };
        if !listening.awaits(request.number) {
            return Vec::new();
        }
        let key = listening.key().clone();
        let (stage, asked_at) = listening.take_stage();
        match stage {
            Stage::Settled | Stage::Elsewhere => Vec::new(),
            Stage::Asking(channels) => {
                let former = if granted {
                    listening.add_channels(channels.clone());
                    listening.take_former()
                } else {
                    listening.cancel_move();
                    None
                };
                let listens = granted.then_some(conn);
                let unwanted = self.channels.answered(&key, &channels, listens);
                post_leave(env, &key, unwanted, out);
                if let Some((key, channels)) = former {
                    self.leave(env, conn, &key, &channels, out);
                }
                forget_if_not_listening(connections, conn);
                self.channels_answered(env, connections, conn, granted, out)
            }
            stage @ (Stage::Fenced | Stage::FencedToMove) if granted => {
                listening.settle();
                self.channels.fenced(&key, asked_at);
                let moves = stage == Stage::FencedToMove;
                self.fence_passed(env, connections, conn, moves, out)
            }
            Stage::Fenced | Stage::FencedToMove => {
                let fault = Fault::ListenerLost("it is closed".to_owned());
                vec![Effect::Client(ClientEffect::EndClient(
                    conn,
                    Box::new(fault),
                ))]
            }
        }
    }

    /// Disconnects the clients of a lost listener: they may have missed notifications, and the error says so.
    fn listener_lost(
        &self,
        connections: &Connections,
        key: &ListenerKey,
        why: &Arc<str>,
    ) -> Vec<Effect> {
        let end = |conn| match connections.get(conn) {
            Some(Conn::Client(_)) => Effect::Client(ClientEffect::EndClient(
                conn,
                Box::new(Fault::ListenerLost(String::from(&**why))),
            )),
            _ => Effect::Restart(RestartEffect::ForwardedLost(conn, Arc::clone(why))),
        };
        self.channels.clients(key).into_iter().map(end).collect()
    }

    /// Removes these channels from the client, or all for `None`.
    fn unlisten(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        channel: Option<&[u8]>,
        out: &mut Actions,
    ) {
        if let Some(listening) = listening_of(connections, conn) {
            let gone = listening.drop_now(channel);
            self.leave(env, conn, listening.key(), &gone, out);
            forget_if_not_listening(connections, conn);
        }
    }

    fn leave(
        &mut self,
        env: &Env<'_>,
        conn: Token,
        key: &ListenerKey,
        channels: &[Channel],
        out: &mut Actions,
    ) {
        let unwanted = self.channels.left(key, channels, conn);
        post_leave(env, key, unwanted, out);
    }
}

const NO_CLIENT: &str = "the client of a lent server connection";

/// Makes a client wait until it has received all notifications up to now: asks the listener for them. Returns `false`
/// if the client does not listen.
pub(crate) fn fence(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    stage: Stage,
    out: &mut Actions,
) -> bool {
    let Some(server_conn) = connections.client(conn).and_then(|client| client.server()) else {
        out.report_missing("the server connection of a client that is fenced");
        return false;
    };
    let Some((client, server)) = connections.pair(conn, server_conn) else {
        out.report_missing(NO_CLIENT);
        return false;
    };
    let Some(listening) = &mut client.listening else {
        return false;
    };
    if listening.channels().is_empty() {
        return false;
    }
    let shared = Arc::clone(&server.shared);
    debug_assert_eq!(listening.key().pool, shared.id);
    let reads_all = server.session.loan.notifications.is_any_pending();
    ask_fence(env, (conn, listening), shared, stage, reads_all, out);
    true
}

/// Asks the listener of a client to forward all notifications up to now. `reads_all`: see
/// [`PendingRequest::reads_all`](crate::listen::PendingRequest::reads_all).
pub(crate) fn ask_fence(
    env: &Env<'_>,
    (conn, listening): (Token, &mut Listening),
    shared: Arc<SharedPool>,
    stage: Stage,
    reads_all: bool,
    out: &mut Actions,
) {
    let number = listening.ask(stage, env.now);
    let request = request(env, conn, number, reads_all);
    let key = listening.key().clone();
    ask_owner(env, shared, key, request, Vec::new(), out);
}

/// Notes a completed command of a client (`tag`: its tag with the final zero), or a failed one (`None`).
pub(crate) fn unlisten_completed(
    connections: &mut Connections,
    server_conn: Token,
    tag: Option<&[u8]>,
) {
    let Some(server) = connections.server(server_conn) else {
        return;
    };
    let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
    if !server.session.loan.has_listening_client() || is_own {
        return;
    }
    let client = server.client();
    if let Some(listening) = client.and_then(|client| listening_of(connections, client)) {
        listening.unlisten_completed(tag);
    }
}

fn request(env: &Env<'_>, client: Token, number: u32, reads_all: bool) -> PendingRequest {
    PendingRequest {
        worker: env.worker,
        client,
        number,
        reads_all,
    }
}

fn ask_owner(
    env: &Env<'_>,
    shared: Arc<SharedPool>,
    key: ListenerKey,
    request: PendingRequest,
    channels: Vec<Channel>,
    out: &mut Actions,
) {
    let request = ListenerRequest::Ask {
        shared,
        key,
        request,
        channels,
    };
    post(env, request, out);
}

fn post_leave(env: &Env<'_>, key: &ListenerKey, channels: Vec<Channel>, out: &mut Actions) {
    if channels.is_empty() {
        return;
    }
    let request = ListenerRequest::Leave {
        key: key.clone(),
        from: env.worker,
        channels,
    };
    post(env, request, out);
}

fn post(env: &Env<'_>, request: ListenerRequest, out: &mut Actions) {
    let (ListenerRequest::Ask { key, .. } | ListenerRequest::Leave { key, .. }) = &request;
    let to = listeners::owner(env.directory, key.pool);
    let mail = Mail::ListenerRequest(Box::new(request));
    out.mail(to, mail);
}

fn listening_of(connections: &mut Connections, conn: Token) -> Option<&mut Listening> {
    connections.client(conn)?.listening.as_deref_mut()
}

fn forget_if_not_listening(connections: &mut Connections, conn: Token) {
    if let Some(client) = connections.client(conn) {
        client.listening.take_if(|listening| listening.is_empty());
    }
}

/// Returns the client's pool and listener key, and whether the client uses the server's encoding.
fn listener_key_of(
    connections: &mut Connections,
    conn: Token,
) -> Option<(Arc<SharedPool>, ListenerKey, bool)> {
    let server = connections.client(conn)?.server()?;
    let (client, server) = connections.pair(conn, server)?;
    let shared = Arc::clone(&server.shared);
    debug_assert_eq!(client.pool(), Some(shared.id));
    let encoding: Arc<[u8]> = server.tracked.client_encoding().into();
    let server_parameters = shared.facts.lock().server_parameters.clone()?;
    let is_native = server_parameters.parameter(b"server_encoding") == Some(&encoding[..]);
    let key = ListenerKey {
        pool: shared.id,
        encoding,
    };
    Some((shared, key, is_native))
}
