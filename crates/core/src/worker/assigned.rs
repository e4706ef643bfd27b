//! ALTER ROLE and ALTER DATABASE SET: who logs in after that begins with it, who was there keeps what it had.
//!
//! What is assigned stands in a table of PostgreSQL that all its databases share. It is read every
//! `catalog_check_interval`, and at the end of a transaction whose text may have changed it: so what has failed,
//! or was rolled back, is no change. Pools whose sessions begin with something else from then on open servers
//! anew: who logs in waits for one, and those that are there go when they come free; who has a server of its own,
//! or listens, keeps it. Clients that were there get what their sessions began with as if they had asked for it
//! at login: the first server of each beginning has told what that is.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::{LocalPool, Worker, local_pool::Terms};
use crate::{
    Actions, Endpoint, SharedPool, Time, Token,
    backend::{Beginning, BeginningRows, Own, Server},
    connections::Conn,
    frontend::{Client, ClientDuty},
    pool::PoolId,
    session::{ASSIGNED, Assigned, Context, ORIGIN, Origin, Settings, SettingsTable},
};

/// Why servers go whose sessions began with something else.
pub(super) const REDEFINED: &str = "what sessions begin with has changed";

impl Worker {
    /// A client may have changed what is assigned: asks its server. `false` if that is not followed.
    #[cold]
    pub(super) fn asks_what_was_assigned(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let is_followed = self.snapshot.config.settings.catalog_check_interval.0 > 0;
        let directory = Arc::clone(&self.directory);
        match self.table.server(conn).filter(|_| is_followed) {
            Some(server) => {
                let number = directory.assignments().ask(server.site(), 0, now);
                if let Some(number) = number {
                    ask(conn, server, Beginning::Assigned(number, true), out);
                }
                number.is_some()
            }
            None => false,
        }
    }

    /// Asks a server that nobody has what is due to be asked. `false` if that is nothing.
    pub(super) fn asks_beginnings(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        let interval = self.snapshot.config.settings.catalog_check_interval.0;
        let directory = Arc::clone(&self.directory);
        let Some(server) = self.table.server(conn) else {
            return false;
        };
        let number = directory.assignments().ask(server.site(), interval, now);
        if let Some(number) = number {
            ask(conn, server, Beginning::Assigned(number, false), out);
        }
        let is_wanted = server
            .shared
            .beginnings
            .lock()
            .wants_origin(server.defaults);
        if is_wanted {
            ask(conn, server, Beginning::Origin, out);
        }
        number.is_some() || is_wanted
    }

    /// It has answered.
    #[cold]
    pub(crate) fn beginning_told(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(told) = server.session.beginnings.pop_front() else {
            return;
        };
        match told.asked {
            Beginning::Origin => {
                let settings = directory.settings();
                let origin = (!told.failed).then(|| Origin::from_rows(&told.rows, settings));
                let shared = Arc::clone(&server.shared);
                let known = directory.assignments().of(&server.site());
                let mut beginnings = shared.beginnings.lock();
                beginnings.has_origin(server.defaults, origin);
                beginnings.begin(|| self.assigned_to(&shared, &*known?));
            }
            Beginning::Assigned(number, by_client) => {
                let found = (!told.failed).then(|| Assigned::from_rows(told.rows));
                let endpoint = Arc::clone(&server.endpoint);
                let is_judged = server.settling().is_some();
                let news = found
                    .and_then(|found| directory.assignments().learn(&server.site(), number, found));
                if let Some(found) = news {
                    self.assign(&endpoint, &found, by_client, out);
                }
                if is_judged {
                    self.judge_session(conn, now, out);
                }
            }
        }
    }

    fn assigned_to(&self, pool: &SharedPool, all: &Assigned) -> Option<Settings> {
        let database = self.snapshot.config.database(&pool.key.database)?;
        let name = database.dbname_for(&pool.key.database);
        Some(all.of(name, &pool.key.user, self.directory.settings()))
    }

    /// This is assigned there now: whom does it concern?
    fn assign(&self, at: &Endpoint, all: &Assigned, by_client: bool, out: &mut Actions) {
        let mut any = false;
        for pool in self.directory.pools() {
            let terms = Terms::of(&pool, &self.snapshot);
            if !terms.engine || terms.endpoints.iter().all(|own| **own != *at) {
                continue;
            }
            let Some(assigned) = self.assigned_to(&pool, all) else {
                continue;
            };
            let settings = self.directory.settings();
            let is_new = pool.beginnings.lock().assign(assigned, by_client, settings);
            if is_new {
                pool.startups.lock().clear();
                any = true;
            }
        }
        if any {
            self.tell_all_to_obey(out);
        }
    }

    /// A client has named roles that may be gone, or others by now: what sessions of theirs are left PostgreSQL takes
    /// for nobody's. So they begin anew, as they do directly.
    pub(super) fn heed_dropped_roles(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let names = std::mem::take(&mut server.session.dropped_roles);
        if names.is_empty() {
            return;
        }
        let at = Arc::clone(&server.endpoint);
        for pool in self.directory.pools() {
            let is_named = names.iter().any(|name| **name == *pool.key.user);
            let terms = Terms::of(&pool, &self.snapshot);
            if is_named && terms.engine && terms.endpoints.contains(&at) {
                pool.beginnings.lock().renew();
                pool.startups.lock().clear();
            }
        }
        self.tell_all_to_obey(out);
    }

