//! The state, role and lag of one host, and whether a pool may use it.

use pgweir_config::TargetSession;

use super::Reported;
use crate::{Time, shared::pool::ServerRole};

/// Whether a host can be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostState {
    /// No login has succeeded or failed yet.
    #[default]
    Unknown,
    /// The last login succeeded, and checks are answered.
    Up,
    /// The host answers, but refused the last login.
    Refusing,
    /// The host says that it starts, shuts down, or recovers after a crash.
    Unavailable,
    /// The host could not be reached, or has not answered several checks.
    Down,
}

impl HostState {
    /// Returns the name in SHOW HOSTS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Refusing => "refusing",
            Self::Unavailable => "unavailable",
            Self::Down => "down",
        }
    }
}

/// The state, role and lag of one host, as logins and checks have found them.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Whether the host can be reached.
    pub state: HostState,
    /// The role; `None` until a login or a check has reported it.
    pub role: Option<ServerRole>,
    /// The timeline that a primary writes; each promotion begins a new one.
    pub timeline: Option<u32>,
    /// The position in the WAL up to which a primary has written, or a standby has replayed.
    pub position: Option<u64>,
    /// How far a standby is behind its primary, in microseconds.
    pub lag: Option<u64>,
    /// When a login or a check last succeeded.
    pub answered_at: Option<Time>,
    /// When the last check began.
    pub checked_at: Option<Time>,
    /// The last error, and when it occurred.
    pub last_error: Option<(String, Time)>,
    /// The number of consecutive checks without an answer.
    pub unanswered: u32,
    /// The number of times that the host went from up to down or unavailable.
    pub failures: u64,
    /// How reliable the host was lately.
    stability: Stability,
    /// Whether the host is a standby that has not replayed the last writes within `read_after_write_wait`.
    pub is_behind: bool,
    /// The end of the host's probation (`host_return_after`): a host that has failed has to stay up until then, before
    /// pgweir opens new server connections to it.
    pub probation_ends_at: Option<Time>,
    /// When a check before its regular time was last requested and begun.
    last_request_at: Option<Time>,
    /// The time of a check that was requested before its regular time.
    pub check_at: Option<Time>,
    /// Patroni's report about the host.
    pub reported: Reported,
}

/// How reliable a host was lately.
#[derive(Debug, Clone, Copy, Default)]
struct Stability {
    /// The failures since the host was last up for [`FAILURES_EXPIRE_AFTER`].
    recent_failures: u32,
    /// When the host last came up.
    up_since: Option<Time>,
}

/// Microseconds after which the failures of a host that stays up no longer count.
const FAILURES_EXPIRE_AFTER: u64 = 600_000_000;
/// The largest number of times that `host_return_after` is doubled: up to 32 times its value.
const DOUBLED_MAX: u32 = 5;

/// The reasons for which a pool does not use a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostExclusion {
    /// The role of the host is not one that `target_session_attrs` asks for.
    Role,
    /// Another host of the list was promoted later.
    Superseded,
    /// The host does not answer, and another one can be used.
    Unresponsive,
    /// The host says that it starts, shuts down or recovers, and another one can be used.
    Unavailable,
    /// The host has failed lately, and another one can be used: pgweir opens no new connection to it.
    OnProbation,
    /// The host is a standby whose lag is above `max_replica_lag`, or unknown.
    Lagging,
    /// The host is a standby that has not replayed the last writes within `read_after_write_wait`.
    Behind,
}

impl HostExclusion {
    /// Returns the reason that the log gives for closing a server of the host.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Role => "its role is no longer the one of target_session_attrs",
            Self::Superseded => "another host of the list was promoted after it",
            Self::Unresponsive => "its host does not answer checks",
            Self::Unavailable => "its host is starting, shutting down or recovering",
            Self::OnProbation => "its host has failed lately",
            Self::Lagging => "its host is further behind than max_replica_lag",
            Self::Behind => {
                "its host has not replayed the last writes within read_after_write_wait"
            }
        }
    }
}

/// The conditions that a host must meet for a pool to use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRequirements {
    /// The roles that are allowed.
    pub target: TargetSession,
    /// The highest lag of a standby, in microseconds; 0 means no limit.
    pub max_lag: u64,
    /// Whether a standby must have replayed earlier writes (`read_after_write`).
    pub reads_writes: bool,
    /// Whether the conditions are for opening a new server connection. If not, they are for using an open one.
    pub is_for_new: bool,
}

