//! Decides which requests are repeated on another host. pgweir keeps the bytes of a request to a standby until the client
//! gets the first byte of the reply. If the server is lost before that, the request can be repeated: the client has
//! received nothing, and a standby has committed nothing.

use crate::{
    Time, Token,
    backend::{LossKind, RepeatableRequest, SIGNALS, Server, ends_sessions},
    base::fault::Fault,
    frontend::Client,
    session::TrackedNames,
    shared::pool::ServerRole,
};

/// Keeps bytes of a client that are about to be relayed, if the client's request can be repeated. `most`: the longest request
/// that is kept, in bytes; 0 if the pool repeats no requests.
#[inline]
pub(crate) fn keep_request(
    client_conn: Token,
    (client, server): (&mut Client, &mut Server),
    bytes: &[u8],
    most: usize,
) {
    if most > 0 {
        keep(client_conn, client, server, bytes, most);
    }
}

#[inline(never)]
fn keep(client_conn: Token, client: &mut Client, server: &mut Server, bytes: &[u8], most: usize) {
    let is_first = server.is_outside_transaction()
        && server.replies.owe_client_nothing()
        && client.socket.stream.is_between_messages()
        && !client.socket.holds_message();
    if is_first {
        let lost_hosts = client.request.take_lost_hosts();
        let first = server.replies.next_request();
        let request = server.link.make_repeatable();
        request.begin(client_conn, first, client.unnamed.definition(), lost_hosts);
        if !may_move(client, server) {
            server.link.close_repeatable();
        }
    }
    if let Some(request) = server.link.repeatable_mut() {
        request.add(bytes, most);
    }
}

/// Returns whether the client's session state can be moved to another server.
fn may_move(client: &Client, server: &Server) -> bool {
    let session = &server.session;
    let is_carried = client.context.as_ref().is_none_or(|context| {
        !context.is_pinned()
            && !session.changes.needs_inspection()
            && !session.loan.inspection.is_missing()
            && session.loan.effects().is_empty()
    });
    is_carried && !client.unnamed.is_unknown() && !server.is_exclusive()
}

/// Takes the kept request of a client whose server is lost with this error, if the request can be repeated on one of the
/// `hosts` hosts of the pool. The server must have been a standby, and the client must have received nothing of the reply.
#[cold]
pub(crate) fn take_request(
    names: &TrackedNames,
    client: Token,
    server: &mut Server,
    fault: &Fault,
    (hosts, now): (usize, Time),
) -> Option<Box<RepeatableRequest>> {
    let mut request = server.link.take_repeatable()?;
    let role = ServerRole::of(names, &server.tracked);
    // If pgweir stops using a host, the loss of the host's servers is not the fault of the request.
    let (ends_with_host, kind) = match fault {
        Fault::ServerCrashed => (true, LossKind::Silent),
        Fault::HostLeft(_) => (true, LossKind::Announced),
        Fault::ServerSaid(words) => (
            ends_sessions(&words.code),
            LossKind::announced_by(&words.code),
        ),
        _ => (false, LossKind::Announced),
    };
    let lost = request.lost_hosts_mut();
    lost.add(server.link.endpoint(), kind, now);
    let may_repeat = ends_with_host
        && lost.allow_repeat(hosts)
        && role.is_some_and(ServerRole::is_standby)
        && server.relays_for().is_some()
        && !server.next_loan.awaits_cancels()
        && !server.session.loan.effects().intersects(SIGNALS);
    let is_unanswered = request.is_unanswered(client, server.replies.present_request());
    (may_repeat && is_unanswered).then_some(request)
}

/// Whether a server may get a request that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatFit {
    /// The server may get it.
    Fit,
    /// Another connection to the server's host was lost during the request, after this server was connected: the server may
    /// end, too.
    Doubtful,
    /// The host was a standby when its connection was lost, and has been promoted since. If the request has several
    /// transactions, the host may have committed one of them.
    Promoted,
}

/// Returns whether a server may get the repeated request of this client.
pub(crate) fn repeat_fit(names: &TrackedNames, client: &Client, server: &Server) -> RepeatFit {
    let Some(lost) = client.request.lost_hosts() else {
        return RepeatFit::Fit;
    };
    let endpoint = server.link.endpoint();
    let role = ServerRole::of(names, &server.tracked);
    if lost.exclude(endpoint, server.times.connected_at()) {
        return RepeatFit::Doubtful;
    }
    match lost.contain(endpoint) && !role.is_some_and(ServerRole::is_standby) {
        true => RepeatFit::Promoted,
        false => RepeatFit::Fit,
    }
}
