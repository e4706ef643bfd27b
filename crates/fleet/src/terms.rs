//! The settings that must be the same on all nodes of a fleet: the budget, the floor, the times of a lease.

use std::fmt;

/// How much faster or slower than real time a node's clock may run, in thousandths.
pub const DRIFT_PER_MILLE: u64 = 10;

/// The numbers that all nodes of a fleet have in common. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The maximum number of servers of all nodes together.
    pub budget: u32,
    /// The maximum number of nodes.
    pub nodes: u32,
    /// How many servers each node may always have. It is also the maximum number of logins to servers that a node has
    /// under way.
    pub floor: u32,
    /// How long a node may use its servers above the floor without renewing its lease.
    pub lease: u64,
    /// How often a node reads the account.
    pub interval: u64,
    /// How long a node waits for the answer to a request to the store.
    pub timeout: u64,
}

/// Why terms are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermsError {
    /// The floors alone exceed the budget.
    FloorsExceedBudget,
    /// The floor is 0: a node could open no server, since it has at most its floor of logins under way.
    NoFloor,
    /// The lease leaves no time for three attempts to renew it.
    LeaseTooShort,
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FloorsExceedBudget => "the floors of all nodes exceed the budget",
            Self::NoFloor => "the floor is 0",
            Self::LeaseTooShort => "the lease is shorter than three intervals and time-outs",
        })
    }
}

impl std::error::Error for TermsError {}

impl Terms {
    /// Checks the terms.
    ///
    /// # Errors
    /// The terms are not valid; see [`TermsError`].
    pub fn check(&self) -> Result<(), TermsError> {
        if self.floor == 0 {
            return Err(TermsError::NoFloor);
        }
        if u64::from(self.floor) * u64::from(self.nodes) > self.budget.into() {
            return Err(TermsError::FloorsExceedBudget);
        }
        match self.lease / 3 < self.interval.saturating_add(self.timeout) {
            true => Err(TermsError::LeaseTooShort),
            false => Ok(()),
        }
    }

    /// Returns the servers above the floors of all nodes.
    #[must_use]
    pub fn spare(&self) -> u32 {
        self.budget
            .saturating_sub(self.floor.saturating_mul(self.nodes))
    }

    /// Returns how long a node may use its servers above the floor after it sent a renewal, by its own clock.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.lease / 1_000 * (1_000 - DRIFT_PER_MILLE)
    }

    /// Returns how long other nodes wait after they read a renewal, by their own clocks, before they consider the lease
    /// over. Rounded up.
    #[must_use]
    pub fn patience(&self) -> u64 {
        (self.lease / 1_000 + 1) * (1_000 + DRIFT_PER_MILLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms() {
        let good = Terms {
            budget: 60,
            nodes: 3,
            floor: 5,
            lease: 3_000_000,
            interval: 200_000,
            timeout: 500_000,
        };
        assert_eq!((good.check(), good.spare()), (Ok(()), 45));
        let all = Terms { floor: 20, ..good };
        assert_eq!((all.check(), all.spare()), (Ok(()), 0));
        let wrong = [
            (Terms { floor: 21, ..good }, TermsError::FloorsExceedBudget),
            (Terms { floor: 0, ..good }, TermsError::NoFloor),
            (
                Terms {
                    lease: 2_000_000,
                    ..good
                },
                TermsError::LeaseTooShort,
            ),
        ];
        for (terms, error) in wrong {
            assert_eq!(terms.check(), Err(error), "{terms:?}");
        }
        // If the node's clock is as slow as allowed and the other's as fast as allowed, the node still ends its lease
        // first.
        let real = |own: u64, per_mille: u64| own as f64 / per_mille as f64;
        let node = real(good.usable(), 1_000 - DRIFT_PER_MILLE);
        assert!(node <= real(good.patience(), 1_000 + DRIFT_PER_MILLE));
    }
}