impl HostRequirements {
    /// Returns the conditions for opening a new server connection. These conditions are stricter than those for using
    /// an open server connection: the lag of a standby must be well below the limit, and a host that has failed must
    /// have stayed up for a while. So pgweir does not alternate between hosts.
    #[must_use]
    pub fn for_new_servers(self) -> Self {
        Self {
            is_for_new: true,
            ..self
        }
    }

    /// Returns the conditions for using an open server connection.
    fn for_open_servers(self) -> Self {
        Self {
            is_for_new: false,
            ..self
        }
    }

    /// Returns the highest lag of a standby, in microseconds.
    fn lag_max(self) -> u64 {
        match self.is_for_new {
            true => self.max_lag - self.max_lag / 4,
            false => self.max_lag,
        }
    }
}

/// The part of [`HostFacts`] that decides which pools may use the host. All workers are informed when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eligibility {
    pub(super) state: HostState,
    pub(super) role: Option<ServerRole>,
    pub(super) timeline: Option<u32>,
    is_on_probation: bool,
    is_behind: bool,
}

impl HostFacts {
    /// Returns the facts that decide which pools may use the host.
    #[must_use]
    pub fn eligibility(&self) -> Eligibility {
        Eligibility {
            state: self.state,
            role: self.role,
            timeline: self.timeline,
            is_on_probation: self.probation_ends_at.is_some(),
            is_behind: self.is_behind,
        }
    }

    /// Records that the host has answered. `return_after`: for how many microseconds a host has to stay up after its
    /// first failure, before new server connections are opened to it; 0 means that they may be opened at once.
    pub fn note_answer(&mut self, now: Time, return_after: u64) {
        self.answered_at = Some(now);
        self.unanswered = 0;
        if self.state != HostState::Up {
            self.state = HostState::Up;
            self.stability.up_since = Some(now);
            let doubled = self
                .stability
                .recent_failures
                .saturating_sub(1)
                .min(DOUBLED_MAX);
            let must_wait = self.stability.recent_failures > 0 && return_after > 0;
            self.probation_ends_at = must_wait.then(|| now.after(return_after << doubled));
        }
        if self.probation_ends_at.is_some_and(|at| at <= now) {
            self.probation_ends_at = None;
        }
        let has_expired = |since: Time| now.since(since) >= FAILURES_EXPIRE_AFTER;
        if self.stability.up_since.is_some_and(has_expired) {
            self.stability.recent_failures = 0;
        }
    }

    /// Records that the host has this state, which is not `Up`. A state in which no user can log in counts as a
    /// failure.
    pub fn note_unusable(&mut self, state: HostState) {
        let has_failed = matches!(state, HostState::Down | HostState::Unavailable);
        if self.state == HostState::Up && has_failed {
            self.failures += 1;
            self.stability.recent_failures = self.stability.recent_failures.saturating_add(1);
        }
        self.state = state;
        self.probation_ends_at = None;
    }

    /// Requests a check of the host before the regular time. Returns whether the check is due at once: if the last
    /// requested check was less than `pause` microseconds ago, the next one begins after that time.
    pub fn request_check(&mut self, now: Time, pause: u64) -> bool {
        let next = self
            .last_request_at
            .map_or(now, |at| at.after(pause).max(now));
        self.check_at = Some(next);
        let is_due = next == now;
        if is_due {
            self.last_request_at = Some(now);
        }
        is_due
    }

    /// Returns whether a check is due: every `interval` microseconds, or because one was requested.
    #[must_use]
    pub fn is_check_due(&self, now: Time, interval: u64) -> bool {
        let is_over = |at: Time| now.since(at) >= interval;
        self.checked_at.is_none_or(is_over) || self.check_at.is_some_and(|at| at <= now)
    }

    /// Records that a check has begun or failed. `again`: after how many microseconds the next one begins, if not at
    /// the regular time.
    pub fn note_check(&mut self, now: Time, again: Option<u64>) {
        self.checked_at = Some(now);
        self.check_at = again.map(|pause| now.after(pause));
    }

