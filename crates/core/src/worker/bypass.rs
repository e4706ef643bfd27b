//! Clients that get past the limits (`bypass_users`): each has a server of its own that no ledger and
//! no cap counts.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, Severity, sqlstate};

use super::Worker;
use crate::{
    Actions, Level, SharedPool, Shutdown, Time, Token,
    client_counts::ClientLimits,
    connections::Conn,
    fault::Fault,
    frontend::{ClientDuty, LoginRequest},
    parked_logins::limits_of,
    pool::PoolId,
};

/// What one of `bypass_users` is told that comes when `bypass_max` is reached.
const NOTICE: &str = "bypass_max is reached: this client is served from the pool, like others";

impl Worker {
    /// What the client gets its own server for, if it does: from here on it counts among those that
    /// are past the limits. If they are too many already, the limits hold for it.
    ///
    /// # Errors
    /// It is above one of them.
    pub(super) fn grant_exclusive_server(
        &mut self,
        conn: Token,
        request: &mut LoginRequest,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let asks = request
            .exclusive
            .as_ref()
            .is_some_and(|exclusive| exclusive.bypass);
        let most = self.snapshot.config.settings.bypass_max;
        let granted = asks && self.directory.bypass().take(most);
        if asks && !granted {
            request.give_up_bypass()?;
            self.warn_of_limits(conn, most, out);
        }
        if let Some(client) = self.table.client(conn) {
            client.exclusive = request.exclusive.take().map(Box::new);
        }
        if asks && !granted {
            self.check_limits(conn)?;
        }
        if granted {
            let taken = self.directory.bypass().taken();
            let text = format!("past all limits: {taken} of bypass_max = {most}");
            self.log_of_client(conn, Level::Log, text, out);
        }
        Ok(())
    }

    fn warn_of_limits(&mut self, conn: Token, most: u32, out: &mut Actions) {
        let text = format!("bypass_max = {most} is reached: served from the pool");
        self.log_of_client(conn, Level::Warning, text, out);
        out.send_made(conn, |bytes| {
            let code = sqlstate::SUCCESSFUL_COMPLETION;
            MessageWriter::new(bytes).notice(Severity::Warning, code, NOTICE);
        });
    }

    fn log_of_client(&mut self, conn: Token, level: Level, text: String, out: &mut Actions) {
        if let Some(client) = self.table.client(conn) {
            out.log(level, client.subject(), text);
        }
    }

    /// The limits that were not looked at when the client came.
    fn check_limits(&mut self, conn: Token) -> Result<(), Fault> {
        let names = self
            .table
            .client(conn)
            .and_then(|client| client.names.clone());
        let Some(names) = names else { return Ok(()) };
        let limits = ClientLimits {
            total: Some(self.snapshot.config.settings.max_client_conn as usize),
            ..limits_of(&self.snapshot.config, &names)
        };
        let counts = self.directory.client_counts();
        // It is counted already.
        limits.admit(
            self.directory.limited_clients(&counts).saturating_sub(1),
            counts.of_database(&names.database).saturating_sub(1),
            counts.of_user(&names.user).saturating_sub(1),
        )
    }

    /// Opens a server for such a client; or holds it, while the database is paused.
    pub(super) fn bypass_limits(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        // Each order that ends a pause is told to every worker after this look.
        if self.directory.operator().is_halted(&shared.key.database) {
            let ticket = shared.ledger.lock().ticket();
            let duty = ClientDuty::Waiting {
                ticket,
                at_login: true,
            };
            if let Some(client) = self.table.client(conn) {
                client.duty = duty;
                client.wait_notice_was_sent = false;
                client.request_at = now;
            }
            return self.schedule(now);
        }
        self.open_for_client(conn, shared, now, out);
    }

    /// A pause may have ended: those who were held by it go on.
    pub(super) fn release_held(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        if self.shutdown == Some(Shutdown::WaitForServers) {
            return;
        }
        let held = self.tokens(|conn| match conn {
            Conn::Client(client) => {
                client.pool == Some(id)
                    && client.is_past_limits()
                    && matches!(client.duty, ClientDuty::Waiting { .. })
            }
            _ => false,
        });
        for client in held {
            let Some(pool) = self.pool(id) else { return };
            let shared = Arc::clone(&pool.shared);
            self.bypass_limits(client, &shared, now, out);
        }
    }
}
