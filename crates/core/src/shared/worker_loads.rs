//! The loads of all workers, and the number of workers that take part (`worker_busy_target`).
//!
//! Workers 0 to `active - 1` take part: they accept clients, and get the clients of the others. Each worker reports at
//! the end of a window of [`WINDOW`] which part of that time its thread was on a CPU, and decides with the loads that
//! the others have reported. A worker that sleeps reports nothing, and counts as idle. The lock is taken twice a second
//! by each worker that runs; the number of active workers is read without it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{Time, WorkerId};

/// Microseconds between two reports of a worker.
pub const WINDOW: u64 = 500_000;
/// Microseconds for which a report counts. After that, the worker counts as idle.
const REPORT_KEPT: u64 = 3 * WINDOW;
/// The pause in microseconds between two changes of the number of active workers, and between two times that the same
/// worker gives clients away. After this pause, the loads show the effect.
const SETTLING: u64 = 2 * WINDOW;
/// Microseconds for which the load must be low before one worker less takes part.
const LOW_FOR: u64 = 3_000_000;
/// One worker less takes part if the others would then be busy for less than this part of the target, in percent.
const LOW_PERCENT: u64 = 67;
/// The smallest difference between the loads of two workers for which clients move, in percent of the target.
const DIFFERENCE_PERCENT: u32 = 25;
/// The load of a worker that has no time left, in thousandths of a CPU: the clients may need much more than the report
/// shows.
const FULL: u32 = 950;
/// If all active workers are full, this many times as many become active at once.
const FULL_FACTOR: usize = 4;

/// The loads of all workers.
#[derive(Debug)]
pub struct WorkerLoads {
    workers: usize,
    /// The number of workers that take part.
    active: AtomicUsize,
    plan: Mutex<Plan>,
    /// The number of times that clients have moved between workers.
    moves: AtomicU64,
    /// The number of clients that were assigned to all workers in turn.
    assigned: AtomicUsize,
    transit: Transit,
    logins: LoginDelays,
}

/// Logins and disconnects that wait until a worker has served queries (`login_slice`).
#[derive(Debug, Default)]
struct LoginDelays {
    /// The number of logins and disconnects that wait at present, of all workers.
    waiting: AtomicUsize,
    /// The number of turns of event loops in which logins and disconnects used up their time.
    turns: AtomicU64,
}

/// Clients that are on their way between two workers, and console commands that visit all workers.
#[derive(Debug, Default)]
struct Transit {
    clients: AtomicUsize,
    rounds: AtomicUsize,
}

/// The reports of the workers, and the times of the last decisions.
#[derive(Debug)]
struct Plan {
    reports: Vec<Report>,
    /// Since when the load has been low enough for one worker less.
    low_since: Option<Time>,
    /// When the number of active workers last changed.
    changed_at: Option<Time>,
}

/// The load that a worker has reported.
#[derive(Debug, Clone, Copy, Default)]
struct Report {
    /// Thousandths of a CPU.
    busy: u32,
    /// An estimate of `busy` that takes into account which clients have moved since the report.
    expected: u32,
    at: Time,
    /// When the worker last gave clients to another one because of the load.
    gave_at: Option<Time>,
}

/// The decision that follows a report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The workers that take part from now on, or do not take part any more.
    pub changed: Vec<WorkerId>,
    /// Set if the worker has to give clients to another one.
    pub give: Option<Give>,
}

/// The clients that a busy worker gives to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Give {
    /// The worker that gets the clients.
    pub to: WorkerId,
    /// Thousandths of the clients that have sent requests lately.
    pub part: u32,
}

