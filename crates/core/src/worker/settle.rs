//! A server connection between two transactions of its client, whose session state no other client may get.
//!
//! The server is first *kept*: it stays with its client, and costs nothing as long as the client goes on. It is
//! *settled* when a client waits for a server of the pool, when the pool drains (PAUSE, a restart, eviction), or
//! after a while: an inspection finds which session state the client needs on its next server, or what pins the
//! client to this one. A clean takes the session state away, and the server goes back to the pool.
//!
//! ```text
//! Relaying -> Kept -> Relaying (its client sends a request)
//!               \-> Settling (the inspection) -> Settled -> Cleaning -> Idle
//!                                                   \-> Dedicated (pinned)
//! ```

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc};

use pgweir_wire::MessageWriter;

use super::{Worker, pins::uncount_kept};
use crate::{
    Actions, Time, Token,
    backend::{Duty, InternalQuery, Phase, Server, Settling},
    connections::Conn,
    pool::{PoolId, Wanted},
    session::{BASELINE, Baseline, Class, Clean, StatementCounts, ToDeallocate, is_identity},
};

/// Microseconds that a server is kept at most after texts that only set parameters by name.
const SETTINGS_KEPT: u64 = 50_000;
/// Microseconds between two inspections of the session of a pinned client.
const LOOK_PAUSE: u64 = 100_000;
/// Microseconds until pgweir tries again to settle a server that could not be settled.
const RETRY_PAUSE: u64 = SETTINGS_KEPT / 8;
/// The most servers that are settled at a time because they were kept for long enough. With [`SETTINGS_KEPT`]
/// between two times, that is a twentieth of a worker's time at 300 microseconds each.
const SETTLED_AT_A_TIME: usize = 8;
/// A client's turn: microseconds for which it may go on with one server while others wait for it. All of its
/// transactions in the turn share the cost of one inspection and one clean. Where inspections take long, a turn
/// lasts [`LOOKS_IN_A_TURN`] times as long as one, within these limits.
const TURN: RangeInclusive<u64> = 5_000..=50_000;
const LOOKS_IN_A_TURN: u64 = 8;
/// Microseconds in which a client has to send its next request to keep its turn. Waiting for as long as an
/// inspection takes costs no more than the inspection, so the pause grows with it, within these limits.
const TURN_PAUSE: RangeInclusive<u64> = 2_000..=20_000;
/// Microseconds that a clean may take.
const CLEAN_PATIENCE: u64 = 2_000_000;

impl Worker {
    /// Decides about a server whose transaction is over and whose session state allows no other client in it.
    /// Returns whether the server stays with its client for now; if `false`, it may be cleaned and released.
    pub(super) fn stays_kept(
        &mut self,
        server_conn: Token,
        is_pinned: bool,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let wanted = self.wanted(server_conn, now);
        let turn_until = self.turn_until(server_conn, wanted, is_pinned, now);
        let Some(server) = self.table.server(server_conn) else {
            return true;
        };
        if !is_pinned && uncount_kept(server) {
            server.retirement.reason.get_or_insert("above pool_size");
        }
        let is_retired = server.retirement.reason.is_some();
        let is_settled = matches!(server.duty.phase(), Some(Phase::Settled));
        server.session.inspections.turn_until = turn_until;
        let is_wanted = wanted != Wanted::No && turn_until.is_none();
        let is_due = is_wanted || is_retired || is_settled;
        let since = server.unsettled_since().unwrap_or(now);
        if !server.session.dirt.needs_clean() && turn_until.is_none() {
            return false;
        }
        if !server.session.dirt.needs_inspection() {
            if !is_due && !is_pinned {
                self.list_kept(server_conn, since, turn_until);
            }
            if turn_until.is_some() {
                self.note_pinned_after_inspection(server_conn, now, out);
            }
            return !is_due && !is_pinned;
        }
        if is_due && server.next_loan.cancels > 0 {
            // A cancel request on its way to this server would hit the inspection.
            self.list_kept(server_conn, since, Some(now.after(RETRY_PAUSE)));
            return !is_pinned;
        }
        let looked_at = server.session.inspections.last_at;
        let again_at = server.session.inspections.failed.again_at();
        let looked_lately = looked_at.is_some_and(|at| is_pinned && now.since(at) < LOOK_PAUSE)
            || again_at.is_some_and(|at| is_pinned && now < at);
        if is_due && !looked_lately {
            self.settle(server_conn, now, out);
            return true;
        }
        self.list_kept(server_conn, since, turn_until);
        if turn_until.is_some() {
            // The waiters may count on this server.
            self.note_pinned_after_inspection(server_conn, now, out);
        }
        // The caller counts pinned clients.
        !is_pinned
    }

