//! Checks statements whose tables may have changed since their clients received the description.
//!
//! On a direct connection, PostgreSQL analyses a statement once, and reports `cached plan must not change result type`
//! when the columns of its result have changed since. A client that reads rows by the former description depends on
//! this error. Behind a pooler, one server may have prepared the statement before the change and another server after the
//! change; or a server has prepared it for a client with another description. So before a client uses a statement on a
//! server whose version may differ from the client's description, pgweir prepares the statement there again and
//! describes it. If the columns differ, the client gets PostgreSQL's error.

use std::sync::Arc;

use pgweir_wire::{HEADER_LEN, tag::backend, tag::frontend};

use super::{
    Relay,
    client_to_server::{ClientMessages, ResolvedName, send_target},
    named::Named,
};
use crate::{
    Actions, Token,
    backend::{Change, Fit, Mark, MarkKind, Version},
    base::fault::Fault,
    session::{BindingId, Effects, StatementDescription},
};

impl ClientMessages<'_> {
    /// Prepares the statement on the server, if the server does not have it.
    #[inline]
    pub(super) fn ensure_prepared(
        &mut self,
        resolved: ResolvedName,
        out: &mut Actions,
    ) -> ResolvedName {
        let ResolvedName::Statement(binding) = resolved else {
            return resolved;
        };
        if self.bindings.shape(binding).stale {
            let mark = Mark::clients(MarkKind::Refused, Change::Refused(Fault::StalePlan));
            self.server.replies.mark_sent(mark);
            return ResolvedName::Missing;
        }
        self.client.statements.used(binding);
        let Some(statement) = self.bindings.statement(binding) else {
            return resolved;
        };
        let effects = match self.is_carried {
            true => self.effects_of(statement),
            false => Effects::NONE,
        };
        let (prepared, session) = (&mut self.server.statements.prepared, &self.server.session);
        let now = session.settings_now();
        let fit = prepared.use_by(statement.id(), self.client.origin.id, now);
        if !effects.is_empty() {
            let statement = Arc::clone(statement);
            self.close_before_use(effects, out);
            self.note_use(&statement, effects);
        }
        if fit != Fit::Usable
            && let Some(statement) = self.bindings.statement(binding)
        {
            let statement = Arc::clone(statement);
            if fit == Fit::Foreign {
                self.close_if_prepared(statement.id(), out);
            }
            self.send_parse(statement, None, out);
        } else {
            self.stats.statement_hit_count += 1;
        }
        resolved
    }

    /// Returns whether the message uses a statement whose result may differ from the client's description.
    #[inline]
    pub(super) fn is_outdated(&self, named: &Named<'_>, resolved: Option<ResolvedName>) -> bool {
        let (Named::Bind { .. }, Some(ResolvedName::Statement(binding))) = (named, resolved) else {
            return false;
        };
        let described = self.bindings.shape(binding);
        if described.columns.is_none() || described.stale || self.server.has_failed_transaction() {
            return false;
        }
        let Some(statement) = self.bindings.statement(binding) else {
            return false;
        };
        let is_known = match self.server.statements.prepared.version(statement.id()) {
            Some(version) => version.matches_description(described),
            None => described.schema == self.server.schema(),
        };
        !is_known
    }

    /// Returns the mark of a Describe of a portal, or of a statement whose name pgweir does not replace; `None` if it
    /// needs none.
    #[inline]
    pub(super) fn describe_mark(&mut self, body: &[u8]) -> Option<MarkKind> {
        match body {
            [b'S', ..] => Some(MarkKind::DescribeOther),
            [b'P', name @ ..] => {
                let is_undescribed =
                    |&bound: &BindingId| self.bindings.shape(bound).columns.is_none();
                let bound = self.bound.filter(|_| name == b"\0").filter(is_undescribed);
                let may_mark = self.server.replies.may_mark_portal(bound.is_some());
                bound.filter(|_| may_mark).map(MarkKind::Portal)
            }
            _ => None,
        }
    }

    /// Prepares a statement again and describes it; the client's messages wait for the reply.
    #[cold]
    pub(super) fn check(&mut self, resolved: Option<ResolvedName>, out: &mut Actions) {
        let Some(ResolvedName::Statement(binding)) = resolved else {
            return;
        };
        let Some(statement) = self.bindings.statement(binding).cloned() else {
            return;
        };
        self.close_if_prepared(statement.id(), out);
        self.send_parse(Arc::clone(&statement), None, out);
        send_target(self.server_conn, frontend::DESCRIBE, statement.name(), out);
        self.server
            .replies
            .mark_sent(Mark::silent(MarkKind::Check(binding)));
        out.send_made(self.server_conn, |made| {
            made.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
        });
    }
}

impl Version {
    /// Returns whether the statement matches the client's description.
    fn matches_description(&self, described: StatementDescription) -> bool {
        let is_same = |own: Option<u64>, described: Option<u64>| match (own, described) {
            (Some(own), Some(described)) => own == described,
            _ => true,
        };
        match self.columns {
            Some(_) => {
                is_same(self.columns, described.columns) && is_same(self.params, described.params)
            }
            None => self.schema == Some(described.schema),
        }
    }
}

impl Relay<'_> {
    /// Handles the description of a client's statement, or of one that pgweir has prepared again. Returns whether the
    /// client gets it.
    pub(super) fn described(&mut self, conn: Token, message: &[u8]) -> bool {
        let Some((client, server)) = self.connections.relaying(conn) else {
            return false;
        };
        let is_check = server.replies.front_mark().is_some_and(Mark::is_check);
        if message[0] == backend::PARAMETER_DESCRIPTION {
            server.statements.params = Some(self.bindings.digest_params(&message[HEADER_LEN..]));
            return !is_check;
        }
        let params = server.statements.params.take();
        let columns = (message[0] == backend::ROW_DESCRIPTION).then_some(&message[HEADER_LEN..]);
        let columns = self.bindings.digest_columns(columns).ok();
        let mark = server.replies.described(params.is_some());
        let Some(
            MarkKind::Describe(binding) | MarkKind::Portal(binding) | MarkKind::Check(binding),
        ) = mark.map(|mark| mark.kind)
        else {
            return true;
        };
        let described = self.bindings.shape(binding);
        let mut shape = StatementDescription {
            params: params.or(described.params),
            columns,
            stale: false,
            schema: described.schema,
        };
        if is_check {
            let is_same = described.columns == columns
                && (described.params.is_none() || described.params == params);
            shape = StatementDescription {
                stale: !is_same,
                ..described
            };
        }
        if let Some(statement) = self.bindings.statement(binding) {
            let prepared = &mut server.statements.prepared;
            prepared.note_description(statement.id(), params, columns);
            let version = prepared.version(statement.id());
            shape.schema = version
                .and_then(|own| own.schema)
                .unwrap_or(described.schema);
        }
        if let Some(client) = client {
            let names = &mut client.statements;
            names.note_description(self.bindings, binding, shape);
        }
        !is_check
    }
}