impl WorkerLoads {
    /// Creates the loads of `workers` idle workers. `target` is `worker_busy_target` in thousandths of a CPU; with 0, all
    /// workers take part.
    #[must_use]
    pub fn new(workers: usize, target: u32) -> Self {
        let active = if target == 0 { workers } else { 1 };
        Self {
            workers,
            active: AtomicUsize::new(active),
            plan: Mutex::new(Plan {
                reports: vec![Report::default(); workers],
                low_since: None,
                changed_at: None,
            }),
            moves: AtomicU64::new(0),
            assigned: AtomicUsize::new(0),
            transit: Transit::default(),
            logins: LoginDelays::default(),
        }
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the number of workers that take part: those with the lowest numbers.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns whether a worker takes part: accepts clients, and gets those of other workers.
    #[must_use]
    pub fn takes_part(&self, worker: WorkerId) -> bool {
        worker.index() < self.active()
    }

    /// Returns the load of a worker in thousandths of a CPU: that of its last window, or 0 if it has slept since.
    #[must_use]
    pub fn busy(&self, worker: WorkerId, now: Time) -> u32 {
        self.plan.lock().busy(worker.index(), now)
    }

    /// Returns the worker for a client that can't move later: all workers in turn, whether they take part or not.
    pub fn assign(&self) -> WorkerId {
        let number = self.assigned.fetch_add(1, Ordering::Relaxed);
        WorkerId((number % self.workers) as u8)
    }

    /// Lets this number of workers take part, whatever their loads are. The caller informs them by
    /// [`Mail::ActiveWorkersChanged`](crate::mail::Mail::ActiveWorkersChanged).
    pub fn set_active(&self, active: usize) {
        self.active
            .store(active.clamp(1, self.workers), Ordering::Relaxed);
    }

    /// Takes the load of a worker, in thousandths of a CPU, and decides how many workers take part and whether this one
    /// gives clients away. `target` is `worker_busy_target` in thousandths of a CPU.
    pub fn report(&self, worker: WorkerId, busy: u32, target: u32, now: Time) -> Decision {
        let mut plan = self.plan.lock();
        if let Some(report) = plan.reports.get_mut(worker.index()) {
            report.busy = busy;
            report.expected = busy;
            report.at = now;
        }
        let before = self.active();
        let after = match target {
            0 => self.workers,
            target => plan.active(before, target, now),
        };
        if after != before {
            plan.low_since = None;
            plan.changed_at = Some(now);
            self.active.store(after, Ordering::Relaxed);
        }
        let changed = before.min(after)..before.max(after);
        Decision {
            changed: changed.map(|index| WorkerId(index as u8)).collect(),
            give: match target {
                0 => None,
                target => plan.give(worker, after, target, now),
            },
        }
    }

    /// Lets a client leave its worker. Returns `false` if no client may leave at present, since a console command visits
    /// all workers and must not miss it.
    #[must_use]
    pub fn begin_move(&self) -> bool {
        // Here and in `begin_round`, each side first announces itself and then looks for the other one.
        self.transit.clients.fetch_add(1, Ordering::SeqCst);
        let may = self.transit.rounds.load(Ordering::SeqCst) == 0;
        if !may {
            self.end_move();
        }
        may
    }

    /// Notes that a client has arrived at its new worker.
    pub fn end_move(&self) {
        self.transit.clients.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a client that has moved.
    pub fn count_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of times that clients have moved between workers.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Replaces one worker's part of the number of logins and disconnects that wait: `before` is the part that it
    /// published last. `used_up`: logins and disconnects have used up their time in this turn.
    pub fn publish_waiting_logins(&self, before: usize, now: usize, used_up: bool) {
        // If `now` is less than `before`, both this difference and the sum wrap around.
        let change = now.wrapping_sub(before);
        self.logins.waiting.fetch_add(change, Ordering::Relaxed);
        if used_up {
            self.logins.turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of logins and disconnects that wait, and the number of turns of event loops in which they
    /// used up their time.
    #[must_use]
    pub fn login_delays(&self) -> (usize, u64) {
        let waiting = self.logins.waiting.load(Ordering::Relaxed);
        (waiting, self.logins.turns.load(Ordering::Relaxed))
    }

    /// Lets a console command visit all workers. Until [`WorkerLoads::end_round`], no client leaves its worker. Returns
    /// `false` if a client is on its way now, which the command could miss.
    #[must_use]
    pub fn begin_round(&self) -> bool {
        self.transit.rounds.fetch_add(1, Ordering::SeqCst);
        let may = self.transit.clients.load(Ordering::SeqCst) == 0;
        if !may {
            self.end_round();
        }
        may
    }

    /// Notes that a console command has visited all workers.
    pub fn end_round(&self) {
        self.transit.rounds.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Plan {
    /// Returns the last report of a worker, if it still counts.
    fn recent(&self, worker: usize, now: Time) -> Option<&Report> {
        let report = self.reports.get(worker);
        report.filter(|report| now.since(report.at) < REPORT_KEPT)
    }

    fn busy(&self, worker: usize, now: Time) -> u32 {
        self.recent(worker, now).map_or(0, |report| report.busy)
    }

    /// Returns the estimated load of a worker after the moves of clients since its report.
    fn expected(&self, worker: usize, now: Time) -> u32 {
        self.recent(worker, now).map_or(0, |report| report.expected)
    }

    /// Returns whether the loads do not show the effect of the last change yet.
    fn is_settling(&self, now: Time) -> bool {
        self.changed_at.is_some_and(|at| now.since(at) < SETTLING)
    }

    /// Returns how many workers take part from now on.
    fn active(&mut self, active: usize, target: u32, now: Time) -> usize {
        let workers = self.reports.len();
        let all: u64 = (0..workers).map(|at| u64::from(self.busy(at, now))).sum();
        if self.is_settling(now) {
            return active;
        }
        if all > active as u64 * u64::from(target) && active < workers {
            // All workers that the load needs become active at once.
            let needed = all.div_ceil(u64::from(target)) as usize;
            let are_full = (0..active).all(|at| self.busy(at, now) >= FULL);
            let needed = if are_full {
                needed.max(FULL_FACTOR * active)
            } else {
                needed
            };
            return needed.clamp(active + 1, workers);
        }
        let is_low =
            active > 1 && all * 100 < (active as u64 - 1) * u64::from(target) * LOW_PERCENT;
        if !is_low {
            self.low_since = None;
            return active;
        }
        let since = *self.low_since.get_or_insert(now);
        match now.since(since) >= LOW_FOR {
            true => active - 1,
            false => active,
        }
    }

    /// Returns which clients a worker gives away, if it is busier than the target and another one is less busy.
    fn give(&mut self, worker: WorkerId, active: usize, target: u32, now: Time) -> Option<Give> {
        let mine = self.expected(worker.index(), now);
        let others = (0..active).filter(|&at| at != worker.index());
        let least = others.min_by_key(|&at| self.expected(at, now))?;
        let difference = mine.saturating_sub(self.expected(least, now));
        let gave_at = self.reports.get(worker.index())?.gave_at;
        let has_given = gave_at.is_some_and(|at| now.since(at) < SETTLING);
        let is_due = mine > target && difference * 100 >= target * DIFFERENCE_PERCENT;
        if !is_due || has_given {
            return None;
        }
        // Other workers that give clients away in this window see these estimates.
        self.expect(worker.index(), mine - difference / 2, now);
        self.expect(least, mine - difference / 2, now);
        self.reports.get_mut(worker.index())?.gave_at = Some(now);
        Some(Give {
            to: WorkerId(least as u8),
            part: difference * 1000 / (2 * mine),
        })
    }

    /// Notes the estimated load of a worker after clients have moved.
    fn expect(&mut self, worker: usize, busy: u32, now: Time) {
        if let Some(report) = self.reports.get_mut(worker) {
            // The last report of a worker that sleeps does not count any more.
            if now.since(report.at) >= REPORT_KEPT {
                report.busy = 0;
                report.at = now;
            }
            report.expected = busy;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u32 = 600;

    /// Loads at a time that advances by one window with each report of all workers.
    struct Windows {
        loads: WorkerLoads,
        now: Time,
    }

    impl Windows {
        fn new(workers: usize) -> Self {
            Self {
                loads: WorkerLoads::new(workers, TARGET),
                now: Time(1_000_000_000),
            }
        }

        /// Reports these loads for some windows. Returns what the workers give away.
        fn report(&mut self, busy: &[u32], windows: usize) -> Vec<(u8, Give)> {
            let mut gives = Vec::new();
            for _ in 0..windows {
                self.now = self.now.after(WINDOW);
                for (worker, &busy) in (0..).zip(busy) {
                    let decision = self.loads.report(WorkerId(worker), busy, TARGET, self.now);
                    gives.extend(decision.give.map(|give| (worker, give)));
                }
            }
            gives
        }
    }

    #[test]
    fn as_many_workers_take_part_as_the_load_needs() {
        let mut windows = Windows::new(3);
        assert_eq!(windows.loads.active(), 1);
        windows.report(&[590, 0, 0], 20);
        assert_eq!(windows.loads.active(), 1, "below the target");
        let gives = windows.report(&[900, 0, 0], 1);
        assert_eq!(windows.loads.active(), 2);
        let half = Give {
            to: WorkerId(1),
            part: 500,
        };
        assert_eq!(gives, [(0, half)], "half of the clients that are busy");
        windows.report(&[900, 900, 0], 1);
        assert_eq!(windows.loads.active(), 2, "the loads are not settled yet");
        windows.report(&[900, 900, 0], 2);
        assert_eq!(windows.loads.active(), 3);
        windows.report(&[900, 900, 900], 10);
        assert_eq!(windows.loads.active(), 3, "there are no more");
    }

    #[test]
    fn clients_that_never_move_go_to_all_workers() {
        let loads = WorkerLoads::new(3, TARGET);
        let places: Vec<u8> = (0..6).map(|_| loads.assign().0).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn fewer_workers_take_part_once_the_load_has_been_low_for_a_while() {
        let mut windows = Windows::new(2);
        windows.report(&[900, 0], 1);
        assert_eq!(windows.loads.active(), 2);
        windows.report(&[250, 250], 40);
        assert_eq!(windows.loads.active(), 2, "one worker would be too busy");
        windows.report(&[200, 190], 4);
        windows.report(&[300, 200], 1);
        windows.report(&[200, 190], 5);
        assert_eq!(windows.loads.active(), 2, "not for long enough");
        windows.report(&[200, 190], 2);
        assert_eq!(windows.loads.active(), 1);
        windows.report(&[390, 0], 40);
        assert_eq!(windows.loads.active(), 1, "the load has not changed");
    }

    #[test]
    fn a_worker_that_sleeps_counts_as_idle() {
        let mut windows = Windows::new(2);
        windows.report(&[700, 0], 1);
        windows.report(&[300, 300], 3);
        assert_eq!(windows.loads.busy(WorkerId(1), windows.now), 300);
        windows.report(&[300], 5);
        assert_eq!(windows.loads.busy(WorkerId(1), windows.now), 0);
        windows.report(&[300], 6);
        assert_eq!(windows.loads.active(), 1);
    }

    #[test]
    fn a_busy_worker_gives_clients_to_an_idle_one() {
        let mut windows = Windows::new(2);
        windows.report(&[900, 0], 1);
        let gives = windows.report(&[800, 300], 4);
        let give = Give {
            to: WorkerId(1),
            part: 312,
        };
        assert_eq!(gives, [(0, give), (0, give)], "in every other window");
        assert_eq!(windows.report(&[700, 600], 4), [], "a small difference");
        assert_eq!(windows.report(&[550, 100], 4), [], "below the target");
    }

    /// While the load is high, the number of active workers grows once a second. Busy workers give clients to different
    /// workers.
    #[test]
    fn many_workers_join_a_high_load_in_a_few_steps() {
        let mut windows = Windows::new(16);
        let mut steps = Vec::new();
        for _ in 0..10 {
            let active = windows.loads.active();
            let busy = Vec::from_iter((0..16).map(|at| if at < active { 1000 } else { 0 }));
            windows.report(&busy, 1);
            steps.push(windows.loads.active());
        }
        assert_eq!(steps, [4, 4, 16, 16, 16, 16, 16, 16, 16, 16]);
        let mut windows = Windows::new(16);
        windows.loads.set_active(16);
        let half = |busy| Vec::from_iter((0..16).map(|at| if at < 8 { busy } else { 100 }));
        assert_eq!(windows.report(&half(590), 2), [], "below the target");
        let gives = windows.report(&half(900), 1);
        let to: Vec<_> = gives.iter().map(|(_, give)| give.to.0).collect();
        assert_eq!(to, [8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn all_workers_take_part_without_a_target() {
        let loads = WorkerLoads::new(3, 0);
        assert_eq!(loads.active(), 3);
        let decision = loads.report(WorkerId(0), 900, 0, Time(WINDOW));
        assert_eq!(decision, Decision::default());
        let loads = WorkerLoads::new(3, TARGET);
        let decision = loads.report(WorkerId(0), 0, 0, Time(WINDOW));
        assert_eq!(decision.changed, [WorkerId(1), WorkerId(2)]);
        assert_eq!(loads.active(), 3);
    }

    #[test]
    fn no_client_leaves_during_a_round() {
        let loads = WorkerLoads::new(2, TARGET);
        assert!(loads.begin_move());
        assert!(!loads.begin_round());
        loads.end_move();
        assert!(loads.begin_round() && loads.begin_round());
        loads.end_round();
        assert!(!loads.begin_move());
        loads.end_round();
        assert!(loads.begin_move());
    }
}
