//! Moves a client's channels from the server that runs its LISTEN to the listener of its pool.
//!
//! A LISTEN or UNLISTEN that is a request by itself ([`ChannelCommand`]) never reaches a server of the client: pgweir
//! asks the listener, and answers the client. That takes one round trip; through a server it takes five. The listener
//! answers once it listens, so the client gets what is notified after its LISTEN, and nothing notified before.

use pgweir_wire::MessageWriter;

use super::{Worker, client_listen::Channels};
use crate::{
    Actions, Time, Token,
    backend::{InternalQuery, Phase, Server, Settling},
    frontend::{Client, ClientDuty},
    listen::{READ_ALL, Stage},
    loan::{begin, enter},
    pin::Pin,
    session::ChannelCommand,
};

impl Worker {
    /// Handles a LISTEN or UNLISTEN outside a transaction, which the client's server need not run. The message
    /// waits in `early`, in case the server has to run it.
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
            // PostgreSQL refuses LISTEN on a standby.
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

    /// Handles the listener's answer to a LISTEN that no server of the client has received.
    fn listen_answered(&mut self, server_conn: Token, granted: bool, now: Time, out: &mut Actions) {
        match granted {
            true => self.answer_channel_command(server_conn, "LISTEN", now, out),
            false => self.listen_on_server(server_conn, now, out),
        }
    }

    /// Removes these channels from the client.
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
        // Any simple query drops the unnamed statement.
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

    /// Sends a LISTEN that no listener takes to the client's server; the client keeps that server.
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
    /// Moves the channels of a client to its listener, after a transaction on this server.
    /// Returns `false` if that takes a while; [`Worker::finish_with_fence`] is called then.
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
        // Without an inspection, the extension's report says which channels the server listens to.
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

    /// Handles the listener's answer to a request to listen.
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
            // The server may not have sent yet what the listener sent before its answer. After UNLISTEN the server
            // would never send that.
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

    /// Pins a client to the server that listens to its channels, if no listener takes them; else removes that pin.
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

    /// Sends a client that listens the latest notifications first, before it gets a server on which other
    /// clients may have notified just now.
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

    /// Has the present listener forward what was notified, before the listener of another encoding takes
    /// its place. Returns `true` if that takes a while; [`Worker::listen_fence_passed`] follows.
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

    /// Continues once all earlier notifications have arrived. `moves`: another listener takes over now.
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
            // The client has lost its server meanwhile.
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

    /// Runs UNLISTEN on the client's server, since the listener has the channels now.
    fn unlisten_server(&mut self, server_conn: Token, out: &mut Actions) {
        if let Some(server) = self.table.server(server_conn) {
            server.ask(InternalQuery::Unlisten);
            out.send_made(server_conn, |bytes| {
                MessageWriter::new(bytes).query(b"UNLISTEN *");
            });
        }
    }
}

/// Returns whether a client's listener uses another encoding than its server does now.
fn is_in_other_encoding(client: &Client, server: &Server) -> bool {
    let encoding = server.tracked.client_encoding();
    let listening = client.listening.as_ref();
    listening.is_some_and(|listening| *listening.key.encoding != *encoding)
}
