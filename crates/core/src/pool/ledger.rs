//! One pool's book: how many servers there are, on which worker, and who waits.
//!
//! # No wake-up is lost
//!
//! A worker keeps its idle servers to itself and lends them without asking the ledger, as long as
//! it does not know that somebody waits. So a client could wait for ever while another worker sits
//! on an idle server. This is why it can't:
//!
//! 1. Each worker has a private flag per pool, *told*; the ledger has a copy of it. The copy is
//!    set together with the posting of a [`Mail::Wanted`](crate::mail::Mail::Wanted) (or for the
//!    caller itself, in the same step), and the flag is cleared only in the step in which the
//!    copy is. Hence: **copy set ⇒ the flag is set, or a `Wanted` is on its way to it.**
//! 2. A client begins to wait only through [`Ledger::wait`], which tells every worker that owns a
//!    server and is not told yet.
//! 3. A worker that is told offers every server it has, and every server that becomes free after
//!    that, to the ledger; [`Ledger::offer`] gives it to the oldest waiter, and clears *told* only
//!    when nobody waits.
//!
//! By 2 and 3, once all `Wanted` mails have arrived, either nobody waits or no worker has an idle
//! server. Mailboxes deliver everything, so that happens. A server that is handed over may find its
//! client gone; the receiving worker then offers it again, as in 3. And a server that nobody has
//! yet is opened as soon as no told worker's answer is outstanding ([`Ledger::answered`]) and the
//! pool has room: each change that could make room, or end an answer, or a pause, ends in `plan`.
//!
//! A pool that has room itself may be denied a server by a cap that it shares with other pools:
//! see [`Caps`](super::Caps). It then takes no notice of the cap until it is told of room
//! ([`Ledger::room`]), or a third of a second has passed ([`Ledger::tick`]). A worker whose flag is set
//! for another pool's sake, and whose copy is not, asks once more than it has to, no more.
//!
//! A client may want a server of its own ([`Ledger::wait_native`]): one that is opened for it and
//! serves nobody else. It never gets an idle one. If the pool has no room for one more, an idle
//! server of the pool has to go, and every worker is told, as in 2, to offer what it has; by 3 each
//! server that comes free is offered too, and closed when it is the turn of such a client.
//!
//! Clients wait in the order of their tickets. `crates/sim` tries to break all this.

use self::natives::Natives;
pub use self::{
    obstacle::Obstacle,
    room::{Above, Wanted},
};
use super::{
    Denied, Limits, Order, PoolId, Scope, Seat, Ticket, Waiter, WorkerSet, wait_queue::WaitQueue,
};
use crate::{Time, Token, WorkerId};

/// Who gets a server that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// Nobody waits: keep it. The caller is no longer told.
    Keep,
    /// Another pool needs its slot, or a client that waits for a server of its own: close it.
    Evict,
    /// This client of the caller.
    Own(Waiter),
    /// This client of that worker: hand it over. The ledger counts it as that worker's already.
    Other(WorkerId, Waiter),
}

/// What workers have to be told after a change: one bit per worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a note that is not delivered is a lost wake-up"]
pub struct Notes {
    /// They get a `Wanted`.
    pub wanted: WorkerSet,
    /// This one gets an `Open`.
    pub open: Option<WorkerId>,
    /// This one gets an `OpenFor` this client of its.
    pub native: Option<(WorkerId, Waiter)>,
    /// A cap has room for these pools: their [`Ledger::room`] is to be called.
    pub room: Vec<PoolId>,
    /// The process before this one may have one server more.
    pub lend: bool,
    /// These caps deny pools a server: look for an idle one of another pool.
    pub search: Vec<Scope>,
}

/// Is the server to be opened that an [`Notes::open`] asked for?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Yes.
    Go {
        /// The pool is above its size, for the sake of this client of the worker.
        above_size: Option<(Token, Above)>,
        /// What else is to be done.
        notes: Notes,
    },
    /// Nobody needs it any more.
    Not(Notes),
}

/// How a login of a server ended, for [`Ledger::connected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connecting {
    /// It is ready.
    Done,
    /// It failed at this time.
    Failed(Time),
    /// It was given up by ourselves; no reason to wait before the next attempt.
    Dropped,
}

