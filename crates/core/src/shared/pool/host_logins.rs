//! The results of logins to each host of a pool.

use std::{borrow::Borrow, sync::Arc};

use crate::{Endpoint, Time};

/// The largest number of hosts that are remembered. If there are more, those that were tried first are forgotten first.
const HOSTS_MAX: usize = 64;

/// The result of a login to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostLogin {
    /// The server has accepted the login.
    Done,
    /// The server has answered with an error.
    Refused,
    /// The server says that it starts, shuts down, or recovers after a crash.
    Unavailable,
    /// The server could not be reached, or did not answer.
    Unreachable,
    /// The server does not match `target_session_attrs`.
    WrongRole,
    /// The server had sent nothing when a login to another host was complete (`host_race_after`).
    Overtaken,
}

impl HostLogin {
    /// All results.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Refused,
        Self::Unavailable,
        Self::Unreachable,
        Self::WrongRole,
        Self::Overtaken,
    ];

    /// Returns the name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
            Self::WrongRole => "wrong_role",
            Self::Overtaken => "overtaken",
        }
    }
}

/// The logins to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCounts {
    counts: [u64; HostLogin::ALL.len()],
    last: HostLogin,
    /// When the last login ended.
    at: Time,
}

impl HostCounts {
    /// Returns the number of logins for each result.
    pub fn counts(&self) -> impl Iterator<Item = (HostLogin, u64)> {
        HostLogin::ALL.into_iter().zip(self.counts)
    }

    /// Returns the result of the last login.
    #[must_use]
    pub fn last(&self) -> HostLogin {
        self.last
    }

    /// Adds the logins of another pool to the same host. The host counts as unreachable if either pool found it so.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        if other.last != HostLogin::Done && self.last != HostLogin::Unreachable {
            self.last = other.last;
        }
    }
}

/// A host that the next login may go to.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'e> {
    pub(crate) endpoint: &'e Endpoint,
    /// Whether host checks have found that the host can't be used.
    pub(crate) is_excluded: bool,
    /// Whether the host is in another zone than this process.
    pub(crate) is_in_another_zone: bool,
    /// The number of connections; 0 if it does not matter.
    pub(crate) connections: u32,
}

/// The logins to all hosts of a pool.
#[derive(Debug, Default)]
pub struct HostLogins(Vec<(Arc<Endpoint>, HostCounts)>);

impl HostLogins {
    pub(crate) fn note(&mut self, endpoint: &Arc<Endpoint>, login: HostLogin, now: Time) {
        let known = self.0.iter_mut().find(|(one, _)| one == endpoint);
        let counts = match known {
            Some((_, counts)) => counts,
            None => {
                if self.0.len() >= HOSTS_MAX {
                    self.0.remove(0);
                }
                let fresh = HostCounts {
                    counts: [0; HostLogin::ALL.len()],
                    last: login,
                    at: now,
                };
                &mut self.0.push_mut((Arc::clone(endpoint), fresh)).1
            }
        };
        counts.counts[login as usize] += 1;
        counts.last = login;
        counts.at = now;
    }

