//! The memory of clients and servers by kind, and the limit on all of it (`memory_limit`).
//!
//! At its ticks (`Worker::tick`), each worker measures the memory of its connections and pools, and publishes the
//! results here. Memory that grows in single large steps (texts of statements, settings of sessions, messages of
//! logins) is counted at each step. So a step that needs memory compares one number with the limit, and takes no lock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::WorkerId;

/// Declares the kinds of memory, with their names in SHOW MEM.
macro_rules! kinds {
    ($($(#[$note:meta])* $kind:ident = $name:literal,)+) => {
        /// The kinds of memory.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MemoryKind { $($(#[$note])* $kind,)+ }

        impl MemoryKind {
            /// All kinds, in the order of SHOW MEM.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// Returns the name in SHOW MEM.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }
        }
    };
}

kinds! {
    /// The fixed part of client connections, and the lists of their statements.
    Client = "client",
    /// The fixed part of server connections, and the lists of their statements.
    Server = "server",
    /// Workers' parts of pools.
    Pool = "pool",
    /// Logins under way: startup packets, passwords, and bytes that clients have sent ahead.
    Login = "login",
    /// Messages of clients that have not arrived completely, or wait for their turn.
    ClientBuffer = "client_buffer",
    /// Messages of servers that have not arrived completely, and the queues of outstanding replies.
    ServerBuffer = "server_buffer",
    /// Bytes that sockets did not accept yet.
    Unsent = "unsent",
    /// TLS sessions.
    Tls = "tls",
    /// Channels of clients that listen, and notifications that wait for them.
    Notification = "notification",
    /// Texts of prepared statements.
    Statement = "prepared_statement",
    /// Names of prepared statements.
    StatementName = "statement_name",
    /// Settings of sessions, and statements made by SQL's PREPARE.
    SessionState = "session_state",
    /// Texts whose effects on the session are cached.
    CachedText = "cached_text",
    /// Statistics of statements.
    Statistics = "statement_statistics",
    /// The catalogs of databases.
    Catalog = "catalog",
    /// Results of `auth_query`.
    AuthCache = "auth_cache",
    /// The workers' read buffers.
    ReadBuffer = "read_buffer",
    /// The buffers of io_uring, and the bytes that it has received before core wanted them.
    IoUringBuffer = "io_uring_buffer",
}

const KINDS: usize = MemoryKind::ALL.len();

/// The estimated bytes that the allocator adds to an object.
pub const OVERHEAD: usize = 16;

/// The number of objects of a kind, and the bytes that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// The number of objects.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl MemoryUsage {
    /// Adds an object of this size in bytes.
    pub fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes + OVERHEAD;
    }

    /// Adds an object of this size in bytes, unless it is empty.
    pub fn add_filled(&mut self, bytes: usize) {
        if bytes > 0 {
            self.add(bytes);
        }
    }
}

/// A step that was refused for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryRefusal {
    /// A new prepared statement.
    Statement,
    /// A login, above `memory_limit`.
    Login,
    /// A login, above `login_memory`.
    LoginMessage,
}

impl MemoryRefusal {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Statement, Self::Login, Self::LoginMessage];

    /// Returns the name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Statement => "statement",
            Self::Login => "login",
            Self::LoginMessage => "login_message",
        }
    }
}

