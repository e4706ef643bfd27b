//! Transactions with DDL whose server connections were closed before the server had answered.
//!
//! PostgreSQL does not notice the end of a connection while it runs a statement, so the server process may still commit
//! the transaction. The catalog counts as changing until the process has ended, which a query on any other connection to
//! the same host shows.

use std::sync::Arc;

use super::Ddl;
use crate::{Endpoint, Time};

/// The longest time, in microseconds, for which a transaction is kept if no server of its host can be asked.
const KEPT_MAX: u64 = 600_000_000;

/// The transactions of all databases and workers.
#[derive(Debug, Default)]
pub(crate) struct LostDdl(Vec<LostTransaction>);

#[derive(Debug)]
struct LostTransaction {
    /// The host, and the pid of the server process there.
    endpoint: Arc<Endpoint>,
    pid: u32,
    /// Keeps the certificates of the database invalid.
    _ddl: Ddl,
    /// When it was last known that the process may run.
    known_at: Time,
}

impl LostDdl {
    /// Adds a transaction.
    pub(crate) fn add(&mut self, endpoint: &Arc<Endpoint>, pid: u32, ddl: Ddl, now: Time) {
        self.0.push(LostTransaction {
            endpoint: Arc::clone(endpoint),
            pid,
            _ddl: ddl,
            known_at: now,
        });
    }

    /// Returns the pids of this host. Transactions that were kept for too long are dropped.
    pub(crate) fn pids(&mut self, endpoint: &Endpoint, now: Time) -> Vec<u32> {
        self.0.retain(|lost| now.since(lost.known_at) < KEPT_MAX);
        let of_host = self.0.iter().filter(|lost| *lost.endpoint == *endpoint);
        of_host.map(|lost| lost.pid).collect()
    }

    /// Removes this host's transactions whose processes have ended, and notes that its others may still run. A transaction
    /// that was added after the search for processes had begun stays. Returns whether any was removed.
    pub(crate) fn remove(&mut self, endpoint: &Endpoint, ended: &[u32], now: Time) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|lost| {
            if *lost.endpoint != *endpoint {
                return true;
            }
            lost.known_at = now;
            !ended.contains(&lost.pid)
        });
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogs;

    #[test]
    fn a_transaction_is_kept_while_its_process_is_there() {
        let catalog = Arc::<Catalogs>::default().add();
        let [host, other] = ["/a", "/b"].map(|folder| Arc::new(Endpoint::of(folder, 5432)));
        let mut lost = LostDdl::default();
        lost.add(&host, 7, catalog.ddl_begins(), Time(0));
        lost.add(&other, 7, catalog.ddl_begins(), Time(0));
        assert_eq!(lost.pids(&host, Time(1)), [7]);
        assert!(!lost.remove(&host, &[], Time(KEPT_MAX - 1)));
        assert_eq!(catalog.report().ddl, 2);
        // This process was not searched for: its connection was closed later.
        lost.add(&other, 8, catalog.ddl_begins(), Time(1));
        assert!(lost.remove(&other, &[7], Time(1)));
        assert_eq!(lost.pids(&other, Time(1)), [8]);
        assert!(lost.remove(&other, &[8], Time(2)));
        assert_eq!(catalog.report().ddl, 1);
        assert_eq!(lost.pids(&host, Time(KEPT_MAX)), [7]);
        assert!(lost.pids(&host, Time(2 * KEPT_MAX)).is_empty());
        assert_eq!(catalog.report().ddl, 0);
    }
}
