//! The answers of servers to pgweir's own queries, and refusals of these queries.

use pgweir_wire::{Report, Severity};

use super::{
    Exchange,
    cleaning::adopt_baseline,
    sql_statements::{prepare_without_role, statement_failed},
};
use crate::{
    Actions, Control, Level, Token,
    backend::{InternalAnswer, InternalQuery, Naming, Phase, ServerSession},
    base::fault::{Fault, INSUFFICIENT_PRIVILEGE, ServerError},
    connections::Connections,
    effect::{Effect, Effects, ServerEffect},
    login::note_neutral_session,
    server_connections::catalog_reading,
};

impl Exchange<'_> {
    /// Processes the answer to an internal query.
    pub(crate) fn answered(
        &mut self,
        conn: Token,
        own: InternalQuery,
        out: &mut Actions,
    ) -> Option<Effects> {
        let server = self.connections.known_server(conn, out)?;
        let effect = match (own, server.duty().phase()) {
            (
                InternalQuery::Parameters
                | InternalQuery::Discard
                | InternalQuery::Statements
                | InternalQuery::Sql(_)
                | InternalQuery::SqlWithoutRole(_),
                Some(Phase::Equipping),
            ) if server.replies.is_settled() => self.equipped(conn, out),
            (InternalQuery::Check, Some(Phase::Checking { .. })) => {
                Some(Effect::Server(ServerEffect::Checked(conn)))
            }
            (InternalQuery::Probe, Some(Phase::Settling(_))) => return self.probed(conn, out),
            (InternalQuery::Restore, Some(Phase::Settling(_))) => {
                return self.startup_values_restored(conn, out);
            }
            (InternalQuery::Rights, Some(Phase::AskingPrivilege)) => {
                Some(Effect::PrivilegesAnswered(conn))
            }
            (InternalQuery::Unlisten, Some(Phase::Settling(_))) => {
                return self.finish_with_fence(conn, out);
            }
            (InternalQuery::Startup, Some(Phase::Equipping)) => {
                return self.startup_tried(conn, out);
            }
            (InternalQuery::Lookup, _) => Some(Effect::Server(ServerEffect::LookupAnswered(conn))),
            (InternalQuery::Clean, Some(Phase::Equipping)) => {
                self.session_cleaned(conn);
                self.cleaned_for_client(conn, out)
            }
            (InternalQuery::Reset, _) => Some(Effect::Server(ServerEffect::WasReset(conn))),
            _ => {
                self.answered_without_client(conn, own, out);
                None
            }
        };
        effect.map(Effects::from)
    }

    /// Processes an answer in the same way whether or not a client waits for it.
    fn answered_without_client(&mut self, conn: Token, own: InternalQuery, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        match own {
            // The client has left.
            InternalQuery::Probe => drop(server.session.queries.end(own)),
            InternalQuery::Catalog => catalog_reading::finish(&self.env, server, out),
            InternalQuery::Backends => {
                // The number 0 means that a server of another worker has counted.
                if let Some(InternalAnswer::Backends(counted)) = server.session.queries.end(own)
                    && counted.number > 0
                {
                    out.control(Control::FleetCounted(counted));
                }
            }
            InternalQuery::LostDdl => {
                catalog_reading::note_lost_ddl(&self.env, server, self.pools, out);
            }
            InternalQuery::Neutral => note_neutral_session(server),
            InternalQuery::Clean => self.session_cleaned(conn),
            InternalQuery::Baseline => adopt_baseline(&self.env, server),
            _ => {}
        }
    }
}