#[derive(Debug, Default)]
struct Amount {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The amounts that one worker has measured and published.
#[derive(Debug, Default)]
struct Share {
    measured: [Amount; KINDS],
    /// The bytes that the worker has announced since its last measurement.
    announced: AtomicUsize,
}

/// The memory of all clients and servers, shared by all workers.
#[derive(Debug, Default)]
pub struct Memory {
    shares: Box<[Share]>,
    /// The amounts of the kinds that are counted whenever they change, not measured by workers.
    counted: [Amount; KINDS],
    total: AtomicUsize,
    /// `memory_limit`; 0 if there is none.
    limit: AtomicUsize,
    is_full: AtomicBool,
    /// Whether the log says that the limit is reached.
    is_reported: AtomicBool,
    refusals: [AtomicU64; MemoryRefusal::ALL.len()],
    /// The largest total since freed memory was last returned to the system.
    peak: AtomicUsize,
}

impl Memory {
    /// Creates the counters for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            shares: (0..workers).map(|_| Share::default()).collect(),
            ..Self::default()
        }
    }

    /// Sets `memory_limit`. A higher limit takes effect at once, a lower limit at the next check.
    pub fn set_limit(&self, limit: u64) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.limit.store(limit, Relaxed);
        if limit == 0 || self.total() < low_mark(limit) {
            self.is_full.store(false, Relaxed);
        }
    }

    /// Returns `memory_limit`; 0 if there is none.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Publishes a worker's measurement of one kind.
    pub fn publish(&self, worker: WorkerId, kind: MemoryKind, usage: MemoryUsage) {
        let Some(share) = self.shares.get(usize::from(worker.0)) else {
            return;
        };
        let amount = &share.measured[kind as usize];
        amount.count.store(usage.count, Relaxed);
        let before = amount.bytes.swap(usage.bytes, Relaxed);
        self.change_total(before, usage.bytes);
    }

    /// Announces that a worker is about to use this number of bytes, before its next measurement.
    pub fn announce(&self, worker: WorkerId, bytes: usize) {
        if let Some(share) = self.shares.get(usize::from(worker.0)) {
            share.announced.fetch_add(bytes, Relaxed);
            self.total.fetch_add(bytes, Relaxed);
        }
    }

    /// Takes back an announcement: the bytes are counted in another way now, or not used.
    pub fn withdraw(&self, worker: WorkerId, bytes: usize) {
        if let Some(share) = self.shares.get(usize::from(worker.0)) {
            // Only the worker itself changes its number. A measurement may have reset it since the announcement.
            let announced = share.announced.load(Relaxed);
            let withdrawn = announced.min(bytes);
            share.announced.store(announced - withdrawn, Relaxed);
            self.change_total(withdrawn, 0);
        }
    }

    /// Resets the number of announced bytes of a worker: the measurement that begins includes them.
    pub fn begin_measurement(&self, worker: WorkerId) {
        if let Some(share) = self.shares.get(usize::from(worker.0)) {
            let announced = share.announced.swap(0, Relaxed);
            self.change_total(announced, 0);
        }
    }

    /// Changes the amount of a kind that is counted at each step.
    pub fn change(&self, kind: MemoryKind, before: MemoryUsage, after: MemoryUsage) {
        let amount = &self.counted[kind as usize];
        add_difference(&amount.count, before.count, after.count);
        add_difference(&amount.bytes, before.bytes, after.bytes);
        self.change_total(before.bytes, after.bytes);
    }

    fn change_total(&self, before: usize, after: usize) {
        add_difference(&self.total, before, after);
    }

    /// Returns the memory of one kind that was published last.
    #[must_use]
    pub fn usage(&self, kind: MemoryKind) -> MemoryUsage {
        let shares = self.shares.iter().map(|share| &share.measured);
        let all = shares.chain([&self.counted]).map(|of| &of[kind as usize]);
        all.fold(MemoryUsage::default(), |sum, amount| MemoryUsage {
            count: sum.count + amount.count.load(Relaxed),
            bytes: sum.bytes + amount.bytes.load(Relaxed),
        })
    }

    /// Returns the bytes of all kinds.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Returns whether `memory_limit` was reached, and the total has not fallen below 90 % of it since.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Returns whether the log says that the limit is reached.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.is_reported.load(Relaxed)
    }

    /// Returns whether half of `memory_limit` is in use.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        let limit = self.limit();
        limit > 0 && self.total() >= limit / 2
    }

    /// Returns whether a step that needs this number of bytes is possible under `memory_limit`. Counts a refusal.
    #[must_use]
    pub fn allows(&self, bytes: usize, step: MemoryRefusal) -> bool {
        let (limit, total) = (self.limit(), self.total());
        if limit == 0 {
            return true;
        }
        let is_above = total.saturating_add(bytes) > limit;
        if !self.is_full() && !is_above {
            return true;
        }
        // A single large step that does not fit is refused without a refusal of later small steps.
        if is_above && total >= low_mark(limit) {
            self.is_full.store(true, Relaxed);
        }
        self.count_refusal(step);
        false
    }

    /// Counts a refusal.
    pub fn count_refusal(&self, step: MemoryRefusal) {
        self.refusals[step as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of times that this step was refused.
    #[must_use]
    pub fn refusals(&self, step: MemoryRefusal) -> u64 {
        self.refusals[step as usize].load(Relaxed)
    }

    /// Compares the total with the limit. Returns whether the limit is reached if the log has to report a change.
    pub fn check(&self) -> Option<bool> {
        let (limit, total) = (self.limit(), self.total());
        let mark = match self.is_full() {
            true => low_mark(limit),
            false => limit,
        };
        let is_full = limit > 0 && total >= mark;
        self.is_full.store(is_full, Relaxed);
        (self.is_reported.swap(is_full, Relaxed) != is_full).then_some(is_full)
    }

    /// Returns whether enough memory was freed since the last return to make another return to the system worthwhile.
    pub fn has_freed_much(&self) -> bool {
        let (limit, total) = (self.limit(), self.total());
        let peak = self.peak.load(Relaxed).max(total);
        let is_worth_it = limit > 0 && peak - total > limit / 16;
        self.peak
            .store(if is_worth_it { total } else { peak }, Relaxed);
        is_worth_it
    }
}

/// Returns the total below which steps are allowed again.
fn low_mark(limit: usize) -> usize {
    limit - limit / 10
}

fn add_difference(sum: &AtomicUsize, before: usize, after: usize) {
    match after.checked_sub(before) {
        Some(more) => sum.fetch_add(more, Relaxed),
        None => sum.fetch_sub(before - after, Relaxed),
    };
}

/// The memory of all clients and servers, and the worker that needs some.
#[derive(Debug, Clone, Copy)]
pub struct WorkerMemory<'m> {
    /// The memory of all workers.
    pub memory: &'m Memory,
    /// The worker.
    pub worker: WorkerId,
}

