//! While a pool has few clients, each keeps the server that it has got (`share_after`): nothing has to be
//! moved, and nobody misses the server.
//!
//! How many clients a pool has is counted in the process; each worker is told when that crosses the
//! line, so that a release looks at nothing but the worker's own. A server that is kept like that is idle
//! in all but name: once the worker is told that somebody waits (see `pool/ledger.rs`), it offers these
//! too, and none is kept until it hears that nobody waits.

use std::sync::{Arc, atomic::Ordering};

use super::{Worker, orders::is_server_of};
use crate::{
    Action, Actions, SharedPool, Time,
    mail::Mail,
    pool::{Obstacle, PoolId},
};

impl Worker {
    /// A client has come to the pool.
    pub(super) fn count_sharer(&mut self, shared: &Arc<SharedPool>, now: Time, out: &mut Actions) {
        let before = shared.clients.fetch_add(1, Ordering::Relaxed);
        self.tell_of_sharers(shared, before, before + 1, now, out);
    }

    /// One has left it.
    pub(super) fn uncount_sharer(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let before = shared.clients.fetch_sub(1, Ordering::Relaxed);
        self.tell_of_sharers(shared, before, before - 1, now, out);
        if before == 1 && shared.epochs.lock().left(now, 0) {
            self.tell_all_to_obey(out);
        }
    }

    fn tell_of_sharers(
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
        for to in self.all_workers().filter(|&to| to != self.id) {
            let mail = Mail::Share(Arc::clone(shared));
            out.list.push(Action::Mail { to, mail });
        }
        self.heard_of_sharers(shared, now, out);
    }

    /// The pool has more clients than before, or less: do they keep their servers?
    pub(super) fn heard_of_sharers(
        &mut self,
        shared: &Arc<SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        let clients = shared.clients.load(Ordering::Relaxed);
        let departs = self.departs();
        let Some(pool) = self.pool(shared.id) else {
            return;
        };
        let keeps = pool.terms.are_few(clients) && !departs;
        if std::mem::replace(&mut pool.keeps, keeps) && !keeps {
            self.release_kept(shared.id, now, out);
        }
    }

    /// This worker is told that somebody waits in the pool: what is kept is offered like what is idle. But
    /// not while a new server is on its way: else two clients would pass one server to and fro. Whether
    /// it has come to nothing is seen by the next tick.
    pub(super) fn yield_kept(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id).filter(|pool| pool.keeps) else {
            return;
        };
        let helps_itself = {
            let ledger = pool.shared.ledger.lock();
            let obstacle = ledger.obstacle(now);
            ledger.waiting() > 0 && matches!(obstacle, Obstacle::None | Obstacle::Connecting)
        };
        match helps_itself {
            true => self.schedule(now),
            false => self.release_kept(id, now, out),
        }
    }

    /// Is there a pool whose kept servers may yet be needed?
    pub(super) fn may_yield(&self) -> bool {
        let mut pools = self.pools.iter().flatten();
        pools.any(|pool| pool.told && pool.keeps && pool.servers > 0)
    }

    /// Gives back what clients keep without need.
    pub(super) fn release_kept(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let lent = |conn: &super::Conn| match conn {
            super::Conn::Server(server) => server.relays_for().is_some(),
            _ => false,
        };
        self.settle_kept(id, now, out);
        for server in self.tokens(|conn| is_server_of(conn, id) && lent(conn)) {
            self.release_if_done(server, now, out);
        }
    }
}
