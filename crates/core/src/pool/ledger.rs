//! The ledger of a pool: how many servers the pool has on which worker, and which clients wait.
//!
//! # No wake-up is lost
//!
//! A worker lends its idle servers without asking the ledger, as long as it does not know that a client of another
//! worker waits. So a client could wait for ever while another worker has an idle server. These rules prevent it:
//!
//! 1. Each worker has a flag for each pool. While the flag is set, the worker *offers* its servers to the ledger. The
//!    ledger has a copy of the flag. The copy is set together with the posting of a
//!    [`Mail::ServersWanted`](crate::mail::Mail::ServersWanted) (or with the caller's own flag, in the same step).
//!    The flag is cleared only in the same step as the copy. So if the copy is set, the flag is set or a
//!    `ServersWanted` is on its way to the worker.
//! 2. A client begins to wait only through [`Ledger::wait`]. This call sets the flag of every worker that owns a
//!    server and does not offer it yet.
//! 3. A worker that offers gives every idle server, and every server that becomes free later, to [`Ledger::offer`],
//!    which grants the server to the client that waits longest. The flag is cleared only when no client waits.
//!
//! By 2 and 3, once all `ServersWanted` messages have arrived, either no client waits or no worker has an idle server.
//! Mailboxes deliver every message, so this happens. If a server is moved to another worker for a client that has gone
//! meanwhile, that worker offers the server again, as in 3. A new server is opened as soon as all workers have offered
//! their idle servers ([`Ledger::answered`]) and the pool has room: each change that could make room, complete an offer
//! or end a pause calls `plan`.
//!
//! A pool that has room itself may be denied a server by a cap that it shares with other pools: see
//! [`Caps`](super::Caps). The ledger then does not ask the cap again until [`Ledger::room`] is called, or a third of a
//! second has passed ([`Ledger::tick`]). A search for another pool may set a worker's flag without the copy. Then the
//! worker calls the ledger once more than necessary, and nothing else happens.
//!
//! A client may need an exclusive server ([`Ledger::wait_exclusive`]), which is opened for this client and serves no
//! other. A client that needs an exclusive server never gets an idle one. If the pool has no room for one more, an idle
//! server is closed: every worker offers its servers, as in 2, and a server that is offered is closed when it is the
//! turn of such a client.
//!
//! Clients wait in the order of their tickets. The simulator (`crates/sim`) tests these rules.

pub use self::{
    capacity::{AboveSize, ServerDemand},
    wait_reason::WaitReason,
};
use self::{
    counts::{LedgerLimits, Offers, OtherProcess, ServerCounts},
    exclusive::ExclusiveWaits,
};
use super::{
    CapMembership, Denied, Limits, PoolId, Scope, Ticket, WaitOrder, Waiter, WorkerSet,
    wait_queue::WaitQueues,
};
use crate::{Time, Token, WorkerId};

/// The decision about a server that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// No client waits: the caller keeps the server, and need not offer any more.
    Keep,
    /// Another pool or a client that waits for an exclusive server needs the place: the caller closes the server.
    Evict,
    /// This client of the caller gets the server.
    OwnWaiter(Waiter),
    /// A client of another worker gets the server: the caller moves the server there. The ledger already counts it on
    /// that worker.
    OtherWaiter(WorkerId, Waiter),
}

/// The messages to be sent after a change of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a note that is not delivered is a lost wake-up"]
pub struct Notes {
    /// The workers that get a [`Mail::ServersWanted`](crate::mail::Mail::ServersWanted).
    pub wanted: WorkerSet,
    /// The worker that gets a [`Mail::Open`](crate::mail::Mail::Open).
    pub open: Option<WorkerId>,
    /// The worker that gets a [`Mail::OpenFor`](crate::mail::Mail::OpenFor), with its client.
    pub exclusive: Option<(WorkerId, Waiter)>,
    /// The pools whose [`Ledger::room`] is to be called, since a cap has room for them.
    pub room: Vec<PoolId>,
    /// Whether the old process of an online restart may open one more server.
    pub lend: bool,
    /// The caps for which a search for an idle server begins.
    pub search: Vec<Scope>,
}

/// The answer to a worker that got a [`Notes::open`]: whether it opens a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// The worker opens one.
    Go {
        /// Set if the server is above the pool's size: the client of the worker for which it is opened, and the rule
        /// that allows it.
        above_size: Option<(Token, AboveSize)>,
        /// More messages to be sent.
        notes: Notes,
    },
    /// No client needs the server any more.
    Not(Notes),
}

/// The end of a server's login, for [`Ledger::connected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The server is ready.
    Done,
    /// The login failed. The pause before the next attempt begins at this time: now, or a little later, so that pools
    /// whose logins have failed at the same moment do not all try again at the same moment.
    Failed(Time),
    /// pgweir has given up the login, so the next attempt need not wait.
    Dropped,
}