/// The part of `login_memory` that one login has. Dropping the value gives the part back.
#[derive(Debug, Default)]
pub struct LoginMemory {
    of: Option<Arc<Memory>>,
    bytes: usize,
}

/// The bytes that each login may have beside `login_memory`.
pub const LOGIN_ALLOWANCE: usize = 4096;

impl LoginMemory {
    /// Sets the bytes that the login takes. Returns `false` if these are more than `most` for all logins together; a
    /// login that takes no more than before is never refused.
    #[must_use]
    pub fn set(&mut self, memory: &Arc<Memory>, bytes: usize, most: u64) -> bool {
        let bytes = bytes.saturating_sub(LOGIN_ALLOWANCE);
        if bytes == self.bytes {
            return true;
        }
        let all = memory.counted[MemoryKind::Login as usize]
            .bytes
            .load(Relaxed);
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && all.saturating_add(more) as u64 > most {
            memory.count_refusal(MemoryRefusal::LoginMessage);
            return false;
        }
        self.take(memory, bytes);
        true
    }

    fn take(&mut self, memory: &Arc<Memory>, bytes: usize) {
        let usage = |bytes| MemoryUsage { count: 0, bytes };
        memory.change(MemoryKind::Login, usage(self.bytes), usage(bytes));
        self.bytes = bytes;
        self.of = (bytes > 0).then(|| Arc::clone(memory));
    }
}

