//! Errors that servers report.

use pgweir_wire::Report;

use super::{Relay, Treatment};
use crate::{
    Actions, Token,
    backend::{Duty, Request},
    base::fault::{STALE_PLAN, ServerError},
    client_listen::unlisten_completed,
    effect::{Effect, ServerEffect},
    exchange,
    measurement::recording,
    server_connections::host_checks,
};

impl Relay<'_> {
    /// Processes an ErrorResponse.
    #[cold]
    pub(super) fn handle_error(
        &mut self,
        conn: Token,
        body: &[u8],
        out: &mut Actions,
    ) -> Treatment {
        let Some(server) = self.connections.known_server(conn, out) else {
            return Treatment::Keep;
        };
        let is_internal = matches!(server.replies.current(), Some(Request::Internal(_)));
        if !is_internal {
            server.session.has_failed();
            let request = server.replies.present_request();
            server
                .statements
                .running
                .failed(request, self.env.now, &mut self.pools.statements);
        }
        let marks = server.replies.failed();
        unlisten_completed(self.connections, conn, None);
        let Ok(report) = Report::parse(body) else {
            self.undo(conn, marks);
            return Treatment::Pass;
        };
        if report.routine == STALE_PLAN.as_bytes()
            && let Some(server) = self.connections.server(conn)
            // An error of a client's SQL EXECUTE does not concern the statements that clients share.
            && !matches!(server.replies.current(), Some(Request::Simple))
        {
            server.shared.catalog.plan_is_stale();
        }
        if let Some(server) = self.connections.server(conn) {
            host_checks::note_error(&self.env, server, &report, out);
        }
        let message = self.statements_failed(conn, marks, body, &report, out);
        let Some(server) = self.connections.known_server(conn, out) else {
            return Treatment::Keep;
        };
        let rejection = match is_internal {
            true => None,
            false => server.session.loan.edit().rejections.take(&report),
        };
        if let Some(message) = message.or(rejection) {
            if let Some(client) = server.relays_for() {
                server.link.close_repeatable();
                out.send_made(client, |made| made.extend_from_slice(&message));
            }
            return Treatment::Keep;
        }
        if report.ends_session() {
            // The server is about to close. The error that the client gets depends on what the server was doing.
            server.link.note_final_error(ServerError::of(&report));
            // An idle server may take a while to close, and must not be lent meanwhile.
            let is_idle = matches!(*server.duty(), Duty::Idle);
            return Treatment::keep_and(
                is_idle.then_some(Effect::Server(ServerEffect::EndFailed(conn))),
            );
        }
        if !server.replies.is_asked() {
            return Treatment::Act(Effect::fault(conn, "an unexpected ErrorResponse"));
        }
        if let Some(Request::Internal(own)) = server.replies.current() {
            let effect = exchange::internal_query_failed(self.connections, conn, own, &report, out);
            return Treatment::keep_and(effect);
        }
        if self.env.sampler.is_some() {
            recording::failed(self.connections, conn, report.code);
        }
        Treatment::Pass
    }
}
