//! What all workers of a process share: the configuration and the pools by name.

use std::sync::Arc;

use parking_lot::RwLock;
use pgweir_auth::userlist::Userlist;
use pgweir_config::Config;

/// One whole configuration: it is replaced, never changed.
#[derive(Debug)]
pub struct Snapshot {
    /// The ini file, checked.
    pub config: Config,
    /// The users of `auth_file`.
    pub users: Userlist,
}

/// Shared by all workers of a process; touched at login and by the console, never per query.
#[derive(Debug)]
pub struct Directory {
    snapshot: RwLock<Arc<Snapshot>>,
    workers: usize,
}

impl Directory {
    /// A directory for `workers` workers.
    #[must_use]
    pub fn new(workers: usize, snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot: RwLock::new(snapshot), workers }
    }

    /// The configuration in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Puts a new configuration in force. The caller then mails it to every worker.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        *self.snapshot.write() = snapshot;
    }
}
