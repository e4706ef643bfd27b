//! While a pool has few clients, each keeps the server that it has got (`share_after`): no session state has to be
//! moved, and no other client needs the server.
//!
//! The process counts the clients of a pool. Each worker is informed when the count crosses `share_after`, so that
//! a release reads only the worker's own data. A server that is kept for this reason counts as idle: when the
//! ledger informs the worker of a waiter (see `pool/ledger.rs`), the worker offers these servers too, and keeps
//! none until no client waits.

use std::sync::{Arc, atomic::Ordering};

use super::Worker;
use crate::{
    Action, Actions, SharedPool, Time,
    mail::Mail,
    operator_orders,
    pool::{PoolId, WaitReason},
};

impl Worker {
    /// Counts a client that has come to the pool.
    pub(super) fn count_pool_client(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let before = shared.clients.fetch_add(1, Ordering::Relaxed);
        self.announce_pool_clients(shared, before, before + 1, now, out);
    }

    /// Counts a client that has left the pool.
    pub(super) fn uncount_pool_client(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let before = shared.clients.fetch_sub(1, Ordering::Relaxed);
        self.announce_pool_clients(shared, before, before - 1, now, out);
        if before == 1 && shared.epochs.lock().left(now, 0) {
            operator_orders::announce(&self.directory, out);
        }
    }

    fn announce_pool_clients(
        &mut self,
        shared: &Arc<SharedPool>,
        before: usize,
        after: usize,
        now: Time,
        out: &mut Actions,
    ) {
        let is_same = self
            .pool(shared.id)
            .is_none_or(|pool| pool.terms.are_few(before) == pool.terms.are_few(after));
        if is_same {
            return;
        }
        for to in self.directory.worker_ids().filter(|&to| to != self.id) {
            let mail = Mail::SharingChanged(Arc::clone(shared));
            out.list.push(Action::Mail { to, mail });
        }
        self.update_sharing(shared, now, out);
    }

    /// Updates whether clients keep their servers, after the number of the pool's clients has changed.
    pub(super) fn update_sharing(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let clients = shared.clients.load(Ordering::Relaxed);
        let departs = self.hands_clients_over();
        let Some(pool) = self.pool(shared.id) else {
            return;
        };
        let keeps = pool.terms.are_few(clients) && !departs;
        if std::mem::replace(&mut pool.clients_keep_servers, keeps) && !keeps {
            self.release_kept(shared.id, now, out);
        }
    }

    /// Offers the kept servers of a pool with waiters, like its idle ones. Not while a new server is being opened:
    /// otherwise two clients would pass one server to and fro. If that login fails, the next tick notices.
    pub(super) fn offer_kept_servers(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id).filter(|pool| pool.clients_keep_servers) else {
            return;
        };
        let helps_itself = {
            let ledger = pool.shared.ledger.lock();
            let wait_reason = ledger.wait_reason(now);
            ledger.waiting() > 0 && matches!(wait_reason, WaitReason::None | WaitReason::Connecting)
        };
        match helps_itself {
            true => self.schedule(now),
            false => self.release_kept(id, now, out),
        }
    }

    /// Makes the servers of a pool available that clients keep without need.
    pub(super) fn free_kept(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        match self.pool(id) {
            Some(pool) if pool.clients_keep_servers => self.release_kept(id, now, out),
            _ => self.settle_kept(id, now, out),
        }
    }

    /// Releases the servers that clients keep without need.
    pub(super) fn release_kept(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let lent = |conn: &super::Conn| match conn {
            super::Conn::Server(server) => server.relays_for().is_some(),
            _ => false,
        };
        self.settle_kept(id, now, out);
        for server in self
            .table
            .tokens(|conn| conn.is_server_of(id) && lent(conn))
        {
            self.release_if_done(server, now, out);
        }
    }
}
