//! Processes the server's answers to internal queries.

use pgweir_wire::{MessageWriter, Report, Severity};

use crate::{
    Actions, Level, Time, Token,
    backend::{InternalQuery, Phase, ServerSession},
    fault::{Fault, Words},
    login::note_neutral_session,
    worker::Worker,
};

impl Worker {
    /// Processes the answer to an internal query.
    pub(super) fn internal_query_done(
        &mut self,
        conn: Token,
        own: InternalQuery,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        match (own, server.duty.phase()) {
            (
                InternalQuery::Parameters
                | InternalQuery::Sequences
                | InternalQuery::Statements
                | InternalQuery::Sql(_),
                Some(Phase::Equipping),
            ) if server.replies.is_settled() => {
                self.prepared(conn, now, out);
            }
            (InternalQuery::Check, Some(Phase::Checking { .. })) => self.checked(conn, now, out),
            (InternalQuery::Probe, Some(Phase::Settling(_))) => self.probed(conn, now, out),
            // The client has left.
            (InternalQuery::Probe, _) => server.session.queries.inspection = None,
            (InternalQuery::Restore, Some(Phase::Settling(_))) => {
                self.startup_values_restored(conn, now, out)
            }
            (InternalQuery::Rights, Some(Phase::AskingPrivilege)) => {
                self.handle_asker_rights(conn, now, out)
            }
            (InternalQuery::Rights, _) => server.session.signals = None,
            (InternalQuery::Unlisten, Some(Phase::Settling(_))) => {
                self.finish_with_fence(conn, now, out)
            }
            (InternalQuery::Startup, Some(Phase::Equipping)) => self.startup_tried(conn, now, out),
            (InternalQuery::Catalog, _) => self.catalog_read(conn, now, out),
            (InternalQuery::Neutral, _) => note_neutral_session(server),
            (InternalQuery::Lookup, _) => {
                self.log_in(now, out, |event, out| event.lookup_answered(conn, out));
            }
            (InternalQuery::Clean, Some(Phase::Equipping)) => {
                self.session_cleaned(conn);
                self.cleaned_for_client(conn, now, out);
            }
            (InternalQuery::Clean, _) => self.session_cleaned(conn),
            (InternalQuery::Baseline, _) => self.adopt_baseline(conn),
            (InternalQuery::Reset, _) => self.was_reset(conn),
            _ => {}
        }
    }

    /// A request of a client was answered that was thought to be ignored, while the client's session is being
    /// looked at: it gets this ReadyForQuery beside the one that is held back.
    #[cold]
    pub(super) fn answered_during_inspection(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let status = server.status;
        if let Some(client) = server.holds_client() {
            out.send_made(client, |made| {
                MessageWriter::new(made).ready_for_query(status);
            });
        }
    }

    /// Processes the failure of an internal query.
    pub(super) fn internal_query_failed(
        &mut self,
        conn: Token,
        own: InternalQuery,
        report: &Report<'_>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let client = server.client();
        match (own, server.duty.phase(), client) {
            (InternalQuery::Rights, Some(Phase::AskingPrivilege), Some(client))
                if server.status == b'T' =>
            {
                // So the client's transaction has failed.
                let fault = Fault::ServerSaid(Words::of(report));
                out.send_made(client, |bytes| fault.write(Severity::Error, bytes));
            }
            (InternalQuery::Restore, Some(Phase::Settling(_)), _) => {
                self.startup_values_refused(conn, report, now, out);
            }
            // If a statement can't be made any more, its next use fails.
            (InternalQuery::Baseline, _, _) => server.session.queries.baseline_rows = None,
            // Without the privilege to ask for it, the address tells clusters apart.
            (
                InternalQuery::Statements
                | InternalQuery::Rights
                | InternalQuery::ReadAll
                | InternalQuery::System,
                _,
                _,
            ) => {}
            (InternalQuery::Sql(at), _, _) => self.sql_statement_failed(conn, at, report),
            (InternalQuery::Catalog, _, _) => server.session.reading_failed(),
            (InternalQuery::Lookup | InternalQuery::Neutral, _, _) => {
                if own == InternalQuery::Neutral {
                    server.retirement.reason = Some("reset failed");
                }
                if let Some(lookup) = &mut server.session.queries.lookup {
                    lookup.fail(String::from_utf8_lossy(report.message).into_owned());
                }
            }
            (InternalQuery::Probe, _, _) => {
                if let Some(answers) = &mut server.session.queries.inspection {
                    answers.failed = true;
                    answers.is_too_long = report.code == VALUE_TOO_LONG;
                }
            }
            // The server still has another client's values, and this client may ask for them next.
            (InternalQuery::Sequences, _, _) => {
                let what = String::from_utf8_lossy(report.message).into_owned();
                self.close_for(conn, Fault::ServerUnclean(what), now, out);
            }
            (
                InternalQuery::Parameters | InternalQuery::Startup,
                Some(Phase::Equipping),
                Some(_),
            ) => {
                self.parameters_refused(conn, own, report, now, out);
            }
            _ => {
                let message = String::from_utf8_lossy(report.message).into_owned();
                server.retirement.reason = Some(match own {
                    InternalQuery::Check => "server check failed",
                    _ => "reset failed",
                });
                let subject = self.server_subject(conn);
                let text = format!("{} failed: {message}", own.name());
                out.log(Level::Warning, subject, text);
            }
        }
    }

