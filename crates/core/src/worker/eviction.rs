//! Eviction: idle servers of one pool are closed for another pool under the same cap.
//!
//! A search visits every worker, and finds the server that was idle for longest among those that may be closed.

use std::sync::Arc;

use super::Worker;
use crate::{
    Action, Actions, Search, SharedPool, Time, Token, WorkerId,
    backend::Duty,
    mail::Mail,
    pool::{Notes, PoolId, Scope},
    shared_pool::Found,
};

impl Worker {
    pub(super) fn deliver_cap_notes(
        &self,
        notes: &Notes,
        pool: &Arc<SharedPool>,
        out: &mut Actions,
    ) {
        let to = self.id;
        // A server that has just gone has given its slot back already.
        for pool in notes
            .room
            .iter()
            .filter_map(|&id| self.directory.pool_of(id))
        {
            let mail = Mail::CapHasRoom(pool);
            out.list.push(Action::Mail { to, mail });
        }
        for &scope in &notes.search {
            let pool = Arc::clone(pool);
            self.begin_search(pool, scope, out);
        }
    }

    pub(super) fn cap_has_room(&mut self, pool: &Arc<SharedPool>, now: Time, out: &mut Actions) {
        let notes = pool.ledger.lock().room(now);
        self.deliver(notes, pool, out);
    }

    fn begin_search(&self, pool: Arc<SharedPool>, scope: Scope, out: &mut Actions) {
        let search = Search {
            pool,
            scope,
            visited: 0,
            found: None,
        };
        let mail = Mail::Search(Box::new(search));
        out.list.push(Action::Mail { to: self.id, mail });
    }

    /// Adds this worker's idle servers, and passes the search on. From now on every server of these pools that
    /// comes free here is offered to its ledger.
    pub(super) fn search(&mut self, mut search: Search, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        search.visited += 1;
        for id in self.evictable(&search) {
            let directory = Arc::clone(&self.directory);
            let caps = directory.caps();
            let may_go = |idle: u64| {
                caps.with(|caps| caps.may_evict(search.pool.id, search.scope, id, idle))
            };
            let any_may_go = may_go(0);
            if any_may_go && let Some(pool) = self.pool(id) {
                pool.offers_to_ledger = true;
                match pool.clients_keep_servers {
                    true => self.release_kept(id, now, out),
                    false => self.settle_kept(id, now, out),
                }
            }
            let Some(pool) = self.pools.get(id) else {
                continue;
            };
            for &conn in &pool.idle {
                let idle_since = match self.table.server(conn) {
                    Some(server) => server.freed_at,
                    None => continue,
                };
                if !any_may_go && !may_go(now.since(idle_since)) {
                    continue;
                }
                let is_older = |found: Found| idle_since < found.idle_since;
                if search.found.is_none_or(is_older) {
                    search.found = Some(Found {
                        worker: self.id,
                        conn,
                        idle_since,
                    });
                }
            }
        }
        if search.visited < workers {
            let to = WorkerId(((self.id.index() + 1) % workers) as u8);
            let mail = Mail::Search(Box::new(search));
            return out.list.push(Action::Mail { to, mail });
        }
        match search.found {
            Some(found) => {
                let mail = Mail::Evict(Box::new(search));
                out.list.push(Action::Mail {
                    to: found.worker,
                    mail,
                });
            }
            None => self.end_search(search, false, out),
        }
    }

    /// Closes the server that a search found, if it is still idle.
    pub(super) fn evict(&mut self, search: Search, now: Time, out: &mut Actions) {
        let Some(found) = search.found else {
            return self.end_search(search, false, out);
        };
        let server = self.table.server(found.conn);
        let pool = server
            .filter(|server| {
                matches!(server.duty, Duty::Idle) && server.freed_at == found.idle_since
            })
            .map(|server| server.pool());
        let idle = now.since(found.idle_since);
        if let Some(pool) = pool.filter(|&pool| self.may_evict(&search, pool, idle)) {
            self.close_evicted(found.conn, pool, now, out);
        }
        self.end_search(search, true, out);
    }

    /// Closes an idle server for the sake of another pool.
    pub(super) fn close_evicted(
        &mut self,
        conn: Token,
        pool: PoolId,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(pool) = self.pool(pool) {
            pool.stats.now.eviction_count += 1;
        }
        self.close_server(conn, "evicted", now, out);
    }

    fn end_search(&self, search: Search, found: bool, out: &mut Actions) {
        let Search { pool, scope, .. } = search;
        let caps = self.directory.caps();
        if caps.with(|caps| caps.searched(pool.id, scope, found)) {
            self.begin_search(pool, scope, out);
        }
    }

    fn may_evict(&self, search: &Search, pool: PoolId, idle: u64) -> bool {
        let caps = self.directory.caps();
        caps.with(|caps| caps.may_evict(search.pool.id, search.scope, pool, idle))
    }

    /// Returns the pools of this worker that may lose servers by this search.
    fn evictable(&self, search: &Search) -> Vec<PoolId> {
        let ids = self.pools.iter().map(|pool| pool.shared.id);
        self.directory.caps().with(|caps| {
            ids.filter(|&id| caps.may_evict(search.pool.id, search.scope, id, u64::MAX))
                .collect()
        })
    }
}
