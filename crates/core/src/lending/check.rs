//! Checks servers before they are lent (`server_check_query`), and closes outdated servers of session mode at the end
//! of a transaction (`server_fast_close`).

use pgweir_config::{PoolMode, Settings};

use super::Lending;
use crate::{
    Action, Actions, Time, Token,
    backend::{InternalQuery, OUTDATED},
    base::fault::Fault,
    connections::Conn,
    effect::{ClientEffect, Effect},
};

/// The value of `server_check_query` that means the empty query; an empty setting means no query.
const EMPTY_QUERY: &str = "<empty>";

/// Returns after how many microseconds without use a server is checked before it is lent.
#[inline]
pub(crate) fn check_after(settings: &Settings) -> u64 {
    match settings.server_check_query.is_empty() {
        true => u64::MAX,
        false => settings.server_check_delay.0,
    }
}

impl Lending<'_> {
    /// Returns whether the server has to be checked before it is lent: it was not used for `server_check_delay`.
    #[inline]
    pub(super) fn is_stale(&self, server: Token) -> bool {
        let check_after = check_after(&self.env.snapshot.config.settings);
        match self.connections.get(server) {
            Some(Conn::Server(server)) => server.is_stale(check_after, self.env.now),
            _ => false,
        }
    }

    /// Asks the driver for the type of the client's first message, since no server has to be checked for a Terminate.
    /// Returns `true` if the driver's answer is still to come: then the client gets its server at
    /// [`Worker::peeked`](crate::Worker::peeked).
    #[cold]
    pub(super) fn peek_first(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(client) = self.connections.known_client(conn, out) else {
            return false;
        };
        let has_logged_in = client.context.as_ref().is_none_or(|own| !own.unproven);
        let peeks = !client.socket.is_peeked() && !client.socket.has_early() && has_logged_in;
        client.socket.set_peeked(peeks);
        if peeks {
            out.list.push(Action::Peek(conn));
        }
        peeks
    }

    /// Checks a server that was not used for a while; the client gets the server if it answers.
    #[cold]
    pub(super) fn check_first(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) {
        let settings = &self.env.snapshot.config.settings;
        let until = match settings.server_connect_timeout.0 {
            0 => Time(u64::MAX),
            patience => self.env.now.after(patience),
        };
        let query = match &*settings.server_check_query {
            EMPTY_QUERY => "",
            query => query,
        };
        let now = self.env.now;
        let Some(server) = (self.connections).begin_checking(client_conn, server_conn, until, now)
        else {
            return out.report_missing("the client or the server of a new loan");
        };
        out.ask(server_conn, server, InternalQuery::Check, query.as_bytes());
    }

    /// Handles the server's answer to the check.
    pub(crate) fn checked(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let Some(client) = server.client() else {
            return;
        };
        if let Some(why) = server.retirement.reason() {
            return self.replace_server(conn, why);
        }
        if !server.is_outside_transaction() {
            return self.replace_server(conn, "server_check_query left a transaction open");
        }
        server.become_idle();
        self.equip(conn, client, out);
    }

    /// Closes a server that failed the check, or could not be given the client's session state; the client gets another
    /// one.
    pub(crate) fn replace_server(&mut self, conn: Token, why: &'static str) {
        let client = self.connections.server(conn);
        let client = client.and_then(|server| server.client());
        self.effects.push(Effect::close(conn, why));
        self.effects
            .extend(client.map(|conn| Effect::Client(ClientEffect::CheckOutAgain(conn))));
    }

    /// Gets another server for a client whose server was lost before any of the client's bytes were read. The
    /// client's wait counts from its request.
    pub(crate) fn check_out_again(&mut self, conn: Token, out: &mut Actions) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        client.become_idle();
        let asked_at = client.request.sent_at();
        self.check_out(conn, out);
        if let Some(client) = self.connections.client(conn) {
            client.request.note_sent(asked_at);
        }
    }

    /// Under `server_fast_close`, closes an outdated server at the end of a transaction, together with
    /// its session.
    #[cold]
    pub(crate) fn close_if_outdated(&mut self, conn: Token) {
        if !self.env.snapshot.config.settings.server_fast_close {
            return;
        }
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        let Some(client_conn) = server.relays_for() else {
            return;
        };
        let is_quiet = server.replies.is_settled() && server.is_outside_transaction();
        if server.retirement.reason() != Some(OUTDATED) || !is_quiet {
            return;
        }
        let pool = self.pools.get(server.pool());
        let is_session = pool.is_some_and(|pool| pool.terms.mode == PoolMode::Session);
        let client = self.connections.client(client_conn);
        if is_session && client.is_some_and(|client| client.socket.stream.is_at_boundary()) {
            let end = Effect::Client(ClientEffect::EndClient(
                client_conn,
                Box::new(Fault::DatabaseChanged),
            ));
            self.effects.push(end);
        }
    }
}
