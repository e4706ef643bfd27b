//! How logins to each host of a pool end.

use std::sync::Arc;

use crate::Endpoint;

/// The most hosts that are remembered: those that were tried first are forgotten first.
const HOSTS_MAX: usize = 64;

/// The end of a login to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostLogin {
    /// The server has let pgweir in.
    Done,
    /// The server has answered, with an error.
    Refused,
    /// The server could not be reached, or did not answer.
    Unreachable,
}

impl HostLogin {
    /// All ends.
    pub const ALL: [Self; 3] = [Self::Done, Self::Refused, Self::Unreachable];

    /// Returns the name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        }
    }
}

/// The logins to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCounts {
    counts: [u64; HostLogin::ALL.len()],
    last: HostLogin,
}

impl HostCounts {
    /// Returns the number of logins for each end.
    pub fn counts(&self) -> impl Iterator<Item = (HostLogin, u64)> {
        HostLogin::ALL.into_iter().zip(self.counts)
    }

    /// Returns how the last login ended.
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

/// The logins to all hosts of a pool.
#[derive(Debug, Default)]
pub struct HostLogins(Vec<(Arc<Endpoint>, HostCounts)>);

impl HostLogins {
    pub(crate) fn note(&mut self, endpoint: &Arc<Endpoint>, login: HostLogin) {
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
                };
                &mut self.0.push_mut((Arc::clone(endpoint), fresh)).1
            }
        };
        counts.counts[login as usize] += 1;
        counts.last = login;
    }

    /// Returns the hosts that were tried.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Endpoint, &HostCounts)> {
        self.0
            .iter()
            .map(|(endpoint, counts)| (&**endpoint, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_bounded_and_the_worst_last_login_counts() {
        let mut logins = HostLogins::default();
        for port in 0..=HOSTS_MAX as u16 {
            let endpoint = Arc::new(Endpoint::of("a", port));
            logins.note(&endpoint, HostLogin::Unreachable);
            logins.note(&endpoint, HostLogin::Done);
        }
        assert_eq!(logins.iter().count(), HOSTS_MAX);
        let (_, counts) = logins.iter().next().unwrap();
        assert_eq!(counts.counts, [1, 0, 1]);
        assert_eq!(counts.last(), HostLogin::Done);
        let mut sum = *counts;
        sum.add(&HostCounts {
            counts: [0, 0, 3],
            last: HostLogin::Unreachable,
        });
        assert_eq!(
            (sum.counts, sum.last()),
            ([1, 0, 4], HostLogin::Unreachable)
        );
    }
}
