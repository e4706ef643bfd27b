//! A clean removes the session state that a client has left on its server connection.

use std::sync::Arc;

use pgweir_config::Unclean;

use super::Exchange;
use crate::{
    Actions, Token,
    backend::{InternalAnswer, InternalQuery, Retirement, Server},
    effect::Env,
    session::{BASELINE, Baseline, Class, Clean, Cleaned, Questions, ToDeallocate, is_identity},
};

/// The longest time that a clean may take, in microseconds.
const CLEAN_PATIENCE: u64 = 2_000_000;

/// The reason for closing a server whose client had a temporary object with the name of a type.
const HIDDEN_TYPES: &str = "its functions may keep types of temporary objects";

/// The reason for closing a server whose clean has ended within a transaction: a ROLLBACK would undo it.
const IN_TRANSACTION: &str = "its clean left a transaction open";

impl Exchange<'_> {
    /// Cleans a server's session.
    pub(crate) fn clean_session(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let pool = self.pools.get_mut(server.pool());
        let certificates = pool.map(|pool| {
            pool.use_current_catalog();
            pool.catalog.certificates.clone()
        });
        let certificates = certificates.unwrap_or_default();
        let runs_unread_code = certificates.every_text_may_do_ddl();
        server.limit_cleaning(self.env.now.after(CLEAN_PATIENCE));
        // The flag need not survive a failure: a server whose clean fails is closed.
        let is_unknown = server.session.clean.begin();
        let mut clean = clean_of(server);
        if is_unknown {
            clean.class = Class::Opaque;
            clean.changes_role = true;
            clean.changes_plans = true;
        }
        clean.asks.rights |= runs_unread_code;
        let made = server.session.clean.made();
        clean.asks.temp = made.has_any && certificates.has_declared_types();
        let hides_types = certificates.has_types_like(made);
        let follows = self.env.snapshot.config.settings.max_prepared_statements > 0;
        let knows_all = !is_unknown && follows && server.session.client_names.are_pooled();
        let sql = server.session.sql_statements.held().clone();
        let statements = match knows_all {
            true => ToDeallocate::Named(sql.pairs().map(|(name, _)| name).collect()),
            false => {
                server.statements.prepared.clear();
                ToDeallocate::All
            }
        };
        let keeps = certificates.unread_foreign_code();
        let text = clean.text(&statements, certificates.disconnects(), keeps.as_deref());
        let is_opaque = clean.class == Class::Opaque;
        if is_opaque {
            server.session.queries.begin(InternalAnswer::Clean(None));
        }
        out.ask(conn, server, InternalQuery::Clean, &text);
        let lacks_baseline = server.session.settings.baseline().is_none();
        let pool = server.pool();
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.stats.now.clean_count += 1;
        }
        let ignores = self.env.snapshot.config.settings.unclean == Unclean::Ignore;
        if hides_types && !ignores {
            self.pools.retire_unclean(server, HIDDEN_TYPES);
        }
        if is_opaque && lacks_baseline {
            server
                .session
                .queries
                .begin(InternalAnswer::Baseline(Vec::new()));
            out.ask(conn, server, InternalQuery::Baseline, BASELINE.as_bytes());
        }
    }

    /// Checks after a clean whether the session state is that of a new session.
    pub(super) fn session_cleaned(&mut self, conn: Token) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        if clean_of(server).changes_plans {
            server.statements.prepared.plans_discarded();
        }
        if !server.is_outside_transaction() {
            server.retirement.require(IN_TRANSACTION);
        }
        // A clean of class settings returns no row.
        let cleaned = match server.session.queries.end(InternalQuery::Clean) {
            Some(InternalAnswer::Clean(row)) => Some(row),
            _ => None,
        };
        let expected = server.statements.prepared.len();
        let fits = |cleaned: Cleaned| cleaned.from_sql == 0 && cleaned.from_protocol == expected;
        match cleaned {
            None => server.session.settings_cleaned(),
            Some(_) => server.session.cleaned(),
        }
        let ignores = self.env.snapshot.config.settings.unclean == Unclean::Ignore;
        let why = match cleaned {
            None => return,
            Some(Some(cleaned)) if fits(cleaned) => {
                if !cleaned.may_keep_state || ignores {
                    return;
                }
                Retirement::KEEPS_STATE
            }
            Some(_) => "its prepared statements are not those that pgweir prepared",
        };
        if let Some(server) = self.connections.server(conn) {
            self.pools.retire_unclean(server, why);
        }
    }
}

/// Stores the parameter values of a clean session.
pub(super) fn adopt_baseline(env: &Env<'_>, server: &mut Server) {
    let Some(InternalAnswer::Baseline(rows)) = server.session.queries.end(InternalQuery::Baseline)
    else {
        return;
    };
    let baseline = Baseline::from_rows(&rows, env.directory.settings());
    if let Some(reported) = baseline {
        let mut facts = server.shared.facts.lock();
        // Most servers of a pool have the same baseline, so they share it.
        let same = facts.baseline.clone().filter(|known| **known == reported);
        let baseline = same.unwrap_or_else(|| Arc::new(reported));
        facts.baseline = Some(Arc::clone(&baseline));
        drop(facts);
        server.session.settings.set_baseline(baseline);
    }
}

/// Returns which session state a clean of this server has to remove.
pub(super) fn clean_of(server: &Server) -> Clean {
    let changes = &server.session.changes;
    let held = server.session.settings.held();
    let has_role = held.iter().any(|(name, _)| is_identity(name));
    Clean {
        class: changes.class().max(Class::Settings),
        changes_role: changes.affects_role() || has_role,
        changes_plans: changes.affects_plans(),
        reseeds: server.session.extension.last().is_none(),
        asks: Questions {
            rights: server.session.clean.must_ask_rights(),
            temp: false,
        },
        version: major_version(server),
    }
}

/// Returns the server's major version; 0 if it has reported none.
pub(super) fn major_version(server: &Server) -> u32 {
    let facts = server.shared.facts.lock();
    let server_parameters = facts.server_parameters.as_ref();
    let version = server_parameters
        .and_then(|server_parameters| server_parameters.parameter(b"server_version"));
    let major = version
        .unwrap_or_default()
        .split(|byte| !byte.is_ascii_digit())
        .next();
    let major = major.and_then(|major| std::str::from_utf8(major).ok()?.parse().ok());
    major.unwrap_or(0)
}
