//! Which standbys have replayed the writes that clients know of (`read_after_write`).
//!
//! The process has a counter of writes, which it increments whenever bytes of a primary arrive: these bytes may confirm
//! a commit to a client. A check of the primary notes the counter before it asks for a position in the WAL after which
//! no confirmed commit lies. A standby of the same timeline that has replayed this position has replayed these writes.
//!
//! The position is `pg_current_wal_insert_lsn()`, the end of the WAL that was written to memory. A commit is confirmed after its
//! record is in memory, whatever `synchronous_commit` is: the setting of a role, a database, the server, a session or a transaction,
//! of a client of pgweir or of another one. The position up to which the WAL was flushed would be too low: a commit with
//! `synchronous_commit = off` is confirmed before its flush.
//!
//! Three facts bound the wait:
//! - A standby gets only WAL that the primary has flushed. The WAL writer flushes commits that nobody has flushed
//!   within three times `wal_writer_delay` (0.6 s by default). It may leave the records of open transactions in
//!   memory for longer, up to the next commit of any session, so a read can wait for that commit.
//!   `read_after_write_wait` ends each wait.
//! - An open transaction that goes on writing moves the end of the WAL, but nobody else waits for it: a primary whose snapshot is
//!   the same as at the check before has completed no transaction since, so the position of that check still holds
//!   ([`CompletedTransactions`]).
//! - If the last record ends at the end of a page, the insert position is after the header of the next page, but the
//!   replay of a standby ends before this header. So a standby that lacks fewer bytes than a commit takes
//!   ([`COMMIT_RECORD_MIN`]) has replayed all commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{HostState, facts::Eligibility};
use crate::{Token, WorkerId, shared::pool::ServerRole};

/// Counts the writes of all workers, once a configuration has an entry with `read_after_write`.
#[derive(Debug)]
pub struct Writes {
    /// Whether writes are counted.
    are_counted: AtomicBool,
    workers: Box<[WorkerWrites]>,
}

/// The writes of one worker, in a cache line of their own: only this worker changes them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerWrites(AtomicU64);

impl Writes {
    /// Creates counters for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            are_counted: AtomicBool::new(false),
            workers: (0..workers.max(1))
                .map(|_| WorkerWrites::default())
                .collect(),
        }
    }

    /// Counts writes from now on, whatever later configurations say. Must be called before a worker gets the first
    /// configuration with `read_after_write`: no host has been checked for it before, so none counts as current.
    pub fn begin(&self) {
        self.are_counted.store(true, Ordering::SeqCst);
    }

    /// Returns whether writes are counted.
    #[inline]
    #[must_use]
    pub fn are_counted(&self) -> bool {
        self.are_counted.load(Ordering::SeqCst)
    }

    /// Counts bytes of a primary, before a client gets them.
    #[inline]
    pub fn add(&self, worker: WorkerId) {
        if self.are_counted()
            && let Some(WorkerWrites(count)) = self.workers.get(worker.index())
        {
            let next = count.load(Ordering::Relaxed) + 1;
            count.store(next, Ordering::Release);
        }
    }

    /// Returns the number of writes, and one more: no host has replayed the writes that other processes have confirmed before
    /// the first check.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self
            .workers
            .iter()
            .map(|WorkerWrites(count)| count.load(Ordering::Acquire));
        counts.sum::<u64>() + 1
    }
}

/// The answer to a check, as far as it concerns the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPosition {
    /// Whether the host is a standby.
    pub(crate) is_standby: bool,
    /// The timeline that a primary writes, or a standby replays.
    pub(crate) timeline: u32,
    /// The position in the WAL after which no confirmed commit of a primary lies, or up to which a standby has replayed.
    pub(crate) position: u64,
    /// The number of writes when the check began.
    pub(crate) writes: u64,
}

/// The transactions that a primary has completed, as its snapshot shows. Two snapshots with the same values have the same completed
/// transactions: no transaction begins with an id below `xmax`, so those that run below `xmax` can only become fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedTransactions {
    /// The id above the last completed transaction.
    pub(crate) xmax: u64,
    /// The number of transactions with a lower id that are still running.
    pub(crate) running: u64,
}

/// The replay of one host, as host checks have found it.
#[derive(Debug)]
pub struct Replay {
    /// The number of writes that the host has replayed for certain.
    replayed: AtomicU64,
    /// Whether the host may be a primary.
    may_write: AtomicBool,
    checks: Mutex<ReplayChecks>,
}

#[derive(Debug, Default)]
struct ReplayChecks {
    /// The worker and the connection that check the host, once it has logged in.
    connection: Option<(WorkerId, Token)>,
    /// The number of writes when the last check began.
    writes: u64,
    answer: Option<ReplayPosition>,
    /// The transactions that a primary had completed at the last check.
    completed: Option<CompletedTransactions>,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            replayed: AtomicU64::new(0),
            may_write: AtomicBool::new(true),
            checks: Mutex::default(),
        }
    }
}