    /// Records an error.
    pub fn note_error(&mut self, error: &str, now: Time) {
        self.last_error = Some((error.to_owned(), now));
    }

    /// Returns whether the host is known to be up and to meet the conditions.
    fn serves(&self, requirements: HostRequirements) -> bool {
        let is_fitting = self.role.is_some_and(|role| role.fits(requirements.target));
        let is_off_probation = !requirements.is_for_new || self.probation_ends_at.is_none();
        self.state == HostState::Up
            && is_fitting
            && is_off_probation
            && !self.is_lagging(requirements)
            && !self.is_left_behind(requirements)
    }

    /// Returns whether new server connections can be opened to this host instead of `other`, which has failed lately.
    /// With `prefer-standby`, a primary can take its place, too.
    fn replaces(&self, other: &Self, requirements: HostRequirements) -> bool {
        let is_last_resort = requirements.target == TargetSession::PreferStandby
            && self.state == HostState::Up
            && self.role.is_some_and(|role| !role.is_standby())
            && self.probation_ends_at.is_none();
        let is_superseded = self.timeline.is_some() && self.timeline < other.timeline;
        (self.serves(requirements) || is_last_resort) && !is_superseded
    }

    /// Returns whether the host is a standby whose lag is too high or unknown.
    #[must_use]
    pub fn is_lagging(&self, requirements: HostRequirements) -> bool {
        let is_standby = self.role.is_some_and(ServerRole::is_standby);
        requirements.max_lag > 0
            && is_standby
            && self.lag.is_none_or(|lag| lag > requirements.lag_max())
    }

    /// Returns whether the host is a standby that must have replayed the last writes, and has not.
    #[must_use]
    pub fn is_left_behind(&self, requirements: HostRequirements) -> bool {
        let is_standby = self.role.is_some_and(ServerRole::is_standby);
        requirements.reads_writes && is_standby && self.is_behind
    }

