//! Cleans a server that its client gives back or has left: ends the client's requests and removes its session state,
//! before another client gets the server. A server that can't be cleaned is closed.

use pgweir_config::Unclean;
use pgweir_wire::{MessageWriter, tag::frontend};

use super::Lending;
use crate::{
    Actions, ReadMode, Time, Token,
    backend::{InternalQuery, Retirement},
    effect::{Effect, SessionEffect},
    loan::AbandonedSession,
    server_connections::role_settings,
    session::Class,
};

/// The reason for closing a server that was opened for one client.
const OWNER_LEFT: &str = "the client that it was opened for has left";
impl Lending<'_> {
    /// Makes pgweir close the server if a client may have left session state that no clean removes. `is_known`: the client
    /// has left such state.
    pub(super) fn retire_if_unclean(&mut self, conn: Token, is_known: bool) {
        if (is_known || self.may_survive_clean(conn))
            && let Some(server) = self.connections.server(conn)
        {
            self.pools.retire_unclean(server, Retirement::KEEPS_STATE);
        }
    }

    /// Returns whether a client may have left session state that no clean removes. A text without a certificate may
    /// leave such state in a database with code whose effects are unknown. A text may also leave such state if the
    /// server reads string literals by other rules than at login.
    fn may_survive_clean(&mut self, conn: Token) -> bool {
        let ignores = self.env.snapshot.config.settings.unclean == Unclean::Ignore;
        let Some(server) = self.connections.server(conn) else {
            return false;
        };
        if server.session.lasting.outlives_clean() {
            return true;
        }
        let has_types = server.session.lasting.types.suit_nobody();
        let is_opaque = server.session.changes.class() == Class::Opaque;
        if !is_opaque && !has_types {
            return false;
        }
        let may_have_misread = is_opaque && server.session.lasting.may_have_misread_bodies();
        let Some(pool) = self.pools.get_mut(server.pool()) else {
            return may_have_misread;
        };
        pool.use_current_catalog();
        let certificates = &pool.catalog.certificates;
        let has_misread = may_have_misread && !certificates.has_no_functions();
        let is_unclean = is_opaque && certificates.unclean_reason().is_some()
            || has_types && certificates.types_depend_on_path();
        has_misread || !ignores && is_unclean
    }

    /// Does for a client that has left what pgweir does at the end of a transaction, unless replies are outstanding. If
    /// the certificates by which pgweir has read the texts of the client have changed, the class becomes opaque. If the
    /// client has sent ALTER ROLE SET, servers with the old defaults are replaced.
    fn end_abandoned_transaction(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        if !server.replies.is_settled() {
            return;
        }
        let was_opaque = server.session.changes.class() == Class::Opaque;
        server.session.check_certificates(&server.shared.catalog);
        let is_newly_opaque = !was_opaque && server.session.changes.class() == Class::Opaque;
        server.session.clean.demand(is_newly_opaque);
        if server.is_outside_transaction() {
            let env = &self.env;
            role_settings::renew_changed(env.directory, env.snapshot, self.connections, conn, out);
        }
        if is_newly_opaque {
            self.retire_if_unclean(conn, false);
        }
    }

    /// Ends what a client began on this server before it left.
    pub(crate) fn clean_abandoned_server(
        &mut self,
        conn: Token,
        had: AbandonedSession,
        out: &mut Actions,
    ) {
        self.end_abandoned_transaction(conn, out);
        self.retire_if_unclean(conn, had.outlives_clean);
        let resets_always = self.env.snapshot.config.settings.server_reset_query_always;
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if server.is_exclusive() {
            return self.effects.push(Effect::close(conn, OWNER_LEFT));
        }
        if had.mid_message {
            let why = "client left in the middle of a message";
            return self.effects.push(Effect::close(conn, why));
        }
        if server.uncount_pinned() {
            server.retirement.require("above pool_size");
        }
        // pgweir may have stopped reading from the server because the client did not read.
        out.read(conn, ReadMode::Deliver);
        server.replies.client_left();
        server.link.close_repeatable();
        if server.session.changes.class() >= Class::Sequences {
            server.session.mix_sequences();
        }
        // The session state that the client left was not inspected.
        let is_unclean = server.session.changes.class() == Class::Opaque
            || server.session.extension.is_new()
            || had.must_be_cleaned;
        server.session.clean.demand(is_unclean);
        if had.was_session || resets_always {
            server.next_loan.demand_reset();
        }
        if server.replies.is_settled()
            && server.stream.is_quiet()
            && server.is_outside_transaction()
            && !server.next_loan.needs_reset()
            && !server.session.is_to_clean()
        {
            return self.give_back(conn, false, out);
        }
        if server.replies.is_uncertain() && !server.replies.is_settled() {
            let why = "client left, and the outstanding replies are unknown";
            return self.effects.push(Effect::close(conn, why));
        }
        if server.replies.is_unsynced() {
            // A Sync from pgweir would commit the transaction; PostgreSQL rolls it back when a client leaves without a
            // Sync.
            let why = "client left in the middle of a pipeline";
            return self.effects.push(Effect::close(conn, why));
        }
        self.begin_cleaning(conn, out);
    }

    /// Ends the COPY FROM STDIN of a client that has left. Returns whether the server is closed instead.
    pub(crate) fn end_copy(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(server) = self.connections.known_server(conn, out) else {
            return false;
        };
        if server.replies.is_unsynced() {
            let why = "client left in the middle of a COPY";
            self.effects.push(Effect::close(conn, why));
            return true;
        }
        if server.replies.is_copy_in() {
            server.replies.client_sent(frontend::COPY_FAIL);
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).copy_fail("the client left");
            });
        }
        false
    }

    /// Begins to clean the server. No client gets the server until it is clean.
    pub(crate) fn begin_cleaning(&mut self, conn: Token, out: &mut Actions) {
        let patience = self.env.snapshot.config.settings.abandoned_query_timeout.0;
        let until = match patience {
            0 => Time(u64::MAX),
            patience => self.env.now.after(patience),
        };
        let server = (self.connections).begin_cleaning(conn, until, self.env.now, out);
        let Some(server) = server else {
            return;
        };
        server.times.note_freed(self.env.now);
        if !self.end_copy(conn, out) {
            self.continue_cleaning(conn, out);
        }
    }

    /// Takes the next step of cleaning, once the last one was answered.
    pub(crate) fn continue_cleaning(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if !server.replies.is_settled() || !server.stream.is_quiet() {
            return;
        }
        self.end_abandoned_transaction(conn, out);
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if server.replies.is_uncertain() {
            server.retirement.require("unexpected replies may follow");
        }
        if server.session.report_requires_close() {
            server.retirement.require(Retirement::KEEPS_STATE);
        }
        if let Some(why) = server.retirement.reason() {
            return self.effects.push(Effect::close(conn, why));
        }
        if !server.is_outside_transaction() {
            return self.roll_back(conn, out);
        }
        if server.next_loan.begin_reset() {
            let settings = &self.env.snapshot.config.settings;
            let query = settings.server_reset_query.as_bytes();
            if !query.is_empty() {
                return out.ask(conn, server, InternalQuery::Reset, query);
            }
        }
        if server.session.is_to_clean() {
            let clean = Effect::Session(conn, SessionEffect::Clean);
            return self.effects.push(clean);
        }
        self.place_server(conn, out);
    }

    /// Rolls back the transaction that a client has left open.
    fn roll_back(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if server.rolls_back_again() {
            let why = "ROLLBACK left a transaction open";
            return self.effects.push(Effect::close(conn, why));
        }
        out.ask(conn, server, InternalQuery::Rollback, b"ROLLBACK");
    }

    /// Notes that `server_reset_query` was run.
    pub(crate) fn note_reset(&mut self, conn: Token) {
        let is_thorough = self.env.snapshot.config.settings.server_reset_query == "DISCARD ALL";
        if let Some(server) = self.connections.server(conn) {
            let pool = self.pools.get(server.pool());
            let carries_sessions = pool.is_some_and(|pool| pool.terms.carries_sessions);
            server.session.cleaned();
            // A reset query other than DISCARD ALL may leave session state that pgweir's own clean removes.
            server
                .session
                .clean
                .demand(!is_thorough && carries_sessions);
        }
    }

    /// Closes a server that is being cleaned after its client.
    pub(crate) fn close_if_cleaning(&mut self, conn: Token) {
        let server = self.connections.server(conn);
        if server.is_some_and(|server| server.is_cleaning()) {
            let close = Effect::close(conn, "unclean server");
            self.effects.push(close);
        }
    }
}
