//! The state, role and lag of one host, and whether a pool may use it.

use pgweir_config::TargetSession;

use crate::{Time, shared::pool::ServerRole};

/// Whether a host can be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostState {
    /// No login has ended yet.
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
    /// Whether it can be reached.
    pub state: HostState,
    /// The server's role; `None` until a login or a check has found it out.
    pub role: Option<ServerRole>,
    /// The timeline that a primary writes; each promotion begins a new one.
    pub timeline: Option<u32>,
    /// The position in the WAL up to which a primary has written, or a standby has replayed.
    pub position: Option<u64>,
    /// How far a standby is behind its primary, in microseconds.
    pub lag: Option<u64>,
    /// When a login or a check succeeded last.
    pub heard_at: Option<Time>,
    /// When a check was begun last.
    pub checked_at: Option<Time>,
    /// The last error, and when it occurred.
    pub last_error: Option<(String, Time)>,
    /// The checks in a row that were not answered.
    pub unanswered: u32,
    /// How often the host went from up to down or unavailable.
    pub failures: u64,
    /// The failures since the host was last up for [`FORGIVEN_AFTER`].
    recent_failures: u32,
    /// Since when the host is up.
    up_since: Option<Time>,
    /// The time until which a host that has failed lately has to stay up, before new servers are opened on it again.
    pub settles_at: Option<Time>,
    /// When the last check out of turn was asked for.
    doubted_at: Option<Time>,
    /// The time of the next check out of turn.
    pub check_at: Option<Time>,
}

/// Microseconds after which the failures of a host that stays up no longer count.
const FORGIVEN_AFTER: u64 = 600_000_000;
/// How often `host_return_after` doubles at most: up to the 32-fold.
const DOUBLED_MAX: u32 = 5;

/// The reasons for which the servers of a host are used no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// The host is none of those that `target_session_attrs` asks for.
    Role,
    /// Another host of the list was promoted later.
    Superseded,
    /// The host does not answer, and another one can be used.
    Silent,
    /// The host says that it starts, shuts down or recovers, and another one can be used.
    Unavailable,
    /// The host has failed lately, and another one can be used: no new server is opened on it.
    Settling,
    /// The host is a standby that is further behind than `max_replica_lag`, or nobody knows how far.
    Lagging,
}

impl Unfit {
    /// Returns the reason for closing a server.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Role => "its role is no longer the one of target_session_attrs",
            Self::Superseded => "another host of the list was promoted after it",
            Self::Silent => "its host does not answer checks",
            Self::Unavailable => "its host is starting, shutting down or recovering",
            Self::Settling => "its host has failed lately",
            Self::Lagging => "its host is further behind than max_replica_lag",
        }
    }
}

/// Which hosts of a list a pool uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The role that the hosts must have.
    pub target: TargetSession,
    /// How far a standby may be behind, in microseconds; 0 is no limit.
    pub max_lag: u64,
    /// Whether the servers are new ones.
    pub is_for_new: bool,
}

impl Need {
    /// The same for a new server: a standby is used again only when it is well within the limit, and a host that has failed
    /// only when it has stayed up for a while, so that no host is left and chosen in turn.
    #[must_use]
    pub fn of_new_servers(self) -> Self {
        Self {
            is_for_new: true,
            ..self
        }
    }

    /// The same for a server that is open.
    fn of_open_servers(self) -> Self {
        Self {
            is_for_new: false,
            ..self
        }
    }

    /// Returns how far a standby may be behind, in microseconds.
    fn lag_max(self) -> u64 {
        match self.is_for_new {
            true => self.max_lag - self.max_lag / 4,
            false => self.max_lag,
        }
    }
}

/// The facts on which the use of a host depends: a change of them is announced to all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    state: HostState,
    role: Option<ServerRole>,
    timeline: Option<u32>,
    is_settling: bool,
}