impl Replay {
    /// Returns whether the host is a standby that has replayed this number of writes.
    #[inline]
    #[must_use]
    pub fn has_replayed(&self, writes: u64) -> bool {
        self.replayed.load(Ordering::Acquire) >= writes
    }

    /// Returns whether the host may be a primary.
    #[inline]
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.may_write.load(Ordering::Relaxed)
    }

    /// Notes the role of the host. A host that changes its role has to be checked anew.
    pub(super) fn note_role(&self, role: Option<ServerRole>) {
        let may_write = !role.is_some_and(ServerRole::is_standby);
        if self.may_write.swap(may_write, Ordering::Relaxed) != may_write {
            self.forget();
        }
    }

    /// Forgets what the host has replayed, since it may be another server by now.
    fn forget(&self) {
        let mut checks = self.checks.lock();
        (checks.answer, checks.completed) = (None, None);
        self.replayed.store(0, Ordering::Release);
    }

    /// Begins the checks over a new connection.
    pub fn begin_checks(&self, worker: WorkerId, conn: Token) {
        self.forget();
        self.checks.lock().connection = Some((worker, conn));
    }

    /// Notes that the connection over which the host was checked is lost.
    pub fn end_checks(&self) {
        self.forget();
        self.checks.lock().connection = None;
    }

    /// Returns the worker and the connection that check the host.
    #[must_use]
    pub fn connection(&self) -> Option<(WorkerId, Token)> {
        self.checks.lock().connection
    }

    /// Notes the number of writes, before a check asks for the position.
    pub fn note_asked(&self, writes: u64) {
        self.checks.lock().writes = writes;
    }

    /// Takes the answer of a standby to a check: the timeline and the position that it has replayed.
    pub fn note_standby(&self, timeline: Option<u32>, position: Option<u64>) {
        let mut checks = self.checks.lock();
        let writes = checks.writes;
        let known = timeline.zip(position);
        checks.answer = known.map(|(timeline, position)| ReplayPosition {
            is_standby: true,
            timeline,
            position,
            writes,
        });
    }

    /// Takes the answer of a primary to a check: its timeline, the end of its WAL, and the transactions that it had completed just
    /// before.
    pub fn note_primary(
        &self,
        timeline: Option<u32>,
        wal_end: Option<u64>,
        completed: Option<CompletedTransactions>,
    ) {
        let mut checks = self.checks.lock();
        let is_unchanged = completed.is_some() && completed == checks.completed;
        let former = checks.answer.filter(|former| {
            is_unchanged && !former.is_standby && Some(former.timeline) == timeline
        });
        let writes = checks.writes;
        let known = timeline.zip(wal_end);
        checks.answer = known.map(|(timeline, wal_end)| ReplayPosition {
            is_standby: false,
            timeline,
            position: former.map_or(wal_end, |former| former.position.min(wal_end)),
            writes,
        });
        checks.completed = completed;
    }

    /// Returns the answer to the last check.
    #[must_use]
    pub fn answer(&self) -> Option<ReplayPosition> {
        self.checks.lock().answer
    }

    /// Notes that the host has replayed this number of writes, as this answer shows. Does nothing if the host has begun to be
    /// checked anew since that answer.
    pub fn note_replayed(&self, answer: &ReplayPosition, writes: u64) {
        let checks = self.checks.lock();
        let is_newer = |now: &ReplayPosition| {
            now.is_standby && now.timeline == answer.timeline && now.position >= answer.position
        };
        if checks.answer.as_ref().is_some_and(is_newer) {
            self.replayed.fetch_max(writes, Ordering::AcqRel);
        }
    }
}

/// Returns the index of the primary that confirms the writes: the one with the latest timeline. `None` if that is not certain,
/// since another primary is up whose timeline is not known yet.
#[must_use]
pub fn leader(hosts: impl Iterator<Item = Eligibility>) -> Option<usize> {
    let primaries = hosts.enumerate().filter(|(_, facts)| {
        let is_primary = facts.role.is_some_and(|role| !role.is_standby());
        is_primary && (facts.state == HostState::Up || facts.timeline.is_some())
    });
    let mut latest: Option<(u32, usize)> = None;
    for (at, facts) in primaries {
        let timeline = facts.timeline?;
        if latest.is_none_or(|(known, _)| timeline > known) {
            latest = Some((timeline, at));
        }
    }
    latest.map(|(_, at)| at)
}

/// The bytes that the record of a commit takes in the WAL at least: the header of a record (24), the header of its data (2), and the
/// time of the commit (8).
const COMMIT_RECORD_MIN: u64 = 34;

