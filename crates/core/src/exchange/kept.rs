//! A server connection between two transactions of its client, whose session state no other client may get.
//!
//! The server is first *kept*: it stays with its client, and costs nothing as long as the client goes on. It is
//! *settled* when a client waits for a server of the pool, when the pool drains (PAUSE, a restart, eviction), or
//! after a while: an inspection finds which session state the client needs on its next server, or which state pins the
//! client to this one. A clean takes the session state away, and the server goes back to the pool.
//!
//! ```text
//! Relaying -> Kept -> Relaying (its client sends a request)
//!               \-> Settling (the inspection) -> Settled -> Cleaning -> Idle
//!                                                   \-> Dedicated (pinned)
//! ```

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc};

use super::{Exchange, pins::is_pinned_to};
use crate::{
    Actions, SharedPool, Time, Token,
    backend::{Phase, Server, Settling},
    connections::{Conn, Connections},
    effect::{Effect, Effects, Env, SessionEffect},
    pool::{PoolId, Wanted},
    pooling,
    session::Class,
};

/// Microseconds that a server is kept at most after texts that only set parameters by name.
const SETTINGS_KEPT: u64 = 50_000;
/// Microseconds between two inspections of the session of a pinned client.
const INSPECTION_PAUSE: u64 = 100_000;
/// Microseconds until pgweir tries again to settle a server that could not be settled.
const RETRY_PAUSE: u64 = SETTINGS_KEPT / 8;
/// The most servers that are settled at a time because they were kept for long enough. With [`SETTINGS_KEPT`]
/// between two times, that is a twentieth of a worker's time at 300 microseconds each.
const SETTLED_AT_A_TIME: usize = 8;
/// A client's turn: microseconds for which it may go on with one server while others wait for it. All of its
/// transactions in the turn share the cost of one inspection and one clean. Where inspections take long, a turn
/// lasts [`INSPECTIONS_IN_A_TURN`] times as long as one, within these limits.
const TURN: RangeInclusive<u64> = 5_000..=50_000;
const INSPECTIONS_IN_A_TURN: u64 = 8;
/// Microseconds in which a client has to send its next request to keep its turn. Waiting for as long as an
/// inspection takes costs no more than the inspection, so the pause grows with it, within these limits.
const TURN_PAUSE: RangeInclusive<u64> = 2_000..=20_000;

/// When the next kept server has to be settled, and how many were settled lately.
#[derive(Debug, Default)]
pub(crate) struct KeptServers {
    /// When the first server that is kept with its client has to be inspected.
    settle_at: Option<Time>,
    /// When servers were settled last because time had passed, and how many more may be settled shortly after that.
    settled_lately: (Time, usize),
}

impl KeptServers {
    /// Returns when the first kept server has to be settled.
    #[inline]
    pub(crate) fn settle_at(&self) -> Option<Time> {
        self.settle_at
    }
}

/// Whether a server stays with its client after a transaction.
pub(crate) enum Kept {
    /// The server stays with its client for now, and these effects follow.
    Stays(Option<Effects>),
    /// The server may be cleaned and released.
    MayGo,
}

/// The kept servers of a pool on this worker that are being settled, since clients wait or the pool drains.
#[derive(Debug)]
pub(crate) struct KeptWalk {
    shared: Arc<SharedPool>,
    /// Servers that were not looked at yet.
    kept: VecDeque<Token>,
    /// Whether all of them are settled, since the pool drains. Otherwise as many as clients wait for.
    all: bool,
    /// Servers that no client needs.
    left: VecDeque<Token>,
}

/// The kept servers of this worker that are being settled, since time has passed.
#[derive(Debug)]
pub(crate) struct DueWalk {
    /// Servers that were not looked at yet.
    kept: std::vec::IntoIter<Token>,
    /// When the first of these servers was settled, and how many more may be.
    began: Time,
    more: usize,
}

