//! Server connections that stay with their clients between two transactions, because they have session state of these
//! clients.
//!
//! The server is first *kept*: it stays with its client, without any query of pgweir's. It is *settled* when a client
//! waits for a server of the pool, when the pool drains (PAUSE, a restart, eviction), or after a while: an inspection
//! reads which session state the client needs on its next server, or which state pins the client to this one. Then a
//! clean removes the session state, and the server goes back to the pool.
//!
//! ```text
//! Relaying -> Kept -> Relaying (its client sends a request)
//!                \-> Settling (the inspection) -> Settled -> Cleaning -> Idle
//!                                             \-> Dedicated (pinned)
//! ```

use std::{ops::RangeInclusive, sync::Arc};

use super::{Exchange, pins::is_pinned_to};
use crate::{
    Actions, SharedPool, Time, Token,
    backend::{Phase, Server, Settling},
    connections::{Conn, Connections},
    effect::{Effect, Effects, Env, SessionEffect},
    pool::{PoolId, ServerDemand},
    pooling::{self, KeptServer},
    session::Class,
};

/// The longest time, in microseconds, for which a server is kept after texts that only set parameters by name.
const SETTINGS_KEPT: u64 = 50_000;
/// Microseconds between two inspections of the session of a pinned client.
const INSPECTION_PAUSE: u64 = 100_000;
/// Microseconds until pgweir tries again to settle a server that could not be settled.
const RETRY_PAUSE: u64 = SETTINGS_KEPT / 8;
/// The largest number of servers that are settled within [`SETTINGS_KEPT`] because they were kept for long enough. If
/// each takes 300 microseconds, they take a twentieth of a worker's time.
const SETTLED_AT_A_TIME: usize = 8;
/// The limits of a client's turn, in microseconds: for this time the client may go on with its server while others wait
/// for one. All of its transactions in the turn share the cost of one inspection and one clean. A turn lasts
/// [`INSPECTIONS_IN_A_TURN`] times as long as an inspection, within these limits.
const TURN: RangeInclusive<u64> = 5_000..=50_000;
const INSPECTIONS_IN_A_TURN: u64 = 8;
/// The limits of the time, in microseconds, within which a client has to send its next request to keep its turn. The
/// time equals the time of an inspection, within these limits: so to wait for the client costs no more than to inspect
/// its session.
const TURN_PAUSE: RangeInclusive<u64> = 2_000..=20_000;

/// The time at which the next kept server has to be settled, and the number of servers that were settled lately.
#[derive(Debug, Default)]
pub(crate) struct KeptServers {
    /// The time at which the first kept server has to be settled.
    settle_at: Option<Time>,
    /// When servers were last settled because they had been kept for long enough, and how many more may be settled
    /// shortly after that.
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
pub(crate) enum KeepDecision {
    /// The server stays with its client for now, and these effects follow.
    Keep(Option<Effects>),
    /// The server may be cleaned and released.
    Release,
}

/// Kept servers of this worker that are being settled, one after the other.
#[derive(Debug)]
pub(crate) struct KeptWalk {
    /// The servers that are still to be handled.
    kept: std::vec::IntoIter<KeptServer>,
    reason: WalkReason,
    /// Whether a server stays kept, since no client waits for it.
    withholds: bool,
}

/// The reason why kept servers are settled.
#[derive(Debug)]
enum WalkReason {
    /// The pool drains: all of its servers are settled.
    Drain(Arc<SharedPool>),
    /// Clients of the pool wait: as many servers are settled.
    Waiters(Arc<SharedPool>),
    /// The servers were kept for long enough. `began`: when the first of them was settled; `more`: how many may follow.
    Due { began: Time, more: usize },
}

impl Exchange<'_> {
    /// Decides whether a server with its client's session state stays with this client after a transaction.
    pub(crate) fn keep_or_settle(
        &mut self,
        server_conn: Token,
        is_pinned: bool,
        out: &mut Actions,
    ) -> KeepDecision {
        let now = self.env.now;
        let demand = self.demand(server_conn);
        let turn_until = self.turn_until(server_conn, demand, is_pinned);
        let Some(server) = self.connections.known_server(server_conn, out) else {
            return KeepDecision::Keep(None);
        };
        if !is_pinned && server.uncount_pinned() {
            server.retirement.require("above pool_size");
        }
        let is_retired = server.retirement.is_required();
        let is_settled = matches!(server.duty().phase(), Some(Phase::Settled));
        if let Some(until) = turn_until {
            server.session.loan.edit().begin_turn(until);
        }
        let is_wanted = demand != ServerDemand::None && turn_until.is_none();
        let is_due = is_wanted || is_retired || is_settled;
        let since = server.unsettled_since().unwrap_or(now);
        if !server.session.changes.needs_clean() && turn_until.is_none() {
            return KeepDecision::Release;
        }
        let needs_inspection = server.session.changes.needs_inspection();
        if needs_inspection && is_due && server.next_loan.awaits_cancels() {
            // A cancel request that is on its way to this server would cancel the inspection.
            self.list_kept(server_conn, since, Some(now.after(RETRY_PAUSE)));
            return KeepDecision::keep_if(!is_pinned);
        }
        let loan = &server.session.loan;
        let is_pausing = loan
            .inspected_at()
            .is_some_and(|at| now.since(at) < INSPECTION_PAUSE)
            || loan.inspection.again_at().is_some_and(|at| now < at);
        if needs_inspection && is_due && !(is_pinned && is_pausing) {
            return KeepDecision::Keep(self.settle(server_conn, out));
        }
        // The caller handles pinned clients.
        let stays = !is_pinned && (needs_inspection || !is_due);
        if needs_inspection || stays {
            self.list_kept(server_conn, since, turn_until);
        }
        if turn_until.is_some() {
            // The server was announced to waiters, but stays with its client for this turn.
            self.withdraw_announcement(server_conn, out);
        }
        KeepDecision::keep_if(stays)
    }

