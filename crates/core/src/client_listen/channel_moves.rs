//! Moves a client's channels from the server that runs its LISTEN to the listener of its pool.
//!
//! A LISTEN or UNLISTEN that is a request by itself ([`ChannelCommand`]) never reaches a server of the client: pgweir
//! asks the listener, and answers the client. This way takes one round trip; a LISTEN on a server takes five. The
//! listener answers once it listens, so the client gets the notifications sent after its LISTEN, and none sent before.

use pgweir_wire::MessageWriter;

use super::{Channels, ListeningClients, NO_CLIENT, fence, send_backlog_if_idle};
use crate::{
    Actions, Token,
    backend::{InternalQuery, Phase, Server, Settling},
    base::{pin::Pin, stats::Stats},
    connections::{Connections, moves::enter},
    effect::{Effect, Env, RestartEffect, ServerEffect, SessionEffect},
    frontend::{Client, ClientDuty},
    listen::{READ_ALL, Stage},
    loan::begin_relaying,
    session::ChannelCommand,
};

/// The state of the channels that a transaction has listened to.
enum ChannelMove {
    /// The channels are with the client's listener, and the client's request can go on.
    Done(Option<Effect>),
    /// The request goes on with [`SessionEffect::FinishWithFence`](crate::effect::SessionEffect::FinishWithFence), after an answer of the listener or the server.
    Awaited,
}

impl ListeningClients {
    /// Handles a LISTEN or UNLISTEN outside a transaction, which the client's server need not run. The message
    /// waits in `early`, in case the server has to run it.
    #[cold]
    pub(crate) fn command(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        server_conn: Token,
        command: ChannelCommand,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let Some((conn, client, server)) = connections.pair_of(server_conn) else {
            out.report_missing(NO_CLIENT);
            return Vec::new();
        };
        let settling = Settling {
            awaits_listener: true,
            ..Settling::default()
        };
        enter(Phase::Settling(settling), conn, client, server_conn, server);
        let names = env.directory.names();
        let standby = names.value(&server.tracked, b"in_hot_standby");
        let channel = match command {
            // PostgreSQL refuses LISTEN on a standby.
            ChannelCommand::Listen(_) if standby == Some(b"on") => {
                return listen_on_server(connections, server_conn, out);
            }
            ChannelCommand::Listen(channel) => channel,
            ChannelCommand::Unlisten(channel) => {
                self.unlisten(env, connections, conn, channel.as_deref(), out);
                return answer_command(env, connections, server_conn, "UNLISTEN", out);
            }
        };
        match self.set_channels(env, connections, conn, &[channel], out) {
            Channels::Asked => Vec::new(),
            Channels::Settled => answer_command(env, connections, server_conn, "LISTEN", out),
            Channels::Refused => listen_on_server(connections, server_conn, out),
        }
    }

    /// Moves the channels of a client to its listener, and goes on with the client's request if that is done at once.
    pub(crate) fn move_and_finish(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        server_conn: Token,
        out: &mut Actions,
    ) -> Vec<Effect> {
        match self.move_channels(env, connections, server_conn, out) {
            ChannelMove::Done(effect) => {
                let mut effects = Vec::from_iter(effect);
                effects.push(Effect::Session(server_conn, SessionEffect::FinishWithFence));
                effects
            }
            ChannelMove::Awaited => Vec::new(),
        }
    }

    /// Moves the channels of a client to its listener, after a transaction on this server.
    fn move_channels(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        server_conn: Token,
        out: &mut Actions,
    ) -> ChannelMove {
        let Some((conn, client, server)) = connections.pair_of(server_conn) else {
            out.report_missing(NO_CLIENT);
            return ChannelMove::Done(None);
        };
        let found = server.session.loan.edit().notifications.take_channels();
        if found.is_none() && !is_move_due(client, server) {
            return ChannelMove::Done(None);
        }
        // Without an inspection, the extension's report says which channels the server listens to.
        let report = server.session.extension.last();
        let reported = report.map(|report| report.channels.clone());
        let made = found.or(reported).unwrap_or_default();
        match self.set_channels(env, connections, conn, &made, out) {
            Channels::Settled if made.is_empty() => {
                ChannelMove::Done(pin_by_channels(env, connections, server_conn, false))
            }
            Channels::Settled => {
                pin_by_channels(env, connections, server_conn, false);
                unlisten_server(connections, server_conn, out);
                ChannelMove::Awaited
            }
            Channels::Asked => ChannelMove::Awaited,
            Channels::Refused => {
                let is_pinned = !made.is_empty();
                ChannelMove::Done(pin_by_channels(env, connections, server_conn, is_pinned))
            }
        }
    }

