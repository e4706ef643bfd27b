//! ALTER ROLE SET, ALTER DATABASE SET and DROP ROLE in a client's text change the session defaults: the server
//! connections concerned are replaced.
//!
//! Server connections of the pools concerned are closed as they become free, and the next login waits for a new
//! one. Server connections that belong to one client, or that LISTEN, stay. A superuser's text concerns every pool
//! on the same server that the text names. The text of any other client concerns the pools of the client's user, so
//! that no client can close the server connections of other users.

use std::sync::{Arc, atomic::Ordering};

use super::Worker;
use crate::{
    Actions, Time, Token,
    backend::{REDEFINED, Server},
    connections::Conn,
    pool::PoolId,
    pooling::Terms,
};

impl Worker {
    /// Replaces the servers of roles and databases whose defaults the finished transaction has changed.
    pub(super) fn renew_changed_roles(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let names = std::mem::take(&mut server.session.changed_roles);
        if names.is_empty() {
            return;
        }
        let (own, at) = (Arc::clone(&server.shared), Arc::clone(&server.endpoint));
        let is_superuser = self
            .directory
            .names()
            .value(&server.tracked, b"is_superuser")
            == Some(b"on");
        let has = |name: &str| names.iter().any(|found| found == name);
        for pool in self.directory.pools() {
            let key = &pool.key;
            let terms = Terms::of(&pool, &self.snapshot);
            let database = self.snapshot.config.database(&key.database);
            let is_named = has("all")
                || has(&key.user)
                || database.is_some_and(|entry| has(entry.dbname_for(&key.database)))
                || key.user == own.key.user
                    && ["current_user", "session_user"].into_iter().any(has);
            let is_allowed = is_superuser || key.user == own.key.user;
            if is_named && is_allowed && terms.engine && terms.endpoints.contains(&at) {
                pool.defaults.fetch_add(1, Ordering::AcqRel);
                pool.startups.lock().clear();
            }
        }
        self.announce_operator_orders(out);
    }

    /// Closes servers that were opened under other session defaults, as soon as they are not in use.
    pub(super) fn retire_redefined(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        let present = pool.shared.defaults.load(Ordering::Acquire);
        if std::mem::replace(&mut pool.defaults, present) == present {
            return;
        }
        let of_before = |conn: &Conn| {
            matches!(conn, Conn::Server(server)
                if server.pool() == id && server.defaults != present && is_shared(server))
        };
        for conn in self.tokens(of_before) {
            let Some(server) = self.table.server(conn) else {
                continue;
            };
            if server.client().is_none() {
                self.close_server(conn, REDEFINED, now, out);
            } else {
                server.retire.get_or_insert(REDEFINED);
                self.release_if_done(conn, now, out);
            }
        }
    }

    /// Checks a server that came from another worker: it may have missed a change of the defaults on its way.
    pub(super) fn check_defaults(&mut self, conn: Token) {
        if let Some(server) = self.table.server(conn)
            && server.defaults != server.shared.defaults.load(Ordering::Acquire)
            && is_shared(server)
        {
            server.retire.get_or_insert(REDEFINED);
        }
    }

    /// Returns whether a client that logs in on this server would get outdated session defaults.
    pub(super) fn is_redefined(&mut self, conn: Token) -> bool {
        let server = self.table.server(conn);
        server.is_some_and(|server| server.retire == Some(REDEFINED))
    }
}

/// Returns whether the server serves any client of its pool.
fn is_shared(server: &Server) -> bool {
    server.owner.is_none() && server.listens.is_none()
}