/// So many microseconds it is waited for servers that tell what is in the catalog.
const READING_PATIENCE: u64 = 1_000_000;

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    /// In force.
    limits: Limits,
    /// As the configuration has them.
    configured: Limits,
    /// Not more servers than these: clients leave for another process.
    restriction: Option<u32>,
    seat: Seat,
    /// Servers by worker, including those that log in or are on their way to it.
    owned: Vec<u32>,
    servers: u32,
    connecting: u32,
    /// Of those that have logged in, so many tell what is in the catalog before anybody gets them,
    reading: u32,
    /// and up to this time they are waited for.
    reading_until: Time,
    /// Servers of the process that this one takes over from.
    elsewhere: u32,
    /// Their places under the caps.
    seats_elsewhere: u32,
    /// How many it was lent in all.
    lends: u32,
    /// Servers that clients keep between transactions.
    pinned: u32,
    /// Of those that log in, not yet begun, and not for a client that waits.
    unasked: u32,
    queues: Vec<WaitQueue>,
    waiting: usize,
    natives: Natives,
    told: WorkerSet,
    /// Told, and has not yet shown what it has.
    asked: WorkerSet,
    next_ticket: u64,
    retry_at: Time,
    /// The last login went well: several may be tried at a time.
    proven: bool,
    /// The cap that has no room for one more.
    denied: Option<Scope>,
    open: bool,
    /// An operator has ordered a pause.
    paused: bool,
}

impl Ledger {
    /// An empty book for `workers` workers.
    #[must_use]
    pub fn new(workers: usize, limits: Limits, seat: Seat) -> Self {
        Self {
            limits,
            configured: limits,
            restriction: None,
            seat,
            owned: vec![0; workers],
            servers: 0,
            connecting: 0,
            reading: 0,
            reading_until: Time(0),
            elsewhere: 0,
            seats_elsewhere: 0,
            lends: 0,
            pinned: 0,
            unasked: 0,
            queues: (0..workers).map(|_| WaitQueue::default()).collect(),
            waiting: 0,
            natives: Natives::default(),
            told: WorkerSet::default(),
            asked: WorkerSet::default(),
            next_ticket: 0,
            retry_at: Time(0),
            proven: false,
            denied: None,
            open: true,
            paused: false,
        }
    }

    /// A client of `worker` begins to wait. The caller is told by this very call: it must have
    /// offered its own idle servers, or have none.
    pub fn wait(&mut self, worker: WorkerId, client: Token, now: Time) -> (Ticket, Notes) {
        let ticket = self.ticket();
        self.queues[worker.index()].push(Waiter {
            ticket,
            client,
            since: now,
        });
        self.waiting += 1;
        self.told.insert(worker);
        self.asked.remove(worker);
        let mut notes = Notes::default();
        self.tell_owners(&mut notes);
        self.plan(0, false, &mut notes, now);
        (ticket, notes)
    }

    /// The client gave up. `false` if a server was granted to it in the meantime: that one is on
    /// its way, and will be offered again by the worker when it arrives.
    pub fn leave(&mut self, worker: WorkerId, ticket: Ticket) -> bool {
        let waited = self.queues[worker.index()].remove(ticket);
        if waited {
            self.waiting -= 1;
        }
        let waited = waited || self.natives.remove(ticket);
        if waited {
            self.served_or_gone();
        }
        waited
    }

    /// `worker` has a server that nobody uses: who gets it?
    pub fn offer(&mut self, worker: WorkerId, now: Time) -> Grant {
        let wanted = self.oldest().is_some();
        if self.seat.must_go(wanted, now) || self.is_turn_of_native(now) {
            return Grant::Evict;
        }
        self.offer_fresh(worker, now)
    }

    /// The same for a server that has served nobody yet. It goes for no other pool's sake while clients
    /// wait for it: else two pools whose logins take long could take the slot from each other for ever.
    pub fn offer_fresh(&mut self, worker: WorkerId, now: Time) -> Grant {
        let chosen = self.choose(worker, now);
        if chosen.is_none() && (self.seat.must_go(false, now) || self.is_turn_of_native(now)) {
            return Grant::Evict;
        }
        let Some(chosen) = chosen else {
            self.told.remove(worker);
            self.asked.remove(worker);
            return Grant::Keep;
        };
        let Some(waiter) = self.queues[chosen.index()].pop() else {
            return Grant::Keep;
        };
        self.waiting -= 1;
        self.served_or_gone();
        if chosen == worker {
            return Grant::Own(waiter);
        }
        self.owned[worker.index()] -= 1;
        self.owned[chosen.index()] += 1;
        Grant::Other(chosen, waiter)
    }

    /// `worker` has neither clients nor servers here and forgets the pool, and with it that it was
    /// told. `false` if a server is on its way to it.
    pub fn resign(&mut self, worker: WorkerId) -> bool {
        if self.owned[worker.index()] > 0 {
            return false;
        }
        self.told.remove(worker);
        self.asked.remove(worker);
        true
    }