    /// Processes the server's refusal of a parameter that the client has at its login, or has set since.
    fn parameters_refused(
        &mut self,
        conn: Token,
        own: InternalQuery,
        report: &Report<'_>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let words = Words::of(report);
        if is_residue(&server.session, own, report) {
            server.session.unclean = true;
            let subject = self.server_subject(conn);
            let message = words.message;
            let text = format!("is cleaned, since settings could not be changed: {message}");
            return out.log(Level::Log, subject, text);
        }
        let Some(client_conn) = server.client() else {
            return;
        };
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return;
        };
        if own == InternalQuery::Parameters {
            let text = format!("its settings are refused: {}", words.message);
            out.log(Level::Warning, client.subject(), text);
        }
        let Some(context) = &mut client.context else {
            // PgBouncer ends such a client too: no server can meet its parameters.
            server.retirement.reason = Some("invalid server parameter");
            return self.refuse(client_conn, &Fault::ServerSaid(words), now, out);
        };
        if server.session.lasting.has_run_opaque_text
            && report.code == INVALID_VALUE
            && context.wanted.get(BUFFERS).is_some()
        {
            // Another client has used temporary tables: only a new session takes another value.
            return self.close_for(conn, Fault::ServerSaid(words), now, out);
        }
        // The query has failed as a whole, so that the server has nothing of the client.
        context.failed = true;
        let fault = match own {
            InternalQuery::Parameters => Fault::SettingRefused(Box::new(words)),
            _ => Fault::ServerSaid(words),
        };
        self.refuse(client_conn, &fault, now, out);
    }

    /// Processes the failure to restore the startup values that RESET has removed: the client must not go on without
    /// them.
    fn startup_values_refused(
        &mut self,
        conn: Token,
        report: &Report<'_>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((client, _, server)) = self.table.pair_of(conn) else {
            return;
        };
        server.retirement.reason = Some("its client's startup parameters are refused");
        let fault = Fault::SettingRefused(Box::new(Words::of(report)));
        self.refuse(client, &fault, now, out);
    }
}

/// Is what the last client has left in the way? The one that gets the server now is not to pay for it.
fn is_residue(session: &ServerSession, own: InternalQuery, report: &Report<'_>) -> bool {
    // PostgreSQL rejects startup parameters for many other reasons, such as a value that is out of range.
    let is_likely = own == InternalQuery::Parameters || report.code == INSUFFICIENT_PRIVILEGE;
    is_likely && !session.settings.held.is_empty()
}

/// A division by zero, by which an inspection fails if a value is too long.
const VALUE_TOO_LONG: &[u8] = b"22012";
const INSUFFICIENT_PRIVILEGE: &[u8] = b"42501";
const INVALID_VALUE: &[u8] = b"22023";
/// A session that has used temporary tables does not take another value of this parameter.
const BUFFERS: &[u8] = b"temp_buffers";
