//! Counts of the clients of all workers.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::Directory;
use crate::{
    bypass::Bypass,
    client_counts::{ClientCounts, ClientLimits},
    fault::Fault,
    pool::PoolKey,
};

impl Directory {
    /// Counts a new client, and returns how many clients there are now.
    pub fn client_came(&self) -> usize {
        self.clients.all.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Removes a client. `names` is its database and user, if it was counted; `is_parked` if its login was still
    /// [parked](ClientCounts::parked_logins).
    pub fn client_left(&self, names: Option<&PoolKey>, is_parked: bool) {
        let mut counts = self.client_counts();
        self.clients.all.fetch_sub(1, Ordering::Relaxed);
        match names {
            _ if is_parked => counts.unpark_login(),
            Some(names) => counts.remove(names),
            None => {}
        }
    }

    /// Counts a client under the database and user of its startup packet. `is_parked` if its login was parked before.
    ///
    /// # Errors
    /// The client would be above a limit: it is parked.
    pub fn admit_client(
        &self,
        names: &PoolKey,
        limits: &ClientLimits,
        is_parked: bool,
    ) -> Result<(), Fault> {
        let mut counts = self.client_counts();
        if !is_parked {
            counts.park_login();
        }
        let others = self.limited_clients(&counts);
        counts.admit_client(names, limits, others)?;
        counts.unpark_login();
        Ok(())
    }

    /// The clients of all workers, including those that log in.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.all.load(Ordering::Relaxed)
    }

    /// The clients of `bypass_users` that have a server outside of all pools.
    #[must_use]
    pub fn bypass(&self) -> &Bypass {
        &self.bypass
    }

    /// The clients that count towards `max_client_conn`.
    #[must_use]
    pub fn limited_clients(&self, counts: &ClientCounts) -> usize {
        let spared = self.bypass.taken() as usize + counts.parked_logins();
        self.clients().saturating_sub(spared)
    }

    /// The clients by database and by user.
    pub fn client_counts(&self) -> MutexGuard<'_, ClientCounts> {
        self.clients.by_name.lock()
    }
}
