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
        self.clients.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Removes a client. `names` is its database and user, if it was counted; `is_aside` if its login was still
    /// [parked](ClientCounts::aside).
    pub fn client_left(&self, names: Option<&PoolKey>, is_aside: bool) {
        let mut counts = self.client_counts();
        self.clients.fetch_sub(1, Ordering::Relaxed);
        match names {
            _ if is_aside => counts.take_from_aside(),
            Some(names) => counts.remove(names),
            None => {}
        }
    }

    /// Counts a client under the database and user of its startup packet. `is_aside` if its login was parked before.
    ///
    /// # Errors
    /// The client would be above a limit: it is parked.
    pub fn let_in(
        &self,
        names: &PoolKey,
        limits: &ClientLimits,
        is_aside: bool,
    ) -> Result<(), Fault> {
        let mut counts = self.client_counts();
        if !is_aside {
            counts.set_aside();
        }
        let others = self.limited_clients(&counts);
        counts.let_in(names, limits, others)?;
        counts.take_from_aside();
        Ok(())
    }

    /// The clients of all workers, including those that log in.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// The clients of `bypass_users` that have a server outside of all pools.
    #[must_use]
    pub fn bypass(&self) -> &Bypass {
        &self.bypass
    }

    /// The clients that count towards `max_client_conn`.
    #[must_use]
    pub fn limited_clients(&self, counts: &ClientCounts) -> usize {
        let spared = self.bypass.taken() as usize + counts.aside();
        self.clients().saturating_sub(spared)
    }

    /// The clients by database and by user.
    pub fn client_counts(&self) -> MutexGuard<'_, ClientCounts> {
        self.client_counts.lock()
    }
}
