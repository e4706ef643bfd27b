//! LISTEN for clients: asks the pool's listener for a client's channels, and delivers its notifications.
//!
//! The worker that owns the listener answers whether the listener can take the channels. A client between transactions
//! gets a notification at once; for other clients it waits in a backlog of at most `notification_backlog` bytes.

use std::sync::Arc;

use super::{Worker, listeners::post};
use crate::{
    Actions, SharedPool, Time, Token,
    backend::Request,
    fault::Fault,
    frontend::ClientDuty,
    listen::{Channel, ListenerKey, Listening, Message, Notification, Question, Stage},
};

/// The result of a change of a client's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// All is done: the client's server need not listen to any channel.
    Settled,
    /// The listener was asked: [`Worker::channels_answered`] follows.
    Asked,
    /// No listener can take the channels: the client keeps the server that listens to them.
    Refused,
}

impl Worker {
    /// Updates a client's channels after a transaction that may have run LISTEN or UNLISTEN, or changed
    /// the encoding. `made`: the channels that its server listens to now, in the server's encoding.
    pub(crate) fn set_channels(
        &mut self,
        conn: Token,
        made: &[Vec<u8>],
        now: Time,
        out: &mut Actions,
    ) -> Channels {
        if let Some(listening) = self.listening_of(conn) {
            let gone = listening.take_dropped(made);
            let key = listening.key.clone();
            self.unlisten_channels(conn, &key, &gone, out);
            self.forget_if_not_listening(conn);
        }
        if made.is_empty() && self.listening_of(conn).is_none() {
            return Channels::Settled;
        }
        let Some((shared, key, is_native)) = self.listener_key_of(conn) else {
            return Channels::Refused;
        };
        let is_ascii = made.iter().all(|name| name.is_ascii());
        let most = self.snapshot.config.settings.max_client_channels as usize;
        let Some(client) = self.table.client(conn) else {
            return Channels::Settled;
        };
        let listening = client
            .listening
            .get_or_insert_with(|| Box::new(Listening::new(key.clone())));
        let moves = listening.key != key;
        let (is_ascii, new) = if moves {
            let heard = listening.channels().iter();
            let is_ascii = is_ascii && heard.clone().all(|channel| channel.is_ascii());
            (is_ascii, listening.move_to(key.clone(), made))
        } else {
            (is_ascii, listening.channels_not_held(made))
        };
        if new.is_empty() {
            return Channels::Settled;
        }
        // In another encoding a channel has another name.
        let is_too_much = listening.channels().len() + new.len() > most;
        if is_too_much || !is_ascii && !is_native {
            listening.cancel_move();
            self.forget_if_not_listening(conn);
            return Channels::Refused;
        }
        let number = listening.ask(Stage::Asking(new.clone()), now);
        self.channels.asked(&key, &new);
        let question = self.question(conn, number, false);
        self.ask_listener_owner(shared, key, question, new, out);
        Channels::Asked
    }

    /// Returns whether this client has received all notifications up to now. If not,
    /// [`Worker::listen_fence_passed`] follows.
    pub(crate) fn fence(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        self.fence_as(conn, Stage::Fenced, now, out)
    }

    pub(super) fn fence_as(
        &mut self,
        conn: Token,
        stage: Stage,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some(client) = self.table.client(conn) else {
            return true;
        };
        let Some(listening) = &mut client.listening else {
            return true;
        };
        if listening.channels().is_empty() {
            return true;
        }
        let number = listening.ask(stage, now);
        let key = listening.key.clone();
        let server = client.server();
        let shared = client.pool.and_then(|pool| self.pool(pool));
        let Some(shared) = shared.map(|pool| Arc::clone(&pool.shared)) else {
            return true;
        };
        let server = server.and_then(|server| self.table.server(server));
        let reads_all = server.is_some_and(|server| !server.session.notified.is_empty());
        let question = self.question(conn, number, reads_all);
        self.ask_listener_owner(shared, key, question, Vec::new(), out);
        false
    }

    pub(super) fn question(&self, client: Token, number: u32, reads_all: bool) -> Question {
        Question {
            worker: self.id,
            client,
            number,
            reads_all,
        }
    }

    pub(super) fn ask_listener_owner(
        &self,
        shared: Arc<SharedPool>,
        key: ListenerKey,
        question: Question,
        channels: Vec<Channel>,
        out: &mut Actions,
    ) {
        let to = self.owner_of_listeners(key.pool);
        let mail = Message::Ask {
            shared,
            key,
            question,
            channels,
        };
        post(to, mail, out);
    }

