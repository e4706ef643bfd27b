//! Chooses servers for repeated requests. If a host has lost the request once, server connections to this host that
//! were opened before the loss are excluded.

use super::Lending;
use crate::{
    Actions, Token,
    base::fault::Fault,
    connections::Conn,
    effect::{Effect, ServerEffect},
    loan::{RepeatFit, repeat_fit},
    pool::PoolId,
};

impl Lending<'_> {
    /// Gets a server of another host for a client whose request is repeated, or makes the client wait.
    #[cold]
    pub(super) fn check_out_elsewhere(&mut self, conn: Token, id: PoolId, out: &mut Actions) {
        let names = self.env.directory.names();
        let (table, pool) = (&*self.connections, self.pools.get_mut(id));
        let is_other = |server: &Token| match (table.get(conn), table.get(*server)) {
            (Some(Conn::Client(client)), Some(Conn::Server(server))) => {
                repeat_fit(names, client, server) == RepeatFit::Fit
            }
            _ => false,
        };
        let idle = pool.and_then(|pool| {
            let at = pool.idle.iter().rposition(is_other)?;
            Some(pool.idle.remove(at))
        });
        match idle {
            Some(server) => self.lend(server, conn, out),
            None => self.wait(conn, id, false, out),
        }
    }

    /// Checks a server that the queue offers to a client whose request is repeated. If the client must not get the server,
    /// the server is closed, since it may end at any moment, and the client waits for another one. Returns `false` if the
    /// client may get the server.
    pub(super) fn wait_for_other(
        &mut self,
        client: Token,
        server: Token,
        out: &mut Actions,
    ) -> bool {
        let Some((waiting, offered)) = self.connections.pair(client, server) else {
            return false;
        };
        if waiting.request.lost_hosts().is_none() {
            return false;
        }
        let (pool, place) = (waiting.pool(), Effect::Server(ServerEffect::Place(server)));
        match (
            repeat_fit(self.env.directory.names(), waiting, offered),
            pool,
        ) {
            (RepeatFit::Fit, _) | (_, None) => return false,
            (RepeatFit::Doubtful, Some(pool)) => {
                (offered.retirement)
                    .require("its host has ended another session before it replied");
                self.effects.push(place);
                self.wait(client, pool, false, out);
            }
            (RepeatFit::Promoted, _) => {
                let why = "the standby that was lost before it replied was promoted";
                let fault = Fault::OutcomeUnknown(why.to_owned());
                self.effects.extend([Effect::refuse(client, fault), place]);
            }
        }
        true
    }
}