/// Microseconds for which no server is opened in place of one that is reading the catalog.
const READING_PATIENCE: u64 = 1_000_000;

/// The servers and the waiting clients of a pool; see the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    /// The limits.
    limits: LedgerLimits,
    caps: CapMembership,
    /// The servers of this process.
    servers: ServerCounts,
    /// The servers of the other process in an online restart.
    elsewhere: OtherProcess,
    waits: WaitQueues,
    exclusive: ExclusiveWaits,
    /// The workers that offer their free servers.
    offers: Offers,
    next_ticket: u64,
    retry_at: Time,
    /// Whether the last login succeeded. If so, several logins may run at the same time.
    proven: bool,
    /// The cap that denies this pool one more server.
    denied: Option<Scope>,
    open: bool,
    /// Whether the pool is paused.
    paused: bool,
}

impl Ledger {
    /// Creates an empty ledger for `workers` workers.
    #[must_use]
    pub fn new(workers: usize, limits: Limits, seat: CapMembership) -> Self {
        Self {
            limits: LedgerLimits {
                in_force: limits,
                configured: limits,
                restriction: None,
            },
            caps: seat,
            servers: ServerCounts {
                owned: vec![0; workers],
                all: 0,
                connecting: 0,
                rivals: 0,
                reading: 0,
                reading_until: Time(0),
                pinned: 0,
                without_waiter: 0,
            },
            elsewhere: OtherProcess {
                servers: 0,
                slots: 0,
                lends: 0,
            },
            waits: WaitQueues::new(workers),
            exclusive: ExclusiveWaits::default(),
            offers: Offers {
                workers: WorkerSet::default(),
                pending: WorkerSet::default(),
            },
            next_ticket: 0,
            retry_at: Time(0),
            proven: false,
            denied: None,
            open: true,
            paused: false,
        }
    }

    /// Notes that a client of `worker` begins to wait. The caller must have no idle server, or have offered all of
    /// them. From this call on, its flag is set.
    pub fn wait(&mut self, worker: WorkerId, client: Token, now: Time) -> (Ticket, Notes) {
        let ticket = self.ticket();
        let waiter = Waiter {
            ticket,
            client,
            since: now,
        };
        self.waits.push(worker, waiter);
        self.offers.workers.insert(worker);
        self.offers.pending.remove(worker);
        let mut notes = Notes::default();
        self.ask_owners_to_offer(&mut notes);
        self.plan(0, false, &mut notes, now);
        (ticket, notes)
    }

    /// Notes that a client gives up waiting. Returns `false` if a server was granted to it meanwhile: that server is on
    /// its way, and the worker offers it again when it arrives.
    pub fn leave(&mut self, worker: WorkerId, ticket: Ticket) -> bool {
        let waited = self.waits.remove(worker, ticket) || self.exclusive.remove(ticket);
        if waited {
            self.note_wait_ended();
        }
        waited
    }

    /// Offers an idle server of `worker`.
    pub fn offer(&mut self, worker: WorkerId, now: Time) -> Grant {
        let wanted = self.waits.count() > 0;
        if self.caps.must_give_up_server(wanted, now) || self.is_exclusive_turn(now) {
            return Grant::Evict;
        }
        self.offer_fresh(worker, now)
    }

    /// Offers a server that no client has used yet. While clients wait, the server is not closed for another pool.
    /// Otherwise two pools whose logins take long could take the slot from each other for ever.
    pub fn offer_fresh(&mut self, worker: WorkerId, now: Time) -> Grant {
        let chosen = self.choose(worker, now);
        if chosen.is_none()
            && (self.caps.must_give_up_server(false, now) || self.is_exclusive_turn(now))
        {
            return Grant::Evict;
        }
        let Some(chosen) = chosen else {
            self.offers.workers.remove(worker);
            self.offers.pending.remove(worker);
            return Grant::Keep;
        };
        let Some(waiter) = self.waits.pop(chosen) else {
            return Grant::Keep;
        };
        self.note_wait_ended();
        if chosen == worker {
            return Grant::OwnWaiter(waiter);
        }
        self.servers.owned[worker.index()] -= 1;
        self.servers.owned[chosen.index()] += 1;
        Grant::OtherWaiter(chosen, waiter)
    }

    /// Notes that `worker` has neither clients nor servers in this pool and removes its part of the pool, with its
    /// flag. Returns `false` if a server is on its way to the worker.
    pub fn forget_worker(&mut self, worker: WorkerId) -> bool {
        if self.servers.owned[worker.index()] > 0 {
            return false;
        }
        self.offers.workers.remove(worker);
        self.offers.pending.remove(worker);
        true
    }

