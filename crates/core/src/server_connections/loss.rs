//! Lost and closed server connections: the error that a client gets when its server is lost, and the conditions under which
//! the client keeps its session and gets another server.

use std::sync::Arc;

use pgweir_config::TargetSession;
use pgweir_wire::MessageWriter;

use super::{ServerConnections, host_checks};
use crate::{
    Actions, Closed, Level, SharedPool, Token,
    backend::{Duty, Phase},
    base::fault::Fault,
    clients::early_answers::send_early,
    effect::{ClientEffect, Effect, ServerEffect},
    loan::{Loss, take_request},
    mail::Mail,
    pool::LoginOutcome,
    session::{Effects, Unanswered},
    shared::{events::EventKind, pool::Failure},
};

/// How many servers in a row may be lost while pgweir sets a client's parameters on them. After one more loss, the client
/// is disconnected: its settings may be the cause.
const LOSSES_MAX: u8 = 2;
/// The class of SQLSTATEs for an operator's intervention.
const OPERATOR_INTERVENTION: &str = "57";

impl ServerConnections<'_> {
    /// Handles a server connection that pgweir has not closed itself.
    pub(crate) fn gone(&mut self, conn: Token, why: &Closed, out: &mut Actions) {
        let server = self.connections.server(conn);
        let words = server.and_then(|server| {
            host_checks::note_shutdown_message(&self.env, server, out);
            server.link.take_final_error()
        });
        let fault = match words {
            Some(words) => Fault::ServerSaid(Box::new(words)),
            None => Fault::ServerCrashed,
        };
        let lost = match why {
            Closed::Eof => None,
            Closed::Error(error) => Some(format!("connection lost: {error}")),
            Closed::Tls(error) => Some(format!("TLS handshake failed: {error}")),
        };
        if matches!(why, Closed::Tls(_)) {
            self.results.server_tls_failed += 1;
        }
        if let Some(text) = lost {
            out.log(Level::Warning, self.subject(conn), text);
        }
        let text = match why {
            Closed::Tls(_) => "TLS handshake failed".to_owned(),
            _ => fault.to_string(),
        };
        self.lose(conn, fault, &text, out);
    }

    /// Closes an idle server that has sent a fatal error.
    pub(crate) fn end_failed(&mut self, conn: Token, out: &mut Actions) {
        self.close_connection(conn, out);
        self.gone(conn, &Closed::Eof, out);
    }

    /// Closes a server that is no longer usable, before it can send anything else.
    #[cold]
    pub(crate) fn close_for(&mut self, conn: Token, fault: Fault, out: &mut Actions) {
        let text = fault.to_string();
        self.close_connection(conn, out);
        self.lose(conn, fault, &text, out);
    }

    fn lose(&mut self, conn: Token, fault: Fault, text: &str, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if !matches!(*server.duty(), Duty::Login(_)) {
            let key = &server.shared.key;
            let about = (&*key.database, &*key.user);
            let directory = self.env.directory;
            directory.note_event(EventKind::ServerLost, about, text, self.env.now);
            if let Some(host) = server.link.host() {
                let _ = host_checks::request_check(&self.env, host, out);
            }
        }
        match server.duty() {
            Duty::Login(_) => {
                self.log_end(conn, text, out);
                self.drop_login(conn, Failure::unreachable(text), out);
            }
            Duty::Idle
            | Duty::Listening { .. }
            | Duty::CheckingHost { .. }
            | Duty::Cleaning { .. } => {
                self.drop_server(conn, text, out);
            }
            &Duty::Lent {
                client,
                phase: ref phase @ (Phase::Checking { .. } | Phase::Equipping),
            } => {
                let is_checked = matches!(phase, Phase::Checking { .. });
                self.drop_server(conn, text, out);
                let ends_client = !is_checked && self.settings_end_servers(client, &fault);
                if ends_client && let Some(client) = self.connections.client(client) {
                    // A client that ends while it has a server makes pgweir clean that server, and this one is gone.
                    client.become_idle();
                }
                self.effects.push(match ends_client {
                    true => Effect::Client(ClientEffect::Refuse(client, Box::new(fault))),
                    false => Effect::Client(ClientEffect::CheckOutAgain(client)),
                });
            }
            Duty::Lent { .. } => self.lose_lent(conn, fault, text, out),
        }
    }

    /// Handles the loss of a server that relays for a client, or whose session is inspected.
    fn lose_lent(&mut self, conn: Token, fault: Fault, text: &str, out: &mut Actions) {
        let statements = &self.pools.statements;
        let Some((client_conn, client, server)) = self.connections.pair_of(conn) else {
            out.report_missing("the client of a server that is lent");
            return self.drop_server(conn, text, out);
        };
        let pool = self.pools.get(server.pool());
        let hosts = pool.map_or(0, |pool| pool.terms.endpoints.len());
        let names = self.env.directory.names();
        if let Some(request) =
            take_request(names, client_conn, server, &fault, (hosts, self.env.now))
        {
            let marks = server.replies.take_all_marks();
            return self.effects.extend([
                Effect::UndoMarks(conn, marks),
                Effect::Server(ServerEffect::Drop(conn, text.into())),
                Effect::RepeatRequest(client_conn, Box::new((*request, fault))),
            ]);
        }
        let is_pinned = (client.context.as_ref()).is_some_and(|context| context.is_pinned());
        let holds_client = server.holds_client().is_some();
        let ready_was_sent = (server.settling()).is_some_and(|settling| settling.ready_was_sent);
        let has_own_words = matches!(fault, Fault::ServerSaid(_));
        let is_asked = !server.replies.is_settled();
        let running = &server.statements.running;
        let pool = client.pool().and_then(|pool| self.pools.get(pool));
        let certificates = pool.map(|pool| &pool.catalog.certificates);
        let by = server.session.transaction.certified_by();
        let unanswered = Unanswered {
            status: server.status(),
            dialect: server.session.dialect(),
            certificates: certificates.filter(|known| by == Some(known.generation())),
        };
        let fault = match running.may_have_committed(unanswered, is_asked, statements) {
            true if !has_own_words => Fault::OutcomeUnknown(fault.to_string()),
            _ => fault,
        };
        let loss = Loss {
            // Session state that can't be moved is lost with the server as well.
            was_in_transaction: server.is_exclusive()
                || !server.is_outside_transaction()
                || server.session.loan.inspection.is_missing()
                || is_pinned
                // The settings that the client has changed there were not inspected.
                || server.session.changes.needs_inspection()
                || holds_client && !ready_was_sent
                // The client may have terminated its own session.
                || server.session.loan.effects().contains(Effects::TERMINATES)
                || !server.replies.can_be_answered_for(),
            mid_message: !server.stream.is_at_boundary(),
            owed: server.replies.owed_to_client(),
            fault,
        };
        // The answers that pgweir has sent in the server's place stay valid, whatever happens to the other requests.
        send_early(client_conn, server, out);
        let marks = server.replies.take_all_marks();
        self.effects.push(Effect::UndoMarks(conn, marks));
        self.effects
            .push(Effect::Server(ServerEffect::Drop(conn, text.into())));
        self.effects
            .push(Effect::ReportServerLoss(client_conn, Box::new(loss)));
    }

    /// Returns whether a server was lost because of the settings that it was getting for a client, since other servers
    /// were lost in the same way before.
    #[cold]
    fn settings_end_servers(&mut self, client: Token, fault: &Fault) -> bool {
        let Fault::ServerSaid(words) = fault else {
            return false;
        };
        // An operator has terminated the session, or shut down the whole cluster.
        let is_ordered = words.code.starts_with(OPERATOR_INTERVENTION);
        let client = self.connections.client(client);
        let Some(context) = client.and_then(|client| client.context.as_mut()) else {
            return false;
        };
        context.servers_lost = context.servers_lost.saturating_add(u8::from(!is_ordered));
        context.servers_lost > LOSSES_MAX
    }

    /// Handles a failed login to a server. A server that refused the login would refuse the next one too.
    pub(super) fn login_failed(
        &mut self,
        shared: &Arc<SharedPool>,
        why: Failure,
        out: &mut Actions,
    ) {
        let (directory, worker, now) = (self.env.directory, self.env.worker, self.env.now);
        let about = (&*shared.key.database, &*shared.key.user);
        let text = format!("login to the server failed: {}", why.text);
        directory.note_event(EventKind::PoolError, about, &text, now);
        let entry = self.env.snapshot.config.database(&shared.key.database);
        let prefers = entry
            .is_some_and(|database| database.target_session_attrs == TargetSession::PreferStandby);
        let retry = entry.map_or(0, |database| {
            self.env.snapshot.config.login_retry(database).0
        });
        let pool = self.open_pool(shared);
        pool.stats.now.server_login_failure_count += 1;
        let endpoints = &pool.terms.endpoints;
        let hosts = endpoints.len();
        // Another host is tried at once, or the primary, if it is the last resort.
        let is_round_over = hosts < 2 || why.is_final() || {
            let logins = &shared.facts.lock().logins;
            let is_primary_left = prefers && logins.is_any_reachable(endpoints, (now, retry));
            logins.are_all_useless(endpoints.iter().cloned(), now, retry) && !is_primary_left
        };
        let failures = shared.facts.lock().failures;
        let jitter = directory.login_jitter(shared, failures, retry);
        let connecting = match is_round_over {
            true => LoginOutcome::Failed(now.after(jitter)),
            false => LoginOutcome::Dropped,
        };
        let reason = why.text.clone();
        let may_succeed = !why.is_final();
        let is_final = {
            let mut facts = shared.facts.lock();
            let is_refused = why.refusal.is_some();
            let is_unreachable = why.detail.is_some();
            facts.login_failed(why);
            is_round_over && (is_refused || is_unreachable && facts.failures >= hosts)
        };
        let outdated = shared.epochs.lock().outdated();
        let (notes, has_none) = {
            let mut ledger = shared.ledger.lock();
            let notes = ledger.connected(worker, connecting, now);
            // Outdated servers serve no waiter.
            let usable = (ledger.servers() - ledger.connecting()) as usize;
            (notes, usable <= outdated)
        };
        self.deliver(&notes, shared, out);
        if is_round_over && may_succeed && has_none {
            self.begin_outage(shared, &reason);
        }
        if is_final && has_none {
            for to in directory.worker_ids() {
                let mail = Mail::Failed(Arc::clone(shared));
                out.mail(to, mail);
            }
        }
    }

    /// Notes that a pool has no server, and that no host can be used.
    fn begin_outage(&self, shared: &SharedPool, reason: &str) {
        let (directory, now) = (self.env.directory, self.env.now);
        if shared.facts.lock().outage.begin(now) {
            let about = (&*shared.key.database, &*shared.key.user);
            directory.note_event(EventKind::Outage, about, reason, now);
        }
    }

    /// Closes a server that no client uses.
    pub(crate) fn close(&mut self, conn: Token, why: &str, out: &mut Actions) {
        let is_login = match self.connections.server(conn) {
            Some(server) => matches!(*server.duty(), Duty::Login(_)),
            None => return,
        };
        if !is_login {
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).terminate();
            });
        }
        self.close_connection(conn, out);
        if is_login {
            self.give_up_login(conn, out);
        } else {
            self.drop_server(conn, why, out);
        }
    }

    /// Removes a server that has logged in, and informs its ledger, or the owner of a listener connection.
    pub(crate) fn drop_server(&mut self, conn: Token, why: &str, out: &mut Actions) {
        self.log_end(conn, why, out);
        let Some(mut server) = self.forget(conn, out) else {
            return;
        };
        if server.purpose().bypasses_limits() {
            return;
        }
        if let Some(key) = server.purpose().listener_key() {
            return self.report_lost_listener(conn, &server, key, why);
        }
        if server.purpose().checks_host() {
            return self.end_host_check(&server, out);
        }
        server.end_announcement();
        let notes = (server.shared.ledger.lock()).closed(self.env.worker, self.env.now);
        self.deliver(&notes, &server.shared, out);
    }
}