    /// Sessions may begin with something else now. No server of those is here before the clients that were here
    /// earlier have what they keep.
    pub(super) fn heed_beginnings(&mut self, id: PoolId) {
        let directory = Arc::clone(&self.directory);
        let Some(pool) = self.pool(id) else { return };
        let shared = Arc::clone(&pool.shared);
        let beginnings = shared.beginnings.lock();
        let present = beginnings.present();
        let then = std::mem::replace(&mut pool.defaults, present);
        if then == present {
            return;
        }
        pool.catalog_due = Time(0);
        let kept = beginnings.kept_since(then, directory.settings());
        drop(beginnings);
        if kept.is_empty() {
            return;
        }
        let is_utf8 = shared.is_utf8();
        let mut customs = shared.customs.lock();
        for (name, _) in kept.iter().filter(|(name, _)| name.contains(&b'.')) {
            customs.insert(name, is_utf8);
        }
        drop(customs);
        let most = self.snapshot.config.settings.max_client_settings_bytes as usize;
        let was_there = |conn: &Conn| matches!(conn, Conn::Client(client) if has_begun(client, id));
        for conn in self.tokens(was_there) {
            if let Some(client) = self.table.client(conn)
                && let Some(context) = client.context.as_deref_mut()
            {
                context.keep(&kept, most, directory.settings());
            }
        }
    }

    /// Servers whose sessions began with something else go when nobody has them.
    pub(super) fn retire_redefined(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        self.heed_beginnings(id);
        let Some(pool) = self.pool(id) else { return };
        let present = pool.defaults;
        if std::mem::replace(&mut pool.retired, present) == present {
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

    /// One that came from another worker may have missed that on its way.
    pub(super) fn check_defaults(&mut self, conn: Token) {
        let Some(id) = self.table.server(conn).map(|server| server.pool()) else {
            return;
        };
        self.heed_beginnings(id);
        let Some(present) = self.pool(id).map(|pool| pool.defaults) else {
            return;
        };
        if let Some(server) = self.table.server(conn)
            && server.defaults != present
            && is_shared(server)
        {
            server.retire.get_or_insert(REDEFINED);
        }
    }

    /// Would a client that logs in on this server hear what sessions began with earlier?
    pub(super) fn is_redefined(&mut self, conn: Token) -> bool {
        let server = self.table.server(conn);
        server.is_some_and(|server| server.retire == Some(REDEFINED))
    }

    /// Of pools whose servers nobody uses, one is asked.
    pub(super) fn check_beginnings(&mut self, now: Time, out: &mut Actions) {
        let is_due = |at: Time| at <= now;
        if self.departs() || self.shutdown.is_some() {
            return;
        }
        for id in self.pool_ids() {
            let due = self.pools.get(id.index()).and_then(Option::as_ref);
            let due = due.and_then(|pool| self.beginnings_due(pool));
            let server = match self.pool(id) {
                Some(pool) if due.is_some_and(is_due) => pool.idle.pop(),
                _ => None,
            };
            let Some(conn) = server else { continue };
            if self.asks_beginnings(conn, now, out) {
                self.keep_for_answers(conn, now);
            } else if let Some(pool) = self.pool(id) {
                pool.idle.push(conn);
            }
        }
    }

    /// When one of a pool's idle servers is to be asked.
    fn beginnings_due(&self, pool: &LocalPool) -> Option<Time> {
        let interval = self.snapshot.config.settings.catalog_check_interval.0;
        if interval == 0 || !pool.terms.engine || pool.paused || pool.told {
            return None;
        }
        match self.table.look(*pool.idle.last()?) {
            Some(Conn::Server(server)) => {
                Some(self.directory.assignments().due(&server.site(), interval))
            }
            _ => None,
        }
    }

    /// When that is for the first of all pools.
    pub(super) fn first_beginnings_deadline(&self, now: Time) -> Option<Time> {
        let interval = self.snapshot.config.settings.catalog_check_interval.0;
        // One may be idle by then.
        let later = |pool: &LocalPool| (pool.servers > 0).then(|| now.after(interval));
        let due = |pool: &LocalPool| self.beginnings_due(pool).or_else(|| later(pool));
        let pools = self.pools.iter().flatten();
        pools
            .filter(|_| interval > 0)
            .filter_map(|pool| due(pool))
            .min()
    }
}

impl Context {
    /// The session has begun with these values, also on servers that begin with others.
    fn keep(&mut self, kept: &Settings, most: usize, settings: &SettingsTable) {
        let kept = settings.without(kept, &self.base);
        if self.base.bytes() + kept.bytes() <= most {
            self.base = settings.overlay(&self.base, &kept);
            self.wanted = settings.overlay(&kept, &self.wanted);
        }
    }
}

fn ask(conn: Token, server: &mut Server, what: Beginning, out: &mut Actions) {
    let text = match what {
        Beginning::Assigned(..) => ASSIGNED,
        Beginning::Origin => ORIGIN,
    };
    let rows = BeginningRows::new(what);
    server.session.beginnings.push_back(rows);
    server.ask(Own::Beginning);
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).query(text.as_bytes());
    });
}

/// Does it work for whoever comes next?
fn is_shared(server: &Server) -> bool {
    server.owner.is_none() && server.listens.is_none()
}

/// Has its session begun?
fn has_begun(client: &Client, pool: PoolId) -> bool {
    let is_at_login = matches!(client.duty, ClientDuty::Waiting { at_login: true, .. });
    let context = client.context.as_deref();
    client.pool == Some(pool) && !is_at_login && context.is_some_and(|own| !own.unproven)
}
