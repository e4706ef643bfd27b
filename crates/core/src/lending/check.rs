//! Checks servers before they are lent, and closes outdated servers before their sessions end.

use pgweir_config::{PoolMode, Settings};
use pgweir_wire::MessageWriter;

use super::Worker;
use crate::{
    Action, Actions, Time, Token,
    backend::{Duty, InternalQuery, OUTDATED, Phase},
    effect::Effect,
    fault::Fault,
    frontend::ClientDuty,
    loan::enter,
};

/// The value of `server_check_query` that means the empty query; an empty setting means no query.
const EMPTY_QUERY: &str = "<empty>";

/// Returns after how many microseconds without use a server is checked before it is lent.
pub(super) fn check_after(settings: &Settings) -> u64 {
    if settings.server_check_query.is_empty() {
        u64::MAX
    } else {
        settings.server_check_delay.0
    }
}

impl Worker {
    /// Peeks at the client's request, since no server is checked for a Terminate. Returns `true` if the answer to the
    /// peek is still to come: then the client gets its server in [`Worker::client_peeked`].
    #[cold]
    pub(super) fn peek_first(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(client) = self.table.client(conn) else {
            return false;
        };
        let has_logged_in = client.context.as_ref().is_none_or(|own| !own.unproven);
        client.socket.peeked =
            !client.socket.peeked && client.socket.early.is_none() && has_logged_in;
        if client.socket.peeked {
            out.list.push(Action::Peek(conn));
        }
        client.socket.peeked
    }

    /// Checks a server that was not used for a while; the client gets the server if it answers.
    #[cold]
    pub(super) fn check_first(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let settings = &self.snapshot.config.settings;
        let until = match settings.server_connect_timeout.0 {
            0 => Time(u64::MAX),
            patience => now.after(patience),
        };
        let query = match &*settings.server_check_query {
            EMPTY_QUERY => "",
            query => query,
        };
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        enter(
            Phase::Checking { until },
            client_conn,
            client,
            server_conn,
            server,
        );
        server.ask(InternalQuery::Check);
        out.send_made(server_conn, |bytes| {
            MessageWriter::new(bytes).query(query.as_bytes());
        });
        self.schedule(now);
        true
    }

    /// Handles the server's answer to the check.
    pub(crate) fn checked(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(client) = server.client() else {
            return;
        };
        if let Some(why) = server.retirement.reason {
            return self.check_failed(conn, why, now, out);
        }
        if server.status != b'I' {
            return self.check_failed(conn, "server_check_query left a transaction open", now, out);
        }
        server.duty = Duty::Idle;
        self.equip(conn, client, now, out);
    }

    /// Closes a server that failed the check; the client gets another one.
    pub(super) fn check_failed(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        let client = self.table.server(conn).and_then(|server| server.client());
        self.close_server(conn, why, now, out);
        if let Some(client) = client {
            self.check_out_again(client, now, out);
        }
    }

    /// Gets another server for a client whose server was lost before any of the client's bytes were read. The
    /// client's wait counts from its request.
    pub(super) fn check_out_again(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        client.duty = ClientDuty::Idle;
        let asked_at = client.request.sent_at;
        self.check_out(conn, now, out);
        if let Some(client) = self.table.client(conn) {
            client.request.sent_at = asked_at;
        }
    }

    /// Under `server_fast_close`, closes an outdated server at the end of a transaction, together with
    /// its session.
    #[cold]
    pub(super) fn close_if_outdated(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if !self.snapshot.config.settings.server_fast_close {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(client_conn) = server.relays_for() else {
            return;
        };
        let is_quiet = server.replies.is_settled() && server.status == b'I';
        if server.retirement.reason != Some(OUTDATED) || !is_quiet {
            return;
        }
        let pool = server.pool();
        let is_session = self
            .pool(pool)
            .is_some_and(|pool| pool.terms.mode == PoolMode::Session);
        let Some(client) = self.table.client(client_conn) else {
            return;
        };
        if is_session && client.socket.stream.is_at_boundary() {
            self.carry_out(
                [Effect::EndClient(client_conn, Fault::DatabaseChanged)],
                now,
                out,
            );
        }
    }
}
