//! Timeouts of clients: for the login, for the wait for a server, for idle clients, for queries and transactions.
//!
//! This module owns no state. It finds the clients that have exceeded a timeout, and ends them. Output: effects that
//! close a client's connection and its server connection.

use pgweir_config::RESERVED_DATABASES;

use crate::{
    Actions, Replication, Time, Token,
    backend::Server,
    base::fault::Fault,
    cancel_requests,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, ServerEffect},
    frontend::{Client, ClientDuty},
    pooling::{LocalPool, LocalPools},
    shared::pool::Failure,
};

/// The connections, pools and settings from which the timeouts of clients follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w Connections,
    pub(crate) pools: &'w LocalPools,
}

impl Timeouts<'_> {
    /// Returns the timeout that a client has exceeded, as the error to close it with.
    pub(crate) fn overdue(&self, client: &Client) -> Option<Fault> {
        let settings = &self.env.snapshot.config.settings;
        match *client.duty() {
            ClientDuty::Login(ref login) if login.is_refused() => login.refusal(self.env.now),
            ClientDuty::Login(_) => {
                let is_over =
                    self.passed(client.origin.connected_at, settings.client_login_timeout.0);
                is_over.then_some(Fault::LoginTimeout)
            }
            ClientDuty::Idle | ClientDuty::Discarding(_) => self.idle_overdue(client),
            ClientDuty::Waiting { .. } | ClientDuty::Opening(_) if self.env.waits_for_servers() => {
                Some(Fault::ServersShutDown)
            }
            ClientDuty::Waiting { at_login, .. } => self.wait_overdue(client, at_login),
            ClientDuty::Opening(_) => self.wait_overdue(client, true),
            ClientDuty::Active(server) => match self.connections.get(server) {
                Some(Conn::Server(server)) => self.transaction_overdue(client, server),
                _ => {
                    debug_assert!(false, "an active client has a server connection");
                    None
                }
            },
            _ => None,
        }
    }

    /// Returns whether a client hung up too long ago to keep its server.
    pub(crate) fn has_left_server(&self, client: &Client) -> bool {
        let patience = self.env.snapshot.config.settings.abandoned_query_timeout.0;
        let (Some(hung_up_at), Some(server)) = (client.socket.hung_up_at(), client.server()) else {
            return false;
        };
        match self.connections.get(server) {
            Some(Conn::Server(server)) => {
                self.passed(hung_up_at.max(server.times.lent_at()), patience)
            }
            _ => false,
        }
    }

    /// Returns whether a client has waited for `query_wait_notify` and was sent no notice yet.
    pub(crate) fn is_wait_notice_due(&self, client: &Client) -> bool {
        let after = self.env.snapshot.config.settings.query_wait_notify.0;
        let waits = matches!(
            *client.duty(),
            ClientDuty::Waiting {
                at_login: false,
                ..
            }
        );
        waits
            && !client.request.wait_notice_was_sent()
            && !client.socket.is_blocked()
            && self.passed(client.request.sent_at(), after)
    }

    fn wait_overdue(&self, client: &Client, at_login: bool) -> Option<Fault> {
        let settings = &self.env.snapshot.config.settings;
        let pool = client.pool().and_then(|pool| self.pools.get(pool));
        // A user's query_timeout counts from when the client has a server, as in PgBouncer.
        if self.passed(client.request.sent_at(), settings.query_timeout.0) {
            Some(Fault::QueryTimeoutInQueue)
        } else if let Some(fault) = pool.and_then(|pool| self.waited_out(client, pool)) {
            Some(fault)
        } else {
            let login_max = settings.client_login_timeout.0;
            (at_login && self.passed(client.origin.connected_at, login_max))
                .then_some(Fault::LoginTimeoutServerDown)
        }
    }

    /// Returns the error of a client that has waited for too long. The error names the outage, if there is one.
    fn waited_out(&self, client: &Client, pool: &LocalPool) -> Option<Fault> {
        let (since, now) = (client.request.sent_at(), self.env.now);
        let (limit, hold) = (pool.terms.query_wait_timeout, pool.terms.outage_hold);
        if !self.passed(since, limit) && !self.passed(since, hold) {
            return None;
        }
        let facts = pool.shared.facts.lock();
        if !facts.outage.is_over(since, now, (limit, hold)) {
            return None;
        }
        let is_held = hold > 0 && facts.outage.since().is_some();
        let failure = facts.failure.as_ref().filter(|_| is_held);
        Some(failure.map_or(Fault::QueryWaitTimeout(None), Failure::cached))
    }

    /// Does the same as [`overdue`](Self::overdue), for a client that has a server.
    fn transaction_overdue(&self, client: &Client, server: &Server) -> Option<Fault> {
        let is_quiet = server.replies.is_settled() && server.is_outside_transaction();
        if server.purpose().replication() != Replication::None {
            // A replication stream is no query, and has no end.
            return self.replication_departure(client, server, is_quiet);
        }
        if is_quiet && let Some(fault) = self.departure(client) {
            return Some(fault);
        }
        // A client exempt from the limits delays no other client.
        if server.purpose().bypasses_limits() {
            return None;
        }
        let pool = self.pools.get(server.pool())?;
        let patience = &pool.terms.patience;
        let is_busy = !server.replies.is_settled();
        let in_transaction = !server.is_outside_transaction();
        // The time in which the client still sends its request, such as the data of a COPY, does not count.
        let asked_at = client.request.sent_at().max(server.times.client_sent_at());
        if is_busy && self.passed(asked_at, patience.query) {
            Some(Fault::QueryTimeout)
        } else if !is_busy
            && in_transaction
            && self.passed(client.request.sent_at(), patience.idle_transaction)
        {
            Some(Fault::IdleTransaction)
        } else if (is_busy || in_transaction)
            && self.passed(client.request.transaction_at(), patience.transaction)
        {
            Some(Fault::TransactionTimeout)
        } else if !is_busy && !in_transaction {
            self.pin_overdue(client, pool)
        } else {
            None
        }
    }

    /// Does the same as [`overdue`](Self::overdue), for a client that keeps a server between transactions.
    fn pin_overdue(&self, client: &Client, pool: &LocalPool) -> Option<Fault> {
        let context = client.context.as_ref()?;
        if context.pins.ends() && self.passed(client.request.sent_at(), pool.terms.pin_timeout) {
            return Some(Fault::PinTimeout(context.pins));
        }
        self.idle_overdue(client)
    }

    fn idle_overdue(&self, client: &Client) -> Option<Fault> {
        if let Some(fault) = self.departure(client) {
            return Some(fault);
        }
        let user = client.names().map_or("", |names| &names.user);
        let limit = self.env.snapshot.config.client_idle_timeout(user);
        self.passed(client.request.sent_at(), limit.0)
            .then_some(Fault::ClientIdle)
    }

    /// Returns the error of a client that has to leave since the process is drained.
    fn departure(&self, client: &Client) -> Option<Fault> {
        let departures = self.env.directory.operator().departures();
        let leaves = departures.leaves_when_idle(client.request.sent_at(), self.env.now);
        leaves.then_some(Fault::Terminated)
    }

    /// Does the same as [`departure`](Self::departure), for a replication client. The receiver of a stream connects
    /// again, and goes on at the position that it has confirmed. A base backup can't be resumed, so it goes on.
    fn replication_departure(
        &self,
        client: &Client,
        server: &Server,
        is_quiet: bool,
    ) -> Option<Fault> {
        let directory = self.env.directory;
        let departures = directory.operator().departures();
        let leaves = if is_quiet {
            departures.replication_client_leaves(client.request.sent_at(), self.env.now)
        } else if server.purpose().is_stream() && departures.are_ordered() {
            let clients = directory
                .client_counts()
                .of_databases_except(RESERVED_DATABASES[0]);
            departures.stream_leaves(clients, self.env.now)
        } else {
            false
        };
        leaves.then_some(Fault::Terminated)
    }

    fn passed(&self, since: Time, limit: u64) -> bool {
        limit > 0 && self.env.now.since(since) >= limit
    }
}

/// Ends a client that took too long, and cancels its query.
pub(crate) fn end_client(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    fault: Fault,
    out: &mut Actions,
) -> Vec<Effect> {
    // The client may have left.
    let Some(client) = connections.client(conn) else {
        return Vec::new();
    };
    let ClientDuty::Active(server_conn) = *client.duty() else {
        return vec![Effect::Client(ClientEffect::Refuse(conn, Box::new(fault)))];
    };
    // The server is closed with its client: a new server would be needed anyway to end the transaction.
    client.become_idle();
    let Some(server) = connections.server(server_conn) else {
        out.report_missing("the server connection of an active client");
        return Vec::new();
    };
    let mid_message = !server.stream.is_at_boundary();
    if !server.replies.is_settled() {
        cancel_requests::stop_query(env, connections, server_conn, out);
    }
    vec![
        Effect::Server(ServerEffect::CloseFor(server_conn, Box::new(fault.clone()))),
        match mid_message {
            true => Effect::Client(ClientEffect::DismissFor(conn, Box::new(fault))),
            false => Effect::Client(ClientEffect::Refuse(conn, Box::new(fault))),
        },
    ]
}
