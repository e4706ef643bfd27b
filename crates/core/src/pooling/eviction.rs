//! Eviction: an idle server of one pool is closed for another pool under the same cap.
//!
//! A search visits every worker, and finds the server that has been idle longest among those that may be closed.

use std::sync::Arc;

use super::LocalPools;
use crate::{
    Actions, Search, SharedPool, WorkerId,
    backend::{Duty, Server},
    connections::Connections,
    effect::{Effect, Env, PoolEffect},
    mail::Mail,
    pool::{PoolId, Scope},
    shared::pool::Found,
};

/// Begins a search for a server that may be closed for this pool.
pub(crate) fn begin_search(
    worker: WorkerId,
    pool: Arc<SharedPool>,
    scope: Scope,
    out: &mut Actions,
) {
    let search = Search {
        pool,
        scope,
        visited: 0,
        found: None,
    };
    let mail = Mail::Search(Box::new(search));
    out.mail(worker, mail);
}

impl LocalPools {
    /// Begins a search's visit at this worker. From now on, this worker offers each server that becomes free to its
    /// pool's ledger, if the pool may lose a server. Kept servers that are not needed become free first.
    pub(crate) fn visit(&mut self, env: &Env<'_>, mut search: Search) -> Vec<Effect> {
        search.visited += 1;
        let mut effects = Vec::new();
        for id in self.evictable(env, &search) {
            if may_evict(env, &search, id, 0)
                && let Some(pool) = self.get_mut(id)
            {
                pool.offers_to_ledger = true;
                effects.push(Effect::Pool(id, PoolEffect::FreeKeptServers));
            }
        }
        effects.push(Effect::GoOnSearching(Box::new(search)));
        effects
    }

    /// Compares this worker's idle servers with what the search has found so far, and passes the search on.
    pub(crate) fn go_on_searching(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        mut search: Search,
        out: &mut Actions,
    ) {
        for id in self.evictable(env, &search) {
            self.compare_idle(env, connections, id, &mut search, out);
        }
        let workers = env.directory.workers();
        if search.visited < workers {
            let to = WorkerId(((env.worker.index() + 1) % workers) as u8);
            let mail = Mail::Search(Box::new(search));
            return out.mail(to, mail);
        }
        match search.found {
            Some(Found { worker: to, .. }) => {
                let mail = Mail::Evict(Box::new(search));
                out.mail(to, mail);
            }
            None => end_search(env, search, out),
        }
    }

    /// Notes an idle server of this pool that may be closed and has been idle for longer than the one that was found
    /// before.
    fn compare_idle(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
        id: PoolId,
        search: &mut Search,
        out: &mut Actions,
    ) {
        let Some(pool) = out.known(self.get(id), "the pool that a search visits") else {
            return;
        };
        let any_may_be_closed = may_evict(env, search, id, 0);
        for &conn in &pool.idle {
            let Some(server) = connections.known_server(conn, out) else {
                continue;
            };
            let idle_since = server.times.freed_at();
            let may_be_closed =
                any_may_be_closed || may_evict(env, search, id, env.now.since(idle_since));
            let is_older = |found: Found| idle_since < found.idle_since;
            if may_be_closed && search.found.is_none_or(is_older) {
                search.found = Some(Found {
                    worker: env.worker,
                    conn,
                    idle_since,
                });
            }
        }
    }

    /// Closes the server that a search has found, if it is still idle, and ends the search after that.
    pub(crate) fn evict(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        search: Box<Search>,
    ) -> Vec<Effect> {
        let Some(found) = search.found else {
            return vec![Effect::EndSearch(search)];
        };
        let is_as_found = |server: &&mut Server| {
            matches!(*server.duty(), Duty::Idle) && server.times.freed_at() == found.idle_since
        };
        let pool = connections
            .server(found.conn)
            .filter(is_as_found)
            .map(|server| server.pool());
        let idle = env.now.since(found.idle_since);
        let pool = pool.filter(|&pool| may_evict(env, &search, pool, idle));
        if let Some(pool) = pool.and_then(|pool| self.get_mut(pool)) {
            pool.stats.now.eviction_count += 1;
        }
        let close = pool.map(|_| Effect::close(found.conn, EVICTED));
        close
            .into_iter()
            .chain([Effect::EndSearch(search)])
            .collect()
    }

    /// Returns the pools of this worker that may lose servers by this search.
    fn evictable(&self, env: &Env<'_>, search: &Search) -> Vec<PoolId> {
        let ids = self.iter().map(|pool| pool.shared.id);
        env.directory.caps().with(|caps| {
            ids.filter(|&id| caps.may_evict(search.pool.id, search.scope, id, u64::MAX))
                .collect()
        })
    }
}

/// The reason for which an idle server was closed for another pool, for the log.
pub(crate) const EVICTED: &str = "evicted";

/// Ends a search. If a server was closed for it, the server's slot is already free.
pub(crate) fn end_search(env: &Env<'_>, search: Search, out: &mut Actions) {
    let Search {
        pool, scope, found, ..
    } = search;
    let caps = env.directory.caps();
    if caps.with(|caps| caps.searched(pool.id, scope, found.is_some())) {
        begin_search(env.worker, pool, scope, out);
    }
}

fn may_evict(env: &Env<'_>, search: &Search, pool: PoolId, idle: u64) -> bool {
    let caps = env.directory.caps();
    caps.with(|caps| caps.may_evict(search.pool.id, search.scope, pool, idle))
}
