//! While a pool has few clients (`share_after`), each client keeps its server after a transaction: no other client
//! needs the server, and no session state has to be moved.
//!
//! The process counts the clients of a pool. Each worker is informed when the count crosses `share_after`, so that a
//! release reads only the worker's own data. A server that is kept for this reason counts as idle: when the ledger
//! informs the worker that a client waits (see `pool/ledger.rs`), the worker offers these servers, too. While a client
//! waits, no client keeps its server for this reason.

use std::sync::Arc;

use super::Lending;
use crate::{
    Actions, SharedPool,
    connections::Conn,
    effect::{Effect, PoolEffect},
    mail::Mail,
    operators::orders,
    pool::{PoolId, WaitReason},
};

impl Lending<'_> {
    /// Counts a client that has come to the pool.
    pub(crate) fn count_pool_client(&mut self, shared: &Arc<SharedPool>, out: &mut Actions) {
        let before = shared.add_client();
        self.announce_pool_clients(shared, before, before + 1, out);
    }

    /// Counts a client that has left the pool.
    pub(crate) fn uncount_pool_client(&mut self, shared: &Arc<SharedPool>, out: &mut Actions) {
        let before = shared.remove_client();
        self.announce_pool_clients(shared, before, before - 1, out);
        if before == 1 && shared.epochs.lock().left(self.env.now, 0) {
            orders::announce(self.env.directory, out);
        }
    }

    fn announce_pool_clients(
        &mut self,
        shared: &Arc<SharedPool>,
        before: usize,
        after: usize,
        out: &mut Actions,
    ) {
        let pool = self.pools.get(shared.id);
        if pool.is_none_or(|pool| pool.terms.are_few(before) == pool.terms.are_few(after)) {
            return;
        }
        let workers = self.env.directory.worker_ids();
        for to in workers.filter(|&to| to != self.env.worker) {
            let mail = Mail::SharingChanged(Arc::clone(shared));
            out.mail(to, mail);
        }
        self.update_sharing(shared.id);
    }

    /// Updates whether clients keep their servers, after the number of the pool's clients has changed.
    pub(crate) fn update_sharing(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        let clients = pool.shared.client_count();
        let keeps = pool.terms.are_few(clients) && !self.env.hands_clients_over;
        if std::mem::replace(&mut pool.clients_keep_servers, keeps) && !keeps {
            self.release_kept(id);
        }
    }

    /// Offers the kept servers of a pool with waiters, like its idle servers. While a new server is being opened, kept
    /// servers stay with their clients: otherwise one server would go back and forth between two clients. If the login
    /// of the new server fails, the next tick offers them.
    pub(crate) fn offer_kept_servers(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get(id).filter(|pool| pool.clients_keep_servers) else {
            return;
        };
        let opens_another = {
            let ledger = pool.shared.ledger.lock();
            let wait_reason = ledger.wait_reason(self.env.now);
            ledger.waiting() > 0 && matches!(wait_reason, WaitReason::None | WaitReason::Connecting)
        };
        match opens_another {
            true => self.connections.schedule(self.env.now),
            false => self.release_kept(id),
        }
    }

    /// Releases the servers of a pool that clients keep without need, and offers them to waiters.
    pub(crate) fn free_kept(&mut self, id: PoolId) {
        match self.pools.get(id) {
            Some(pool) if pool.clients_keep_servers => self.release_kept(id),
            _ => self.settle_kept(id),
        }
    }

    /// Releases the servers that clients keep without need.
    pub(crate) fn release_kept(&mut self, id: PoolId) {
        self.settle_kept(id);
        self.effects
            .push(Effect::Pool(id, PoolEffect::ReleaseLentServers));
    }

    fn settle_kept(&mut self, id: PoolId) {
        if self.pools.get(id).is_some_and(|pool| !pool.kept.is_empty()) {
            let settle = Effect::Pool(id, PoolEffect::SettleKeptServers);
            self.effects.push(settle);
        }
    }

    /// Releases each server of a pool that is lent, and that its client no longer needs.
    pub(crate) fn release_lent(&mut self, id: PoolId) {
        let lent = |conn: &Conn| match conn {
            Conn::Server(server) => server.pool() == id && server.relays_for().is_some(),
            _ => false,
        };
        let lent = self.connections.tokens(lent).into_iter();
        self.effects.extend(lent.map(Effect::Settle));
    }
}