    /// Returns whether a client waits for a server of this one's pool, or the pool drains.
    fn wanted(&mut self, server_conn: Token, now: Time) -> Wanted {
        let worker = self.id;
        let departs = self.hands_clients_over() || self.shutdown.waits_for_servers();
        let Some(server) = self.table.server(server_conn) else {
            return Wanted::No;
        };
        let pool = server.pool();
        match self.pool(pool) {
            _ if departs => Wanted::Now,
            Some(pool) if pool.paused => Wanted::Now,
            Some(pool) if pool.offers_to_ledger => {
                let wanted = pool.shared.ledger.lock().wanted(worker, now);
                pool.offers_to_ledger = wanted != Wanted::No;
                wanted
            }
            _ => Wanted::No,
        }
    }

    /// Returns until when the client may go on with this server though others wait for it; `None` if they come
    /// first.
    fn turn_until(
        &mut self,
        server_conn: Token,
        wanted: Wanted,
        is_pinned: bool,
        now: Time,
    ) -> Option<Time> {
        let pool = self.table.server(server_conn)?.pool();
        let look_time = self.pool(pool)?.inspection_time;
        let within =
            |limits: RangeInclusive<u64>, time: u64| time.clamp(*limits.start(), *limits.end());
        let (_, client, server) = self.table.pair_of(server_conn)?;
        let turns = &mut client.context.as_deref_mut()?.turns;
        let unsettled_since = server.unsettled_since();
        let had = server.session.inspections.turn_until.take();
        match unsettled_since {
            None if had.is_some() => turns.used(),
            Some(_) if had.is_some_and(|until| until <= now) => turns.missed(),
            _ => {}
        }
        if wanted != Wanted::InTurn || is_pinned {
            return None;
        }
        let pause = unsettled_since
            .unwrap_or(now)
            .after(within(TURN_PAUSE, look_time));
        let turn = within(TURN, LOOKS_IN_A_TURN * look_time);
        let until = pause.min(server.times.lent_at.after(turn));
        (until > now && (had.is_some() || turns.take())).then_some(until)
    }

    /// Records how long an inspection took after which the server is lent to others: the length of turns follows
    /// it.
    pub(super) fn note_inspection_time(&mut self, pool: PoolId, began: Option<Time>, now: Time) {
        if let (Some(began), Some(pool)) = (began, self.pool(pool)) {
            let time = now.since(began).min(*TURN.end());
            pool.inspection_time = (7 * pool.inspection_time + time) / 8;
        }
    }

    /// Returns for how many microseconds at most a server with dirt of this class is kept.
    fn kept_at_most(&self, class: Class) -> u64 {
        let after = self.snapshot.config.settings.settle_after.0;
        match class {
            Class::Opaque => after,
            _ => after.min(SETTINGS_KEPT),
        }
    }

    /// Puts a server that has been kept since `since` into its pool's list.
    fn list_kept(&mut self, server_conn: Token, since: Time, settle_at: Option<Time>) {
        let is_pinned = self.has_pinned_client(server_conn);
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let class = server.session.dirt.class();
        let unsettled_since = Some(since);
        server.enter(match is_pinned {
            true => Phase::Dedicated { unsettled_since },
            false => Phase::Kept { since },
        });
        let is_listed = std::mem::replace(&mut server.session.inspections.is_listed, true);
        let pool = server.pool();
        if !is_listed && let Some(pool) = self.pool(pool) {
            pool.kept.push_back(server_conn);
        }
        let at = settle_at.unwrap_or_else(|| since.after(self.kept_at_most(class)));
        if self.settle_at.is_none_or(|next| next > at) {
            self.settle_at = Some(at);
        }
    }

