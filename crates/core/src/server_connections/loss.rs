//! Lost and closed server connections: what their clients are sent, and whether a client can go on without its
//! server.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::ServerConnections;
use crate::{
    Action, Actions, Closed, Level, SharedPool, Token,
    backend::{Duty, Phase},
    early_answers::send_early,
    effect::Effect,
    events::EventKind,
    fault::Fault,
    loan::Loss,
    mail::Mail,
    pool::Connecting,
    session::Effects,
    shared_pool::Failure,
};

/// A client is disconnected when more servers than this are lost in a row while they get its settings.
const LOSSES_MAX: u8 = 2;
/// A class of SQLSTATEs.
const OPERATOR_INTERVENTION: &str = "57";

impl ServerConnections<'_> {
    /// Handles a server connection that pgweir has not closed itself.
    pub(crate) fn gone(&mut self, conn: Token, why: &Closed, out: &mut Actions) {
        let server = self.connections.server(conn);
        let fault = match server.and_then(|server| server.link.last_words.take()) {
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

    /// Closes a server that is no longer usable, before it can send anything else.
    #[cold]
    pub(crate) fn close_for(&mut self, conn: Token, fault: Fault, out: &mut Actions) {
        let text = fault.to_string();
        out.list.push(Action::Close(conn));
        self.lose(conn, fault, &text, out);
    }

    fn lose(&mut self, conn: Token, fault: Fault, text: &str, out: &mut Actions) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        if !matches!(server.duty, Duty::Login(_)) {
            let key = &server.shared.key;
            let about = (&*key.database, &*key.user);
            let directory = self.env.directory;
            directory.note_event(EventKind::ServerLost, about, text, self.env.now);
        }
        match &server.duty {
            Duty::Login(_) => {
                self.log_end(conn, text, out);
                self.drop_login(conn, Failure::unreachable(text), out);
            }
            Duty::Idle | Duty::Listening | Duty::Cleaning { .. } => {
                self.drop_server(conn, text, out);
            }
            Duty::Lent(loan)
                if matches!(loan.phase(), Phase::Checking { .. } | Phase::Equipping) =>
            {
                let client = loan.client();
                let is_checked = matches!(loan.phase(), Phase::Checking { .. });
                self.drop_server(conn, text, out);
                let ends_client = !is_checked && self.settings_end_servers(client, &fault);
                self.effects.push(match ends_client {
                    true => Effect::Refuse(client, Box::new(fault)),
                    false => Effect::CheckOutAgain(client),
                });
            }
            Duty::Lent(_) => self.lose_lent(conn, fault, text, out),
        }
    }

    /// Handles the loss of a server that relays for a client, or whose session is inspected.
    fn lose_lent(&mut self, conn: Token, fault: Fault, text: &str, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.connections.pair_of(conn) else {
            out.report_missing("the client of a server that is lent");
            return self.drop_server(conn, text, out);
        };
        let is_pinned = (client.context.as_ref()).is_some_and(|context| context.is_pinned());
        let holds_client = server.holds_client().is_some();
        let ready_was_sent = (server.settling()).is_some_and(|settling| settling.ready_was_sent);
        let loss = Loss {
            // Session state that can't be moved is lost with the server as well.
            was_in_transaction: server.purpose.owner.is_some()
                || server.status != b'I'
                || server.session.inspections.is_missing
                || is_pinned
                // What the client has set there was not inspected.
                || server.session.dirt.needs_inspection()
                || holds_client && !ready_was_sent
                // The client may have terminated its own session.
                || server.session.transaction.effects.contains(Effects::TERMINATES)
                || !server.replies.can_be_answered_for(),
            mid_message: !server.stream.is_at_boundary(),
            owed: server.replies.owed_to_client(),
            fault,
        };
        // What pgweir has answered in the server's place stays valid, whatever happens to the rest.
        send_early(client_conn, server, out);
        let marks = server.replies.take_all_marks();
        self.effects.push(Effect::UndoMarks(conn, marks));
        self.effects.push(Effect::DropServer(conn, text.to_owned()));
        self.effects
            .push(Effect::ReportServerLoss(client_conn, Box::new(loss)));
    }

    /// Returns whether the loss of a server that was getting a client's settings is due to these settings, since
    /// other servers were lost in the same way before.
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
        let pool = self.open_pool(shared);
        pool.stats.now.server_login_failure_count += 1;
        let hosts = pool.terms.endpoints.len();
        let is_final = {
            let mut facts = shared.facts.lock();
            let is_refused = why.refusal.is_some();
            let is_unreachable = why.detail.is_some();
            facts.login_failed(why);
            is_refused || (is_unreachable && facts.failures >= hosts)
        };
        let outdated = shared.epochs.lock().outdated();
        let (notes, has_none) = {
            let mut ledger = shared.ledger.lock();
            let notes = ledger.connected(worker, Connecting::Failed(now), now);
            // Outdated servers serve no waiter.
            let usable = (ledger.servers() - ledger.connecting()) as usize;
            (notes, usable <= outdated)
        };
        self.deliver(&notes, shared, out);
        if is_final && has_none {
            for to in directory.worker_ids() {
                let mail = Mail::Failed(Arc::clone(shared));
                out.list.push(Action::Mail { to, mail });
            }
        }
    }

    /// Closes a server that no client uses.
    pub(crate) fn close(&mut self, conn: Token, why: &str, out: &mut Actions) {
        let is_login = match self.connections.server(conn) {
            Some(server) => matches!(server.duty, Duty::Login(_)),
            None => return,
        };
        if !is_login {
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).terminate();
            });
        }
        out.list.push(Action::Close(conn));
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
        if server.purpose.bypass {
            return;
        }
        if let Some(key) = &server.purpose.listens {
            return self.report_lost_listener(conn, &server, key, why);
        }
        server.ends_reading();
        let notes = (server.shared.ledger.lock()).closed(self.env.worker, self.env.now);
        self.deliver(&notes, &server.shared, out);
    }
}
