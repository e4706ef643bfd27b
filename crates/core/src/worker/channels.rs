//! The channels of a client: from the server that runs its LISTEN to the listener of its pool, or there at once.
//!
//! A LISTEN or UNLISTEN that is a request of its own ([`ChannelCommand`]) never reaches a server of the client. The
//! listener's answer is the client's: one round trip, where the way over a server takes five. The listener answers when
//! it listens, so the client hears what is notified after its LISTEN, and nothing that was notified before.

use pgweir_wire::MessageWriter;

use super::{Worker, checkout::begin, client_listen::Channels, loan::enter};
use crate::{
    Actions, Time, Token,
    backend::{InternalQuery, Phase, Server, Settling},
    frontend::{Client, ClientDuty},
    listen::{READ_ALL, Stage},
    pin::Pin,
    session::ChannelCommand,
};

impl Worker {
    /// A client says LISTEN or UNLISTEN, outside a transaction, and its server has nothing to do with that. The message
    /// waits in `early`, in case the server has to take it.
    #[cold]
    pub(crate) fn channel_command(
        &mut self,
        server_conn: Token,
        command: ChannelCommand,
        now: Time,
        out: &mut Actions,
    ) {
        let directory = std::sync::Arc::clone(&self.directory);
        let Some((conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        let settling = Settling {
            listens: true,
            ..Settling::default()
        };
        enter(Phase::Settling(settling), conn, client, server_conn, server);
        let standby = directory.names().value(&server.tracked, b"in_hot_standby");
        let channel = match command {
            // PostgreSQL refuses LISTEN there.
            ChannelCommand::Listen(_) if standby == Some(b"on") => {
                return self.listen_on_server(server_conn, now, out);
            }
            ChannelCommand::Listen(channel) => channel,
            ChannelCommand::Unlisten(channel) => {
                self.unlisten(conn, channel.as_deref(), out);
                return self.answer_channel_command(server_conn, "UNLISTEN", now, out);
            }
        };
        match self.set_channels(conn, &[channel], now, out) {
            Channels::Asked => {}
            Channels::Settled => self.answer_channel_command(server_conn, "LISTEN", now, out),
            Channels::Refused => self.listen_on_server(server_conn, now, out),
        }
    }

    /// The listener has answered to a LISTEN that no server of the client has seen.
    fn listen_answered(&mut self, server_conn: Token, granted: bool, now: Time, out: &mut Actions) {
        match granted {
            true => self.answer_channel_command(server_conn, "LISTEN", now, out),
            false => self.listen_on_server(server_conn, now, out),
        }
    }

    /// The client hears these channels no more.
    fn unlisten(&mut self, conn: Token, channel: Option<&[u8]>, out: &mut Actions) {
        let Some(listening) = self.listening_of(conn) else {
            return;
        };
        let key = listening.key.clone();
        let gone = listening.drop_now(channel);
        self.unlisten_channels(conn, &key, &gone, out);
        self.forget_if_not_listening(conn);
    }

    /// Answers a LISTEN or UNLISTEN in the server's place.
    fn answer_channel_command(
        &mut self,
        server_conn: Token,
        tag: &str,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        let pool = server.pool();
        let took = now.since(client.request_at);
        // As by any query.
        client.forget_unnamed();
        let message = client.early.take();
        if let Some(pool) = self.pool(pool) {
            let stats = &mut pool.stats.now;
            stats.received += message.map_or(0, |message| message.len() as u64);
            stats.query_count += 1;
            stats.query_time += took;
            stats.xact_count += 1;
            stats.xact_time += took;
        }
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).command_complete(tag);
        });
        self.finish_fenced_request(server_conn, now, out);
        self.release_if_done(server_conn, now, out);
    }

    /// No listener takes the channel: the client's server is to listen, and keeps the client.
    fn listen_on_server(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let Some((conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        server.session.listens_itself = true;
        enter(Phase::Relaying, conn, client, server_conn, server);
        let early = begin(conn, client, server_conn, server, out);
        self.relay_early(conn, early, now, out);
    }
}

impl Worker {
    /// After a transaction of the client that has this server: a listener is to have its channels.
    /// `false` if that takes a while; [`Worker::finish_with_fence`] is called then.
    pub(super) fn move_channels_to_listener(
        &mut self,
        server_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some((conn, client, server)) = self.table.pair_of(server_conn) else {
            return true;
        };
        let learnt = server.session.channels.take();
        let listening = client.listening.as_ref();
        let is_due = listening.is_some_and(|listening| listening.pending_unlisten.is_due())
            || is_in_other_encoding(client, server);
        if learnt.is_none() && !is_due {
            return true;
        }
        // If nothing was asked, it is the extension that says what it listens to.
        let reported = self.table.server(server_conn).and_then(|server| {
            let report = server.session.report.as_ref()?;
            Some(report.channels.clone())
        });
        let made = learnt.or(reported).unwrap_or_default();
        match self.set_channels(conn, &made, now, out) {
            Channels::Settled if made.is_empty() => {
                self.pin_by_channels(server_conn, false, now, out);
                true
            }
            Channels::Settled => {
                self.pin_by_channels(server_conn, false, now, out);
                self.unlisten_server(server_conn, out);
                false
            }
            Channels::Asked => false,
            Channels::Refused => {
                self.pin_by_channels(server_conn, !made.is_empty(), now, out);
                true
            }
        }
    }

    /// Its listener has been asked to listen.
    pub(super) fn channels_answered(
        &mut self,
        conn: Token,
        granted: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let server_conn = match client.duty {
            ClientDuty::Preparing(server_conn) => server_conn,
            ClientDuty::TakenOver => return self.arriving_answered(conn, granted, now, out),
            _ => return,
        };
        let server = self.table.server(server_conn);
        if server.is_some_and(|server| server.settling().is_some_and(|it| it.listens)) {
            return self.listen_answered(server_conn, granted, now, out);
        }
        self.pin_by_channels(server_conn, !granted, now, out);
        if granted {
            // What the listener told before it answered, this server may not have told yet; once it does not
            // listen any more it won't.
            if let Some(server) = self.table.server(server_conn) {
                server.ask(InternalQuery::ReadAll);
                out.send_made(server_conn, |bytes| {
                    MessageWriter::new(bytes).query(READ_ALL);
                });
            }
            self.unlisten_server(server_conn, out);
        } else {
            self.finish_with_fence(server_conn, now, out);
            self.release_if_done(server_conn, now, out);
        }
    }

    /// A client whose channels no listener takes keeps the server that listens to them.
    fn pin_by_channels(
        &mut self,
        server_conn: Token,
        is_pinned: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((conn, client, _)) = self.table.pair_of(server_conn) else {
            return;
        };
        let Some(context) = &mut client.context else {
            return;
        };
        let mut pins = context.pins;
        if is_pinned {
            pins.insert(Pin::Listen);
        } else {
            pins.remove(Pin::Listen);
        }
        let new = pins.new_since(context.pins);
        context.pin(pins, now);
        if !new.is_empty() {
            self.count_reasons(conn, server_conn, new, now, out);
        }
    }

    /// A client that listens is about to get a server on which others may have notified just now: that
    /// is to be known first.
    #[cold]
    pub(super) fn fence_first(
        &mut self,
        server_conn: Token,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some((client, server)) = self.table.pair(conn, server_conn) else {
            return false;
        };
        enter(Phase::Equipping, conn, client, server_conn, server);
        if self.fence(conn, now, out) {
            self.equip_fenced(server_conn, conn, now, out);
        }
        true
    }

    fn equip_fenced(&mut self, server_conn: Token, conn: Token, now: Time, out: &mut Actions) {
        if let Some((client, server)) = self.table.pair(conn, server_conn) {
            server.holder.set(client.key_pid);
            self.equip(server_conn, conn, now, out);
        }
    }

    /// What was notified is told by the listener that has heard it, before the one of another encoding
    /// takes its place. `true` if that takes a while; [`Worker::listen_fence_passed`] follows.
    pub(super) fn fences_to_move(
        &mut self,
        server_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        match self.table.pair_of(server_conn) {
            Some((conn, client, server)) if is_in_other_encoding(client, server) => {
                !self.fence_as(conn, Stage::FencedToMove, now, out)
            }
            _ => false,
        }
    }

    /// All has come that had been notified. `moves`: now another listener takes over.
    pub(super) fn listen_fence_passed(
        &mut self,
        conn: Token,
        moves: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let server_conn = match client.duty {
            ClientDuty::Preparing(server_conn) => server_conn,
            ClientDuty::TakenOver => return self.finish_listen_takeover(conn, now, out),
            // It has lost its server meanwhile.
            _ => return self.send_backlog_if_idle(conn, out),
        };
        let server = self.table.server(server_conn);
        match server.and_then(|server| server.duty.phase()) {
            Some(Phase::Settling(_)) => {
                match moves {
                    true => self.finish_with_channels(server_conn, now, out),
                    false => self.finish_fenced_request(server_conn, now, out),
                }
                self.release_if_done(server_conn, now, out);
            }
            Some(Phase::Equipping) => self.equip_fenced(server_conn, conn, now, out),
            _ => {}
        }
    }

    /// The channels that the server of a client listens to are its listener's business now.
    fn unlisten_server(&mut self, server_conn: Token, out: &mut Actions) {
        if let Some(server) = self.table.server(server_conn) {
            server.ask(InternalQuery::Unlisten);
            out.send_made(server_conn, |bytes| {
                MessageWriter::new(bytes).query(b"UNLISTEN *");
            });
        }
    }
}

/// Does a client's listener speak in another encoding than its server does now?
fn is_in_other_encoding(client: &Client, server: &Server) -> bool {
    let encoding = server.tracked.client_encoding();
    let listening = client.listening.as_ref();
    listening.is_some_and(|listening| *listening.key.encoding != *encoding)
}
