//! Statements that a client has prepared by SQL's `PREPARE`: pgweir runs the text of the `PREPARE` again on the
//! client's next server.

use pgweir_wire::{MessageWriter, Report, Severity, tag::frontend};

use super::{Exchange, INSPECTED};
use crate::{
    Actions, Token,
    backend::{InternalQuery, Naming, Server},
    base::fault::{Fault, INSUFFICIENT_PRIVILEGE, ServerError},
    connections::Connections,
    frontend::Client,
    session::{Context, ROLE, SqlStatements, State, WITHOUT_ROLE},
};

impl Exchange<'_> {
    /// Adds the SQL-prepared statements that an inspection has found to the client's context. Statements that can be
    /// carried are removed from `state`. The statements that remain in `state` pin the client to the server.
    pub(super) fn adopt_sql_statements(
        &mut self,
        client_conn: Token,
        conn: Token,
        state: &mut State,
        out: &mut Actions,
    ) -> Option<()> {
        let settings = &self.env.snapshot.config.settings;
        let most = settings.max_prepared_statements as usize;
        let most_bytes = settings.max_client_prepared_bytes as usize;
        let (client, server) = self.connections.known_pair(client_conn, conn, out)?;
        let context = out.known(client.context.as_deref_mut(), INSPECTED)?;
        let session = &mut server.session;
        let fits = |sql: &SqlStatements| {
            sql.len() <= most && sql.bytes() + client.statements.bytes() <= most_bytes
        };
        let found = state.statements.iter().map(|(name, text)| {
            let text = text.as_deref().or_else(|| context.sql.text(name))?;
            Some((name.clone(), text.to_vec()))
        });
        // The client keeps a statement that this server could not prepare: another server may be able to.
        let is_found = |name: &[u8]| state.statements.iter().any(|(found, _)| found == name);
        let unmade: Vec<_> = context
            .sql
            .pairs()
            .filter(|&(name, _)| !session.sql_statements.held().has(name) && !is_found(name))
            .map(|(name, text)| (name.to_vec(), text.to_vec()))
            .collect();
        let found = found.chain(unmade.iter().cloned().map(Some));
        let found: Option<Vec<_>> = found.collect();
        if let Some(sql) = found.and_then(SqlStatements::read).filter(fits) {
            state.statements.clear();
            let known = [session.sql_statements.held(), &context.sql]
                .into_iter()
                .find(|known| known.is_equal(&sql));
            context.sql = known.cloned().unwrap_or(sql);
            let mut held = context.sql.clone();
            if !unmade.is_empty() {
                let names: Vec<_> = unmade.into_iter().map(|(name, _)| name).collect();
                held = held.without(&names);
            }
            session.sql_statements.note_found(held, client.origin.id);
            session.client_names.forget_texts();
        } else {
            context.sql = SqlStatements::default();
            session.sql_statements.clear();
        }
        let has_reserved = state
            .ours
            .is_some_and(|ours| ours > server.statements.prepared.len());
        if session.client_names.are_own() && (has_reserved || !state.named.is_empty()) {
            return Some(());
        }
        if session.client_names.are_own() {
            client.statements.clear(self.bindings);
        }
        session.client_names.naming = Naming::Pooled;
        let gone = state.named.iter();
        let mut gone: Vec<_> = gone.map(|name| name.clone().into()).collect();
        if state
            .ours
            .is_some_and(|ours| ours != server.statements.prepared.len())
        {
            // Code whose text pgweir does not see has deallocated some of the statements that pgweir prepared; it is
            // unknown which.
            let ours = server.statements.prepared.take_all();
            gone.extend(ours.iter().map(|statement| statement.name().into()));
        }
        close(conn, server, &gone, out);
        Some(())
    }
}

/// Returns whether the server has exactly this client's SQL-prepared statements, prepared under the client's rules for
/// literals. If so, the client and the server share one list, so the next comparison is by address.
pub(super) fn take_statements_of(server: &mut Server, context: &mut Context, client: u64) -> bool {
    let session = &mut server.session;
    let statements = &mut session.sql_statements;
    let has_them = statements.fit(&context.sql, client, &context.wanted);
    if has_them {
        context.sql = statements.held().clone();
        statements.note_user(client, &context.wanted);
    }
    has_them
}

