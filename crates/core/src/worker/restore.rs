//! RESET within a transaction: the client's startup values come back before it looks.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, Report, Severity};

use super::{Worker, checkout::begin, exchange::enter, judge::tell_news};
use crate::{
    Actions, ReadMode, Time, Token,
    backend::{Own, Phase, Server},
    fault::{Fault, Words},
    frontend::Client,
};

/// Has the request that is done, within a transaction, taken back what the client has started with?
/// Then its ReadyForQuery is held back.
pub(super) fn restores_within(client: &Client, server: &mut Server) -> bool {
    let taken = &mut server.session.taken_back;
    if server.status == b'I' {
        taken.settle();
    }
    let is_due = server.status == b'T' && !taken.is_empty();
    if !is_due || !server.replies.is_last() || client.stream.is_in_body() {
        return false;
    }
    let base = client.context.as_ref().map(|context| &context.base);
    server.session.restores = base.and_then(|base| taken.take_statements(base));
    server.session.restores.is_some()
}

impl Worker {
    /// The server gets what RESET has not brought back.
    #[cold]
    pub(super) fn restore_within(&mut self, conn: Token, text: &[u8], out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        enter(
            Phase::RestoringStartupValues,
            client_conn,
            client,
            conn,
            server,
        );
        out.read(client_conn, ReadMode::Hold);
        server.ask(Own::Restore);
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(text);
        });
    }

    /// What the client's request was held back for is done: so is the request.
    pub(crate) fn done_within(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        enter(Phase::Relaying, client_conn, client, conn, server);
        tell_news(directory.names(), client_conn, client, server, out);
        let status = server.status;
        out.send_made(client_conn, |bytes| {
            MessageWriter::new(bytes).ready_for_query(status);
        });
        let early = begin(client_conn, client, conn, server, out);
        self.relay_early(client_conn, early, now, out);
    }

    /// It can't have it: so the client's transaction has failed.
    pub(crate) fn restore_failed(
        &mut self,
        client_conn: Token,
        report: &Report<'_>,
        out: &mut Actions,
    ) {
        let fault = Fault::ServerSaid(Words::of(report));
        out.send_made(client_conn, |bytes| fault.write(Severity::Error, bytes));
    }
}
