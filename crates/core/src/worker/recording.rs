//! Records what happens in the transactions that may be traced, and exports the traces.

use super::Worker;
use crate::{
    Action, Actions, Time, Token, connections::Conn, fault::Fault, frontend::Client,
    frontend::ClientDuty,
};

impl Worker {
    /// Records that a client's request was answered. If that ended a sampled transaction, its trace is exported, at
    /// once or after the inspection of the session.
    #[cold]
    pub(crate) fn record_answer(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        request_at: Time,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        let Some(sampler) = &mut self.sampler else {
            client.recording = None;
            return;
        };
        let Some(recording) = &mut client.recording else {
            return;
        };
        recording.note_answer(now.since(request_at));
        let Some(names) = client.names.as_ref().filter(|_| server.status == b'I') else {
            return;
        };
        let key = (&server.shared.key, Some(&*server.link.endpoint));
        let trace = recording.end(names, key, true, now);
        let is_inspected = client.context.is_some() && server.session.dirt.needs_inspection();
        if is_inspected {
            return recording.keep(trace);
        }
        out.list.extend(trace.map(Action::Export));
        if !server.replies.is_settled() {
            // The next transaction of a pipeline.
            let last = sampler.relay(&mut client.recording, now);
            out.list.extend(last.map(Action::Export));
        }
    }

    /// Records an error that a client's request was answered with.
    #[cold]
    pub(crate) fn record_error(&mut self, server_conn: Token, sqlstate: &[u8]) {
        if let Some((_, client, _)) = self.table.pair_of(server_conn)
            && let Some(recording) = &mut client.recording
        {
            recording.note_error(sqlstate);
        }
    }

    /// Records the start of an inspection of a client's session.
    pub(super) fn record_inspection(&mut self, server_conn: Token, now: Time) {
        if self.sampler.is_some()
            && let Some((_, client, _)) = self.table.pair_of(server_conn)
            && let Some(recording) = &mut client.recording
        {
            recording.inspection_began(now);
        }
    }

    /// Records the end of the inspection, and exports the trace of the transaction before it.
    pub(super) fn record_inspected(&mut self, client: Token, now: Time, out: &mut Actions) {
        if self.sampler.is_some()
            && let Some(client) = self.table.client(client)
            && let Some(recording) = &mut client.recording
        {
            let trace = recording.inspection_ended(now);
            out.list.extend(trace.map(Action::Export));
        }
    }

    /// Records the error that ends a client's connection.
    pub(super) fn record_refusal(&mut self, conn: Token, fault: &Fault, out: &mut Actions) {
        let (Some(sampler), Some(client)) = (&mut self.sampler, self.table.client(conn)) else {
            return;
        };
        if matches!(
            client.duty,
            ClientDuty::Waiting {
                at_login: false,
                ..
            }
        ) {
            // The wait for a server was in vain.
            let last = sampler.begin(&mut client.recording, (client.request.sent_at, None));
            out.list.extend(last.map(Action::Export));
        }
        if let Some(recording) = &mut client.recording {
            recording.note_error(fault.sqlstate().as_bytes());
        }
    }

    /// Exports the trace of the transaction that ends with its client.
    pub(super) fn record_departure(&mut self, client: &mut Client, now: Time, out: &mut Actions) {
        let Some(recording) = &mut client.recording else {
            return;
        };
        out.list.extend(recording.take_kept().map(Action::Export));
        let Some(names) = &client.names else { return };
        let server = match client.duty {
            ClientDuty::Active(server) | ClientDuty::Preparing(server) => self.table.look(server),
            _ => None,
        };
        let key = match server {
            Some(Conn::Server(server)) => (&server.shared.key, Some(&*server.link.endpoint)),
            _ => (&**names, None),
        };
        let trace = recording.end(names, key, false, now);
        out.list.extend(trace.map(Action::Export));
    }
}
