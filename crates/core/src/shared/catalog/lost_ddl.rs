//! Transactions with DDL whose server connections were closed before the server had answered.
//!
//! PostgreSQL does not notice the end of a connection while it runs a statement, so the server process may still commit
//! the transaction. The catalog counts as changing until the process has ended, which a query on any other connection to
//! the same host shows.

use std::sync::Arc;

use super::Ddl;
use crate::{Endpoint, Time, session::DefaultsChange};

/// The transactions of all databases and workers.
#[derive(Debug, Default)]
pub(crate) struct LostDdl {
    transactions: Vec<LostTransaction>,
    /// See [`LostDdlCounts::given_up`].
    given_up: u64,
}

/// A transaction whose server process may still commit it. Dropping the value ends the transaction for the catalog.
#[derive(Debug)]
pub(crate) struct LostTransaction {
    /// The host, and the pid of the server process there.
    pub(crate) endpoint: Arc<Endpoint>,
    pid: u32,
    /// When the process began, as far as a search has shown this: another process may get the same pid later.
    began_at: Option<i64>,
    /// Keeps the certificates of the database invalid.
    _ddl: Ddl,
    /// The change of session defaults that the process may commit.
    pub(crate) defaults: Option<DefaultsChange>,
    /// When it was last known that the process may run.
    known_at: Time,
}

/// How many transactions were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostDdlCounts {
    /// The transactions whose processes may still run.
    pub present: usize,
    /// The transactions that were dropped although their processes may have run, since no server of their host could be
    /// asked for `lost_ddl_timeout`.
    pub given_up: u64,
}

/// The result of a search for server processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProcessSearch {
    /// The pids that were searched for.
    pub(crate) pids: Vec<u32>,
    /// The processes that were found: pids, and the microseconds since 1970 at which they began. `None`: PostgreSQL
    /// does not tell this user when the process began.
    pub(crate) found: Vec<(u32, Option<i64>)>,
}

impl ProcessSearch {
    /// Begins a search for the processes with these pids.
    #[must_use]
    pub fn of(pids: Vec<u32>) -> Self {
        Self {
            pids,
            found: Vec::new(),
        }
    }

    /// Returns whether the search shows that this process has ended.
    fn has_ended(&self, pid: u32, began_at: Option<i64>) -> bool {
        if !self.pids.contains(&pid) {
            return false;
        }
        match self.beginning(pid) {
            None => true,
            Some(found) => began_at.is_some() && found.is_some() && found != began_at,
        }
    }

    /// Returns when the process with this pid began; the outer `None` means that there is none.
    fn beginning(&self, pid: u32) -> Option<Option<i64>> {
        let mut found = self.found.iter().filter(|(of, _)| *of == pid);
        found.next().map(|(_, began_at)| *began_at)
    }
}

impl LostDdl {
    /// Adds a transaction.
    pub(crate) fn add(
        &mut self,
        endpoint: &Arc<Endpoint>,
        pid: u32,
        (ddl, defaults): (Ddl, Option<DefaultsChange>),
        now: Time,
    ) {
        self.transactions.push(LostTransaction {
            endpoint: Arc::clone(endpoint),
            pid,
            began_at: None,
            _ddl: ddl,
            defaults,
            known_at: now,
        });
    }

    /// Returns the pids of this host.
    pub(crate) fn pids(&self, endpoint: &Endpoint) -> Vec<u32> {
        let transactions = self.transactions.iter();
        let of_host = transactions.filter(|lost| *lost.endpoint == *endpoint);
        of_host.map(|lost| lost.pid).collect()
    }

    /// Takes out the transactions whose processes were last known to run before `timeout` microseconds (0: never).
    pub(crate) fn give_up(&mut self, timeout: u64, now: Time) -> Vec<LostTransaction> {
        let is_late =
            |lost: &mut LostTransaction| timeout > 0 && now.since(lost.known_at) >= timeout;
        let given_up: Vec<_> = self.transactions.extract_if(.., is_late).collect();
        self.given_up += given_up.len() as u64;
        given_up
    }

    /// Takes out this host's transactions whose processes have ended, and notes that its others may still run. A
    /// transaction that was added after the search for processes had begun stays.
    pub(crate) fn remove(
        &mut self,
        endpoint: &Endpoint,
        search: &ProcessSearch,
        now: Time,
    ) -> Vec<LostTransaction> {
        let has_ended = |lost: &mut LostTransaction| {
            if *lost.endpoint != *endpoint {
                return false;
            }
            lost.known_at = now;
            let has_ended = search.has_ended(lost.pid, lost.began_at);
            lost.began_at = lost.began_at.or(search.beginning(lost.pid).flatten());
            has_ended
        };
        self.transactions.extract_if(.., has_ended).collect()
    }

    /// Returns how many transactions were lost.
    pub(crate) fn counts(&self) -> LostDdlCounts {
        LostDdlCounts {
            present: self.transactions.len(),
            given_up: self.given_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogs;

    const TIMEOUT: u64 = 1000;

    fn search(pids: &[u32], found: &[(u32, Option<i64>)]) -> ProcessSearch {
        ProcessSearch {
            pids: pids.to_vec(),
            found: found.to_vec(),
        }
    }

    #[test]
    fn a_transaction_is_kept_while_its_process_is_there() {
        let catalog = Arc::<Catalogs>::default().add();
        let [host, other] = ["/a", "/b"].map(|folder| Arc::new(Endpoint::of(folder, 5432)));
        let mut lost = LostDdl::default();
        lost.add(&host, 7, (catalog.ddl_begins(), None), Time(0));
        lost.add(&other, 7, (catalog.ddl_begins(), None), Time(0));
        assert_eq!(lost.pids(&host), [7]);
        let is_there = search(&[7], &[(7, None)]);
        assert!(lost.remove(&host, &is_there, Time(TIMEOUT - 1)).is_empty());
        assert_eq!(catalog.report().ddl, 2);
        // This process was not searched for: its connection was closed later.
        lost.add(&other, 8, (catalog.ddl_begins(), None), Time(1));
        assert_eq!(lost.remove(&other, &search(&[7], &[]), Time(1)).len(), 1);
        assert_eq!(lost.pids(&other), [8]);
        assert_eq!(lost.remove(&other, &search(&[8], &[]), Time(2)).len(), 1);
        assert_eq!(catalog.report().ddl, 1);
        assert!(lost.give_up(TIMEOUT, Time(TIMEOUT)).is_empty());
        assert!(lost.give_up(0, Time(9 * TIMEOUT)).is_empty());
        assert_eq!(lost.give_up(TIMEOUT, Time(2 * TIMEOUT)).len(), 1);
        assert!(lost.pids(&host).is_empty());
        assert_eq!(catalog.report().ddl, 0);
        let counts = LostDdlCounts {
            present: 0,
            given_up: 1,
        };
        assert_eq!(lost.counts(), counts);
    }

    #[test]
    fn another_process_with_the_same_pid() {
        let catalog = Arc::<Catalogs>::default().add();
        let host = Arc::new(Endpoint::of("/a", 5432));
        let mut lost = LostDdl::default();
        lost.add(&host, 7, (catalog.ddl_begins(), None), Time(0));
        for began_at in [None, Some(50), None, Some(50)] {
            assert!(
                lost.remove(&host, &search(&[7], &[(7, began_at)]), Time(1))
                    .is_empty()
            );
        }
        assert_eq!(
            lost.remove(&host, &search(&[7], &[(7, Some(51))]), Time(2))
                .len(),
            1
        );
        assert_eq!(catalog.report().ddl, 0);
    }
}