    /// Chooses the host for the next login: one that is not known to be unusable (see [`Self::choose_usable`]). If all
    /// hosts are, chooses one that was only slower than another host, or one that only has the wrong role, or else the
    /// one at `start`.
    #[must_use]
    pub(crate) fn choose(
        &self,
        candidates: &[Candidate<'_>],
        start: usize,
        (now, retry): (Time, u64),
    ) -> usize {
        let first_with = |login: HostLogin| {
            in_turn(candidates, start)
                .find(|&at| self.recent_failure(candidates[at].endpoint, now, retry) == Some(login))
        };
        let slow = || first_with(HostLogin::Overtaken).filter(|&at| !candidates[at].is_excluded);
        self.choose_usable(candidates, start, (now, retry))
            .or_else(slow)
            .or_else(|| first_with(HostLogin::WrongRole))
            .unwrap_or(start % candidates.len())
    }

    /// Chooses the host with the fewest connections among those that are not known to be unusable, in this zone if
    /// there are any. If several have the fewest, chooses the first of them from `start` on. `retry` is the time after
    /// which an unusable host is tried again.
    #[must_use]
    pub(crate) fn choose_usable(
        &self,
        candidates: &[Candidate<'_>],
        start: usize,
        (now, retry): (Time, u64),
    ) -> Option<usize> {
        let is_usable = |at: &usize| {
            let candidate = &candidates[*at];
            !candidate.is_excluded
                && (self.recent_failure(candidate.endpoint, now, retry)).is_none()
        };
        let usable = in_turn(candidates, start).filter(is_usable);
        usable.min_by_key(|at| {
            (
                candidates[*at].is_in_another_zone,
                candidates[*at].connections,
            )
        })
    }

    /// Returns whether one of these hosts had the wrong role lately.
    #[must_use]
    pub(crate) fn is_any_reachable(
        &self,
        endpoints: &[Arc<Endpoint>],
        (now, retry): (Time, u64),
    ) -> bool {
        let mut endpoints = endpoints.iter();
        endpoints
            .any(|endpoint| self.recent_failure(endpoint, now, retry) == Some(HostLogin::WrongRole))
    }

    /// Returns whether the last login to each of these hosts has failed lately. If so, the next round of logins waits
    /// for `retry`.
    #[must_use]
    pub(crate) fn are_all_useless(
        &self,
        mut endpoints: impl Iterator<Item = impl Borrow<Endpoint>>,
        now: Time,
        retry: u64,
    ) -> bool {
        endpoints.all(|endpoint| {
            let failure = self.recent_failure(endpoint.borrow(), now, retry);
            // A host that was slower than another one may be well.
            failure.is_some_and(|failure| failure != HostLogin::Overtaken)
        })
    }

    /// Returns why the last login to a host failed, if that was less than `retry` ago.
    fn recent_failure(&self, endpoint: &Endpoint, now: Time, retry: u64) -> Option<HostLogin> {
        let (_, counts) = self.0.iter().find(|(one, _)| **one == *endpoint)?;
        let is_fresh = now.since(counts.at) < retry;
        (is_fresh && counts.last != HostLogin::Done).then_some(counts.last)
    }

    /// Returns the hosts that were tried.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Endpoint, &HostCounts)> {
        self.0
            .iter()
            .map(|(endpoint, counts)| (&**endpoint, counts))
    }
}

/// Returns the places of all candidates, beginning with `start`.
fn in_turn(candidates: &[Candidate<'_>], start: usize) -> impl Iterator<Item = usize> {
    let count = candidates.len();
    (0..count).map(move |offset| (start + offset) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_bounded_and_the_worst_last_login_counts() {
        let mut logins = HostLogins::default();
        for port in 0..=HOSTS_MAX as u16 {
            let endpoint = Arc::new(Endpoint::of("a", port));
            logins.note(&endpoint, HostLogin::Unreachable, Time(0));
            logins.note(&endpoint, HostLogin::Done, Time(0));
        }
        assert_eq!(logins.iter().count(), HOSTS_MAX);
        let (_, counts) = logins.iter().next().unwrap();
        assert_eq!(counts.counts, [1, 0, 0, 1, 0, 0]);
        assert_eq!(counts.last(), HostLogin::Done);
        let mut sum = *counts;
        sum.add(&HostCounts {
            counts: [0, 0, 0, 3, 0, 0],
            last: HostLogin::Unreachable,
            at: Time(0),
        });
        assert_eq!(
            (sum.counts, sum.last()),
            ([1, 0, 0, 4, 0, 0], HostLogin::Unreachable)
        );
    }

    #[test]
    fn hosts_of_the_own_zone_come_first() {
        const RETRY: u64 = 15;
        let hosts = [1, 2, 3].map(|port| Arc::new(Endpoint::of("a", port)));
        let mut logins = HostLogins::default();
        let mut candidates = hosts.each_ref().map(|endpoint| Candidate {
            endpoint,
            is_excluded: false,
            is_in_another_zone: true,
            connections: 0,
        });
        candidates[1].is_in_another_zone = false;
        candidates[1].connections = 7;
        let chosen = |logins: &HostLogins, candidates: &[Candidate<'_>]| {
            [0, 1, 2].map(|start| logins.choose(candidates, start, (Time(0), RETRY)))
        };
        assert_eq!(chosen(&logins, &candidates), [1, 1, 1]);
        candidates[2].is_in_another_zone = false;
        candidates[2].connections = 3;
        assert_eq!(chosen(&logins, &candidates), [2, 2, 2]);
        logins.note(&hosts[2], HostLogin::Unreachable, Time(0));
        assert_eq!(chosen(&logins, &candidates), [1, 1, 1]);
        candidates[1].is_excluded = true;
        assert_eq!(chosen(&logins, &candidates), [0, 0, 0]);
    }

    #[test]
    fn the_next_host_is_one_that_has_not_just_failed() {
        const RETRY: u64 = 15;
        let hosts = [1, 2, 3].map(|port| Arc::new(Endpoint::of("a", port)));
        let mut logins = HostLogins::default();
        let of_use = hosts.each_ref().map(|endpoint| Candidate {
            endpoint,
            is_excluded: false,
            is_in_another_zone: false,
            connections: 0,
        });
        let chosen =
            |logins: &HostLogins, start, now| logins.choose(&of_use, start, (Time(now), RETRY));
        let are_useless = |logins: &HostLogins, now| {
            logins.are_all_useless(hosts.iter().cloned(), Time(now), RETRY)
        };
        assert_eq!(chosen(&logins, 4, 0), 1);
        let others = |excluded: [bool; 3], connections: [u32; 3]| {
            let mut hosts = of_use;
            for (at, host) in hosts.iter_mut().enumerate() {
                (host.is_excluded, host.connections) = (excluded[at], connections[at]);
            }
            logins.choose(&hosts, 1, (Time(0), RETRY))
        };
        assert_eq!(others([false, true, false], [0; 3]), 2);
        assert_eq!(others([true; 3], [0; 3]), 1);
        assert_eq!(others([false; 3], [1, 3, 2]), 0);
        assert_eq!(others([true, false, false], [1, 2, 2]), 1);
        logins.note(&hosts[0], HostLogin::Unreachable, Time(100));
        assert_eq!((chosen(&logins, 0, 100), chosen(&logins, 2, 100)), (1, 2));
        logins.note(&hosts[1], HostLogin::WrongRole, Time(105));
        assert_eq!(
            (chosen(&logins, 0, 105), are_useless(&logins, 105)),
            (2, false)
        );
        logins.note(&hosts[2], HostLogin::Refused, Time(110));
        assert_eq!(
            (chosen(&logins, 1, 110), are_useless(&logins, 110)),
            (1, true)
        );
        // The first host is tried again.
        assert_eq!(
            (chosen(&logins, 1, 115), are_useless(&logins, 115)),
            (0, false)
        );
        logins.note(&hosts[1], HostLogin::Done, Time(116));
        assert_eq!(chosen(&logins, 1, 116), 1);
    }

    #[test]
    fn a_host_that_was_overtaken_is_the_first_of_the_unusable_ones() {
        const TIMES: (Time, u64) = (Time(5), 15);
        let hosts = [1, 2, 3].map(|port| Arc::new(Endpoint::of("a", port)));
        let mut candidates = hosts.each_ref().map(|endpoint| Candidate {
            endpoint,
            is_excluded: false,
            is_in_another_zone: false,
            connections: 0,
        });
        let mut logins = HostLogins::default();
        logins.note(&hosts[1], HostLogin::Overtaken, Time(0));
        assert_eq!(logins.choose_usable(&candidates, 1, TIMES), Some(2));
        logins.note(&hosts[0], HostLogin::WrongRole, Time(0));
        logins.note(&hosts[2], HostLogin::Unreachable, Time(0));
        assert_eq!(logins.choose_usable(&candidates, 0, TIMES), None);
        assert_eq!(logins.choose(&candidates, 0, TIMES), 1);
        let (now, retry) = TIMES;
        assert!(!logins.are_all_useless(hosts.iter().cloned(), now, retry));
        candidates[1].is_excluded = true;
        assert_eq!(logins.choose(&candidates, 2, TIMES), 0);
    }
}
