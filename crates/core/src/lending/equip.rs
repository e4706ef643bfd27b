//! The beginning of a loan: a client that listens gets earlier notifications first, and then the server gets the
//! client's session state.

use super::Lending;
use crate::{
    Actions, Token,
    client_listen::fence_first,
    effect::{Effect, SessionEffect},
    loan::{Early, begin_relaying},
};

impl Lending<'_> {
    /// Assigns the server to the client, once the client has received all earlier notifications.
    #[inline]
    pub(crate) fn equip(&mut self, server_conn: Token, client_conn: Token, out: &mut Actions) {
        self.log_lent(client_conn, server_conn, out);
        let Some((client, server)) = self.connections.pair(client_conn, server_conn) else {
            return out.report_missing("the client or the server of a new loan");
        };
        let holder = server.holder().get();
        if let Some(listening) = &client.listening
            && holder != 0
            && holder != client.pid()
            && !self
                .listening_clients
                .have_delivered_before(listening, server.times.freed_at())
        {
            let env = self.env;
            let effects = fence_first(&env, self.connections, server_conn, client_conn, out);
            return self.effects.extend(effects);
        }
        let equip = SessionEffect::Equip {
            client: client_conn,
        };
        self.effects.push(Effect::Session(server_conn, equip));
    }

    /// Relays the client's messages, since its server has the client's session state now.
    #[cold]
    pub(crate) fn begin_relaying(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.connections.known_pair(client_conn, server_conn, out)
        else {
            return;
        };
        let early = begin_relaying(client_conn, client, server_conn, server, out);
        self.relay_early(client_conn, early);
    }

    #[inline]
    fn relay_early(&mut self, client: Token, early: Option<Early>) {
        if let Some(early) = early {
            self.effects.push(Effect::RelayEarly(client, early));
        }
    }
}