impl Drop for LoginMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.of.take() {
            self.take(&memory, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn usage(bytes: usize) -> MemoryUsage {
        MemoryUsage { count: 1, bytes }
    }

    #[test]
    fn withdrawn_memory_no_longer_counts() {
        let memory = Memory::new(1);
        memory.announce(WorkerId(0), 1000);
        memory.withdraw(WorkerId(0), 300);
        assert_eq!(memory.total(), 700);
        memory.begin_measurement(WorkerId(0));
        memory.withdraw(WorkerId(0), 700);
        assert_eq!(
            memory.total(),
            0,
            "the measurement has taken it back already"
        );
        memory.withdraw(WorkerId(9), 1);
        assert_eq!(memory.total(), 0);
    }

    #[test]
    fn the_total_is_the_sum_of_all_kinds() {
        let memory = Memory::new(2);
        memory.publish(WorkerId(0), MemoryKind::Client, usage(100));
        memory.publish(WorkerId(1), MemoryKind::Client, usage(50));
        memory.change(MemoryKind::Statement, usage(0), usage(30));
        memory.announce(WorkerId(1), 1000);
        assert_eq!(memory.total(), 1180);
        memory.begin_measurement(WorkerId(1));
        memory.publish(WorkerId(1), MemoryKind::Client, usage(20));
        assert_eq!(memory.total(), 150);
        assert_eq!(
            memory.usage(MemoryKind::Client),
            MemoryUsage {
                count: 2,
                bytes: 120
            }
        );
        // A worker that does not exist changes nothing.
        memory.publish(WorkerId(9), MemoryKind::Client, usage(20));
        let sum = MemoryKind::ALL.map(|kind| memory.usage(kind).bytes);
        assert_eq!(memory.total(), sum.iter().sum::<usize>());
    }

    #[test]
    fn refusals_end_below_nine_tenths() {
        let memory = Memory::new(1);
        let allows = || memory.allows(1, MemoryRefusal::Statement);
        let measured = |bytes| memory.publish(WorkerId(0), MemoryKind::Client, usage(bytes));
        measured(50 * MB);
        assert!(allows() && memory.check().is_none(), "there is no limit");
        memory.set_limit(100 * MB as u64);
        assert!(allows());
        measured(100 * MB);
        assert!(!allows() && memory.is_full());
        assert_eq!(memory.check(), Some(true));
        assert_eq!(memory.check(), None);
        measured(91 * MB);
        assert_eq!(memory.check(), None);
        assert!(!allows());
        measured(89 * MB);
        assert_eq!(memory.check(), Some(false));
        assert!(allows());
        assert_eq!(memory.refusals(MemoryRefusal::Statement), 2);
        assert_eq!(memory.refusals(MemoryRefusal::Login), 0);
        // Without the limit nothing is refused.
        measured(100 * MB);
        assert_eq!(memory.check(), Some(true));
        memory.set_limit(0);
        assert_eq!((memory.check(), allows()), (Some(false), true));
    }

    #[test]
    fn one_large_step_is_refused_alone() {
        let memory = Memory::new(1);
        memory.set_limit(100 * MB as u64);
        memory.publish(WorkerId(0), MemoryKind::Client, usage(50 * MB));
        assert!(!memory.allows(60 * MB, MemoryRefusal::Statement));
        assert!(memory.allows(MB, MemoryRefusal::Statement));
        assert!(!memory.allows(usize::MAX, MemoryRefusal::Statement));
    }

    #[test]
    fn freed_memory_is_worth_returning() {
        let memory = Memory::new(1);
        let measured = |bytes| memory.publish(WorkerId(0), MemoryKind::Client, usage(bytes));
        measured(160 * MB);
        assert!(!memory.has_freed_much());
        measured(0);
        assert!(!memory.has_freed_much(), "there is no limit");
        memory.set_limit(160 * MB as u64);
        assert!(memory.has_freed_much());
        assert!(!memory.has_freed_much());
        measured(20 * MB);
        assert!(!memory.has_freed_much());
        measured(11 * MB);
        assert!(!memory.has_freed_much());
        measured(9 * MB);
        assert!(memory.has_freed_much());
    }

    #[test]
    fn logins_share_a_budget() {
        let memory = Arc::new(Memory::new(1));
        let (mut one, mut two) = (LoginMemory::default(), LoginMemory::default());
        assert!(one.set(&memory, LOGIN_ALLOWANCE, 0), "each has a little");
        assert!(one.set(&memory, LOGIN_ALLOWANCE + 600, 1000));
        assert!(!two.set(&memory, LOGIN_ALLOWANCE + 600, 1000));
        assert!(two.set(&memory, LOGIN_ALLOWANCE + 400, 1000));
        assert_eq!(memory.total(), 1000);
        // The budget has become smaller: a login keeps the bytes that it has.
        assert!(one.set(&memory, LOGIN_ALLOWANCE + 500, 100));
        assert!(!one.set(&memory, LOGIN_ALLOWANCE + 501, 100));
        drop(one);
        assert_eq!(memory.total(), 400);
        drop(two);
        assert_eq!(memory.total(), 0);
        assert_eq!(memory.refusals(MemoryRefusal::LoginMessage), 2);
    }
}