/// Replaces the server's SQL-prepared statements by the client's.
pub(super) fn send_statements(
    conn: Token,
    server: &mut Server,
    client: &Client,
    out: &mut Actions,
) {
    let Some(context) = client.context.as_deref() else {
        return;
    };
    let mut syncs = Vec::new();
    out.send_made(conn, |bytes| {
        let held = server.session.sql_statements.held();
        syncs = context.sql.write_plan(held, bytes);
    });
    for made in syncs {
        server.ask(made.map_or(InternalQuery::Statements, InternalQuery::Sql));
    }
    let (sql, wanted) = (context.sql.clone(), context.wanted.clone());
    (server.session.sql_statements).replace(sql, client.origin.id, wanted);
}

/// Returns whether the server has to be queried for its statements, since the extension's report does not contain all
/// of them.
pub(super) fn needs_texts(server: &Server, state: &State) -> bool {
    let session = &server.session;
    !session.client_names.are_pooled()
        || !session.sql_statements.held().is_empty()
        || state
            .statements
            .iter()
            .any(|(name, _)| !session.sql_statements.held().has(name))
}

/// Prepares a client's statement again, without the client's role, if this role may not prepare it: the client has set
/// the role after its PREPARE. PostgreSQL checks the privilege to use a schema only when it analyses a statement. It
/// checks all other privileges when it runs the statement, and then under the role. Returns whether the PREPARE was sent.
///
/// A session may drop its role at any time, so the client gains no right.
#[cold]
pub(super) fn prepare_without_role(
    connections: &mut Connections,
    conn: Token,
    at: u32,
    report: &Report<'_>,
    out: &mut Actions,
) -> bool {
    let Some((client_conn, client, server)) = connections.pair_of(conn) else {
        return false;
    };
    let Some(context) = client.context.as_deref() else {
        return false;
    };
    let is_refused_to_role = report.code == INSUFFICIENT_PRIVILEGE
        && server.equips() == Some(client_conn)
        && context.wanted.get(ROLE).is_some();
    let Some((_, text)) = context.sql.at(at).filter(|_| is_refused_to_role) else {
        return false;
    };
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes)
            .unsynced_command(WITHOUT_ROLE)
            .unnamed_command(text);
    });
    server.ask(InternalQuery::SqlWithoutRole(at));
    true
}

/// Notes that a client's statement could not be prepared, since an object that it uses does not exist. pgweir tries
/// again when the client next gets a server.
#[cold]
pub(super) fn statement_failed(
    connections: &mut Connections,
    conn: Token,
    at: u32,
    report: &Report<'_>,
) {
    // The server has another statement of this name, which a later clean has to remove.
    if report.code == b"42P05" {
        return;
    }
    let Some((client_conn, client, server)) = connections.pair_of(conn) else {
        return;
    };
    let is_relaying = server.relays_for() == Some(client_conn);
    if (is_relaying || server.equips() == Some(client_conn))
        && let Some(context) = &client.context
        && let Some((name, _)) = context.sql.at(at)
    {
        let statements = &mut server.session.sql_statements;
        statements.note_missing(name);
        if is_relaying {
            let mut error = Vec::new();
            Fault::ServerSaid(Box::new(ServerError::of(report))).write(Severity::Error, &mut error);
            let notes = server.session.loan.edit();
            notes.rejections.keep(name, error);
        }
    }
}

/// Closes statements on a server, whether the server has them or not.
fn close(conn: Token, server: &mut Server, names: &[Box<[u8]>], out: &mut Actions) {
    if names.is_empty() {
        return;
    }
    out.send_made(conn, |bytes| {
        for name in names {
            MessageWriter::new(bytes).statement(frontend::CLOSE, name);
        }
        MessageWriter::new(bytes).sync();
    });
    server
        .replies
        .internal_query_sent(InternalQuery::Statements);
}