    /// Notes that `worker` has offered all of its servers after a `ServersWanted`.
    pub fn answered(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.offers.pending.remove(worker);
        let mut notes = Notes::default();
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Notes that `worker` is about to open a server after an [`Notes::open`].
    pub fn opening(&mut self, worker: WorkerId, now: Time) -> Opening {
        // `plan` has counted it already, so no second one is opened for the same client.
        let without_waiter = self.servers.without_waiter > 0;
        self.servers.without_waiter -= u32::from(without_waiter);
        let mut notes = Notes::default();
        if !self.open || self.paused || self.waits.count() == 0 && !without_waiter {
            self.end_login(&mut notes);
            self.forget(worker, &mut notes);
            return Opening::Not(notes);
        }
        self.plan(0, false, &mut notes, now);
        let oldest = self.waits.front(worker);
        Opening::Go {
            above_size: oldest
                .filter(|_| self.servers.all > self.limits.in_force.size)
                .map(|waiter| (waiter.client, self.above(now))),
            notes,
        }
    }

    /// Opens one more server while there are fewer than `min_pool_size`. `worker` has clients in the pool, or keeps the
    /// pool for a forced user.
    pub fn fill(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.open_without_waiter(worker, self.min(), now)
    }

    /// Opens a successor of a server that is about to be closed for its age, if there is room for both.
    pub fn replace(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.open_without_waiter(worker, self.limits.in_force.size, now)
    }

    /// Notes that a server of `worker` has logged in, or that its login has failed and the server is gone.
    pub fn connected(&mut self, worker: WorkerId, outcome: LoginOutcome, now: Time) -> Notes {
        let mut notes = Notes::default();
        self.end_login(&mut notes);
        let ready = match outcome {
            LoginOutcome::Done => {
                self.retry_at = Time(0);
                self.proven = true;
                // The server is about to be offered, and will serve one of the waiting clients.
                1
            }
            LoginOutcome::Dropped => {
                self.forget(worker, &mut notes);
                0
            }
            LoginOutcome::Failed(at) => {
                self.forget(worker, &mut notes);
                self.retry_at = at.after(self.limits.in_force.retry);
                self.proven = false;
                0
            }
        };
        self.plan(ready, false, &mut notes, now);
        notes
    }

    /// Notes that a server begins to read the catalog. The server will serve a waiting client afterwards, so for a
    /// while no other server is opened for that client.
    pub fn began_reading(&mut self, now: Time) {
        self.servers.reading += 1;
        self.servers.reading_until = now.after(READING_PATIENCE);
    }

    /// Notes that the server has read the catalog, or is gone.
    pub fn ended_reading(&mut self) {
        self.servers.reading -= 1;
    }

    /// Notes that a server of `worker` was closed that had logged in.
    pub fn closed(&mut self, worker: WorkerId, now: Time) -> Notes {
        let mut notes = Notes::default();
        self.forget(worker, &mut notes);
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Takes a slot under the caps for a connection that is never lent and does not count towards the pool's size.
    /// Returns `false` if there is no room.
    pub fn take_extra_place(&mut self) -> bool {
        self.open && !self.paused && self.caps.take_without_login()
    }

    /// Gives back the slot of such a connection.
    pub fn give_back_extra_place(&mut self, now: Time) -> Notes {
        let mut notes = Notes {
            room: self.caps.give_back(),
            ..Notes::default()
        };
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Notes that a cap that denied the pool a server has room.
    pub fn room(&mut self, now: Time) -> Notes {
        self.denied = None;
        let granted = self.caps.claim();
        let mut notes = Notes::default();
        if granted {
            match self.open_for(0, now) {
                Some(client) => {
                    self.count_opening_for(client, &mut notes, now);
                    notes.search.extend(self.caps.search_again());
                }
                None => {
                    notes.room = self.caps.end_login();
                    notes.room.extend(self.caps.give_back());
                }
            }
        } else {
            self.plan(0, false, &mut notes, now);
        }
        notes
    }

    /// Notes that time has passed: a failed login may be tried again, the reserve may be used, a cap be asked again.
    pub fn tick(&mut self, now: Time) -> Notes {
        let mut notes = Notes::default();
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// Allows the next login to a server at once, after a failed one.
    pub fn allow_next_login(&mut self) {
        self.retry_at = Time(0);
    }

    /// Gives back the slots of the pool, which is removed.
    pub fn part(&mut self) {
        self.caps.part();
    }

    /// Opens no server from now on.
    pub fn open_no_more(&mut self) {
        self.open = false;
        self.withdraw();
    }

    /// Pauses the pool, so that no server is opened, or ends the pause.
    pub fn set_paused(&mut self, paused: bool, now: Time) -> Notes {
        self.paused = paused;
        let mut notes = Notes::default();
        if paused {
            self.withdraw();
        } else {
            self.plan(0, true, &mut notes, now);
        }
        notes
    }

    /// Returns whether the pool is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns whether more servers are logged in than `min_pool_size`.
    #[must_use]
    pub fn is_above_min(&self) -> bool {
        let min = self.min();
        min == 0 || self.servers.all - self.servers.connecting > min
    }

    /// Returns whether there are fewer servers than `min_pool_size`.
    #[must_use]
    pub fn is_below_min(&self) -> bool {
        self.all() < self.min()
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits.in_force
    }

    /// Returns the time before which no login is tried, because the last one failed.
    #[must_use]
    pub fn retry_at(&self) -> Option<Time> {
        (self.retry_at > Time(0)).then_some(self.retry_at)
    }

    /// Returns the number of servers, including those that log in.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers.all
    }

    /// Returns the number of servers that log in.
    #[must_use]
    pub fn connecting(&self) -> u32 {
        self.servers.connecting
    }

    /// Returns the number of clients that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits.count()
    }

    /// Returns the servers of one worker, for checks in tests.
    #[must_use]
    pub fn owned(&self, worker: WorkerId) -> u32 {
        self.servers.owned[worker.index()]
    }

    /// Plans one more server if one is needed beside the `ready` ones, chooses its worker, and counts it at once. A cap
    /// that has denied the pool is asked again only if `again`.
    fn plan(&mut self, ready: usize, again: bool, notes: &mut Notes, now: Time) {
        let Some(client) = self.open_for(ready, now) else {
            if !self.is_short() || !self.has_room(now) {
                self.withdraw();
            }
            if self.needs_room(now) {
                self.ask_owners_to_offer(notes);
            }
            return;
        };
        if self.denied.is_some() && !again {
            return;
        }
        match self.caps.take(now) {
            Ok(()) => {
                self.denied = None;
                self.count_opening_for(client, notes, now);
            }
            Err(Denied { by, search }) => {
                self.denied = Some(by);
                notes.search.extend(search);
                if self.needs_room(now) {
                    self.ask_owners_to_offer(notes);
                }
            }
        }
    }

    /// Asks every worker that has servers to offer its idle ones.
    fn ask_owners_to_offer(&mut self, notes: &mut Notes) {
        for worker in (0..self.servers.owned.len()).map(|index| WorkerId(index as u8)) {
            if self.servers.owned[worker.index()] > 0 && !self.offers.workers.has(worker) {
                self.offers.workers.insert(worker);
                self.offers.pending.insert(worker);
                notes.wanted.insert(worker);
            }
        }
    }

    fn may_connect(&self, now: Time) -> bool {
        let most = if self.proven {
            self.limits.in_force.connecting
        } else {
            1
        };
        self.open && !self.paused && self.openings() < most && now >= self.retry_at
    }

    fn open_without_waiter(&mut self, worker: WorkerId, most: u32, now: Time) -> Notes {
        let may = self.all() < most && self.may_connect(now);
        if !may || !self.caps.take_spare() {
            return Notes::default();
        }
        self.count(worker);
        self.servers.without_waiter += 1;
        Notes {
            open: Some(worker),
            ..Notes::default()
        }
    }

    fn count(&mut self, worker: WorkerId) {
        self.servers.all += 1;
        self.servers.connecting += 1;
        self.servers.owned[worker.index()] += 1;
    }

    fn forget(&mut self, worker: WorkerId, notes: &mut Notes) {
        self.servers.all -= 1;
        self.servers.owned[worker.index()] -= 1;
        notes.room.extend(self.caps.give_back());
    }

    /// Notes that one client no longer waits.
    fn note_wait_ended(&mut self) {
        if !self.is_short() {
            self.withdraw();
        }
    }

    fn withdraw(&mut self) {
        if self.denied.take().is_some() {
            self.caps.withdraw();
        }
    }

    fn min(&self) -> u32 {
        self.limits.in_force.min.min(self.limits.in_force.size)
    }

    /// Returns the worker whose longest-waiting client gets a server of `worker`.
    fn choose(&self, worker: WorkerId, now: Time) -> Option<WorkerId> {
        let (oldest_worker, oldest) = self.waits.oldest()?;
        let Some(own) = self.waits.front(worker) else {
            return Some(oldest_worker);
        };
        let window = match self.limits.in_force.order {
            WaitOrder::Window(window) => window,
            WaitOrder::Auto => (now.since(oldest.since) / 4).max(2_000),
        };
        let own_is_near =
            own.since.since(oldest.since) <= window && (window > 0 || own.ticket == oldest.ticket);
        Some(if own_is_near { worker } else { oldest_worker })
    }
}

mod allowance;
mod capacity;
mod closing;
mod counts;
mod exclusive;
mod race;
#[cfg(test)]
mod tests;
mod wait_reason;