    /// Goes on with a client's LISTEN after the listener's answer.
    pub(super) fn channels_answered(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        granted: bool,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let Some(client) = connections.client(conn) else {
            out.report_missing(NO_CLIENT);
            return Vec::new();
        };
        let server_conn = match *client.duty() {
            ClientDuty::Preparing(server_conn) => server_conn,
            ClientDuty::TakenOver => {
                return vec![Effect::Restart(RestartEffect::TakenOverListens(
                    conn, granted,
                ))];
            }
            // The client has lost its server meanwhile.
            _ => return Vec::new(),
        };
        let settling = (connections.server(server_conn)).and_then(|server| server.settling());
        if settling.is_some_and(|settling| settling.awaits_listener) {
            return match granted {
                true => answer_command(env, connections, server_conn, "LISTEN", out),
                false => listen_on_server(connections, server_conn, out),
            };
        }
        let pinned = pin_by_channels(env, connections, server_conn, !granted);
        if granted {
            // The server may not have sent all notifications that the listener had sent before its answer. After
            // UNLISTEN the server would never send the missing ones.
            if let Some(server) = connections.server(server_conn) {
                out.ask(server_conn, server, InternalQuery::ReadAll, READ_ALL);
            }
            unlisten_server(connections, server_conn, out);
            return Vec::new();
        }
        let mut effects = Vec::from_iter(pinned);
        effects.push(Effect::Session(server_conn, SessionEffect::FinishWithFence));
        effects.push(Effect::Settle(server_conn));
        effects
    }

    /// Continues once all earlier notifications have arrived. `moves`: another listener takes over now.
    pub(super) fn fence_passed(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        conn: Token,
        moves: bool,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let Some(client) = connections.client(conn) else {
            out.report_missing(NO_CLIENT);
            return Vec::new();
        };
        let server_conn = match *client.duty() {
            ClientDuty::Preparing(server_conn) => server_conn,
            ClientDuty::TakenOver => {
                return vec![Effect::Restart(RestartEffect::TakenOverFenced(conn))];
            }
            // The client has lost its server meanwhile.
            _ => {
                send_backlog_if_idle(connections, conn, out);
                return Vec::new();
            }
        };
        let server = connections.server(server_conn);
        match server.and_then(|server| server.duty().phase()) {
            Some(Phase::Settling(_)) if moves => {
                let mut effects = self.move_and_finish(env, connections, server_conn, out);
                effects.push(Effect::Settle(server_conn));
                effects
            }
            Some(Phase::Settling(_)) => {
                vec![
                    Effect::Session(server_conn, SessionEffect::FinishRequest),
                    Effect::Settle(server_conn),
                ]
            }
            Some(Phase::Equipping) => equip_fenced(connections, server_conn, conn),
            _ => Vec::new(),
        }
    }
}

/// Answers a LISTEN or UNLISTEN in the server's place.
fn answer_command(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    tag: &str,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some((conn, client, server)) = connections.pair_of(server_conn) else {
        out.report_missing(NO_CLIENT);
        return Vec::new();
    };
    let took = env.now.since(client.request.sent_at());
    // Any simple query drops the unnamed statement.
    client.unnamed.forget();
    let message = client.socket.take_early();
    let counted = Stats {
        received: message.map_or(0, |message| message.len() as u64),
        query_count: 1,
        query_time: took,
        xact_count: 1,
        xact_time: took,
        ..Stats::default()
    };
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).command_complete(tag);
    });
    vec![
        Effect::Count(server.pool(), Box::new(counted)),
        Effect::Session(server_conn, SessionEffect::FinishRequest),
        Effect::Settle(server_conn),
    ]
}