impl HostFacts {
    /// Returns what decides about the use of the host.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            state: self.state,
            role: self.role,
            timeline: self.timeline,
            is_settling: self.settles_at.is_some(),
        }
    }

    /// Notes that the host answers. `return_after`: how many microseconds a host that has failed has to stay up before new
    /// servers are opened on it, after its first failure; 0 if they may be at once.
    pub fn heard(&mut self, now: Time, return_after: u64) {
        self.heard_at = Some(now);
        self.unanswered = 0;
        if self.state != HostState::Up {
            self.state = HostState::Up;
            self.up_since = Some(now);
            let doubled = self.recent_failures.saturating_sub(1).min(DOUBLED_MAX);
            let must_settle = self.recent_failures > 0 && return_after > 0;
            self.settles_at = must_settle.then(|| now.after(return_after << doubled));
        }
        if self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
        }
        let is_forgiven = |since: Time| now.since(since) >= FORGIVEN_AFTER;
        if self.up_since.is_some_and(is_forgiven) {
            self.recent_failures = 0;
        }
    }

    /// Notes that the host is not up: the new state. A failure is counted if the host can't be used by anyone now.
    pub fn is_not_up(&mut self, state: HostState) {
        let has_failed = matches!(state, HostState::Down | HostState::Unavailable);
        if self.state == HostState::Up && has_failed {
            self.failures += 1;
            self.recent_failures = self.recent_failures.saturating_add(1);
        }
        self.state = state;
        self.settles_at = None;
    }

    /// Notes a reason to check the host out of turn. Returns whether that is to be done at once; if it was done less than
    /// `pause` microseconds ago, it is to be done after that time.
    pub fn doubt(&mut self, now: Time, pause: u64) -> bool {
        let next = self.doubted_at.map_or(now, |at| at.after(pause).max(now));
        self.check_at = Some(next);
        let is_due = next == now;
        if is_due {
            self.doubted_at = Some(now);
        }
        is_due
    }

    /// Returns whether the host is to be checked, which is done every `interval` microseconds.
    #[must_use]
    pub fn is_check_due(&self, now: Time, interval: u64) -> bool {
        let is_over = |at: Time| now.since(at) >= interval;
        self.checked_at.is_none_or(is_over) || self.check_at.is_some_and(|at| at <= now)
    }

    /// Notes that a check is begun, or has failed. `again`: after how many microseconds it is repeated, if it is out of turn.
    pub fn checked(&mut self, now: Time, again: Option<u64>) {
        self.checked_at = Some(now);
        self.check_at = again.map(|pause| now.after(pause));
    }

    /// Notes an error.
    pub fn failed(&mut self, error: &str, now: Time) {
        self.last_error = Some((error.to_owned(), now));
    }

    /// Returns whether the host can be used, as far as is known.
    fn serves(&self, need: Need) -> bool {
        let is_fitting = self.role.is_some_and(|role| role.fits(need.target));
        let is_settled = !need.is_for_new || self.settles_at.is_none();
        self.state == HostState::Up && is_fitting && is_settled && !self.is_lagging(need)
    }

    /// Returns whether new servers can be opened on this host instead of another one that has failed lately. A primary serves
    /// `prefer-standby` then, too.
    fn replaces(&self, other: &Self, need: Need) -> bool {
        let is_last_resort = need.target == TargetSession::PreferStandby
            && self.state == HostState::Up
            && self.role.is_some_and(|role| !role.is_standby())
            && self.settles_at.is_none();
        let is_superseded = self.timeline.is_some() && self.timeline < other.timeline;
        (self.serves(need) || is_last_resort) && !is_superseded
    }

    /// Returns whether the host is a standby that is too far behind.
    #[must_use]
    pub fn is_lagging(&self, need: Need) -> bool {
        let is_standby = self.role.is_some_and(ServerRole::is_standby);
        need.max_lag > 0 && is_standby && self.lag.is_none_or(|lag| lag > need.lag_max())
    }

    /// Returns why servers of this host are used no more; `others` are the other hosts of the list.
    #[must_use]
    pub fn unfit<'f>(
        &self,
        others: impl Iterator<Item = &'f HostFacts> + Clone,
        need: Need,
    ) -> Option<Unfit> {
        let target = need.target;
        let open = need.of_open_servers();
        let is_served = others.clone().any(|other| other.serves(open));
        let writes = matches!(target, TargetSession::ReadWrite | TargetSession::Primary);
        let is_wrong = match (self.role, target) {
            (None, _) | (_, TargetSession::Any) => false,
            // A primary is the last resort: it is used until new servers would be opened on a standby.
            (Some(role), TargetSession::PreferStandby) => {
                let need = need.of_new_servers();
                !role.fits(target) && others.clone().any(|other| other.serves(need))
            }
            (Some(role), _) => !role.fits(target),
        };
        if is_wrong {
            return Some(Unfit::Role);
        }
        let mut promoted = (others.clone()).filter(|other| writes && other.serves(open));
        if promoted.any(|other| self.timeline.is_some() && self.timeline < other.timeline) {
            return Some(Unfit::Superseded);
        }
        match self.state {
            HostState::Down if is_served => return Some(Unfit::Silent),
            HostState::Unavailable if is_served => return Some(Unfit::Unavailable),
            _ => {}
        }
        if target == TargetSession::Any {
            return None;
        }
        let mut others = others;
        let is_settling = need.is_for_new && self.settles_at.is_some();
        if is_settling && others.any(|other| other.replaces(self, need)) {
            return Some(Unfit::Settling);
        }
        self.is_lagging(need).then_some(Unfit::Lagging)
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
            (&standby, &primary, ReadWrite, Some(Unfit::Role)),
            (&standby, &primary, Any, None),
            (&standby, &primary, Standby, None),
            (&primary, &standby, Standby, Some(Unfit::Role)),
            // Both claim to be the primary: the one that was promoted last is.
            (&primary, &promoted, Primary, Some(Unfit::Superseded)),
            (&promoted, &primary, Primary, None),
            (&primary, &promoted, Any, None),
            // Nothing is gained by leaving a silent host for a standby.
            (&down, &standby, ReadWrite, None),
            (&down, &primary, ReadWrite, Some(Unfit::Silent)),
            (&down, &promoted, ReadWrite, Some(Unfit::Superseded)),
            (&primary, &standby, PreferStandby, Some(Unfit::Role)),
            (&primary, &down, PreferStandby, None),
        ] {
            let need = Need {
                target,
                max_lag: 0,
                is_for_new: false,
            };
            let found = own.unfit([other].into_iter(), need);
            assert_eq!(found, expect, "{own:?} beside {other:?} for {target}");
        }
        let unknown = HostFacts::default();
        let need = Need {
            target: ReadWrite,
            max_lag: 0,
            is_for_new: false,
        };
        assert_eq!(unknown.unfit([&primary].into_iter(), need), None);
    }

    #[test]
    fn a_standby_that_is_behind_is_left() {
        let primary = host(HostState::Up, false, Some(1));
        let need = Need {
            target: TargetSession::PreferStandby,
            max_lag: 100,
            is_for_new: false,
        };
        let standby = |lag| HostFacts {
            lag,
            ..host(HostState::Up, true, None)
        };
        for (lag, expect, new) in [
            (Some(75), None, None),
            (Some(76), None, Some(Unfit::Lagging)),
            (Some(101), Some(Unfit::Lagging), Some(Unfit::Lagging)),
            (None, Some(Unfit::Lagging), Some(Unfit::Lagging)),
        ] {
            let standby = standby(lag);
            let found = |need| standby.unfit([&primary].into_iter(), need);
            assert_eq!((found(need), found(need.of_new_servers())), (expect, new));
            // The primary serves instead, for as long as no new server would be opened on the standby.
            let instead = primary.unfit([&standby].into_iter(), need);
            assert_eq!(instead.is_none(), new.is_some());
        }
        let any = Need {
            target: TargetSession::Any,
            ..need
        };
        assert_eq!(standby(None).unfit([&primary].into_iter(), any), None);
    }

    #[test]
    fn a_host_that_comes_and_goes_has_to_stay_up() {
        const RETURN_AFTER: u64 = 5;
        let mut standby = host(HostState::Unknown, true, None);
        standby.heard(Time(0), RETURN_AFTER);
        assert_eq!(standby.settles_at, None);
        for (failed_at, settles_at) in [(10, 16), (20, 31), (40, 61), (100, 141)] {
            standby.is_not_up(HostState::Unavailable);
            standby.is_not_up(HostState::Down);
            assert_eq!(standby.settles_at, None);
            standby.heard(Time(failed_at + 1), RETURN_AFTER);
            assert_eq!(standby.settles_at, Some(Time(settles_at)));
            standby.heard(Time(settles_at - 1), RETURN_AFTER);
            assert_eq!(standby.settles_at, Some(Time(settles_at)));
            let before = standby.standing();
            standby.heard(Time(settles_at), RETURN_AFTER);
            assert_eq!(standby.settles_at, None);
            assert_ne!(standby.standing(), before, "it is announced");
        }
        assert_eq!(standby.failures, 4);
        for _ in 0..20 {
            standby.is_not_up(HostState::Down);
            standby.heard(Time(1_000), RETURN_AFTER);
        }
        assert_eq!(standby.settles_at, Some(Time(1_000 + 32 * RETURN_AFTER)));
        // A refused login, of a user with too many connections, say, is no failure.
        standby.heard(Time(1_000 + FORGIVEN_AFTER), RETURN_AFTER);
        standby.is_not_up(HostState::Refusing);
        standby.heard(Time(1_001 + FORGIVEN_AFTER), RETURN_AFTER);
        assert_eq!(standby.settles_at, None);
        assert_eq!(standby.failures, 24);
        standby.is_not_up(HostState::Down);
        standby.heard(Time(1_002 + FORGIVEN_AFTER), 0);
        assert_eq!(standby.settles_at, None);
    }

    #[test]
    fn new_servers_avoid_a_host_that_has_just_failed() {
        use TargetSession::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        let settling = |host: HostFacts| HostFacts {
            settles_at: Some(Time(1)),
            ..host
        };
        let primary = host(HostState::Up, false, Some(1));
        let promoted = settling(host(HostState::Up, false, Some(2)));
        let standby = host(HostState::Up, true, None);
        let failed = settling(host(HostState::Up, true, None));
        let recovers = host(HostState::Unavailable, true, None);
        for (own, other, target, open, new) in [
            (&failed, &standby, Standby, None, Some(Unfit::Settling)),
            (&failed, &standby, ReadOnly, None, Some(Unfit::Settling)),
            (&failed, &standby, Any, None, None),
            (&failed, &failed, Standby, None, None),
            (&failed, &primary, Standby, None, None),
            // The primary is used in its place.
            (
                &failed,
                &primary,
                PreferStandby,
                None,
                Some(Unfit::Settling),
            ),
            (&primary, &failed, PreferStandby, None, None),
            (
                &primary,
                &standby,
                PreferStandby,
                Some(Unfit::Role),
                Some(Unfit::Role),
            ),
            // There is one primary, and it is not avoided.
            (&promoted, &primary, ReadWrite, None, None),
            (
                &primary,
                &promoted,
                ReadWrite,
                Some(Unfit::Superseded),
                Some(Unfit::Superseded),
            ),
            (&promoted, &standby, Primary, None, None),
            (
                &recovers,
                &standby,
                Standby,
                Some(Unfit::Unavailable),
                Some(Unfit::Unavailable),
            ),
            (&recovers, &primary, Standby, None, None),
        ] {
            let need = Need {
                target,
                max_lag: 0,
                is_for_new: false,
            };
            let found = |need| own.unfit([other].into_iter(), need);
            let found = (found(need), found(need.of_new_servers()));
            assert_eq!(found, (open, new), "{own:?} beside {other:?} for {target}");
        }
    }

    #[test]
    fn doubts_are_bounded() {
        let mut facts = HostFacts::default();
        let doubts: Vec<_> = [100, 101, 149, 150, 199, 200]
            .map(|at| facts.doubt(Time(at), 50))
            .into();
        assert_eq!(doubts, [true, false, false, true, false, true]);
        facts.checked(Time(200), None);
        assert!(!facts.is_check_due(Time(209), 10));
        assert!(facts.is_check_due(Time(210), 10));
        // A doubt that comes too early is not forgotten.
        assert!(!facts.doubt(Time(201), 50));
        facts.checked_at = Some(Time(201));
        assert!(!facts.is_check_due(Time(249), 1_000));
        assert!(facts.is_check_due(Time(250), 1_000));
        facts.checked(Time(250), Some(5));
        assert!(!facts.is_check_due(Time(254), 1_000));
        assert!(facts.is_check_due(Time(255), 1_000));
    }
}