    /// Returns why a pool does not use this host; `others` are the other hosts of the pool's list.
    #[must_use]
    pub fn exclusion<'f>(
        &self,
        others: impl Iterator<Item = &'f HostFacts> + Clone,
        requirements: HostRequirements,
    ) -> Option<HostExclusion> {
        let target = requirements.target;
        let open = requirements.for_open_servers();
        let can_be_replaced = others.clone().any(|other| other.serves(open));
        let writes = matches!(target, TargetSession::ReadWrite | TargetSession::Primary);
        let is_wrong = match (self.role, target) {
            (None, _) | (_, TargetSession::Any) => false,
            // A primary is the last resort: it is used until new connections could be opened to a standby.
            (Some(role), TargetSession::PreferStandby) => {
                let requirements = requirements.for_new_servers();
                !role.fits(target) && others.clone().any(|other| other.serves(requirements))
            }
            (Some(role), _) => !role.fits(target),
        };
        if is_wrong {
            return Some(HostExclusion::Role);
        }
        let mut promoted = (others.clone()).filter(|other| writes && other.serves(open));
        if promoted.any(|other| self.timeline.is_some() && self.timeline < other.timeline) {
            return Some(HostExclusion::Superseded);
        }
        match self.state {
            HostState::Down if can_be_replaced => return Some(HostExclusion::Unresponsive),
            HostState::Unavailable if can_be_replaced => return Some(HostExclusion::Unavailable),
            _ => {}
        }
        if target == TargetSession::Any {
            return None;
        }
        let mut others = others;
        let is_on_probation = requirements.is_for_new && self.probation_ends_at.is_some();
        if is_on_probation && others.any(|other| other.replaces(self, requirements)) {
            return Some(HostExclusion::OnProbation);
        }
        if self.is_left_behind(requirements) {
            return Some(HostExclusion::Behind);
        }
        self.is_lagging(requirements)
            .then_some(HostExclusion::Lagging)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(state: HostState, is_standby: bool, timeline: Option<u32>) -> HostFacts {
        HostFacts {
            state,
            role: Some(ServerRole::new(is_standby, is_standby)),
            timeline,
            ..HostFacts::default()
        }
    }

    #[test]
    fn an_old_primary_is_left_for_a_new_one_only() {
        use TargetSession::{Any, PreferStandby, Primary, ReadWrite, Standby};
        let primary = host(HostState::Up, false, Some(1));
        let standby = host(HostState::Up, true, None);
        let promoted = host(HostState::Up, false, Some(2));
        let down = host(HostState::Down, false, Some(1));
        for (own, other, target, expect) in [
            (&primary, &standby, ReadWrite, None),
            (&standby, &primary, ReadWrite, Some(HostExclusion::Role)),
            (&standby, &primary, Any, None),
            (&standby, &primary, Standby, None),
            (&primary, &standby, Standby, Some(HostExclusion::Role)),
            // Both claim to be the primary: the one that was promoted last is.
            (
                &primary,
                &promoted,
                Primary,
                Some(HostExclusion::Superseded),
            ),
            (&promoted, &primary, Primary, None),
            (&primary, &promoted, Any, None),
            // A standby can't replace a primary that does not answer.
            (&down, &standby, ReadWrite, None),
            (
                &down,
                &primary,
                ReadWrite,
                Some(HostExclusion::Unresponsive),
            ),
            (&down, &promoted, ReadWrite, Some(HostExclusion::Superseded)),
            (&primary, &standby, PreferStandby, Some(HostExclusion::Role)),
            (&primary, &down, PreferStandby, None),
        ] {
            let requirements = HostRequirements {
                target,
                max_lag: 0,
                reads_writes: false,
                is_for_new: false,
            };
            let found = own.exclusion([other].into_iter(), requirements);
            assert_eq!(found, expect, "{own:?} beside {other:?} for {target}");
        }
        let unknown = HostFacts::default();
        let requirements = HostRequirements {
            target: ReadWrite,
            max_lag: 0,
            reads_writes: false,
            is_for_new: false,
        };
        assert_eq!(
            unknown.exclusion([&primary].into_iter(), requirements),
            None
        );
    }

    #[test]
    fn a_standby_that_is_behind_is_left() {
        let primary = host(HostState::Up, false, Some(1));
        let requirements = HostRequirements {
            target: TargetSession::PreferStandby,
            max_lag: 100,
            reads_writes: false,
            is_for_new: false,
        };
        let standby = |lag| HostFacts {
            lag,
            ..host(HostState::Up, true, None)
        };
        for (lag, expect, new) in [
            (Some(75), None, None),
            (Some(76), None, Some(HostExclusion::Lagging)),
            (
                Some(101),
                Some(HostExclusion::Lagging),
                Some(HostExclusion::Lagging),
            ),
            (
                None,
                Some(HostExclusion::Lagging),
                Some(HostExclusion::Lagging),
            ),
        ] {
            let standby = standby(lag);
            let found = |requirements| standby.exclusion([&primary].into_iter(), requirements);
            assert_eq!(
                (found(requirements), found(requirements.for_new_servers())),
                (expect, new)
            );
            // The primary is used instead, for as long as no new connection would be opened to the standby.
            let instead = primary.exclusion([&standby].into_iter(), requirements);
            assert_eq!(instead.is_none(), new.is_some());
        }
        let any = HostRequirements {
            target: TargetSession::Any,
            ..requirements
        };
        assert_eq!(standby(None).exclusion([&primary].into_iter(), any), None);
    }

    #[test]
    fn a_host_that_comes_and_goes_has_to_stay_up() {
        const RETURN_AFTER: u64 = 5;
        let mut standby = host(HostState::Unknown, true, None);
        standby.note_answer(Time(0), RETURN_AFTER);
        assert_eq!(standby.probation_ends_at, None);
        for (failed_at, probation_ends_at) in [(10, 16), (20, 31), (40, 61), (100, 141)] {
            standby.note_unusable(HostState::Unavailable);
            standby.note_unusable(HostState::Down);
            assert_eq!(standby.probation_ends_at, None);
            standby.note_answer(Time(failed_at + 1), RETURN_AFTER);
            assert_eq!(standby.probation_ends_at, Some(Time(probation_ends_at)));
            standby.note_answer(Time(probation_ends_at - 1), RETURN_AFTER);
            assert_eq!(standby.probation_ends_at, Some(Time(probation_ends_at)));
            let before = standby.eligibility();
            standby.note_answer(Time(probation_ends_at), RETURN_AFTER);
            assert_eq!(standby.probation_ends_at, None);
            assert_ne!(standby.eligibility(), before, "it is announced");
        }
        assert_eq!(standby.failures, 4);
        for _ in 0..20 {
            standby.note_unusable(HostState::Down);
            standby.note_answer(Time(1_000), RETURN_AFTER);
        }
        assert_eq!(
            standby.probation_ends_at,
            Some(Time(1_000 + 32 * RETURN_AFTER))
        );
        // A refused login, of a user with too many connections, say, is no failure.
        standby.note_answer(Time(1_000 + FAILURES_EXPIRE_AFTER), RETURN_AFTER);
        standby.note_unusable(HostState::Refusing);
        standby.note_answer(Time(1_001 + FAILURES_EXPIRE_AFTER), RETURN_AFTER);
        assert_eq!(standby.probation_ends_at, None);
        assert_eq!(standby.failures, 24);
        standby.note_unusable(HostState::Down);
        standby.note_answer(Time(1_002 + FAILURES_EXPIRE_AFTER), 0);
        assert_eq!(standby.probation_ends_at, None);
    }

    #[test]
    fn new_servers_avoid_a_host_that_has_just_failed() {
        use TargetSession::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        let settling = |host: HostFacts| HostFacts {
            probation_ends_at: Some(Time(1)),
            ..host
        };
        let primary = host(HostState::Up, false, Some(1));
        let promoted = settling(host(HostState::Up, false, Some(2)));
        let standby = host(HostState::Up, true, None);
        let failed = settling(host(HostState::Up, true, None));
        let recovers = host(HostState::Unavailable, true, None);
        for (own, other, target, open, new) in [
            (
                &failed,
                &standby,
                Standby,
                None,
                Some(HostExclusion::OnProbation),
            ),
            (
                &failed,
                &standby,
                ReadOnly,
                None,
                Some(HostExclusion::OnProbation),
            ),
            (&failed, &standby, Any, None, None),
            (&failed, &failed, Standby, None, None),
            (&failed, &primary, Standby, None, None),
            // The primary is used in its place.
            (
                &failed,
                &primary,
                PreferStandby,
                None,
                Some(HostExclusion::OnProbation),
            ),
            (&primary, &failed, PreferStandby, None, None),
            (
                &primary,
                &standby,
                PreferStandby,
                Some(HostExclusion::Role),
                Some(HostExclusion::Role),
            ),
            // There is one primary, and it is not avoided.
            (&promoted, &primary, ReadWrite, None, None),
            (
                &primary,
                &promoted,
                ReadWrite,
                Some(HostExclusion::Superseded),
                Some(HostExclusion::Superseded),
            ),
            (&promoted, &standby, Primary, None, None),
            (
                &recovers,
                &standby,
                Standby,
                Some(HostExclusion::Unavailable),
                Some(HostExclusion::Unavailable),
            ),
            (&recovers, &primary, Standby, None, None),
        ] {
            let requirements = HostRequirements {
                target,
                max_lag: 0,
                reads_writes: false,
                is_for_new: false,
            };
            let found = |requirements| own.exclusion([other].into_iter(), requirements);
            let found = (found(requirements), found(requirements.for_new_servers()));
            assert_eq!(found, (open, new), "{own:?} beside {other:?} for {target}");
        }
    }

    #[test]
    fn requested_checks_are_bounded() {
        let mut facts = HostFacts::default();
        let due: Vec<_> = [100, 101, 149, 150, 199, 200]
            .map(|at| facts.request_check(Time(at), 50))
            .into();
        assert_eq!(due, [true, false, false, true, false, true]);
        facts.note_check(Time(200), None);
        assert!(!facts.is_check_due(Time(209), 10));
        assert!(facts.is_check_due(Time(210), 10));
        // A request that comes too early is not forgotten.
        assert!(!facts.request_check(Time(201), 50));
        facts.checked_at = Some(Time(201));
        assert!(!facts.is_check_due(Time(249), 1_000));
        assert!(facts.is_check_due(Time(250), 1_000));
        facts.note_check(Time(250), Some(5));
        assert!(!facts.is_check_due(Time(254), 1_000));
        assert!(facts.is_check_due(Time(255), 1_000));
    }
}
