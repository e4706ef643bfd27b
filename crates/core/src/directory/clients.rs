//! Counts of the clients of all workers.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::Directory;
use crate::{
    base::fault::Fault,
    pool::PoolKey,
    shared::{
        bypass::Bypass,
        client_counts::{ClientCounts, ClientLimits},
    },
};

impl Directory {
    /// Counts a new connection, whose login begins.
    pub fn note_connection(&self) {
        self.clients.all.fetch_add(1, Ordering::Relaxed);
        self.client_counts().login_began();
    }

    /// Counts a client that has logged in at another process.
    pub fn client_taken_over(&self, names: Option<&PoolKey>) {
        self.clients.all.fetch_add(1, Ordering::Relaxed);
        if let Some(names) = names {
            self.client_counts().add(names);
        }
    }

    /// Removes a client. `names` has its database and user if it was admitted; `None` if it disconnected before.
    pub fn client_left(&self, names: Option<&PoolKey>) {
        let mut counts = self.client_counts();
        self.clients.all.fetch_sub(1, Ordering::Relaxed);
        match names {
            Some(names) => counts.remove(names),
            None => counts.login_ended(),
        }
    }

    /// Counts a client that has authenticated, under the database and user of its startup packet.
    ///
    /// # Errors
    /// The client would be above a limit: it is parked.
    pub fn admit_client(&self, names: &PoolKey, limits: &ClientLimits) -> Result<(), Fault> {
        let mut counts = self.client_counts();
        let others = self.limited_clients(&counts);
        counts.admit_client(names, limits, others)?;
        counts.login_ended();
        Ok(())
    }

    /// Takes back an admission: the client is refused for another reason.
    pub fn dismiss_client(&self, names: &PoolKey) {
        let mut counts = self.client_counts();
        counts.remove(names);
        counts.login_began();
    }

    /// Sets the number of client connections for which the process has descriptors; `None` is no limit.
    pub fn set_client_room(&self, connections: Option<usize>) {
        let room = connections.unwrap_or(usize::MAX);
        self.clients.room.store(room, Ordering::Relaxed);
    }

    /// Returns the number of client connections for which the process has descriptors.
    #[must_use]
    pub fn client_room(&self) -> usize {
        self.clients.room.load(Ordering::Relaxed)
    }

    /// Returns the number of clients of all workers, including those that log in.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.all.load(Ordering::Relaxed)
    }

    /// Returns the number of clients of `bypass_users` that have a server outside of all pools.
    #[must_use]
    pub fn bypass(&self) -> &Bypass {
        &self.bypass
    }

    /// Returns the number of clients that count towards `max_client_conn`.
    #[must_use]
    pub fn limited_clients(&self, counts: &ClientCounts) -> usize {
        let uncounted = self.bypass.taken() as usize + counts.logins();
        self.clients().saturating_sub(uncounted)
    }

    /// Returns the clients by database and by user.
    pub fn client_counts(&self) -> MutexGuard<'_, ClientCounts> {
        self.clients.by_name.lock()
    }
}