    /// Marks the server as dedicated to its client.
    pub(super) fn become_dedicated(&mut self, server_conn: Token) {
        if let Some(server) = self.table.server(server_conn)
            && server.unsettled_since().is_none()
        {
            server.enter(Phase::Dedicated {
                unsettled_since: None,
            });
        }
    }

    /// Inspects the session of a kept server, and releases the server if nothing pins its client.
    pub(super) fn settle(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let pinning = !self.snapshot.config.settings.pin_parameters.is_empty();
        let Some((_, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        let is_pinned = client.context.as_ref().is_some_and(|own| own.is_pinned());
        let pool = server.pool();
        let keeps = self.pool(pool).is_some_and(|pool| pool.keeps_servers());
        let Some(server) = self.table.server(server_conn) else {
            return;
        };
        let dirt = &server.session.dirt;
        let (looks, is_of_settings) = (dirt.needs_inspection(), dirt.class() == Class::Settings);
        server.session.inspections.last_at = Some(now);
        if !keeps {
            // The waiters get this server: none is opened for them meanwhile.
            server.begins_reading(now);
        }
        if looks {
            let settling = Settling {
                releases: !keeps,
                cleans: is_of_settings && !keeps && !is_pinned && !pinning,
                ..Settling::default()
            };
            return self.inspect_late(server_conn, settling, now, out);
        }
        server.enter(match keeps {
            true => Phase::Relaying,
            false => Phase::Settled,
        });
        self.release_if_done(server_conn, now, out);
    }

    /// Announces the kept servers that are about to be settled, so that no server is opened for a client that is
    /// about to wait.
    pub(super) fn announce_kept_servers(&mut self, id: PoolId, now: Time) {
        let kept = self.pool(id).map_or(0, |pool| pool.kept.len());
        let needed = self.kept_needed(id, now).saturating_add(1);
        let mut announced = 0;
        for at in 0..kept {
            if announced == needed {
                break;
            }
            let conn = self.pool(id).and_then(|pool| pool.kept.get(at).copied());
            if let Some(conn) = conn.filter(|&conn| self.is_kept(conn, id))
                && let Some(server) = self.table.server(conn)
                && server.session.inspections.turn_until.is_none()
            {
                server.begins_reading(now);
                announced += 1;
            }
        }
    }

    /// Returns how many kept servers of a pool are needed.
    fn kept_needed(&mut self, id: PoolId, now: Time) -> usize {
        let pool = self.pool(id);
        pool.map_or(0, |pool| pool.shared.ledger.lock().kept_needed(now))
    }

    /// Withdraws the announcement of a server that the inspection found pinned: its waiters need another one.
    pub(super) fn note_pinned_after_inspection(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if !server.ends_reading() {
            return;
        }
        let shared = Arc::clone(&server.shared);
        let notes = shared.ledger.lock().kept_was_pinned(now);
        self.deliver(notes, &shared, out);
    }

    /// Settles as many kept servers of a pool as clients wait for, those first that are kept longest.
    pub(super) fn settle_for_waiters(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let worker = self.id;
        let Some(pool) = self.pool(id) else { return };
        let (mut kept, shared) = (std::mem::take(&mut pool.kept), Arc::clone(&pool.shared));
        let mut left = VecDeque::new();
        while let Some(server) = kept.pop_front() {
            let is_announced = self
                .table
                .server(server)
                .is_some_and(|server| server.reads());
            match is_announced || shared.ledger.lock().kept_needed(now) > 0 {
                true => self.settle_one(server, id, now, out),
                false => left.push_back(server),
            }
        }
        if left.is_empty() {
            return;
        }
        shared.ledger.lock().withholds(worker);
        if let Some(pool) = self.pool(id) {
            // What was listed meanwhile has been kept for less long.
            left.append(&mut pool.kept);
            pool.kept = left;
        }
    }

    /// Settles all kept servers of a pool: the pool drains.
    pub(super) fn settle_kept(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        for server in std::mem::take(&mut pool.kept) {
            self.settle_one(server, id, now, out);
        }
    }

    /// Settles a server that was in its pool's list of kept ones.
    fn settle_one(&mut self, server: Token, id: PoolId, now: Time, out: &mut Actions) {
        let is_kept = self.is_kept(server, id);
        self.unlist(server);
        if !is_kept {
            return;
        }
        self.release_if_done(server, now, out);
        let stays = |server: &mut Server| server.relays_for().is_some();
        if self.table.server(server).is_some_and(stays) {
            // The server was announced to the waiters, but its client is pinned.
            self.note_pinned_after_inspection(server, now, out);
        }
    }

    /// Returns whether this server of the pool is kept with its client.
    fn is_kept(&mut self, conn: Token, id: PoolId) -> bool {
        match self.table.get(conn) {
            Some(conn) if conn.is_server_of(id) => match conn {
                Conn::Server(server) => server.unsettled_since().is_some(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns the console's word for the mode of a server that was not inspected since its last transaction.
    pub(crate) fn unsettled(&self, conn: Token) -> Option<&'static str> {
        let Some(Conn::Server(server)) = self.table.look(conn) else {
            return None;
        };
        if server.session.inspections.failed.again_at().is_some() {
            // The client is pinned until an inspection succeeds.
            return None;
        }
        match server.duty.phase()? {
            Phase::Settling(_) => Some("settling"),
            Phase::Kept { .. } if server.session.is_to_clean() => Some("kept"),
            Phase::Dedicated {
                unsettled_since: Some(_),
            } if server.session.is_to_clean() => Some("kept"),
            _ => None,
        }
    }

    fn unlist(&mut self, conn: Token) {
        if let Some(server) = self.table.server(conn) {
            server.session.inspections.is_listed = false;
        }
    }

    /// Settles the servers that have been kept for long enough.
    pub(super) fn settle_due(&mut self, now: Time, out: &mut Actions) {
        if self.settle_at.is_none_or(|at| at > now) {
            return;
        }
        self.settle_at = None;
        let (mut left, began) = match self.settled_lately {
            (began, left) if now.since(began) < SETTINGS_KEPT => (left, began),
            _ => (SETTLED_AT_A_TIME, now),
        };
        for id in self.pools.ids() {
            let listed = self.pool(id).map_or(0, |pool| pool.kept.len());
            for _ in 0..listed {
                let Some(conn) = self.pool(id).and_then(|pool| pool.kept.pop_front()) else {
                    break;
                };
                self.settle_if_due(conn, id, &mut left, now, out);
            }
        }
        self.settled_lately = (began, left);
    }

    fn settle_if_due(
        &mut self,
        conn: Token,
        id: PoolId,
        left: &mut usize,
        now: Time,
        out: &mut Actions,
    ) {
        let is_kept = self.is_kept(conn, id);
        self.unlist(conn);
        if !is_kept {
            return;
        }
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let dirt = &server.session.dirt;
        let (class, needs_look) = (dirt.class(), dirt.needs_inspection());
        let is_being_cancelled = server.next_loan.cancels > 0;
        let since = server.unsettled_since().unwrap_or(now);
        match server.session.inspections.turn_until {
            Some(until) if until > now => return self.list_kept(conn, since, Some(until)),
            Some(_) => return self.release_if_done(conn, now, out),
            None => {}
        }
        let again_at = server.session.inspections.failed.again_at();
        let due_at = since.after(self.kept_at_most(class));
        let due_at = again_at.map_or(due_at, |at| due_at.max(at));
        if now < due_at || *left == 0 || is_being_cancelled {
            let at = due_at.max(now.after(RETRY_PAUSE));
            return self.list_kept(conn, since, Some(at));
        }
        *left -= 1;
        let keeps = self.pool(id).is_some_and(|pool| pool.keeps_servers());
        // Where clients keep their servers anyway, only an inspection is worth doing.
        if needs_look || !keeps {
            self.settle(conn, now, out);
        }
    }

    /// Cleans a server's session.
    pub(super) fn clean_session(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if let Duty::Cleaning { until, .. } = &mut server.duty {
            *until = now.after(CLEAN_PATIENCE).min(*until);
        }
        // A server whose clean fails is closed.
        let is_unknown = std::mem::take(&mut server.session.unclean);
        let mut clean = clean_of(server);
        if is_unknown {
            clean.class = Class::Opaque;
            clean.changes_role = true;
            clean.changes_plans = true;
        }
        let follows = self.snapshot.config.settings.max_prepared_statements > 0;
        let knows_all = !is_unknown && follows && server.session.client_names.are_pooled();
        let sql = server.session.sql_statements.held.clone();
        let statements = match knows_all {
            true => ToDeallocate::Named(sql.pairs().map(|(name, _)| name).collect()),
            false => {
                server.statements.prepared.clear();
                ToDeallocate::All
            }
        };
        let text = clean.text(&statements);
        let is_opaque = clean.class == Class::Opaque;
        server.session.queries.counts = is_opaque.then_some(None);
        server.ask(InternalQuery::Clean);
        let lacks_baseline = server.session.settings.baseline.is_none();
        let pool = server.pool();
        if let Some(pool) = self.pool(pool) {
            pool.stats.now.clean_count += 1;
        }
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(&text);
        });
        if is_opaque
            && lacks_baseline
            && let Some(server) = self.table.server(conn)
        {
            server.session.queries.baseline_rows = Some(Vec::new());
            server.ask(InternalQuery::Baseline);
            out.send_made(conn, |bytes| {
                MessageWriter::new(bytes).query(BASELINE.as_bytes());
            });
        }
    }

    /// Checks after a clean whether the session is as it was after the login.
    pub(crate) fn session_cleaned(&mut self, conn: Token) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if clean_of(server).changes_plans {
            server.statements.prepared.plans_discarded();
        }
        let counts = server.session.queries.counts.take();
        let expected = server.statements.prepared.len();
        let fits =
            |counts: StatementCounts| counts.from_sql == 0 && counts.from_protocol == expected;
        match counts {
            None => server.session.settings_cleaned(),
            Some(_) => server.session.cleaned(),
        }
        if counts.is_some_and(|counts| !counts.is_some_and(fits)) {
            self.count_unclean_close(conn);
            if let Some(server) = self.table.server(conn) {
                server
                    .retirement
                    .reason
                    .get_or_insert("its prepared statements are not those that it was given");
            }
        }
    }

    /// Stores the parameter values of a clean session.
    pub(crate) fn adopt_baseline(&mut self, conn: Token) {
        let directory = Arc::clone(&self.directory);
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let rows = server
            .session
            .queries
            .baseline_rows
            .take()
            .unwrap_or_default();
        let told = Baseline::from_rows(&rows, directory.settings());
        if let Some(told) = told {
            let mut facts = server.shared.facts.lock();
            // Most servers of a pool have the same baseline, so they share it.
            let same = facts.baseline.clone().filter(|known| **known == told);
            let baseline = same.unwrap_or_else(|| Arc::new(told));
            facts.baseline = Some(Arc::clone(&baseline));
            drop(facts);
            server.session.settings.baseline = Some(baseline);
        }
    }
}

/// Returns what the clean of this server has to take away.
pub(super) fn clean_of(server: &Server) -> Clean {
    let dirt = &server.session.dirt;
    let held = &server.session.settings.held;
    let has_role = held.iter().any(|(name, _)| is_identity(name));
    Clean {
        class: dirt.class().max(Class::Settings),
        changes_role: dirt.changes_role() || has_role,
        changes_plans: dirt.changes_plans(),
        reseeds: server.session.extension.last.is_none(),
        version: major_version(server),
    }
}

/// Returns the server's major version; 0 if it has reported none.
pub(super) fn major_version(server: &Server) -> u32 {
    let facts = server.shared.facts.lock();
    let server_parameters = facts.server_parameters.as_ref();
    let version = server_parameters
        .and_then(|server_parameters| server_parameters.parameter(b"server_version"));
    let major = version
        .unwrap_or_default()
        .split(|byte| !byte.is_ascii_digit())
        .next();
    let major = major.and_then(|major| std::str::from_utf8(major).ok()?.parse().ok());
    major.unwrap_or(0)
}