/// Sends a LISTEN for which there is no listener to the client's server; the client keeps that server.
fn listen_on_server(
    connections: &mut Connections,
    server_conn: Token,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some((conn, client, server)) = connections.pair_of(server_conn) else {
        out.report_missing(NO_CLIENT);
        return Vec::new();
    };
    server.session.loan.edit().notifications.send_next_listen();
    enter(Phase::Relaying, conn, client, server_conn, server);
    let early = begin_relaying(conn, client, server_conn, server, out);
    Vec::from_iter(early.map(|early| Effect::RelayEarly(conn, early)))
}

/// If no listener takes a client's channels, pins the client to the server that listens to them. Otherwise, removes
/// that pin.
fn pin_by_channels(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    is_pinned: bool,
) -> Option<Effect> {
    let (conn, client, _) = connections.pair_of(server_conn)?;
    let context = client.context.as_mut()?;
    let mut pins = context.pins;
    if is_pinned {
        pins.insert(Pin::Listen);
    } else {
        pins.remove(Pin::Listen);
    }
    let new = pins.new_since(context.pins);
    context.pin(pins, env.now);
    (!new.is_empty()).then_some(Effect::CountPins {
        client: conn,
        server: server_conn,
        pins: new,
    })
}

/// Makes a client that listens wait for the latest notifications before it gets a server on which other clients may
/// have sent some just now.
#[cold]
pub(crate) fn fence_first(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    conn: Token,
    out: &mut Actions,
) -> Vec<Effect> {
    let Some((client, server)) = connections.pair(conn, server_conn) else {
        out.report_missing(NO_CLIENT);
        return Vec::new();
    };
    enter(Phase::Equipping, conn, client, server_conn, server);
    match fence(env, connections, conn, Stage::Fenced, out) {
        true => Vec::new(),
        false => equip_fenced(connections, server_conn, conn),
    }
}

fn equip_fenced(connections: &mut Connections, server_conn: Token, conn: Token) -> Vec<Effect> {
    let Some((client, server)) = connections.pair(conn, server_conn) else {
        return Vec::new();
    };
    server.holder().set(client.pid());
    vec![Effect::Server(ServerEffect::Equip {
        server: server_conn,
        client: conn,
    })]
}

/// Returns whether channels of the client have to move to its listener, after a transaction on this server.
pub(crate) fn has_channels_to_move(connections: &mut Connections, server_conn: Token) -> bool {
    connections
        .pair_of(server_conn)
        .is_some_and(|(_, client, server)| {
            server.session.loan.notifications.has_channels() || is_move_due(client, server)
        })
}

fn is_move_due(client: &Client, server: &Server) -> bool {
    let listening = client.listening.as_ref();
    listening.is_some_and(|listening| listening.has_unlisten())
        || is_in_other_encoding(client, server)
}

/// Makes the present listener forward all notifications up to now, before the listener of another encoding takes its
/// place. Returns whether the client has to wait for that.
pub(crate) fn fences_to_move(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    out: &mut Actions,
) -> bool {
    match connections.pair_of(server_conn) {
        Some((conn, client, server)) if is_in_other_encoding(client, server) => {
            fence(env, connections, conn, Stage::FencedToMove, out)
        }
        _ => false,
    }
}

/// Runs UNLISTEN on the client's server, since the listener has the channels now.
fn unlisten_server(connections: &mut Connections, server_conn: Token, out: &mut Actions) {
    let Some(server) = connections.server(server_conn) else {
        return out.report_missing("the server connection that listens for a client");
    };
    out.ask(server_conn, server, InternalQuery::Unlisten, b"UNLISTEN *");
}

/// Returns whether a client's listener uses another encoding than its server does now.
fn is_in_other_encoding(client: &Client, server: &Server) -> bool {
    let encoding = server.tracked.client_encoding();
    let listening = client.listening.as_ref();
    listening.is_some_and(|listening| !listening.uses(encoding))
}
