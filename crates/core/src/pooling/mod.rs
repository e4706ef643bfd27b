//! The pools of one worker.
//!
//! [`LocalPools`] owns this worker's part of each pool: its idle and kept servers, its counts, and what the
//! configuration says about the pool ([`Terms`]). A worker reads and changes them without a lock. The part that all workers
//! share, with the ledger of servers and waiting clients, is [`SharedPool`](crate::SharedPool).
//!
//! Events that come in: the notes of a ledger, which say what workers have to do ([`deliver`]), and searches for a
//! server that may be closed for another pool (`eviction`). Effects that go out: servers to close, and kept servers to
//! free.

mod eviction;
mod kept_list;
mod local_pool;
mod notes;
mod pin_count;
mod replay_waits;
mod terms;

use std::sync::Arc;

pub(crate) use self::{
    eviction::{EVICTED, end_search},
    kept_list::KeptServer,
    local_pool::LocalPool,
    notes::deliver,
    replay_waits::{ReplayWait, ReplayWaits},
    terms::Terms,
};
use crate::{
    Actions, SharedPool, Token, WorkerId,
    backend::Server,
    connections::Connections,
    effect::{Effect, Env, ServerEffect},
    frontend::ClientDuty,
    pool::PoolId,
    shared::fleet::FleetCount,
    statement_statistics::StatementStatistics,
};

/// This worker's part of each pool that it has used.
#[derive(Debug, Default)]
pub(crate) struct LocalPools {
    /// By [`PoolId`].
    pools: Vec<Option<Box<LocalPool>>>,
    /// The statistics of the pools' statements.
    pub(crate) statements: StatementStatistics,
    /// The count of the backends in PostgreSQL that waits for a server.
    pub(crate) fleet_count: Option<Arc<FleetCount>>,
    /// The clients that wait until a standby has replayed earlier writes.
    pub(crate) replay_waits: ReplayWaits,
}

impl LocalPools {
    /// Returns this worker's part of a pool, if the worker has used the pool.
    #[inline]
    pub(crate) fn get(&self, id: PoolId) -> Option<&LocalPool> {
        self.pools.get(id.index())?.as_deref()
    }

    /// Returns this worker's part of a pool, if the worker has used the pool.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PoolId) -> Option<&mut LocalPool> {
        self.pools.get_mut(id.index())?.as_deref_mut()
    }

    /// Returns this worker's part of a pool, and the statistics of statements.
    #[inline]
    pub(crate) fn with_statements(
        &mut self,
        id: PoolId,
    ) -> Option<(&mut LocalPool, &mut StatementStatistics)> {
        let pool = self.pools.get_mut(id.index())?.as_deref_mut()?;
        Some((pool, &mut self.statements))
    }

    /// Returns this worker's part of a pool, creating it if need be.
    pub(crate) fn open(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        shared: &Arc<SharedPool>,
    ) -> &mut LocalPool {
        let index = shared.id.index();
        if self.pools.len() <= index {
            self.pools.resize_with(index + 1, || None);
        }
        self.pools[index].get_or_insert_with(|| {
            // A tick removes the pool if no client uses it.
            connections.schedule(env.now);
            let pool = LocalPool::new(shared, env.directory, env.snapshot, env.now);
            Box::new(pool)
        })
    }

    /// Forgets this worker's part of a pool.
    pub(crate) fn remove(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.get_mut(id.index()) {
            *pool = None;
        }
    }

    /// Returns this worker's part of a pool that the caller has opened in the same event: only the tick removes pools. A
    /// lost one is reported.
    #[track_caller]
    pub(crate) fn known(&mut self, id: PoolId, out: &mut Actions) -> Option<&mut LocalPool> {
        out.known(self.get_mut(id), "the pool that an effect names")
    }

    /// Places each idle server of a pool again, after a change that may leave the pool with too many.
    pub(crate) fn place_idle_again(&mut self, id: PoolId, out: &mut Actions) -> Vec<Effect> {
        let Some(pool) = self.known(id, out) else {
            return Vec::new();
        };
        pool.offers_to_ledger = true;
        let idle = std::mem::take(&mut pool.idle).into_iter();
        idle.map(|conn| Effect::Server(ServerEffect::Place(conn)))
            .collect()
    }

    /// Counts a server that was lent to a client, which had waited for so many microseconds.
    #[inline]
    pub(crate) fn count_assignment(&mut self, id: PoolId, waited: u64) {
        if let Some(pool) = self.get_mut(id) {
            pool.stats.now.server_assignment_count += 1;
            pool.stats.now.wait_time += waited;
            pool.times.wait.observe(waited);
        }
    }

    /// Removes a client from the queue of its pool, if it waits there.
    pub(crate) fn leave_queue(
        &self,
        worker: WorkerId,
        connections: &mut Connections,
        client: Token,
        out: &mut Actions,
    ) {
        let Some(client) = connections.known_client(client, out) else {
            return;
        };
        let ClientDuty::Waiting { ticket, .. } = *client.duty() else {
            return;
        };
        client.become_idle();
        let pool = client.pool().and_then(|pool| self.get(pool));
        if let Some(pool) = out.known(pool, "the pool of a client that waits") {
            pool.shared.ledger.lock().leave(worker, ticket);
        }
    }

    /// Retires a server because no clean restores its session, and counts it.
    #[cold]
    pub(crate) fn retire_unclean(&mut self, server: &mut Server, why: &'static str) {
        if !server.retirement.is_required()
            && let Some(pool) = self.get_mut(server.pool())
        {
            pool.stats.now.unclean_close_count += 1;
        }
        server.retirement.require(why);
    }

    /// Returns all pools that the worker has used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LocalPool> {
        self.pools.iter().filter_map(Option::as_deref)
    }

    /// Returns all pools that the worker has used.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LocalPool> {
        self.pools.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Returns the ids of all pools that the worker has used.
    pub(crate) fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|pool| pool.shared.id).collect()
    }
}
