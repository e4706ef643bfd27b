//! The clients of all workers, counted.

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
    /// A client came: how many there are now.
    pub fn client_came(&self) -> usize {
        self.clients.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A client left, which had these names or was still [aside](ClientCounts::aside).
    pub fn client_left(&self, names: Option<&PoolKey>, is_aside: bool) {
        let mut counts = self.client_counts();
        self.clients.fetch_sub(1, Ordering::Relaxed);
        match names {
            _ if is_aside => counts.take_from_aside(),
            Some(names) => counts.remove(names),
            None => {}
        }
    }

    /// A client that came has named a database and a user. It counts from here on, or is aside.
    ///
    /// # Errors
    /// It is one too many.
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

    /// Clients of all workers, those that log in included.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Those of them that are past the limits.
    #[must_use]
    pub fn bypass(&self) -> &Bypass {
        &self.bypass
    }

    /// Clients that count for `max_client_conn`.
    #[must_use]
    pub fn limited_clients(&self, counts: &ClientCounts) -> usize {
        let spared = self.bypass.taken() as usize + counts.aside();
        self.clients().saturating_sub(spared)
    }

    /// Clients by database and by user.
    pub fn client_counts(&self) -> MutexGuard<'_, ClientCounts> {
        self.client_counts.lock()
    }
}
