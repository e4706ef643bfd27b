//! Records the times of transactions that may be traced, and exports the traces.

use crate::{
    Action, Actions, Time, Token,
    backend::Server,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::Env,
    frontend::{Client, ClientDuty},
};

/// Records that a client gets a server.
#[inline]
pub(crate) fn equipped(env: &Env<'_>, client: &mut Client, out: &mut Actions) {
    if let Some(sampler) = env.sampler {
        let times = (client.request.sent_at(), Some(env.now));
        let last = sampler.begin(client.request.recording_mut(), times);
        out.list.extend(last.map(Action::Export));
    }
}

/// Records that a client's request goes to its server, outside of a transaction.
#[inline]
pub(crate) fn relayed(env: &Env<'_>, client: &mut Client, out: &mut Actions) {
    if let Some(sampler) = env.sampler {
        let last = sampler.relay(client.request.recording_mut(), env.now);
        out.list.extend(last.map(Action::Export));
    }
}

/// Records that a client's request, sent at `request_at`, was answered.
#[inline]
pub(crate) fn answered(
    env: &Env<'_>,
    client: &mut Client,
    server: &Server,
    request_at: Time,
    out: &mut Actions,
) {
    let Some(recording) = client.request.recording_mut() else {
        return;
    };
    if env.sampler.is_some() && recording.is_unwanted() && server.replies.is_settled() {
        if server.is_outside_transaction() {
            recording.end_unwanted();
        }
        return;
    }
    record_answer(env, client, server, request_at, out);
}

/// Records an answer for a transaction that may be traced. If the answer ended a sampled transaction, its trace is
/// exported, at once or after the inspection of the session.
#[cold]
fn record_answer(
    env: &Env<'_>,
    client: &mut Client,
    server: &Server,
    request_at: Time,
    out: &mut Actions,
) {
    let Some(sampler) = env.sampler else {
        client.request.recording_mut().take();
        return;
    };
    let names = client.names().cloned();
    let Some(recording) = client.request.recording_mut() else {
        return;
    };
    recording.note_answer(env.now.since(request_at));
    let Some(names) = names.filter(|_| server.is_outside_transaction()) else {
        return;
    };
    let key = (&server.shared.key, Some(&**server.link.endpoint()));
    let trace = recording.end(&names, key, true, env.now);
    let is_inspected = client.context.is_some() && server.session.changes.needs_inspection();
    if is_inspected {
        return recording.keep(trace);
    }
    out.list.extend(trace.map(Action::Export));
    if !server.replies.is_settled() {
        // The next transaction of a pipeline.
        let last = sampler.relay(client.request.recording_mut(), env.now);
        out.list.extend(last.map(Action::Export));
    }
}

/// Records an error that a client's request was answered with.
#[cold]
pub(crate) fn failed(connections: &mut Connections, server: Token, sqlstate: &[u8]) {
    if let Some((_, client, _)) = connections.pair_of(server)
        && let Some(recording) = client.request.recording_mut()
    {
        recording.note_error(sqlstate);
    }
}

/// Records the start of an inspection of a client's session.
pub(crate) fn inspection_began(env: &Env<'_>, client: &mut Client) {
    if let Some(recording) = client.request.recording_mut() {
        recording.inspection_began(env.now);
    }
}

/// Records the end of the inspection, and exports the trace of the transaction before it.
pub(crate) fn inspected(env: &Env<'_>, client: &mut Client, out: &mut Actions) {
    if let Some(recording) = client.request.recording_mut() {
        let trace = recording.inspection_ended(env.now);
        out.list.extend(trace.map(Action::Export));
    }
}

/// Records the error that ends a client's connection.
pub(crate) fn refused(env: &Env<'_>, client: &mut Client, fault: &Fault, out: &mut Actions) {
    let Some(sampler) = env.sampler else { return };
    if matches!(
        *client.duty(),
        ClientDuty::Waiting {
            at_login: false,
            ..
        }
    ) {
        // The client has waited for a server without getting one.
        let times = (client.request.sent_at(), None);
        let last = sampler.begin(client.request.recording_mut(), times);
        out.list.extend(last.map(Action::Export));
    }
    if let Some(recording) = client.request.recording_mut() {
        recording.note_error(fault.sqlstate().as_bytes());
    }
}

/// Exports the trace of the transaction that ends with its client.
pub(crate) fn left(
    env: &Env<'_>,
    connections: &Connections,
    client: &mut Client,
    out: &mut Actions,
) {
    let server = client.server().and_then(|server| connections.get(server));
    let names = client.names().cloned();
    let Some(recording) = client.request.recording_mut() else {
        return;
    };
    out.list.extend(recording.take_kept().map(Action::Export));
    let Some(names) = names else { return };
    let key = match server {
        Some(Conn::Server(server)) => (&server.shared.key, Some(&**server.link.endpoint())),
        _ => (&*names, None),
    };
    let trace = recording.end(&names, key, false, env.now);
    out.list.extend(trace.map(Action::Export));
}
