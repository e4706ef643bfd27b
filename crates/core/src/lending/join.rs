//! A client joins its pool after it has authenticated.

use std::sync::Arc;

use super::Lending;
use crate::{
    Actions, Token,
    effect::{ClientEffect, Effect, PoolEffect},
    frontend::AskedParameters,
    login::check_hosts,
};

impl Lending<'_> {
    /// Adds a client that has authenticated to its pool. `asked`: the parameters of its startup packet, if its session
    /// state moves between servers.
    pub(crate) fn join_pool(
        &mut self,
        conn: Token,
        asked: Option<AskedParameters>,
        out: &mut Actions,
    ) {
        let client = self.connections.client(conn);
        let Some(pool) = client.and_then(|client| self.pools.get(client.pool()?)) else {
            return out.report_missing("the pool of a client that joins");
        };
        let (shared, carries_sessions) = (Arc::clone(&pool.shared), pool.terms.carries_sessions);
        self.count_pool_client(&shared, out);
        // The client's session begins with the present values of ALTER ROLE SET and the like, so servers with former
        // values go.
        let retire = Effect::Pool(shared.id, PoolEffect::RetireRedefined);
        self.effects.push(retire);
        if let Some(asked) = asked.filter(|_| carries_sessions) {
            self.effects
                .push(Effect::Client(ClientEffect::BeginSession(conn, asked)));
        }
        if !shared.is_known() {
            // Outdated servers must not supply the parameters for logins that follow.
            let retire = Effect::Pool(shared.id, PoolEffect::RetireOutdated);
            self.effects.push(retire);
        }
        self.effects
            .push(Effect::Client(ClientEffect::EnterPool(conn)));
    }

    /// Welcomes a client that has joined its pool, or makes it wait for the first server of the pool.
    pub(crate) fn enter_pool(&mut self, conn: Token, out: &mut Actions) {
        let client = self.connections.client(conn);
        let Some(id) = client.and_then(|client| client.pool()) else {
            return;
        };
        let Some(pool) = self.pools.known(id, out) else {
            return;
        };
        let is_out = pool.shared.facts.lock().outage.since().is_some();
        if pool.shared.is_known() && !is_out {
            return match self.is_unproven(conn) {
                true => self.check_out(conn, out),
                false => self
                    .effects
                    .push(Effect::Client(ClientEffect::Welcome(conn))),
            };
        }
        match check_hosts(pool, self.env.now) {
            Ok(()) => self.wait(conn, id, true, out),
            Err(fault) => self.effects.push(Effect::refuse(conn, fault)),
        }
    }
}