impl Exchange<'_> {
    /// Decides about a server whose transaction is over and whose session state allows no other client in it.
    pub(crate) fn keep_or_settle(
        &mut self,
        server_conn: Token,
        is_pinned: bool,
        out: &mut Actions,
    ) -> Kept {
        let now = self.env.now;
        let wanted = self.wanted(server_conn);
        let turn_until = self.turn_until(server_conn, wanted, is_pinned);
        let Some(server) = self.connections.known_server(server_conn, out) else {
            return Kept::Stays(None);
        };
        if !is_pinned && server.uncount_pinned() {
            server.retirement.require("above pool_size");
        }
        let is_retired = server.retirement.reason.is_some();
        let is_settled = matches!(server.duty().phase(), Some(Phase::Settled));
        server.session.inspections.turn_until = turn_until;
        let is_wanted = wanted != Wanted::No && turn_until.is_none();
        let is_due = is_wanted || is_retired || is_settled;
        let since = server.unsettled_since().unwrap_or(now);
        if !server.session.dirt.needs_clean() && turn_until.is_none() {
            return Kept::MayGo;
        }
        let needs_inspection = server.session.dirt.needs_inspection();
        if needs_inspection && is_due && server.next_loan.cancels > 0 {
            // A cancel request on its way to this server would hit the inspection.
            self.list_kept(server_conn, since, Some(now.after(RETRY_PAUSE)));
            return Kept::stays_if(!is_pinned);
        }
        let inspections = &server.session.inspections;
        let is_pausing = inspections
            .last_at
            .is_some_and(|at| now.since(at) < INSPECTION_PAUSE)
            || inspections.failed.again_at().is_some_and(|at| now < at);
        if needs_inspection && is_due && !(is_pinned && is_pausing) {
            return Kept::Stays(self.settle(server_conn, out));
        }
        // The caller counts pinned clients.
        let stays = !is_pinned && (needs_inspection || !is_due);
        if needs_inspection || stays {
            self.list_kept(server_conn, since, turn_until);
        }
        if turn_until.is_some() {
            // The waiters may count on this server.
            self.withdraw_announcement(server_conn, out);
        }
        Kept::stays_if(stays)
    }

    /// Returns whether a client waits for a server of this one's pool, or the pool drains.
    fn wanted(&mut self, server_conn: Token) -> Wanted {
        let Env { worker, now, .. } = self.env;
        let departs = self.env.hands_clients_over || self.env.waits_for_servers();
        let Some(server) = self.connections.server(server_conn) else {
            return Wanted::No;
        };
        match self.pools.get_mut(server.pool()) {
            _ if departs => Wanted::Now,
            Some(pool) if pool.orders.paused => Wanted::Now,
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
    fn turn_until(&mut self, server_conn: Token, wanted: Wanted, is_pinned: bool) -> Option<Time> {
        let now = self.env.now;
        let (_, client, server) = self.connections.pair_of(server_conn)?;
        let inspection_time = self.pools.get(server.pool())?.inspection_time;
        let within =
            |limits: RangeInclusive<u64>, time: u64| time.clamp(*limits.start(), *limits.end());
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
            .after(within(TURN_PAUSE, inspection_time));
        let turn = within(TURN, INSPECTIONS_IN_A_TURN * inspection_time);
        let until = pause.min(server.times.lent_at.after(turn));
        (until > now && (had.is_some() || turns.take())).then_some(until)
    }

    /// Records how long an inspection took after which the server is lent to others: the length of turns follows
    /// it.
    pub(super) fn note_inspection_time(&mut self, pool: PoolId, began: Option<Time>) {
        if let (Some(began), Some(pool)) = (began, self.pools.get_mut(pool)) {
            let time = self.env.now.since(began).min(*TURN.end());
            pool.inspection_time = (7 * pool.inspection_time + time) / 8;
        }
    }

    /// Puts a server that has been kept since `since` into its pool's list.
    fn list_kept(&mut self, server_conn: Token, since: Time, settle_at: Option<Time>) {
        let is_pinned = is_pinned_to(self.connections, server_conn);
        let Some(server) = self.connections.server(server_conn) else {
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
        if !is_listed && let Some(pool) = self.pools.get_mut(pool) {
            pool.kept.push_back(server_conn);
        }
        let at = settle_at.unwrap_or_else(|| since.after(kept_at_most(&self.env, class)));
        self.settle_no_later_than(at);
    }

    /// Inspects the session of a kept server, and releases the server if nothing pins its client.
    fn settle(&mut self, server_conn: Token, out: &mut Actions) -> Option<Effects> {
        let pinning = !self.env.snapshot.config.settings.pin_parameters.is_empty();
        let (_, client, server) = self.connections.known_pair_of(server_conn, out)?;
        let is_pinned = client.context.as_ref().is_some_and(|own| own.is_pinned());
        let pool = self.pools.get(server.pool());
        let keeps = pool.is_some_and(|pool| pool.keeps_servers());
        let dirt = &server.session.dirt;
        let (inspects, is_of_settings) = (dirt.needs_inspection(), dirt.class() == Class::Settings);
        server.session.inspections.last_at = Some(self.env.now);
        if !keeps {
            // The waiters get this server: none is opened for them meanwhile.
            server.begins_reading(self.env.now);
        }
        if inspects {
            let settling = Settling {
                releases: !keeps,
                cleans: is_of_settings && !keeps && !is_pinned && !pinning,
                ..Settling::default()
            };
            return self.inspect_late(server_conn, settling, out);
        }
        server.enter(match keeps {
            true => Phase::Relaying,
            false => Phase::Settled,
        });
        Some(Effect::Settle(server_conn).into())
    }

    /// Announces the kept servers that are about to be settled, so that no server is opened for a client that is
    /// about to wait.
    pub(crate) fn announce_kept_servers(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        let now = self.env.now;
        let needed = pool.shared.ledger.lock().kept_needed(now).saturating_add(1);
        let mut announced = 0;
        for &conn in &pool.kept {
            if announced == needed {
                break;
            }
            if is_kept(self.connections, conn, id)
                && let Some(server) = self.connections.server(conn)
                && server.session.inspections.turn_until.is_none()
            {
                server.begins_reading(now);
                announced += 1;
            }
        }
    }

    /// Withdraws the announcement of a server that the inspection found pinned: its waiters need another one.
    pub(super) fn withdraw_announcement(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if !server.ends_reading() {
            return;
        }
        let env = self.env;
        let notes = server.shared.ledger.lock().kept_was_pinned(env.now);
        pooling::deliver(&env, &notes, &server.shared, out);
    }

    /// Withdraws the announcement of a server that was to be settled for waiters, if its client still has it.
    pub(crate) fn withdraw_if_pinned(&mut self, conn: Token, out: &mut Actions) {
        let server = self.connections.server(conn);
        if server.is_some_and(|server| server.relays_for().is_some()) {
            self.withdraw_announcement(conn, out);
        }
    }

    /// Begins to settle kept servers of a pool. If `all`, the pool drains; otherwise as many as clients wait for, those
    /// first that are kept longest.
    pub(crate) fn begin_settling(&mut self, id: PoolId, all: bool) -> Option<KeptWalk> {
        let pool = self.pools.get_mut(id)?;
        Some(KeptWalk {
            kept: std::mem::take(&mut pool.kept),
            shared: Arc::clone(&pool.shared),
            all,
            left: VecDeque::new(),
        })
    }

    /// Settles the next server of a walk, after the effects of the last one were carried out. `None` at the end.
    pub(crate) fn settle_next(&mut self, walk: &mut KeptWalk) -> Option<Effects> {
        let Env { worker, now, .. } = self.env;
        while let Some(conn) = walk.kept.pop_front() {
            let server = self.connections.server(conn);
            let is_announced = server.is_some_and(|server| server.reads());
            if walk.all || is_announced || walk.shared.ledger.lock().kept_needed(now) > 0 {
                return Some(self.settle_listed(conn, walk.shared.id));
            }
            walk.left.push_back(conn);
        }
        if !walk.left.is_empty() {
            walk.shared.ledger.lock().withholds(worker);
            if let Some(pool) = self.pools.get_mut(walk.shared.id) {
                // Servers that were added to the list meanwhile have been kept for less long.
                walk.left.append(&mut pool.kept);
                pool.kept = std::mem::take(&mut walk.left);
            }
        }
        None
    }

    /// Settles a server that was in its pool's list of kept ones.
    fn settle_listed(&mut self, conn: Token, id: PoolId) -> Effects {
        unlist(self.connections, conn);
        if !is_kept(self.connections, conn, id) {
            return Effects::default();
        }
        // The server may have been announced to waiters, and its client be pinned.
        let withdraw = Effect::Session(conn, SessionEffect::WithdrawIfPinned);
        Effects::from_iter([Effect::Settle(conn), withdraw])
    }

    /// Begins to settle the servers that have been kept for long enough, if there are any.
    pub(crate) fn begin_settling_due(&mut self) -> Option<DueWalk> {
        let now = self.env.now;
        self.kept.settle_at.take_if(|at| *at <= now)?;
        let (began, more) = match self.kept.settled_lately {
            (began, more) if now.since(began) < SETTINGS_KEPT => (began, more),
            _ => (now, SETTLED_AT_A_TIME),
        };
        let mut kept = Vec::new();
        for pool in self.pools.iter_mut() {
            let (id, connections) = (pool.shared.id, &mut *self.connections);
            pool.kept.retain(|&conn| {
                let stays = is_kept(connections, conn, id);
                if !stays {
                    unlist(connections, conn);
                }
                stays
            });
            kept.extend(&pool.kept);
        }
        Some(DueWalk {
            kept: kept.into_iter(),
            began,
            more,
        })
    }

    /// Settles the next server that has been kept for long enough, after the effects of the last one were carried out.
    /// `None` at the end.
    pub(crate) fn settle_next_due(
        &mut self,
        walk: &mut DueWalk,
        out: &mut Actions,
    ) -> Option<Effects> {
        for conn in walk.kept.by_ref() {
            if let Some(effects) = self.settle_if_due(conn, &mut walk.more, out) {
                return Some(effects);
            }
        }
        self.kept.settled_lately = (walk.began, walk.more);
        None
    }

    fn settle_if_due(
        &mut self,
        conn: Token,
        more: &mut usize,
        out: &mut Actions,
    ) -> Option<Effects> {
        let now = self.env.now;
        // The client may have gone on meanwhile.
        let server = self.connections.server(conn)?;
        let (since, inspections) = (server.unsettled_since()?, &server.session.inspections);
        let due_at = match inspections.turn_until {
            Some(until) => until,
            None => {
                let due_at = since.after(kept_at_most(&self.env, server.session.dirt.class()));
                inspections
                    .failed
                    .again_at()
                    .map_or(due_at, |at| due_at.max(at))
            }
        };
        let is_turn = inspections.turn_until.is_some();
        let is_held_up = !is_turn && (*more == 0 || server.next_loan.cancels > 0);
        if now < due_at || is_held_up {
            let again_at = due_at.max(now.after(RETRY_PAUSE));
            self.settle_no_later_than(if is_turn { due_at } else { again_at });
            return None;
        }
        let needs_inspection = server.session.dirt.needs_inspection();
        server.session.inspections.is_listed = false;
        let pool = self.pools.get_mut(server.pool())?;
        pool.kept.retain(|kept| *kept != conn);
        if is_turn {
            return Some(Effect::Settle(conn).into());
        }
        *more -= 1;
        // Where clients keep their servers anyway, only an inspection is worth doing.
        match needs_inspection || !pool.keeps_servers() {
            true => self.settle(conn, out),
            false => None,
        }
    }

    /// Looks at the kept servers at this time, if not before.
    fn settle_no_later_than(&mut self, at: Time) {
        let next = self.kept.settle_at.get_or_insert(at);
        *next = at.min(*next);
    }
}

impl Kept {
    fn stays_if(stays: bool) -> Self {
        match stays {
            true => Self::Stays(None),
            false => Self::MayGo,
        }
    }
}

/// Returns for how many microseconds at most a server with dirt of this class is kept.
fn kept_at_most(env: &Env<'_>, class: Class) -> u64 {
    let after = env.snapshot.config.settings.settle_after.0;
    match class {
        Class::Opaque => after,
        _ => after.min(SETTINGS_KEPT),
    }
}

/// Returns whether this server of the pool is kept with its client.
fn is_kept(connections: &Connections, conn: Token, id: PoolId) -> bool {
    match connections.look(conn) {
        Some(Conn::Server(server)) if server.pool() == id => server.unsettled_since().is_some(),
        _ => false,
    }
}

/// Notes that a server is in its pool's list of kept ones no more.
fn unlist(connections: &mut Connections, conn: Token) {
    if let Some(server) = connections.server(conn) {
        server.session.inspections.is_listed = false;
    }
}

/// Returns the console's word for the mode of a server that was not inspected since its last transaction.
pub(crate) fn unsettled(server: &Server) -> Option<&'static str> {
    if server.session.inspections.failed.again_at().is_some() {
        // The client is pinned until an inspection succeeds.
        return None;
    }
    match server.duty().phase()? {
        Phase::Settling(_) => Some("settling"),
        Phase::Kept { .. } if server.session.is_to_clean() => Some("kept"),
        Phase::Dedicated {
            unsettled_since: Some(_),
        } if server.session.is_to_clean() => Some("kept"),
        _ => None,
    }
}
