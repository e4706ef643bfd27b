//! Repeats the request of a client on another host. [`crate::loan`] decides which requests are repeated.

use super::{Relay, ServerBytes};
use crate::{
    Actions, Level, ReadMode, Token,
    backend::RepeatableRequest,
    base::fault::Fault,
    effect::{ClientEffect, Effect},
};

impl Relay<'_> {
    /// Notes that a client's request can't be repeated, if a part of the reply was sent to the client.
    pub(super) fn close_if_sent(&mut self, input: &ServerBytes<'_>) {
        if input.run.sent
            && let Some(server) = self.connections.server(input.server)
        {
            server.link.close_repeatable();
        }
    }

    /// Sends a client's request to another server, as if the client sent it now. Changes that the lost server has not
    /// confirmed are undone.
    #[cold]
    pub(crate) fn repeat(
        &mut self,
        conn: Token,
        request: RepeatableRequest,
        fault: &Fault,
        out: &mut Actions,
    ) -> Option<Effect> {
        let client = self.connections.known_client(conn, out)?;
        let parts = request.into_parts();
        for name in &parts.early_names {
            client.statements.remove(self.bindings, name);
        }
        client.unnamed.restore(parts.unnamed);
        client.socket.restart_input();
        let mut bytes = parts.bytes;
        if let Some(pool) = client.pool().and_then(|pool| self.pools.get_mut(pool)) {
            let stats = &mut pool.stats.now;
            // The bytes are counted when they are relayed again.
            stats.received = stats.received.saturating_sub(bytes.len() as u64);
            stats.repeated_read_count += 1;
        }
        if let Some(early) = client.socket.take_early() {
            bytes.extend_from_slice(&early);
        }
        client.socket.keep_early(bytes);
        client.request.note_lost_hosts(parts.lost_hosts);
        client.become_idle();
        let text = format!("standby lost before it replied, the request is repeated: {fault}");
        out.log(Level::Log, client.subject(), text);
        out.read(conn, ReadMode::Hold);
        Some(Effect::Client(ClientEffect::CheckOut(conn)))
    }
}
