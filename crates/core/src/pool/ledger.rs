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
//! Clients wait in the order of their tickets. `crates/sim` tries to break all this.

use super::{Ticket, Waiter, wait_queue::WaitQueue};
use crate::{Time, Token, WorkerId};

/// What an operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most servers of the pool (at least 1).
    pub size: u32,
    /// Most servers that log in at the same time (at least 1).
    pub connecting: u32,
    /// How strict the order of waiting clients is over workers.
    pub order: Order,
    /// Microseconds to wait after a failed login before the next attempt.
    pub retry: u64,
}

/// How far a release may prefer a younger client of its own worker over the oldest of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// At most this many microseconds younger; 0 is strictly the oldest.
    Window(u64),
    /// The larger of 2 ms and a quarter of the time for which the oldest has waited.
    Auto,
}

/// Who gets a server that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// Nobody waits: keep it. The caller is no longer told.
    Keep,
    /// This client of the caller.
    Own(Waiter),
    /// This client of that worker: hand it over. The ledger counts it as that worker's already.
    Other(WorkerId, Waiter),
}

/// What workers have to be told after a change: one bit per worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "a note that is not delivered is a lost wake-up"]
pub struct Notes {
    /// They get a `Wanted`.
    pub wanted: WorkerSet,
    /// This one gets an `Open`.
    pub open: Option<WorkerId>,
}

/// A set of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerSet(u64);

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

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    limits: Limits,
    /// Servers by worker, including those that log in or are on their way to it.
    owned: Vec<u32>,
    servers: u32,
    connecting: u32,
    queues: Vec<WaitQueue>,
    waiting: usize,
    told: WorkerSet,
    /// Told, and has not yet shown what it has.
    asked: WorkerSet,
    next_ticket: u64,
    retry_at: Time,
    open: bool,
    /// An operator has ordered a pause.
    paused: bool,
}

impl Ledger {
    /// An empty book for `workers` workers.
    #[must_use]
    pub fn new(workers: usize, limits: Limits) -> Self {
        Self {
            limits,
            owned: vec![0; workers],
            servers: 0,
            connecting: 0,
            queues: (0..workers).map(|_| WaitQueue::default()).collect(),
            waiting: 0,
            told: WorkerSet::default(),
            asked: WorkerSet::default(),
            next_ticket: 0,
            retry_at: Time(0),
            open: true,
            paused: false,
        }
    }