    /// Returns whether clients leave this process, so that each of them has to give its server back after a transaction:
    /// to move to the new process of an online restart, for a shutdown, or since a drain ends them there.
    fn clients_leave(&self) -> bool {
        let env = &self.env;
        env.hands_clients_over
            || env.waits_for_servers()
            || env
                .directory
                .operator()
                .departures()
                .no_longer_wait_for_pauses(env.now)
    }

    /// Returns whether other clients need this server, or its pool drains.
    fn demand(&mut self, server_conn: Token) -> ServerDemand {
        let Env { worker, now, .. } = self.env;
        let departs = self.clients_leave();
        let Some(server) = self.connections.server(server_conn) else {
            return ServerDemand::None;
        };
        match self.pools.get_mut(server.pool()) {
            _ if departs => ServerDemand::Now,
            Some(pool) if pool.orders.paused => ServerDemand::Now,
            Some(pool) if pool.offers_to_ledger => {
                let demand = pool.shared.ledger.lock().demand(worker, now);
                pool.offers_to_ledger = demand != ServerDemand::None;
                demand
            }
            _ => ServerDemand::None,
        }
    }

    /// Returns until when the client may go on with this server although others wait; `None` if it may not.
    fn turn_until(
        &mut self,
        server_conn: Token,
        demand: ServerDemand,
        is_pinned: bool,
    ) -> Option<Time> {
        let now = self.env.now;
        let (_, client, server) = self.connections.pair_of(server_conn)?;
        let inspection_time = self.pools.get(server.pool())?.inspection_time();
        let within =
            |limits: RangeInclusive<u64>, time: u64| time.clamp(*limits.start(), *limits.end());
        let turns = &mut client.context.as_deref_mut()?.turns;
        let unsettled_since = server.unsettled_since();
        let had = server.session.loan.end_turn();
        match unsettled_since {
            None if had.is_some() => turns.used(),
            Some(_) if had.is_some_and(|until| until <= now) => turns.missed(),
            _ => {}
        }
        if demand != ServerDemand::InTurn || is_pinned {
            return None;
        }
        let pause = unsettled_since
            .unwrap_or(now)
            .after(within(TURN_PAUSE, inspection_time));
        let turn = within(TURN, INSPECTIONS_IN_A_TURN * inspection_time);
        let until = pause.min(server.times.lent_at().after(turn));
        (until > now && (had.is_some() || turns.take())).then_some(until)
    }

    /// Records how long an inspection took after which the server goes to other clients. The length of turns depends on
    /// this time.
    pub(super) fn note_inspection_time(&mut self, pool: PoolId, began: Option<Time>) {
        if let (Some(began), Some(pool)) = (began, self.pools.get_mut(pool)) {
            let time = self.env.now.since(began).min(*TURN.end());
            pool.add_inspection_time(time);
        }
    }

