//! Timeouts of clients: to log in, to wait, to be idle, to run a query.

use super::Worker;
use crate::{
    Actions, Replication, Shutdown, Time, Token,
    backend::Server,
    connections::Conn,
    fault::Fault,
    frontend::{Client, ClientDuty},
    pooling::LocalPool,
};

impl Worker {
    /// Returns whether clients that have logged in have to be checked for timeouts.
    pub(crate) fn has_client_timeouts(&self) -> bool {
        self.logins.has_clients() && self.snapshot.config.has_client_timeouts()
    }

    /// Returns why a client has to be closed, if it took too long.
    pub(crate) fn client_overdue(&self, client: &Client, now: Time) -> Option<Fault> {
        let settings = &self.snapshot.config.settings;
        let passed = |since, limit| passed(now, since, limit);
        match client.duty {
            ClientDuty::Login(_) => passed(client.connected_at, settings.client_login_timeout.0)
                .then_some(Fault::LoginTimeout),
            ClientDuty::Idle | ClientDuty::Discarding(_) => {
                let user = client.names.as_ref().map_or("", |names| &names.user);
                let limit = self.snapshot.config.client_idle_timeout(user);
                passed(client.request_at, limit.0).then_some(Fault::ClientIdle)
            }
            ClientDuty::Waiting { .. } | ClientDuty::Opening(_)
                if self.shutdown == Some(Shutdown::WaitForServers) =>
            {
                Some(Fault::ServersShutDown)
            }
            ClientDuty::Waiting { .. } | ClientDuty::Opening(_) => {
                let at_login = !matches!(
                    client.duty,
                    ClientDuty::Waiting {
                        at_login: false,
                        ..
                    }
                );
                let pool = client.pool.and_then(|pool| self.pools.get(pool));
                let wait_max = pool.map_or(0, |pool| pool.terms.query_wait_timeout);
                // A user's query_timeout counts from when the client has a server, as in PgBouncer.
                if passed(client.request_at, settings.query_timeout.0) {
                    Some(Fault::QueryTimeoutInQueue)
                } else if passed(client.request_at, wait_max) {
                    Some(Fault::QueryWaitTimeout(None))
                } else {
                    let login_max = settings.client_login_timeout.0;
                    (at_login && passed(client.connected_at, login_max))
                        .then_some(Fault::LoginTimeoutServerDown)
                }
            }
            ClientDuty::Active(server) => match self.table.look(server) {
                Some(Conn::Server(server)) => self.transaction_overdue(client, server, now),
                _ => None,
            },
            _ => None,
        }
    }

    /// The same as `client_overdue`, for a client that has a server.
    fn transaction_overdue(&self, client: &Client, server: &Server, now: Time) -> Option<Fault> {
        // A replication stream is no query, and has no end. A client exempt from the limits delays no other client.
        if server.replication != Replication::None || server.bypass {
            return None;
        }
        let pool = self.pools.get(server.pool())?;
        let patience = &pool.terms.patience;
        let is_busy = !server.replies.is_settled();
        let in_transaction = server.status != b'I';
        // The time in which the client still sends its request, such as the data of a COPY, does not count.
        let asked_at = client.request_at.max(server.heard_at);
        if is_busy && passed(now, asked_at, patience.query) {
            Some(Fault::QueryTimeout)
        } else if !is_busy
            && in_transaction
            && passed(now, client.request_at, patience.idle_transaction)
        {
            Some(Fault::IdleTransaction)
        } else if (is_busy || in_transaction)
            && passed(now, client.transaction_at, patience.transaction)
        {
            Some(Fault::TransactionTimeout)
        } else if !is_busy && !in_transaction {
            self.idle_overdue(client, pool, now)
        } else {
            None
        }
    }

    /// The same as `client_overdue`, for a client that keeps a server between transactions.
    fn idle_overdue(&self, client: &Client, pool: &LocalPool, now: Time) -> Option<Fault> {
        let context = client.context.as_ref()?;
        if context.pins.ends() && passed(now, client.request_at, pool.terms.pin_timeout) {
            return Some(Fault::PinTimeout(context.pins));
        }
        let user = client.names.as_ref().map_or("", |names| &names.user);
        let limit = self.snapshot.config.client_idle_timeout(user);
        passed(now, client.request_at, limit.0).then_some(Fault::ClientIdle)
    }

    /// Closes a client that took too long, and cancels its query.
    pub(crate) fn end_client(&mut self, conn: Token, fault: &Fault, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let ClientDuty::Active(server_conn) = client.duty else {
            return self.refuse(conn, fault, now, out);
        };
        // The server is closed with its client: to end the transaction would need a new server anyway.
        client.duty = ClientDuty::Idle;
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let mid_message = !server.stream.is_at_boundary();
        if !server.replies.is_settled() {
            self.cancel_query(server_conn, now, out);
        }
        let why = fault.to_string();
        self.close_server(server_conn, &why, now, out);
        if mid_message {
            self.close_client(conn, &why, now, out);
        } else {
            self.refuse(conn, fault, now, out);
        }
    }
}

fn passed(now: Time, since: Time, limit: u64) -> bool {
    limit > 0 && now.since(since) >= limit
}