    /// A client of `worker` begins to wait. The caller is told by this very call: it must have
    /// offered its own idle servers, or have none.
    pub fn wait(&mut self, worker: WorkerId, client: Token, now: Time) -> (Ticket, Notes) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queues[worker.index()].push(Waiter {
            ticket,
            client,
            since: now,
        });
        self.waiting += 1;
        self.told.insert(worker);
        self.asked.remove(worker);
        let mut notes = Notes::default();
        for other in (0..self.owned.len()).map(|index| WorkerId(index as u8)) {
            if self.owned[other.index()] > 0 && !self.told.has(other) {
                self.told.insert(other);
                self.asked.insert(other);
                notes.wanted.insert(other);
            }
        }
        notes.open = self.plan(0, now);
        (ticket, notes)
    }

    /// The client gave up. `false` if a server was granted to it in the meantime: that one is on
    /// its way, and will be offered again by the worker when it arrives.
    pub fn leave(&mut self, worker: WorkerId, ticket: Ticket) -> bool {
        let waited = self.queues[worker.index()].remove(ticket);
        if waited {
            self.waiting -= 1;
        }
        waited
    }

    /// `worker` has a server that nobody uses: who gets it?
    pub fn offer(&mut self, worker: WorkerId, now: Time) -> Grant {
        let Some(chosen) = self.choose(worker, now) else {
            self.told.remove(worker);
            self.asked.remove(worker);
            return Grant::Keep;
        };
        let Some(waiter) = self.queues[chosen.index()].pop() else {
            return Grant::Keep;
        };
        self.waiting -= 1;
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
        self.notes(0, now)
    }

    /// `worker` is about to open a server, as an [`Notes::open`] told it to. `false` if nobody
    /// needs it any more.
    pub fn opening(&mut self, worker: WorkerId) -> bool {
        // `plan` has counted it already, so that no second one is opened for the same need.
        if self.waiting == 0 || !self.open || self.paused {
            self.connecting -= 1;
            self.forget(worker);
            return false;
        }
        true
    }

    /// A server of `worker` logged in, or failed to. Not ready means that it's gone.
    pub fn connected(&mut self, worker: WorkerId, outcome: Connecting, now: Time) -> Notes {
        self.connecting -= 1;
        match outcome {
            Connecting::Done => {
                self.retry_at = Time(0);
                // It is about to be offered, and serves one of those that wait.
                return self.notes(1, now);
            }
            Connecting::Dropped => self.forget(worker),
            Connecting::Failed(at) => {
                self.forget(worker);
                self.retry_at = at.after(self.limits.retry);
            }
        }
        self.notes(0, now)
    }

    /// A server of `worker` that had logged in was closed.
    pub fn closed(&mut self, worker: WorkerId, now: Time) -> Notes {
        self.forget(worker);
        self.notes(0, now)
    }

    /// Time passes: a failed login may be tried again.
    pub fn tick(&mut self, now: Time) -> Notes {
        self.notes(0, now)
    }

    /// A failed login is no reason to wait any more.
    pub fn forgive(&mut self) {
        self.retry_at = Time(0);
    }

    /// New limits. Servers above a smaller size are closed when they come free.
    pub fn set_limits(&mut self, limits: Limits, now: Time) -> Notes {
        self.limits = limits;
        self.notes(0, now)
    }

    /// Open no more servers.
    pub fn shut(&mut self) {
        self.open = false;
    }

    /// Pauses the pool: no server is opened. Or ends the pause, which is a reason to open one.
    pub fn set_paused(&mut self, paused: bool, now: Time) -> Notes {
        self.paused = paused;
        self.notes(0, now)
    }

    /// Is it paused?
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// More servers than the limit allows?
    #[must_use]
    pub fn is_above_size(&self) -> bool {
        self.servers > self.limits.size
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

    fn notes(&mut self, ready: usize, now: Time) -> Notes {
        Notes {
            open: self.plan(ready, now),
            ..Notes::default()
        }
    }

    /// Should one more server be opened, beside so many that are ready, and by whom? Counts it at once.
    fn plan(&mut self, ready: usize, now: Time) -> Option<WorkerId> {
        let wanted = self.waiting > self.connecting as usize + ready;
        let room = self.servers < self.limits.size && self.connecting < self.limits.connecting;
        let may = self.open && !self.paused && self.asked.is_empty() && now >= self.retry_at;
        if !(wanted && room && may) {
            return None;
        }
        let (worker, _) = self.oldest()?;
        self.servers += 1;
        self.connecting += 1;
        self.owned[worker.index()] += 1;
        Some(worker)
    }

    fn forget(&mut self, worker: WorkerId) {
        self.servers -= 1;
        self.owned[worker.index()] -= 1;
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

impl WorkerSet {
    /// Adds a worker.
    pub fn insert(&mut self, worker: WorkerId) {
        self.0 |= 1 << worker.0;
    }

    /// Takes a worker out.
    pub fn remove(&mut self, worker: WorkerId) {
        self.0 &= !(1 << worker.0);
    }

    /// Is it in the set?
    #[must_use]
    pub fn has(self, worker: WorkerId) -> bool {
        self.0 & (1 << worker.0) != 0
    }

    /// Is nobody in the set?
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The workers of the set.
    pub fn iter(self) -> impl Iterator<Item = WorkerId> {
        (0..64)
            .map(WorkerId)
            .filter(move |&worker| self.has(worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(0);
    const B: WorkerId = WorkerId(1);

    fn ledger(size: u32, order: Order) -> Ledger {
        let limits = Limits {
            size,
            connecting: 1,
            order,
            retry: 1_000,
        };
        Ledger::new(2, limits)
    }

    fn client(n: u32) -> Token {
        Token {
            slot: n,
            generation: 0,
        }
    }

    /// A server of `worker` that has just logged in; `first` is the client for whom it was opened.
    fn with_server(ledger: &mut Ledger, worker: WorkerId, first: u32) {
        let (_, notes) = ledger.wait(worker, client(first), Time(0));
        assert_eq!(notes.open, Some(worker));
        assert!(ledger.opening(worker));
        let _ = ledger.connected(worker, Connecting::Done, Time(0));
        assert!(
            matches!(ledger.offer(worker, Time(0)), Grant::Own(waiter) if waiter.client == client(first))
        );
        assert_eq!(ledger.offer(worker, Time(0)), Grant::Keep);
    }

    #[test]
    fn a_worker_that_may_have_idle_servers_is_asked_before_one_is_opened() {
        let mut ledger = ledger(2, Order::Auto);
        with_server(&mut ledger, A, 1);
        let (_, notes) = ledger.wait(B, client(2), Time(0));
        assert_eq!(notes.wanted.iter().collect::<Vec<_>>(), [A]);
        assert_eq!(notes.open, None, "A has not answered");
        assert_eq!(ledger.answered(A, Time(0)).open, Some(B), "A has none");
        assert_eq!((ledger.servers(), ledger.connecting()), (2, 1));
    }

    #[test]
    fn a_told_worker_is_not_told_again_until_it_has_heard_that_nobody_waits() {
        let mut ledger = ledger(1, Order::Auto);
        with_server(&mut ledger, A, 1);
        let (ticket, notes) = ledger.wait(B, client(2), Time(0));
        assert!(notes.wanted.has(A));
        let (_, notes) = ledger.wait(B, client(3), Time(0));
        assert!(notes.wanted.is_empty());
        assert!(ledger.leave(B, ticket));
        assert!(!ledger.leave(B, ticket), "once");
        let grant = ledger.offer(A, Time(0));
        assert!(matches!(grant, Grant::Other(B, waiter) if waiter.client == client(3)));
        assert_eq!((ledger.owned(A), ledger.owned(B)), (0, 1));
        assert_eq!(ledger.offer(B, Time(0)), Grant::Keep);
        let (_, notes) = ledger.wait(A, client(4), Time(0));
        assert!(
            notes.wanted.has(B),
            "B was told before, and has heard since that nobody waits"
        );
    }

    #[test]
    fn order_over_workers() {
        let check = |order, a_since, b_since, now, expect| {
            let mut ledger = ledger(1, Order::Auto);
            with_server(&mut ledger, A, 1);
            ledger.limits.order = order;
            let _ = ledger.wait(B, client(2), Time(b_since));
            let _ = ledger.wait(A, client(3), Time(a_since));
            let own = matches!(ledger.offer(A, Time(now)), Grant::Own(_));
            assert_eq!(own, expect, "{order:?} {a_since} {b_since} {now}");
        };
        check(Order::Window(0), 100, 100, 200, false);
        check(Order::Window(50), 150, 100, 200, true);
        check(Order::Window(50), 151, 100, 200, false);
        check(Order::Auto, 2_000, 0, 2_000, true);
        check(Order::Auto, 2_001, 0, 2_001, false);
        check(Order::Auto, 10_000, 0, 40_000, true);
        check(Order::Auto, 10_001, 0, 40_000, false);
    }

    #[test]
    fn a_failed_login_is_tried_again_later_and_a_dropped_one_at_once() {
        let mut ledger = ledger(1, Order::Auto);
        let (_, notes) = ledger.wait(A, client(1), Time(5_000));
        assert_eq!(notes.open, Some(A));
        assert!(ledger.opening(A));
        let notes = ledger.connected(A, Connecting::Failed(Time(6_000)), Time(6_000));
        assert_eq!(notes.open, None);
        assert_eq!(ledger.tick(Time(6_999)).open, None);
        assert_eq!(ledger.tick(Time(7_000)).open, Some(A));
        assert!(ledger.opening(A));
        let notes = ledger.connected(A, Connecting::Dropped, Time(7_000));
        assert_eq!(notes.open, Some(A));
        assert_eq!((ledger.servers(), ledger.connecting()), (1, 1));
    }

    #[test]
    fn nothing_is_opened_for_a_client_that_has_left() {
        let mut ledger = ledger(1, Order::Auto);
        let (ticket, notes) = ledger.wait(A, client(1), Time(0));
        assert_eq!(notes.open, Some(A));
        assert!(ledger.leave(A, ticket));
        assert!(!ledger.opening(A));
        assert_eq!(
            (ledger.servers(), ledger.connecting(), ledger.owned(A)),
            (0, 0, 0)
        );
        assert!(ledger.resign(A));
    }

    #[test]
    fn a_worker_with_a_server_on_its_way_does_not_resign() {
        let mut ledger = ledger(1, Order::Auto);
        with_server(&mut ledger, A, 1);
        let _ = ledger.wait(B, client(2), Time(0));
        assert!(matches!(ledger.offer(A, Time(0)), Grant::Other(B, _)));
        assert!(!ledger.resign(B));
        assert!(ledger.resign(A));
    }
}