/// Returns the number of writes that a standby has replayed, as the answers of both hosts show. A standby on another timeline may
/// have replayed as much of another history.
#[must_use]
pub fn replayed_writes(standby: &ReplayPosition, primary: &ReplayPosition) -> Option<u64> {
    let follows = standby.is_standby && !primary.is_standby && standby.timeline == primary.timeline;
    let missing = primary.position.saturating_sub(standby.position);
    (follows && missing < COMMIT_RECORD_MIN).then_some(primary.writes)
}

#[cfg(test)]
mod tests {
    use super::{super::HostFacts, *};

    fn facts(is_standby: bool, state: HostState, timeline: Option<u32>) -> HostFacts {
        let mut facts = HostFacts::default();
        facts.role = Some(ServerRole::new(is_standby, is_standby));
        (facts.state, facts.timeline) = (state, timeline);
        facts
    }

    #[test]
    fn the_leader_is_certain_or_unknown() {
        use HostState::{Down, Up};
        let standby = facts(true, Up, None);
        let (first, second) = (facts(false, Up, Some(1)), facts(false, Up, Some(2)));
        let (unchecked, lost) = (facts(false, Up, None), facts(false, Down, None));
        let old = facts(false, Down, Some(1));
        for (hosts, expect) in [
            (vec![&standby, &first], Some(1)),
            (vec![&first, &second, &standby], Some(1)),
            (vec![&old, &second], Some(1)),
            (vec![&first, &unchecked], None),
            (vec![&first, &lost], Some(0)),
            (vec![&standby, &lost], None),
            (vec![&standby], None),
        ] {
            let hosts = hosts.into_iter().map(HostFacts::eligibility);
            assert_eq!(leader(hosts), expect);
        }
    }

    fn at(is_standby: bool, timeline: u32, position: u64, writes: u64) -> ReplayPosition {
        ReplayPosition {
            is_standby,
            timeline,
            position,
            writes,
        }
    }

    #[test]
    fn a_position_of_the_same_history_proves_the_replay() {
        let primary = at(false, 2, 500, 7);
        for (standby, expect) in [
            (at(true, 2, 500, 0), Some(7)),
            (at(true, 2, 467, 0), Some(7)),
            (at(true, 2, 466, 9), None),
            (at(true, 1, 600, 9), None),
            (at(false, 2, 600, 9), None),
        ] {
            assert_eq!(replayed_writes(&standby, &primary), expect, "{standby:?}");
        }
        assert_eq!(
            replayed_writes(&at(true, 2, 600, 0), &at(true, 2, 500, 7)),
            None
        );
    }

    #[test]
    fn writes_of_all_workers_count() {
        let writes = Writes::new(2);
        writes.add(WorkerId(1));
        assert_eq!(writes.count(), 1, "no entry has read_after_write");
        writes.begin();
        writes.add(WorkerId(1));
        writes.add(WorkerId(0));
        writes.add(WorkerId(1));
        assert_eq!(writes.count(), 4);
    }

    #[test]
    fn only_completed_transactions_move_the_position_of_a_primary() {
        let replay = Replay::default();
        let position = || replay.answer().expect("an answer").position;
        let completed = |xmax, running| Some(CompletedTransactions { xmax, running });
        for (timeline, wal_end, completed, expect) in [
            (1, 100, completed(7, 1), 100),
            (1, 300, completed(7, 1), 100),
            (1, 400, completed(7, 0), 400),
            (1, 500, completed(8, 0), 500),
            (1, 600, None, 600),
            (1, 700, None, 700),
            (1, 800, completed(8, 0), 800),
            (2, 900, completed(8, 0), 900),
            (2, 890, completed(8, 0), 890),
        ] {
            replay.note_primary(Some(timeline), Some(wal_end), completed);
            assert_eq!(position(), expect);
        }
        let conn = Token {
            slot: 1,
            generation: 0,
        };
        replay.begin_checks(WorkerId(0), conn);
        replay.note_primary(Some(2), Some(950), completed(8, 0));
        assert_eq!(position(), 950, "the server may have been restarted");
    }

    #[test]
    fn a_new_connection_or_role_begins_anew() {
        let conn = Token {
            slot: 1,
            generation: 0,
        };
        let replay = Replay::default();
        replay.note_role(Some(ServerRole::new(true, true)));
        let replay_seven = || {
            replay.note_standby(Some(1), Some(10));
            let answer = replay.answer().expect("an answer");
            replay.note_replayed(&answer, 7);
            assert!(replay.has_replayed(7) && !replay.has_replayed(8));
            answer
        };
        let former = replay_seven();
        replay.begin_checks(WorkerId(0), conn);
        assert!(!replay.has_replayed(1));
        replay.note_replayed(&former, 7);
        assert!(
            !replay.has_replayed(1),
            "an answer of the former connection"
        );
        replay_seven();
        replay.note_role(Some(ServerRole::new(false, false)));
        assert!(!replay.has_replayed(1) && replay.may_write());
        replay_seven();
        replay.end_checks();
        assert!(!replay.has_replayed(1));
        assert_eq!(replay.connection(), None);
    }
}
