//! Clients that join a pool, whose servers they share from then on.

use std::sync::Arc;

use super::Worker;
use crate::{
    Actions, Time, Token,
    effect::{Effect, PoolEffect},
    fault::Fault,
    login::check_hosts,
};

impl Worker {
    /// Adds a client that has authenticated to its pool. `asked`: the parameters of its startup packet, if its session
    /// moves between servers.
    pub(super) fn join_pool(
        &mut self,
        conn: Token,
        asked: Option<Vec<(Vec<u8>, Vec<u8>)>>,
        now: Time,
        out: &mut Actions,
    ) {
        if let Err(fault) = self.join(conn, asked, now, out) {
            self.refuse(conn, &fault, now, out);
        }
    }

    fn join(
        &mut self,
        conn: Token,
        asked: Option<Vec<(Vec<u8>, Vec<u8>)>>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let client = self.table.client(conn);
        let Some(pool) = client.and_then(|client| self.pools.get(client.pool?)) else {
            debug_assert!(false, "a client joins without a pool");
            return Ok(());
        };
        let shared = Arc::clone(&pool.shared);
        self.count_pool_client(&shared, now, out);
        // The client's session begins with the present settings of ALTER ROLE SET and the like.
        let retire = Effect::Pool(shared.id, PoolEffect::RetireRedefined);
        self.carry_out([retire], now, out);
        let engine = self.local_pool(&shared, now).terms.engine;
        if let Some(asked) = asked.filter(|_| engine) {
            self.begin_session(conn, &shared, asked);
            self.dedicate(conn, shared.id, now);
        }
        if shared.is_known() {
            match self.is_unproven(conn) {
                true => self.check_out(conn, now, out),
                false => self.log_in(now, out, |event, out| event.welcome(conn, out)),
            }
            return Ok(());
        }
        // Outdated servers must not supply the parameters for logins that follow.
        let retire = Effect::Pool(shared.id, PoolEffect::RetireOutdated);
        self.carry_out([retire], now, out);
        check_hosts(self.local_pool(&shared, now), now)?;
        self.wait(conn, shared.id, true, now, out);
        Ok(())
    }
}
