//! `partial_message_timeout`: ends clients and servers that have stopped sending in the middle of a
//! message.
//!
//! A client that sends five bytes of a message and then nothing would keep its server connection for ever. This
//! module owns no state; each connection remembers its [`Progress`]. Each check of the deadlines compares how far
//! each client or server has come within its message, and returns effects that end those which have sent nothing for
//! too long.
//!
//! A client or server is ended only if it has no reason to pause within its message:
//! - A server sends its buffer when the buffer is full, so while it runs a query it may pause
//!   within a message. Servers are checked only when all requests have been answered.
//! - libpq sends the data of a COPY in the same way, so a client with a slow source of data may
//!   pause within a message.
//! - A client that sends the beginning of the next message while its query runs is checked when the query has ended.

use pgweir_wire::tag::frontend;

use crate::{
    Replication, Time, Token,
    backend::{Duty, Phase, Server},
    base::{
        fault::Fault,
        progress::{Place, Progress},
    },
    connections::{Conn, Connections, INTERVAL},
    effect::{ClientEffect, Effect, Env},
    frontend::{Client, ClientDuty},
};

/// If a check comes this much later than planned, in microseconds, the process was stopped, and has
/// not yet read the bytes that arrived meanwhile.
const LATE: u64 = 3 * INTERVAL;

/// Finds the connections whose peer is stuck in the middle of a message. `planned`: when this check was to be made.
pub(crate) fn check(env: &Env<'_>, connections: &mut Connections, planned: Time) -> Vec<Effect> {
    let limit = env.snapshot.config.settings.partial_message_timeout.0;
    let was_stopped = env.now.since(planned) >= LATE;
    let mut stuck = Vec::new();
    for token in connections.tokens(is_checked) {
        let Some((progress, place)) = progress_of(connections, token, limit) else {
            continue;
        };
        let before = progress.filter(|_| !was_stopped);
        *progress = place.map(|place| Progress::next(before, place, env.now));
        if progress.is_some_and(|progress| env.now.since(progress.since()) >= limit) {
            stuck.push(token);
        }
    }
    let end = |token| end_peer(connections, token);
    stuck.into_iter().filter_map(end).collect()
}

/// Returns whether the peer is within a message, or was at the last check.
fn is_checked(conn: &Conn) -> bool {
    match conn {
        Conn::Client(client) => {
            client.socket.was_within_message() || !client.socket.stream.is_between_messages()
        }
        Conn::Server(server) => server.link.was_within_message() || !server.stream.is_quiet(),
        Conn::Cancel(_) => false,
    }
}

/// Returns the progress that a connection remembers, and the place within a message at which its peer is. If the peer
/// stays there, it is ended.
fn progress_of(
    connections: &mut Connections,
    token: Token,
    limit: u64,
) -> Option<(&mut Option<Progress>, Option<Place>)> {
    let is_on = limit > 0;
    let is_client = matches!(connections.get(token), Some(Conn::Client(_)));
    if is_client {
        let client = connections.client(token)?;
        // The beginning of a message that is held here is not counted as sent to the server.
        let is_sent = !client.socket.holds_message();
        let within = client.socket.stream.tag_of_body().filter(|_| is_sent);
        let server = client.server();
        let owes = match server.map(|server| connections.get(server)) {
            Some(Some(Conn::Server(server))) => owes_rest(server, within),
            Some(_) => false,
            None => true,
        };
        let client = connections.client(token)?;
        let owes = is_on && owes && is_read(client);
        let place = client.socket.stream.place().filter(|_| owes);
        Some((client.socket.progress_mut(), place))
    } else {
        let client = connections.server(token)?.client();
        let is_read = match client.map(|client| connections.get(client)) {
            Some(Some(Conn::Client(client))) => !client.socket.is_blocked(),
            _ => true,
        };
        let server = connections.server(token)?;
        let owes = is_on && is_read && owes_nothing_else(server);
        let place = server.stream.place().filter(|_| owes);
        Some((server.link.progress_mut(), place))
    }
}

fn is_read(client: &Client) -> bool {
    !client.socket.is_blocked()
        && matches!(
            client.duty(),
            ClientDuty::Active(_) | ClientDuty::Idle | ClientDuty::Discarding(_)
        )
}

/// Returns whether pgweir may expect the client of this server to send the rest of its message, since the server has
/// answered everything before it. `within`: the message's type, if its beginning was sent to the server.
fn owes_rest(server: &Server, within: Option<u8>) -> bool {
    let is_request = matches!(within, Some(frontend::QUERY | frontend::FUNCTION_CALL));
    let is_statement = matches!(within, Some(frontend::QUERY | frontend::EXECUTE));
    matches!(server.duty().phase(), Some(Phase::Relaying))
        && !server.link.is_blocked()
        && server.purpose().replication() == Replication::None
        && !server.replies.is_copy_in()
        && server.replies.owed_to_client() <= usize::from(is_request)
        && server.statements.running.outstanding() <= usize::from(is_statement)
}

/// Returns whether the server has no reason to stop within a message, since it runs no request of a client. Servers
/// that log in, or that are cleaned, have other timeouts.
fn owes_nothing_else(server: &Server) -> bool {
    matches!(
        server.duty(),
        Duty::Lent { .. } | Duty::Listening { .. } | Duty::CheckingHost { .. }
    ) && server.purpose().replication() == Replication::None
        && server.replies.is_synced()
        && server.replies.owed_to_client() == 0
}

fn end_peer(connections: &Connections, token: Token) -> Option<Effect> {
    Some(match connections.get(token)? {
        Conn::Client(_) => {
            Effect::Client(ClientEffect::Refuse(token, Box::new(Fault::PartialMessage)))
        }
        Conn::Server(_) => {
            let how = "it stopped in the middle of a message (partial_message_timeout)";
            Effect::fault(token, how)
        }
        Conn::Cancel(_) => return None,
    })
}
