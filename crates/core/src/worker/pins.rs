//! Pinned clients, which keep their servers between transactions: counts by pool and reason, and log lines about
//! them.

use super::{Worker, scheduling::Decision};
use crate::{
    Actions, Level, Time, Token,
    backend::Server,
    connections::Conn,
    frontend::Client,
    pin::{Pin, Pins},
    pool::PoolId,
    pooling::LocalPool,
    session::Context,
};

impl Worker {
    /// Counts and logs the reasons for which a client has just been pinned.
    #[cold]
    pub(super) fn count_reasons(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        new: Pins,
        now: Time,
        out: &mut Actions,
    ) {
        let logs = self.snapshot.config.settings.log_pins;
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(server.pool()) else {
            return;
        };
        for pin in new.iter() {
            let count = &mut pool.pins[pin as usize];
            if !logs {
                count.add();
            } else if let Some(not_logged) = count.add_logged(now) {
                let text = line(client, server, pin, not_logged);
                out.log(Level::Log, client.subject(), text);
            }
        }
    }

    /// Pins a client from its login on: until it leaves, if the configuration demands that; as long as it uses
    /// them, for parameters that it asks for at its login.
    pub(super) fn dedicate(&mut self, conn: Token, pool: PoolId, now: Time) {
        let dedicated = self.pool(pool).is_some_and(|pool| pool.terms.dedicated);
        if let Some(client) = self.table.client(conn)
            && let Some(context) = client.context.as_deref_mut()
        {
            let mut pins = Pins::default();
            pins.insert_if(Pin::Configured, dedicated);
            pins.insert_if(
                Pin::Parameter,
                context.ends_sessions() || context.marks_sessions(),
            );
            context.pin(pins, now);
        }
    }

    /// Returns whether a session has changed a parameter that pins it (`pin_parameters`), one whose value can't be
    /// queried, or one that ends servers.
    pub(super) fn is_pinning(context: &Context, server: &Server, names: &[String]) -> bool {
        let report = server.session.extension.last.as_deref();
        let tells_all = report.is_some_and(|report| !report.unclear);
        let is_apart = context.ends_sessions() || context.marks_sessions();
        if context.has_unlisted && !tells_all || is_apart {
            return true;
        }
        let is_named = |name: &[u8]| {
            let mut names = names.iter();
            names.any(|pinning| pinning.as_bytes().eq_ignore_ascii_case(name))
        };
        let mut wanted = context.wanted.iter();
        !names.is_empty()
            && wanted.any(|(name, value)| is_named(name) && context.base.get(name) != Some(value))
    }

    /// Counts a server that a pinned client keeps.
    #[cold]
    pub(super) fn count_kept(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        if std::mem::replace(&mut server.session.inspections.is_counted, true) {
            return;
        }
        let (client, shared) = (server.client(), std::sync::Arc::clone(&server.shared));
        if let Some(client) = client.filter(|_| self.logs_scheduling) {
            self.log_decision(client, Decision::Keeps(server_conn), now, out);
        }
        let notes = shared.ledger.lock().pin(now);
        self.deliver(notes, &shared, out);
        // `pin_timeout` may be near.
        self.schedule(now);
    }
}

/// Removes a server from the count of pinned ones: it is free or closed. Returns whether the pool had more servers
/// because of the pinned client than it may have now.
#[inline]
pub(super) fn uncount_kept(server: &mut Server) -> bool {
    if !std::mem::take(&mut server.session.inspections.is_counted) {
        return false;
    }
    let mut ledger = server.shared.ledger.lock();
    ledger.unpin();
    ledger.is_above_size()
}

/// Returns why this client keeps its server, or `None` if any server will do.
#[must_use]
pub(crate) fn pins_of(client: &Client) -> Option<Pins> {
    let context = client.context.as_ref()?;
    (context.is_pinned() && client.server().is_some()).then_some(context.pins)
}

fn line(client: &Client, server: &Server, pin: Pin, not_logged: u64) -> String {
    let mut text = format!("pinned to S-{:#x}: {}", server.id, pin.name());
    let context = client.context.as_ref();
    if let Some(by) = context.and_then(|context| context.pinned_by.as_ref()) {
        text += &format!(" (statement {by}: {})", by.text);
    }
    if not_logged > 0 {
        text += &format!("; {not_logged} more since the last line about this reason");
    }
    text
}

impl Worker {
    /// Returns how often clients of a pool were pinned on this worker, by reason.
    pub(crate) fn pin_counts(pool: &LocalPool) -> impl Iterator<Item = (Pin, u64)> {
        Pin::ALL
            .into_iter()
            .map(|pin| (pin, pool.pins[pin as usize].total()))
    }

    /// Returns the client that a server works for.
    pub(crate) fn client_of(&self, server: &Server) -> Option<&Client> {
        match self.table.look(server.client()?) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }
}
