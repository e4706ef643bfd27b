//! Lost and closed server connections: what their clients are sent, and whether a client can go on without its
//! server.

use std::{fmt::Display, sync::Arc};

use pgweir_wire::MessageWriter;

use super::{Worker, early::send_early};
use crate::{
    Action, Actions, Closed, Level, SharedPool, Time, Token,
    backend::{Duty, Phase},
    events::EventKind,
    fault::Fault,
    mail::Mail,
    pool::Connecting,
    session::Effects,
    shared_pool::Failure,
};

/// A client is disconnected when more servers than this are lost in a row while they get its settings.
const LOSSES_MAX: u8 = 2;
/// A class of SQLSTATEs.
const OPERATOR_INTERVENTION: &str = "57";

/// What a client loses with its server.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) fault: Fault,
    /// Whether the client was in a transaction, or in the middle of something that pgweir can't answer.
    pub(crate) was_in_transaction: bool,
    /// Whether a part of a message was passed on.
    pub(crate) mid_message: bool,
    /// How many replies the client still has to get.
    pub(crate) owed: usize,
}

impl Worker {
    /// Handles a server connection that pgweir has not closed itself.
    pub(crate) fn server_gone(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        let fault = match self
            .table
            .server(conn)
            .and_then(|server| server.link.last_words.take())
        {
            Some(words) => Fault::ServerSaid(words),
            None => Fault::ServerCrashed,
        };
        let lost = match why {
            Closed::Eof => None,
            Closed::Error(error) => Some(format!("connection lost: {error}")),
            Closed::Tls(error) => Some(format!("TLS handshake failed: {error}")),
        };
        if matches!(why, Closed::Tls(_)) {
            self.logins.results_mut().server_tls_failed += 1;
        }
        if let Some(text) = lost {
            out.log(Level::Warning, self.server_subject(conn), text);
        }
        let text = match why {
            Closed::Tls(_) => "TLS handshake failed".to_owned(),
            _ => fault.to_string(),
        };
        self.lose_server(conn, fault, &text, now, out);
    }

    /// Closes a server that has violated the protocol.
    #[cold]
    pub(crate) fn server_fault(
        &mut self,
        conn: Token,
        what: &dyn Display,
        now: Time,
        out: &mut Actions,
    ) {
        self.close_for(conn, Fault::ServerProtocol(what.to_string()), now, out);
    }

    /// Closes a server that is no longer usable, before it can send anything else.
    #[cold]
    pub(crate) fn close_for(&mut self, conn: Token, fault: Fault, now: Time, out: &mut Actions) {
        let text = fault.to_string();
        out.list.push(Action::Close(conn));
        self.lose_server(conn, fault, &text, now, out);
    }

    fn lose_server(&mut self, conn: Token, fault: Fault, text: &str, now: Time, out: &mut Actions) {
        let is_pinned = self.has_pinned_client(conn);
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if !matches!(server.duty, Duty::Login(_)) {
            let key = &server.shared.key;
            let about = (&*key.database, &*key.user);
            self.directory
                .note_event(EventKind::ServerLost, about, text, now);
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        match &server.duty {
            Duty::Login(_) => {
                self.log_server_end(conn, text, now, out);
                self.drop_login(conn, Failure::unreachable(text), now, out);
            }
            Duty::Idle | Duty::Listening | Duty::Cleaning { .. } => {
                self.drop_server(conn, text, now, out);
            }
            Duty::Lent(exchange)
                if matches!(exchange.phase(), Phase::Checking { .. } | Phase::Equipping) =>
            {
                let client = exchange.client();
                let is_checked = matches!(exchange.phase(), Phase::Checking { .. });
                self.drop_server(conn, text, now, out);
                if !is_checked && self.settings_end_servers(client, &fault) {
                    self.refuse(client, &fault, now, out);
                } else {
                    self.check_out_again(client, now, out);
                }
            }
            Duty::Lent(exchange) => {
                let client = exchange.client();
                let is_held = exchange.phase().holds_client()
                    && !server
                        .settling()
                        .is_some_and(|settling| settling.ready_was_sent);
                let loss = Loss {
                    // Session state that can't be moved is lost with the server as well.
                    was_in_transaction: server.purpose.owner.is_some()
                        || server.status != b'I'
                        || server.session.inspections.is_missing
                        || is_pinned
                        // What the client has set there was not inspected.
                        || server.session.dirt.needs_inspection()
                        || is_held
                        // The client may have terminated its own session.
                        || server.session.transaction.effects.contains(Effects::TERMINATES)
                        || !server.replies.can_be_answered_for(),
                    mid_message: !server.stream.is_at_boundary(),
                    owed: server.replies.owed_to_client(),
                    fault,
                };
                // What pgweir has answered in the server's place stays valid, whatever happens to the rest.
                send_early(client, server, out);
                let marks = server.replies.take_all_marks();
                self.undo(conn, marks);
                self.drop_server(conn, text, now, out);
                self.report_server_loss(client, &loss, now, out);
            }
        }
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
        let client = self.table.client(client);
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
        now: Time,
        out: &mut Actions,
    ) {
        let about = (&*shared.key.database, &*shared.key.user);
        let text = format!("login to the server failed: {}", why.text);
        self.directory
            .note_event(EventKind::PoolError, about, &text, now);
        let pool = self.local_pool(shared, now);
        pool.stats.now.server_login_failure_count += 1;
        let hosts = pool.terms.endpoints.len();
        let is_told = {
            let mut facts = shared.facts.lock();
            let is_refused = why.refusal.is_some();
            let is_unreachable = why.detail.is_some();
            facts.login_failed(why);
            is_refused || (is_unreachable && facts.failures >= hosts)
        };
        let outdated = shared.epochs.lock().outdated();
        let (notes, has_none) = {
            let mut ledger = shared.ledger.lock();
            let notes = ledger.connected(self.id, Connecting::Failed(now), now);
            // Outdated servers serve no waiter.
            let usable = (ledger.servers() - ledger.connecting()) as usize;
            (notes, usable <= outdated)
        };
        self.deliver(notes, shared, out);
        if is_told && has_none {
            for to in self.directory.worker_ids() {
                out.list.push(Action::Mail {
                    to,
                    mail: Mail::Failed(Arc::clone(shared)),
                });
            }
        }
    }

    /// Closes a server that no client uses.
    pub(crate) fn close_server(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        let is_login = match self.table.server(conn) {
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
            self.give_up_login(conn, now, out);
        } else {
            self.drop_server(conn, why, now, out);
        }
    }
}