    /// Puts a server that has been kept since `since` into its pool's list.
    fn list_kept(&mut self, server_conn: Token, since: Time, settle_at: Option<Time>) {
        let is_pinned = is_pinned_to(self.connections, server_conn);
        let Some(server) = self.connections.server(server_conn) else {
            return;
        };
        let class = server.session.changes.class();
        let unsettled_since = Some(since);
        server.enter(match is_pinned {
            true => Phase::Dedicated { unsettled_since },
            false => Phase::Kept { since },
        });
        let is_listed = server.session.lists.list(since);
        let pool = server.pool();
        if !is_listed && let Some(pool) = self.pools.get_mut(pool) {
            pool.kept.insert((since, server_conn));
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
        let changes = &server.session.changes;
        let (inspects, is_of_settings) = (
            changes.needs_inspection(),
            changes.class() == Class::Settings,
        );
        server.session.loan.edit().note_inspection(self.env.now);
        if !keeps {
            // A waiter will get this server, so the ledger opens no other server for it meanwhile.
            server.announce(self.env.now);
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

    /// Returns the next server behind `last` in a pool's list of kept servers, or the first one. Moves servers on its way
    /// that were used since they were listed: each use of a server costs one move at most.
    fn next_kept(&mut self, id: PoolId, last: Option<KeptServer>) -> Option<KeptServer> {
        let list = &mut self.pools.get_mut(id)?.kept;
        loop {
            let (listed_at, conn) = list.next(last)?;
            let server = self.connections.server(conn);
            let moved = server.and_then(|server| Some((server.unsettled_since()?, server)));
            let Some((since, server)) = moved.filter(|(since, _)| *since > listed_at) else {
                return Some((listed_at, conn));
            };
            server.session.lists.list_again(since);
            list.remove((listed_at, conn));
            list.insert((since, conn));
        }
    }

    /// Announces to the ledger the kept servers that are about to be settled, so that it opens no server for a client
    /// that begins to wait.
    pub(crate) fn announce_kept_servers(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        let now = self.env.now;
        let needed = pool.shared.ledger.lock().kept_needed(now).saturating_add(1);
        let mut announced = 0;
        let mut last = None;
        while announced < needed
            && let Some(next) = self.next_kept(id, last)
        {
            let (_, conn) = *last.insert(next);
            if is_kept(self.connections, conn, id)
                && let Some(server) = self.connections.server(conn)
                && server.session.loan.turn_until().is_none()
            {
                server.announce(now);
                announced += 1;
            }
        }
    }

    /// Withdraws the announcement of a server whose client turned out to be pinned: the waiter needs another server.
    pub(super) fn withdraw_announcement(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        if !server.end_announcement() {
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

    /// Begins to settle kept servers of a pool: all of them if `all` (the pool drains), otherwise as many as clients
    /// wait, the longest kept ones first.
    pub(crate) fn begin_settling(&mut self, id: PoolId, all: bool) -> Option<KeptWalk> {
        let pool = self.pools.get(id)?;
        let shared = Arc::clone(&pool.shared);
        let mut kept = Vec::new();
        while let Some(next) = self.next_kept(id, kept.last().copied()) {
            kept.push(next);
        }
        Some(KeptWalk {
            kept: kept.into_iter(),
            reason: match all {
                true => WalkReason::Drain(shared),
                false => WalkReason::Waiters(shared),
            },
            withholds: false,
        })
    }

    /// Settles the next server of a walk; `None` at the end. The effects for the last one must have been carried out.
    pub(crate) fn settle_next(
        &mut self,
        walk: &mut KeptWalk,
        out: &mut Actions,
    ) -> Option<Effects> {
        let Env { worker, now, .. } = self.env;
        for kept in walk.kept.by_ref() {
            let (_, conn) = kept;
            let effects = match &mut walk.reason {
                WalkReason::Drain(shared) => Some(self.settle_listed(kept, shared.id)),
                WalkReason::Waiters(shared) => {
                    let is_announced = self
                        .connections
                        .server(conn)
                        .is_some_and(|own| own.is_announced());
                    let is_needed = is_announced || shared.ledger.lock().kept_needed(now) > 0;
                    walk.withholds |= !is_needed;
                    is_needed.then(|| self.settle_listed(kept, shared.id))
                }
                WalkReason::Due { more, .. } => self.settle_if_due(kept, more, out),
            };
            if effects.is_some() {
                return effects;
            }
        }
        match &walk.reason {
            WalkReason::Waiters(shared) if walk.withholds => shared.ledger.lock().withholds(worker),
            WalkReason::Due { began, more } => self.kept.settled_lately = (*began, *more),
            _ => {}
        }
        None
    }

    /// Settles a server that was in its pool's list of kept ones.
    fn settle_listed(&mut self, kept: KeptServer, id: PoolId) -> Effects {
        self.unlist(kept, id);
        let (_, conn) = kept;
        if !is_kept(self.connections, conn, id) {
            return Effects::default();
        }
        // If the client turns out to be pinned, the announcement has to be withdrawn.
        let withdraw = Effect::Session(conn, SessionEffect::WithdrawIfPinned);
        Effects::from_iter([Effect::Settle(conn), withdraw])
    }

    /// Removes a server from its pool's list of kept ones.
    fn unlist(&mut self, (listed_at, conn): KeptServer, id: PoolId) {
        let server = self.connections.server(conn);
        let listed_at = server.map_or(Some(listed_at), |server| server.session.lists.unlist());
        if let (Some(at), Some(pool)) = (listed_at, self.pools.get_mut(id)) {
            pool.kept.remove((at, conn));
        }
    }

    /// Begins to settle the servers that have been kept for long enough, if there are any.
    pub(crate) fn begin_settling_due(&mut self) -> Option<KeptWalk> {
        let now = self.env.now;
        self.kept.settle_at.take_if(|at| *at <= now)?;
        let (began, more) = match self.kept.settled_lately {
            (began, more) if now.since(began) < SETTINGS_KEPT => (began, more),
            _ => (now, SETTLED_AT_A_TIME),
        };
        let mut kept = Vec::new();
        for pool in self.pools.iter_mut() {
            let (id, connections) = (pool.shared.id, &mut *self.connections);
            pool.kept.retain(|conn| {
                let stays = is_kept(connections, conn, id);
                if !stays && let Some(server) = connections.server(conn) {
                    server.session.lists.unlist();
                }
                stays
            });
            kept.extend(pool.kept.iter());
        }
        Some(KeptWalk {
            kept: kept.into_iter(),
            reason: WalkReason::Due { began, more },
            withholds: false,
        })
    }

    fn settle_if_due(
        &mut self,
        kept: KeptServer,
        more: &mut usize,
        out: &mut Actions,
    ) -> Option<Effects> {
        let now = self.env.now;
        let (_, conn) = kept;
        // The client may have sent a request meanwhile.
        let server = self.connections.server(conn)?;
        let (since, loan) = (server.unsettled_since()?, &server.session.loan);
        let due_at = match loan.turn_until() {
            Some(until) => until,
            None => {
                let due_at = since.after(kept_at_most(&self.env, server.session.changes.class()));
                loan.inspection
                    .again_at()
                    .map_or(due_at, |at| due_at.max(at))
            }
        };
        let is_turn = loan.turn_until().is_some();
        let is_held_up = !is_turn && (*more == 0 || server.next_loan.awaits_cancels());
        if now < due_at || is_held_up {
            let again_at = due_at.max(now.after(RETRY_PAUSE));
            self.settle_no_later_than(if is_turn { due_at } else { again_at });
            return None;
        }
        let server = self.connections.server(conn)?;
        let (id, changes) = (server.pool(), &server.session.changes);
        let needs_inspection = changes.needs_inspection();
        self.unlist(kept, id);
        if is_turn {
            return Some(Effect::Settle(conn).into());
        }
        *more -= 1;
        // If the pool's clients keep their servers in any case, only a server that needs an inspection is settled.
        match needs_inspection || !self.pools.get(id)?.keeps_servers() {
            true => self.settle(conn, out),
            false => None,
        }
    }

    /// Makes the tick settle kept servers at this time, or earlier.
    fn settle_no_later_than(&mut self, at: Time) {
        let next = self.kept.settle_at.get_or_insert(at);
        *next = at.min(*next);
    }
}

impl KeepDecision {
    fn keep_if(stays: bool) -> Self {
        match stays {
            true => Self::Keep(None),
            false => Self::Release,
        }
    }
}

/// Returns the longest time, in microseconds, for which a server with session changes of this class is kept.
fn kept_at_most(env: &Env<'_>, class: Class) -> u64 {
    let after = env.snapshot.config.settings.settle_after.0;
    match class {
        Class::Opaque => after,
        _ => after.min(SETTINGS_KEPT),
    }
}

/// Returns whether this server of the pool is kept with its client.
fn is_kept(connections: &Connections, conn: Token, id: PoolId) -> bool {
    match connections.get(conn) {
        Some(Conn::Server(server)) if server.pool() == id => server.unsettled_since().is_some(),
        _ => false,
    }
}

/// Returns the console's word for the mode of a server that was not inspected since its last transaction.
pub(crate) fn unsettled(server: &Server) -> Option<&'static str> {
    if server.session.loan.inspection.again_at().is_some() {
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
