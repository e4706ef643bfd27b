//! A set of workers.

use crate::WorkerId;

/// A set of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerSet(u64);

impl WorkerSet {
    /// Adds a worker.
    pub fn insert(&mut self, worker: WorkerId) {
        self.0 |= 1 << worker.0;
    }

    /// Removes a worker.
    pub fn remove(&mut self, worker: WorkerId) {
        self.0 &= !(1 << worker.0);
    }

    /// Returns whether the worker is in the set.
    #[must_use]
    pub fn has(self, worker: WorkerId) -> bool {
        self.0 & (1 << worker.0) != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the workers of the set.
    pub fn iter(self) -> impl Iterator<Item = WorkerId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let worker = WorkerId(left.trailing_zeros() as u8);
            left &= left.checked_sub(1)?;
            Some(worker)
        })
    }
}