/// Processes the failure of an internal query.
pub(crate) fn internal_query_failed(
    connections: &mut Connections,
    conn: Token,
    own: InternalQuery,
    report: &Report<'_>,
    out: &mut Actions,
) -> Option<Effect> {
    let server = connections.server(conn)?;
    match (own, server.duty().phase(), server.client()) {
        (InternalQuery::Rights, Some(Phase::AskingPrivilege), Some(client))
            if server.status() == b'T' =>
        {
            // The client's transaction has failed.
            let fault = Fault::ServerSaid(Box::new(ServerError::of(report)));
            out.send_made(client, |bytes| fault.write(Severity::Error, bytes));
        }
        (InternalQuery::Restore, Some(Phase::Settling(_)), Some(client)) => {
            // The client must not continue without the startup values that RESET has removed.
            server
                .retirement
                .replace_reason("its client's startup parameters are refused");
            let fault = Fault::SettingRefused(Box::new(ServerError::of(report)));
            return Some(Effect::refuse(client, fault));
        }
        // If a statement can't be made any more, its next use fails.
        // Without the privilege to query the cluster's identifier, pgweir tells clusters apart by their addresses.
        (
            InternalQuery::Statements
            | InternalQuery::Rights
            | InternalQuery::ReadAll
            | InternalQuery::System,
            _,
            _,
        ) => {}
        (InternalQuery::Sql(at), _, _) => {
            if !prepare_without_role(connections, conn, at, report, out) {
                statement_failed(connections, conn, at, report);
            }
        }
        (InternalQuery::SqlWithoutRole(at), _, _) => {
            statement_failed(connections, conn, at, report);
        }
        (InternalQuery::StatementsWithoutRole, _, _) => {
            server.session.client_names.naming = Naming::Mixed;
        }
        (
            InternalQuery::Probe
            | InternalQuery::Baseline
            | InternalQuery::Catalog
            | InternalQuery::LostDdl
            | InternalQuery::Backends
            | InternalQuery::Lookup,
            _,
            _,
        ) => server.session.queries.fail(own, report),
        (InternalQuery::Neutral, _, _) => {
            server.retirement.replace_reason("reset failed");
            server.session.queries.fail(own, report);
        }
        // The server still has another client's sequence values, and this client could read them next.
        (InternalQuery::Discard, _, _) => {
            let what = String::from_utf8_lossy(report.message).into_owned();
            return Some(Effect::lose(conn, Fault::ServerUnclean(what)));
        }
        (
            InternalQuery::Parameters | InternalQuery::Startup,
            Some(Phase::Equipping),
            Some(client),
        ) => {
            return parameters_refused(connections, (client, conn), own, report, out);
        }
        _ => {
            let message = String::from_utf8_lossy(report.message).into_owned();
            server.retirement.replace_reason(match own {
                InternalQuery::Check => "server check failed",
                _ => "reset failed",
            });
            let text = format!("{} failed: {message}", own.name());
            out.log(Level::Warning, server.subject(), text);
        }
    }
    None
}

/// Processes the server's refusal of a parameter that the client has at its login, or has set since.
fn parameters_refused(
    connections: &mut Connections,
    (client_conn, conn): (Token, Token),
    own: InternalQuery,
    report: &Report<'_>,
    out: &mut Actions,
) -> Option<Effect> {
    let (client, server) = connections.pair(client_conn, conn)?;
    let words = Box::new(ServerError::of(report));
    if is_caused_by_last_client(&server.session, own, report) {
        server.session.clean.demand(true);
        let message = words.message;
        let text = format!("is cleaned, since settings could not be changed: {message}");
        out.log(Level::Log, server.subject(), text);
        return None;
    }
    if own == InternalQuery::Parameters {
        let text = format!("its settings are refused: {}", words.message);
        out.log(Level::Warning, client.subject(), text);
    }
    let Some(context) = &mut client.context else {
        // PgBouncer disconnects such a client, too: no server accepts its parameters.
        server.retirement.replace_reason("invalid server parameter");
        return Some(Effect::refuse(client_conn, Fault::ServerSaid(words)));
    };
    if server.session.lasting.has_run_opaque_text()
        && report.code == INVALID_VALUE
        && context.wanted.get(BUFFERS).is_some()
    {
        // Another client has used temporary tables in this session: only a new session accepts another value.
        return Some(Effect::lose(conn, Fault::ServerSaid(words)));
    }
    // The query has failed as a whole, so the server has none of the client's settings.
    context.failed = true;
    let fault = match own {
        InternalQuery::Parameters => Fault::SettingRefused(words),
        _ => Fault::ServerSaid(words),
    };
    Some(Effect::refuse(client_conn, fault))
}

/// Returns whether the reason for a refusal may be session state of the server's last client, rather than the settings
/// of the present one.
fn is_caused_by_last_client(
    session: &ServerSession,
    own: InternalQuery,
    report: &Report<'_>,
) -> bool {
    // PostgreSQL rejects startup parameters for many other reasons, such as a value that is out of range.
    let is_likely = own == InternalQuery::Parameters || report.code == INSUFFICIENT_PRIVILEGE;
    is_likely && !session.settings.held().is_empty()
}

const INVALID_VALUE: &[u8] = b"22023";
/// The parameter whose value can't be changed in a session that has used temporary tables.
const BUFFERS: &[u8] = b"temp_buffers";
