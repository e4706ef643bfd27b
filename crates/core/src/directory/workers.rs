//! The workers of the process, and their loads.

use std::sync::Arc;

use super::{Directory, Snapshot};
use crate::{base::token::WorkerId, shared::worker_loads::WorkerLoads};

impl Snapshot {
    /// Returns `worker_busy_target`, in thousandths of a CPU.
    #[must_use]
    pub fn worker_busy_target(&self) -> u32 {
        10 * self.config.settings.worker_busy_target
    }
}

impl Directory {
    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.workers()
    }

    /// Returns the ids of all workers.
    pub(crate) fn worker_ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.workers()).map(|index| WorkerId(index as u8))
    }

    /// Returns the loads of the workers, and which of them take part.
    #[must_use]
    pub fn worker_loads(&self) -> &Arc<WorkerLoads> {
        &self.workers
    }
}
