//! Delivers notifications to clients. A client between transactions gets a notification at once; for other clients it
//! waits in a backlog of at most `notification_backlog` bytes.

use std::sync::Arc;

use super::{ListeningClients, forget_if_not_listening, listening_of};
use crate::{
    Actions, Token,
    base::fault::Fault,
    connections::Connections,
    effect::{ClientEffect, Effect, Env, RestartEffect},
    frontend::ClientDuty,
    listen::{ListenerKey, Notification},
};

impl ListeningClients {
    /// Delivers a notification of a listener to the clients that listen to its channel.
    pub(super) fn notified(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
        key: &ListenerKey,
        message: &Arc<[u8]>,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let Some(notification) = Notification::parse(message) else {
            out.report_missing("a valid notification");
            return Vec::new();
        };
        let clients = self.channels.clients_of(key, notification.channel);
        let deliver = |&client| deliver(env, connections, client, message, out);
        clients.iter().filter_map(deliver).collect()
    }
}

impl ListeningClients {
    /// Delivers a notice of a listener to all of its clients.
    pub(super) fn resumed(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
        key: &ListenerKey,
        notice: &Arc<[u8]>,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let clients = self.channels.clients(key).into_iter();
        let deliver = |client| deliver(env, connections, client, notice, out);
        clients.filter_map(deliver).collect()
    }
}

/// Sends a notification to a client between transactions at once, else keeps it until the transaction's end.
fn deliver(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    message: &Arc<[u8]>,
    out: &mut Actions,
) -> Option<Effect> {
    let most = env.snapshot.config.settings.notification_backlog as usize;
    let is_open = is_between_transactions(connections, conn);
    let Some(listening) = listening_of(connections, conn) else {
        return Some(Effect::Restart(RestartEffect::ForwardNotification(
            conn,
            Arc::clone(message),
        )));
    };
    if is_open && !listening.has_backlog() {
        out.send_made(conn, |bytes| bytes.extend_from_slice(message));
        return None;
    }
    let kept = listening.keep(message, most);
    (kept.is_err()).then_some(Effect::Client(ClientEffect::EndClient(
        conn,
        Box::new(Fault::NotificationBacklog),
    )))
}

/// Handles a notification from a pooled server whose client listens on that server, or has just run LISTEN.
#[cold]
pub(crate) fn keep_direct_notification(
    env: &Env<'_>,
    connections: &mut Connections,
    server_conn: Token,
    message: &[u8],
    out: &mut Actions,
) -> Option<Effect> {
    let most = env.snapshot.config.settings.notification_backlog as usize;
    // A server may send a last notification after its client has left, or a malformed one.
    let (conn, client, server) = connections.pair_of(server_conn)?;
    let notification = Notification::parse(message)?;
    let mut made = message.to_vec();
    let holders = env.directory.holders();
    if let Some(pid) = holders.find(server.link.endpoint(), notification.pid) {
        Notification::set_pid(&mut made, pid);
    }
    let listening = client.listening.as_ref();
    if listening.is_some_and(|listening| listening.receives(notification.channel)) {
        return None;
    }
    let is_carried = client.context.is_some();
    let is_idle = server.replies.is_settled() && server.relays_for().is_some();
    if is_idle || !is_carried {
        out.send_made(conn, |bytes| bytes.extend_from_slice(&made));
        return None;
    }
    if server.session.loan.notifications.pending_len() + made.len() > most {
        return Some(Effect::Client(ClientEffect::EndClient(
            conn,
            Box::new(Fault::NotificationBacklog),
        )));
    }
    server.session.loan.edit().notifications.keep(&made);
    None
}

/// Sends the notifications that waited for the end of a transaction.
pub(crate) fn send_backlog(connections: &mut Connections, conn: Token, out: &mut Actions) {
    let Some(client) = connections.client(conn) else {
        return out.report_missing("a client whose request has ended");
    };
    let server = client.server();
    let notified = server.and_then(|server| connections.server(server));
    let notified = notified.map(|server| server.session.loan.edit().notifications.take_pending());
    let notified = notified.unwrap_or_default();
    let backlog = match listening_of(connections, conn) {
        Some(listening) => listening.take_backlog(&notified),
        None => notified,
    };
    if !backlog.is_empty() {
        out.send_made(conn, |bytes| bytes.extend_from_slice(&backlog));
    }
    forget_if_not_listening(connections, conn);
}

/// Sends the notifications that waited for the client to read, if it is between transactions.
pub(crate) fn send_backlog_if_idle(connections: &mut Connections, conn: Token, out: &mut Actions) {
    if is_between_transactions(connections, conn) {
        send_backlog(connections, conn, out);
    }
}

/// Returns whether the client may get a notification now. PostgreSQL sends them between transactions only.
fn is_between_transactions(connections: &mut Connections, conn: Token) -> bool {
    let Some(client) = connections.client(conn) else {
        return false;
    };
    let listening = client.listening.as_ref();
    if client.socket.is_blocked() || listening.is_some_and(|listening| !listening.is_settled()) {
        return false;
    }
    match *client.duty() {
        ClientDuty::Idle | ClientDuty::Waiting { .. } => true,
        ClientDuty::Preparing(server) => connections
            .server(server)
            .is_some_and(|server| server.equips().is_some()),
        ClientDuty::Active(server) => connections.server(server).is_some_and(|server| {
            server.replies.is_settled()
                && server.is_outside_transaction()
                && server.stream.is_at_boundary()
                && server.relays_for().is_some()
        }),
        _ => false,
    }
}