    /// Handles the answer of the worker that owns the listener.
    pub(super) fn listener_answered(
        &mut self,
        question: Question,
        granted: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let conn = question.client;
        let Some(listening) = self.listening_of(conn) else {
            return self.forward_answered(question, granted, out);
        };
        if !listening.awaits(question.number) {
            return;
        }
        let (key, asked_at) = (listening.key.clone(), listening.asked_at);
        match std::mem::replace(&mut listening.stage, Stage::Settled) {
            Stage::Settled | Stage::Elsewhere => {}
            Stage::Asking(channels) => {
                let heard_by = granted.then_some(conn);
                let former = if granted {
                    listening.add_channels(channels.clone());
                    listening.take_former()
                } else {
                    listening.cancel_move();
                    None
                };
                let unwanted = self.channels.answered(&key, &channels, heard_by);
                self.post_unlisten(&key, unwanted, out);
                if let Some((key, channels)) = former {
                    self.unlisten_channels(conn, &key, &channels, out);
                }
                self.forget_if_not_listening(conn);
                self.channels_answered(conn, granted, now, out);
            }
            stage @ (Stage::Fenced | Stage::FencedToMove) if granted => {
                listening.settle();
                self.channels.fenced(&key, asked_at);
                let moves = stage == Stage::FencedToMove;
                self.listen_fence_passed(conn, moves, now, out);
            }
            Stage::Fenced | Stage::FencedToMove => {
                let fault = Fault::ListenerLost("it is closed".to_owned());
                self.end_client(conn, &fault, now, out);
            }
        }
    }

    /// Delivers a notification to clients of this worker.
    pub(super) fn notified(
        &mut self,
        key: &ListenerKey,
        message: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        let Some(notification) = Notification::parse(message) else {
            return;
        };
        let clients = self.channels.clients_of(key, notification.channel).to_vec();
        for client in clients {
            self.deliver_notification(client, message, now, out);
        }
    }

