//! Clients of `bypass_users`, which are exempt from the limits: each has an exclusive server that no ledger
//! and no cap counts.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, Severity, sqlstate};

use super::Worker;
use crate::{
    Actions, Level, SharedPool, Time, Token,
    client_counts::ClientLimits,
    connections::Conn,
    fault::Fault,
    frontend::{ClientDuty, LoginRequest},
    parked_logins::limits_of,
    pool::PoolId,
};

/// The warning for a client of `bypass_users` that connects when `bypass_max` is reached.
const NOTICE: &str = "bypass_max is reached: this client is served from the pool, like others";

impl Worker {
    /// Notes why the client gets an exclusive server, if it does, and counts it as exempt from the limits.
    /// If `bypass_max` such clients exist already, the limits apply to it.
    ///
    /// # Errors
    /// The client exceeds one of the limits.
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

    /// Checks the limits that were skipped when the client connected.
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
        // The client is counted already.
        limits.admit(
            self.directory.limited_clients(&counts).saturating_sub(1),
            counts.of_database(&names.database).saturating_sub(1),
            counts.of_user(&names.user).saturating_sub(1),
        )
    }

    /// Opens a server for a client that is exempt from the limits; while the database is paused, the client waits.
    pub(super) fn bypass_limits(
        &mut self,
        conn: Token,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        // An order that ends a pause is sent to every worker after this check, so it is not missed.
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

    /// Lets clients go on that waited for the end of a pause.
    pub(super) fn release_held(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        if self.shutdown.waits_for_servers() {
            return;
        }
        let held = self.table.tokens(|conn| match conn {
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
