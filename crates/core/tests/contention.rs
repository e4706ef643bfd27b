//! Many threads use what workers share: the ledger of a pool with waiting clients, and the tables of statements and
//! settings. Nothing may be lost, or be counted twice.
//!
//! The same code measures: `PGWEIR_CONTENTION_MS=500 cargo test --release -p pgweir-core --test contention --
//! --nocapture --test-threads 1` prints what each touch costs with 1 to 64 threads. The page
//! `docs/design/performance.md` has the figures.

#![allow(clippy::print_stdout)] // the measurement
#![allow(clippy::disallowed_methods)] // real threads take real time

use std::{
    env, fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pgweir_core::{
    Time, Token, WorkerId,
    pool::{CapMembership, Grant, Ledger, Limits, LoginOutcome, Notes, Opening, WaitOrder},
    session::{SettingsTable, Statements},
};

const THREADS: [usize; 5] = [1, 2, 4, 16, 64];
/// The servers that each worker has at the beginning, and its clients.
const SERVERS: usize = 4;
const CLIENTS: usize = 12;

/// Calls `touch` in many threads at once until the time is over. It returns whether the call counts. Each thread has a
/// state of its own, which is returned. Prints what a call costs, if that is asked for.
fn in_threads<S: Send>(
    what: &str,
    states: Vec<S>,
    touch: impl Fn(&mut S) -> bool + Sync,
) -> Vec<S> {
    let asked = env::var("PGWEIR_CONTENTION_MS").ok();
    let length = asked.as_ref().map(|ms| ms.parse().expect("milliseconds"));
    let (threads, is_over) = (states.len(), AtomicBool::new(false));
    let barrier = Barrier::new(threads + 1);
    let run = |mut state: S| {
        let mut calls = 0_u64;
        barrier.wait();
        while !is_over.load(Relaxed) {
            calls += u64::from(touch(&mut state));
        }
        (state, calls)
    };
    thread::scope(|scope| {
        let start = |state| scope.spawn(|| run(state));
        let running: Vec<_> = states.into_iter().map(start).collect();
        barrier.wait();
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        thread::sleep(Duration::from_millis(length.unwrap_or(5)));
        is_over.store(true, Relaxed);
        let ended = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        let (states, calls): (Vec<_>, Vec<_>) = ended.unzip();
        let calls = calls.iter().sum::<u64>() as f64;
        if length.is_some() {
            let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            println!(
                "{what:<34} {threads:>3} threads: {:>7.2} million per second, {:>6.0} ns of CPU time each",
                calls / wall / 1e6,
                cpu * 1e9 / calls
            );
        }
        states
    })
}

/// Returns the CPU time of this process. Linux counts it in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

fn token(slot: usize) -> Token {
    Token {
        slot: slot as u32,
        generation: 0,
    }
}

/// A pool in which clients of all workers wait, while all servers are in use.
struct BusyPool {
    ledger: Mutex<Ledger>,
    /// For each worker, the number of servers that have been moved to it.
    arrived: Vec<Mutex<usize>>,
    begin: Instant,
}

impl BusyPool {
    fn new(workers: usize) -> Self {
        let limits = Limits {
            size: (workers * SERVERS) as u32,
            reserve: 0,
            reserve_after: 0,
            overflow: 0,
            overflow_waiting: 0,
            pinned: 1,
            pinned_overflow: 0,
            min: 0,
            connecting: 1,
            order: WaitOrder::Auto,
            retry: 1_000,
        };
        let pool = Self {
            ledger: Mutex::new(Ledger::new(workers, limits, CapMembership::unlimited())),
            arrived: (0..workers).map(|_| Mutex::new(0)).collect(),
            begin: Instant::now(),
        };
        for client in 0..CLIENTS {
            for worker in 0..workers {
                pool.wait(worker, client);
            }
        }
        pool
    }

    fn now(&self) -> Time {
        Time(self.begin.elapsed().as_micros() as u64)
    }

    /// A client begins to wait.
    fn wait(&self, worker: usize, client: usize) {
        let now = self.now();
        let mut ledger = self.ledger.lock();
        let (_, notes) = ledger.wait(WorkerId(worker as u8), token(client), now);
        self.deliver(&mut ledger, notes, now);
    }

    /// No worker has an idle server to offer. Servers that are to be opened log in at once.
    fn deliver(&self, ledger: &mut Ledger, notes: Notes, now: Time) {
        for worker in notes.wanted.iter() {
            let more = ledger.answered(worker, now);
            self.deliver(ledger, more, now);
        }
        let Some(worker) = notes.open else { return };
        let Opening::Go { notes, .. } = ledger.opening(worker, now) else {
            return;
        };
        self.deliver(ledger, notes, now);
        let notes = ledger.connected(worker, LoginOutcome::Done, now);
        let grant = ledger.offer_fresh(worker, now);
        self.place(worker, grant);
        self.deliver(ledger, notes, now);
    }

    /// A server goes to the client to which it was granted.
    fn place(&self, worker: WorkerId, grant: Grant) {
        match grant {
            Grant::OwnWaiter(_) => *self.arrived[worker.index()].lock() += 1,
            Grant::OtherWaiter(other, _) => *self.arrived[other.index()].lock() += 1,
            Grant::Keep | Grant::Evict => panic!("a client waits"),
        }
    }

    /// The worker's client has ended its transaction: the server goes to the next client, and this one waits again.
    /// Returns whether the worker had a server.
    fn end_transaction(&self, worker: &mut BusyWorker) -> bool {
        if worker.servers == 0 {
            worker.servers = std::mem::take(&mut *self.arrived[worker.id].lock());
        }
        if worker.servers == 0 {
            thread::yield_now();
            return false;
        }
        let id = WorkerId(worker.id as u8);
        match self.ledger.lock().offer(id, self.now()) {
            Grant::OwnWaiter(_) => {}
            Grant::OtherWaiter(other, _) => {
                worker.servers -= 1;
                *self.arrived[other.index()].lock() += 1;
            }
            Grant::Keep | Grant::Evict => panic!("clients wait"),
        }
        self.wait(worker.id, 0);
        true
    }
}

/// A worker, and the number of servers that its clients use.
struct BusyWorker {
    id: usize,
    servers: usize,
}

#[test]
fn servers_that_go_from_worker_to_worker_are_all_still_there() {
    for threads in THREADS {
        let pool = BusyPool::new(threads);
        let workers = (0..threads).map(|id| BusyWorker { id, servers: 0 });
        let what = "a server for a client that waits";
        let workers = in_threads(what, workers.collect(), |worker| {
            pool.end_transaction(worker)
        });
        let ledger = pool.ledger.lock();
        for worker in workers {
            let has = worker.servers + *pool.arrived[worker.id].lock();
            assert_eq!(ledger.owned(WorkerId(worker.id as u8)) as usize, has);
        }
        assert_eq!(ledger.servers() as usize, threads * SERVERS);
        assert_eq!(ledger.waiting(), threads * (CLIENTS - SERVERS));
    }
}

#[test]
fn a_statement_is_the_same_for_all_threads_that_use_it() {
    for threads in THREADS {
        let statements = Statements::default();
        let text = |of: usize| format!("SELECT {of}\0\0\0").into_bytes();
        let same = statements.intern(&text(0));
        in_threads("Parse of a common statement", vec![(); threads], |()| {
            assert!(Arc::ptr_eq(&statements.intern(&text(0)), &same));
            true
        });
        let own = (1..=threads).map(|of| statements.intern(&text(of)));
        let own = in_threads("Parse of a statement of its own", own.collect(), |own| {
            assert!(Arc::ptr_eq(&statements.intern(own.definition()), own));
            true
        });
        assert_eq!(statements.last_id() as usize, 1 + own.len());
    }
}

#[test]
fn settings_are_the_same_for_all_threads_that_use_them() {
    for threads in THREADS {
        let table = SettingsTable::default();
        let common = table.intern([("timezone", "UTC")]);
        in_threads("SET to a common value", vec![(); threads], |()| {
            assert!(table.intern([("timezone", "UTC")]).is_same(&common));
            true
        });
        in_threads(
            "SET to a new value",
            (0..threads).collect(),
            |next: &mut usize| {
                let value = next.to_string();
                let settings = table.intern([("app.tenant", value.as_str())]);
                assert_eq!(settings.get(b"app.tenant"), Some(value.as_bytes()));
                *next += threads;
                true
            },
        );
    }
}