    /// Sends a notification to a client between transactions at once, else keeps it until the transaction's end.
    fn deliver_notification(&mut self, conn: Token, message: &[u8], now: Time, out: &mut Actions) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let is_open = self.is_between_transactions(conn);
        let Some(listening) = self.listening_of(conn) else {
            return self.forward(conn, message, out);
        };
        if is_open && !listening.has_backlog() {
            return out.send_made(conn, |bytes| bytes.extend_from_slice(message));
        }
        if listening.keep(message, most).is_err() {
            self.end_client(conn, &Fault::NotificationBacklog, now, out);
        }
    }

    /// Handles a notification from a pooled server: its client listens on that server, or has just run LISTEN.
    #[cold]
    pub(crate) fn keep_direct_notification(
        &mut self,
        server_conn: Token,
        message: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        let most = self.snapshot.config.settings.notification_backlog as usize;
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let (Some(conn), Some(notification)) = (server.client(), Notification::parse(message))
        else {
            return;
        };
        let mut made = message.to_vec();
        let holders = self.directory.holders();
        if let Some(pid) = holders.find(&server.endpoint, notification.pid) {
            Notification::set_pid(&mut made, pid);
        }
        let Some((client, server)) = self.table.pair(conn, server_conn) else {
            return;
        };
        let listening = client.listening.as_ref();
        if listening.is_some_and(|listening| listening.receives(notification.channel)) {
            return;
        }
        let is_carried = client.context.is_some();
        let is_idle = server.replies.is_settled() && server.relays_for().is_some();
        if is_idle || !is_carried {
            return out.send_made(conn, |bytes| bytes.extend_from_slice(&made));
        }
        if server.session.notified.len() + made.len() > most {
            return self.end_client(conn, &Fault::NotificationBacklog, now, out);
        }
        server.session.notified.extend_from_slice(&made);
    }

    /// Handles a completed command of a client (`tag`: its tag with the final zero), or a failed one (`None`).
    pub(crate) fn unlisten_completed(&mut self, server_conn: Token, tag: Option<&[u8]>) {
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
        if !server.session.has_listening_client || is_own {
            return;
        }
        let client = server.client();
        if let Some(listening) = client.and_then(|client| self.listening_of(client)) {
            match tag {
                Some(tag) => listening.pending_unlisten.completed(tag),
                None => listening.pending_unlisten.failed(),
            }
        }
    }

    /// Sends the notifications that waited for the end of a transaction.
    pub(crate) fn send_backlog(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let server = client.server();
        let notified = server.and_then(|server| self.table.server(server));
        let notified = notified.map(|server| std::mem::take(&mut server.session.notified));
        let notified = notified.unwrap_or_default();
        let backlog = match self.listening_of(conn) {
            Some(listening) => listening.take_backlog(&notified),
            None => notified,
        };
        if !backlog.is_empty() {
            out.send_made(conn, |bytes| bytes.extend_from_slice(&backlog));
        }
        self.forget_if_not_listening(conn);
    }

    /// Sends the notifications that waited for the client to read, if it is between transactions.
    pub(super) fn send_backlog_if_idle(&mut self, conn: Token, out: &mut Actions) {
        if self.is_between_transactions(conn) {
            self.send_backlog(conn, out);
        }
    }

    /// Returns whether the client may get a notification now. PostgreSQL sends them between transactions only.
    fn is_between_transactions(&mut self, conn: Token) -> bool {
        let Some(client) = self.table.client(conn) else {
            return false;
        };
        if client.blocked
            || client
                .listening
                .as_ref()
                .is_some_and(|listening| listening.stage != Stage::Settled)
        {
            return false;
        }
        match client.duty {
            ClientDuty::Idle | ClientDuty::Waiting { .. } => true,
            ClientDuty::Preparing(server) => self
                .table
                .server(server)
                .is_some_and(|server| server.equips().is_some()),
            ClientDuty::Active(server) => self.table.server(server).is_some_and(|server| {
                server.replies.is_settled()
                    && server.status == b'I'
                    && server.stream.is_at_boundary()
                    && server.relays_for().is_some()
            }),
            _ => false,
        }
    }

    /// Ends all LISTENs of a client that has left, or is about to be closed.
    pub(super) fn stop_listen(&mut self, conn: Token, mut listening: Listening, out: &mut Actions) {
        if let Stage::Asking(channels) = &listening.stage {
            let unwanted = self.channels.answered(&listening.key, channels, None);
            self.post_unlisten(&listening.key, unwanted, out);
        }
        let channels = listening.channels().to_vec();
        self.unlisten_channels(conn, &listening.key, &channels, out);
        if let Some((key, channels)) = listening.take_former() {
            self.unlisten_channels(conn, &key, &channels, out);
        }
    }

    /// Ends the clients of a lost listener: they may have missed notifications, and have to learn of that.
    pub(super) fn end_listening(
        &mut self,
        key: &ListenerKey,
        why: &str,
        now: Time,
        out: &mut Actions,
    ) {
        for client in self.channels.clients(key) {
            if !self.fail_forwarded_client(client, why, out) {
                let fault = Fault::ListenerLost(why.to_owned());
                self.end_client(client, &fault, now, out);
            }
        }
    }

    pub(super) fn listening_of(&mut self, conn: Token) -> Option<&mut Listening> {
        self.table.client(conn)?.listening.as_deref_mut()
    }

    pub(super) fn forget_if_not_listening(&mut self, conn: Token) {
        if let Some(client) = self.table.client(conn)
            && let Some(listening) = &client.listening
            && listening.is_empty()
        {
            client.listening = None;
        }
    }

    pub(super) fn unlisten_channels(
        &mut self,
        conn: Token,
        key: &ListenerKey,
        channels: &[Channel],
        out: &mut Actions,
    ) {
        let unwanted = self.channels.left(key, channels, conn);
        self.post_unlisten(key, unwanted, out);
    }

    fn post_unlisten(&self, key: &ListenerKey, channels: Vec<Channel>, out: &mut Actions) {
        if channels.is_empty() {
            return;
        }
        let to = self.owner_of_listeners(key.pool);
        let mail = Message::Leave {
            key: key.clone(),
            from: self.id,
            channels,
        };
        post(to, mail, out);
    }

    /// Returns the client's pool and listener key, and whether the client uses the server's encoding.
    fn listener_key_of(&mut self, conn: Token) -> Option<(Arc<SharedPool>, ListenerKey, bool)> {
        let client = self.table.client(conn)?;
        let (pool, server) = (client.pool?, client.server()?);
        let tracked = &self.table.server(server)?.tracked;
        let encoding: Arc<[u8]> = tracked.client_encoding().into();
        let pool = self.pool(pool)?;
        let server_parameters = pool.server_parameters()?;
        let is_native = server_parameters.parameter(b"server_encoding") == Some(&encoding[..]);
        let shared = Arc::clone(&pool.shared);
        let key = ListenerKey {
            pool: shared.id,
            encoding,
        };
        Some((shared, key, is_native))
    }
}