    /// `worker` has heard a `Wanted` and offered all that it had.
    pub fn answered(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.asked.remove(worker);
        let mut notes = Notes::default();
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// `worker` is about to open a server, as an [`Notes::open`] told it to.
    pub fn opening(&mut self, worker: WorkerId, now: Time) -> Opening {
        // `plan` has counted it already, so that no second one is opened for the same need.
        let unasked = self.unasked > 0;
        self.unasked -= u32::from(unasked);
        let mut notes = Notes::default();
        if !self.open || self.paused || self.waiting == 0 && !unasked {
            self.connecting -= 1;
            self.forget(worker, &mut notes);
            return Opening::Not(notes);
        }
        self.plan(0, false, &mut notes, now);
        let oldest = self.queues[worker.index()].front();
        Opening::Go {
            above_size: oldest
                .filter(|_| self.servers > self.limits.size)
                .map(|waiter| (waiter.client, self.above(now))),
            notes,
        }
    }

    /// Opens one more while there are fewer than the operator wants to keep; `worker` is one whose
    /// clients use the pool, or that keeps it for a forced user.
    pub fn fill(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.open_unasked(worker, self.min(), now)
    }

    /// Opens a successor of a server that is about to be closed for its age, if there is room for both.
    pub fn replace(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.open_unasked(worker, self.limits.size, now)
    }

    /// A server of `worker` logged in, or failed to. Not ready means that it's gone.
    pub fn connected(&mut self, worker: WorkerId, outcome: Connecting, now: Time) -> Notes {
        self.connecting -= 1;
        let mut notes = Notes::default();
        let ready = match outcome {
            Connecting::Done => {
                self.retry_at = Time(0);
                self.proven = true;
                // It is about to be offered, and serves one of those that wait.
                1
            }
            Connecting::Dropped => {
                self.forget(worker, &mut notes);
                0
            }
            Connecting::Failed(at) => {
                self.forget(worker, &mut notes);
                self.retry_at = at.after(self.limits.retry);
                self.proven = false;
                0
            }
        };
        self.plan(ready, false, &mut notes, now);
        notes
    }

    /// A server tells what is in the catalog. Then it serves one of those that wait: for a while none is opened
    /// for that one.
    pub fn began_reading(&mut self, now: Time) {
        self.reading += 1;
        self.reading_until = now.after(READING_PATIENCE);
    }

    /// It has told, or is gone.
    pub fn ended_reading(&mut self) {
        self.reading -= 1;
    }

    /// A server of `worker` that had logged in was closed.
    pub fn closed(&mut self, worker: WorkerId, now: Time) -> Notes {
        let mut notes = Notes::default();
        self.forget(worker, &mut notes);
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Takes a place under the caps for a connection that is none of the pool's servers: it is never
    /// lent, and doesn't count against the pool's size. `false` if there is none to spare.
    pub fn take_aside(&mut self) -> bool {
        self.open && !self.paused && self.seat.take_spare()
    }

    /// Gives it back.
    pub fn give_back_aside(&mut self, now: Time) -> Notes {
        let mut notes = Notes {
            room: self.seat.give_back(),
            ..Notes::default()
        };
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// A cap that denied the pool a server has room.
    pub fn room(&mut self, now: Time) -> Notes {
        self.denied = None;
        let granted = self.seat.claim();
        let mut notes = Notes::default();
        if granted {
            match self.needed_by(0, now) {
                Some(need) => {
                    self.count_need(need, &mut notes, now);
                    notes.search.extend(self.seat.search_again());
                }
                None => notes.room = self.seat.give_back(),
            }
        } else {
            self.plan(0, false, &mut notes, now);
        }
        notes
    }

    /// Time passes: a failed login may be tried again, the reserve may be used, a cap be asked again.
    pub fn tick(&mut self, now: Time) -> Notes {
        let mut notes = Notes::default();
        self.plan(0, true, &mut notes, now);
        notes
    }

    /// A failed login is no reason to wait any more.
    pub fn forgive(&mut self) {
        self.retry_at = Time(0);
    }

    /// The pool is gone.
    pub fn part(&mut self) {
        self.seat.part();
    }

    /// Open no more servers.
    pub fn shut(&mut self) {
        self.open = false;
        self.withdraw();
    }

    /// Pauses the pool: no server is opened. Or ends the pause, which is a reason to open one.
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

    /// Is it paused?
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Are there more servers that have logged in than are to be kept?
    #[must_use]
    pub fn is_above_min(&self) -> bool {
        let min = self.min();
        min == 0 || self.servers - self.connecting > min
    }

    /// Are there fewer than are to be kept?
    #[must_use]
    pub fn is_below_min(&self) -> bool {
        self.all() < self.min()
    }

    /// What is allowed.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Until when no login is tried, because the last one failed.
    #[must_use]
    pub fn retry_at(&self) -> Option<Time> {
        (self.retry_at > Time(0)).then_some(self.retry_at)
    }

    /// All servers, those that log in included.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Servers that log in.
    #[must_use]
    pub fn connecting(&self) -> u32 {
        self.connecting
    }

    /// Clients that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Servers of one worker, for checks.
    #[must_use]
    pub fn owned(&self, worker: WorkerId) -> u32 {
        self.owned[worker.index()]
    }

    /// Should one more server be opened, beside so many that are ready, and by whom? Counts it at once.
    /// A cap that has denied it is asked again only if told so.
    fn plan(&mut self, ready: usize, again: bool, notes: &mut Notes, now: Time) {
        let Some(need) = self.needed_by(ready, now) else {
            if !self.is_short() || !self.has_room(now) {
                self.withdraw();
            }
            if self.must_make_room(now) {
                self.tell_owners(notes);
            }
            return;
        };
        if self.denied.is_some() && !again {
            return;
        }
        match self.seat.take(now) {
            Ok(()) => {
                self.denied = None;
                self.count_need(need, notes, now);
            }
            Err(Denied { by, search }) => {
                self.denied = Some(by);
                notes.search.extend(search);
                if self.must_make_room(now) {
                    self.tell_owners(notes);
                }
            }
        }
    }

    /// Every worker that has servers is to show what is idle.
    fn tell_owners(&mut self, notes: &mut Notes) {
        for worker in (0..self.owned.len()).map(|index| WorkerId(index as u8)) {
            if self.owned[worker.index()] > 0 && !self.told.has(worker) {
                self.told.insert(worker);
                self.asked.insert(worker);
                notes.wanted.insert(worker);
            }
        }
    }

    fn may_connect(&self, now: Time) -> bool {
        let most = if self.proven {
            self.limits.connecting
        } else {
            1
        };
        self.open && !self.paused && self.connecting < most && now >= self.retry_at
    }

    fn open_unasked(&mut self, worker: WorkerId, most: u32, now: Time) -> Notes {
        let may = self.all() < most && self.may_connect(now);
        if !may || !self.seat.take_spare() {
            return Notes::default();
        }
        self.count(worker);
        self.unasked += 1;
        Notes {
            open: Some(worker),
            ..Notes::default()
        }
    }

    fn count(&mut self, worker: WorkerId) {
        self.servers += 1;
        self.connecting += 1;
        self.owned[worker.index()] += 1;
    }

    fn forget(&mut self, worker: WorkerId, notes: &mut Notes) {
        self.servers -= 1;
        self.owned[worker.index()] -= 1;
        notes.room = self.seat.give_back();
    }

    /// One client waits less.
    fn served_or_gone(&mut self) {
        if !self.is_short() {
            self.withdraw();
        }
    }

    fn withdraw(&mut self) {
        if self.denied.take().is_some() {
            self.seat.withdraw();
        }
    }

    fn min(&self) -> u32 {
        self.limits.min.min(self.limits.size)
    }

    fn oldest(&self) -> Option<(WorkerId, Waiter)> {
        let fronts = self.queues.iter().enumerate();
        fronts
            .filter_map(|(index, queue)| Some((WorkerId(index as u8), queue.front()?)))
            .min_by_key(|(_, waiter)| waiter.ticket)
    }

    /// Whose oldest client gets a server of `worker`?
    fn choose(&self, worker: WorkerId, now: Time) -> Option<WorkerId> {
        let (oldest_worker, oldest) = self.oldest()?;
        let Some(own) = self.queues[worker.index()].front() else {
            return Some(oldest_worker);
        };
        let window = match self.limits.order {
            Order::Window(window) => window,
            Order::Auto => (now.since(oldest.since) / 4).max(2_000),
        };
        let own_is_near =
            own.since.since(oldest.since) <= window && (window > 0 || own.ticket == oldest.ticket);
        Some(if own_is_near { worker } else { oldest_worker })
    }
}

mod allowance;
mod natives;
mod obstacle;
mod room;
#[cfg(test)]
mod tests;
