//! Which standbys have replayed the writes that clients know of (`read_after_write`).
//!
//! The process counts its writes: every time that bytes of a primary arrive, which may tell a client of a commit. A check of the
//! primary notes the count before it asks for the position in the WAL, so all writes up to that count lie before that position. A
//! standby that has replayed the position has replayed these writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{HostState, facts::Eligibility};
use crate::{Token, WorkerId, shared::pool::ServerRole};

/// Counts the writes of all workers.
#[derive(Debug)]
pub struct Writes(Box<[WorkerWrites]>);

/// The writes of one worker, in a cache line of their own: only this worker changes them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerWrites(AtomicU64);

impl Writes {
    /// Creates counters for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(
            (0..workers.max(1))
                .map(|_| WorkerWrites::default())
                .collect(),
        )
    }

    /// Counts bytes of a primary, before a client gets them.
    #[inline]
    pub fn add(&self, worker: WorkerId) {
        if let Some(WorkerWrites(count)) = self.0.get(worker.index()) {
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
            .0
            .iter()
            .map(|WorkerWrites(count)| count.load(Ordering::Acquire));
        counts.sum::<u64>() + 1
    }
}

/// The answer to a check, as far as it concerns the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPosition {
    /// Whether the host is a standby.
    pub is_standby: bool,
    /// The timeline that a primary writes, or a standby replays.
    pub timeline: u32,
    /// The position in the WAL up to which every confirmed commit lies on a primary, or up to which a standby has replayed.
    pub position: u64,
    /// The number of writes when the check began.
    pub writes: u64,
}

/// What checks have found about the replay of one host.
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
        checks.answer = None;
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

    /// Takes the answer to a check.
    pub fn note_answer(&self, is_standby: bool, timeline: Option<u32>, position: Option<u64>) {
        let mut checks = self.checks.lock();
        let writes = checks.writes;
        let known = timeline.zip(position);
        checks.answer = known.map(|(timeline, position)| ReplayPosition {
            is_standby,
            timeline,
            position,
            writes,
        });
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

/// Returns the number of writes that a standby has replayed, as the answers of both hosts show. A standby on another timeline may
/// have replayed as much of another history.
#[must_use]
pub fn replayed_writes(standby: &ReplayPosition, primary: &ReplayPosition) -> Option<u64> {
    let follows = standby.is_standby && !primary.is_standby && standby.timeline == primary.timeline;
    (follows && standby.position >= primary.position).then_some(primary.writes)
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
            (at(true, 2, 499, 9), None),
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
        assert_eq!(writes.count(), 1);
        writes.add(WorkerId(1));
        writes.add(WorkerId(0));
        writes.add(WorkerId(1));
        assert_eq!(writes.count(), 4);
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
            replay.note_answer(true, Some(1), Some(10));
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
