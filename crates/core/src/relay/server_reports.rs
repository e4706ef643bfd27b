//! Reports of a server: ParameterStatus, the extension's report of the session state, and notices.

use pgweir_config::TargetSession;
use pgweir_wire::{Body, HEADER_LEN, Report, tag::backend};

use super::Relay;
use crate::{
    Actions, Token,
    backend::{InternalQuery, Request, SIGNALS, Server},
    effect::{Effect, Env},
    exchange,
    server_connections::host_checks,
    session::State,
    shared::{hosts::HostExclusion, pool::ServerRole},
    signal::unknown_pid,
};

/// The parameter that is `on` on a standby.
const IN_HOT_STANDBY: &[u8] = b"in_hot_standby";

/// The parameter that makes transactions read-only unless they say otherwise.
const DEFAULT_READ_ONLY: &[u8] = b"default_transaction_read_only";

/// The text that replaces an error which was too long to be read.
const UNREAD: Report<'_> = Report {
    severity: b"ERROR",
    code: b"54000",
    message: b"the message of the server is too long to be read",
    detail: None,
    hint: None,
    routine: b"",
};

impl Relay<'_> {
    /// Handles a ParameterStatus. Returns whether the client gets it now.
    pub(super) fn parameter_changed(
        &mut self,
        conn: Token,
        body: &[u8],
        out: &mut Actions,
    ) -> bool {
        let mut body = Body::new(body);
        let (Ok(name), Ok(value)) = (body.cstr(), body.cstr()) else {
            return true;
        };
        if name == State::PARAMETER {
            self.state_reported(conn, value);
            return false;
        }
        let Some(at) = self.env.directory.names().position(name) else {
            return true;
        };
        let Some(server) = self.connections.server(conn) else {
            return true;
        };
        let before = server.tracked.clone();
        let names = self.env.directory.names();
        server.tracked.set(at, value);
        server.session.read_as(names, &server.tracked);
        match name {
            IN_HOT_STANDBY => role_reported(&self.env, server, value == b"on", out),
            // A client may have set the parameter in this session only, so a check reads it in another session.
            DEFAULT_READ_ONLY => {
                if let Some(host) = server.link.host() {
                    let _ = host_checks::request_check(&self.env, host, out);
                }
            }
            _ => {}
        }
        if let Some(client) = server.client()
            && let Some((client, server)) = self.connections.pair(client, conn)
        {
            let is_of_client = server.relays_for().is_some();
            if client.context.is_some() {
                // Before the loan, pgweir changes parameters itself, and then compares all of them.
                if is_of_client || server.holds_client().is_some() {
                    server.session.loan.edit().note_unsent();
                }
                return false;
            }
            if !is_of_client {
                return true;
            }
            if client.tracked.is_same(&before) {
                client.tracked = server.tracked.clone();
            } else {
                client.tracked.set(at, value);
            }
        }
        true
    }

    /// Handles a row or an error that was forwarded without being read, since it is too long.
    #[cold]
    pub(super) fn passes_unread(
        &mut self,
        conn: Token,
        tag: u8,
        out: &mut Actions,
    ) -> Option<Effect> {
        let server = self.connections.server(conn)?;
        if tag != backend::ERROR_RESPONSE {
            // A row.
            server.session.queries.skip_row();
            return None;
        }
        match server.replies.current() {
            Some(Request::Internal(own)) => {
                exchange::internal_query_failed(self.connections, conn, own, &UNREAD, out)
            }
            _ => {
                server.session.has_failed();
                let marks = server.replies.failed();
                self.undo(conn, marks);
                None
            }
        }
    }

    /// Handles the extension's report of the session state.
    fn state_reported(&mut self, conn: Token, value: &[u8]) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        let unclear = || State {
            unclear: true,
            ..State::default()
        };
        let state = State::of_report(value).unwrap_or_else(|_| unclear());
        let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
        let is_new = server.relays_for().is_some() && !is_own;
        server.session.extension.note(state, is_new);
    }
}

/// Handles a server's report that its host has become a standby, or a primary.
#[cold]
fn role_reported(env: &Env<'_>, server: &mut Server, is_standby: bool, out: &mut Actions) {
    let database = env.snapshot.config.database(&server.shared.key.database);
    let target = database.map_or(TargetSession::Any, |entry| entry.target_session_attrs);
    if !ServerRole::fits_as(is_standby, target) {
        server.retirement.require(HostExclusion::Role.reason());
    }
    // The server may have confirmed a write as a primary already.
    env.directory.hosts().writes().add(env.worker);
    if let Some(host) = server.link.host() {
        host_checks::note_reported_role(env, host, is_standby, out);
    }
}

/// Forwards a server's notice to its client. The notice may contain the pid of a client. A client that logs in gets
/// notices about its startup parameters, although they are not replies to its requests.
#[cold]
pub(super) fn noticed(server: &mut Server, notice: &[u8], out: &mut Actions) {
    match (server.replies.current(), server.equips()) {
        (Some(Request::Internal(InternalQuery::Startup)), Some(client)) => {
            out.send_made(client, |bytes| bytes.extend_from_slice(notice));
        }
        (Some(Request::Internal(_)), _) => {}
        _ if server.session.loan.effects().intersects(SIGNALS) => {
            if let Some(pid) = unknown_pid(&notice[HEADER_LEN..]) {
                server.session.loan.edit().note_signal(pid);
            }
        }
        _ => {}
    }
}
