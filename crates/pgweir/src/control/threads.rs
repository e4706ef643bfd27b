//! Runs blocking work on separate threads, and sends the results to the workers' mailboxes.

use std::{io, sync::Arc, thread};

use crossbeam_channel::{Sender, bounded};
use pgweir_core::{WorkerId, shared::occupancy::Occupancy};

use crate::net::{Mailboxes, WorkerMessage};

#[derive(Debug)]
struct QueuedJob<J> {
    worker: WorkerId,
    job: J,
}

/// Accepts jobs of one kind.
#[derive(Debug)]
pub(super) struct Threads<J> {
    jobs: Sender<QueuedJob<J>>,
    occupancy: Arc<Occupancy>,
}

impl<J> Clone for Threads<J> {
    fn clone(&self) -> Self {
        Self {
            jobs: self.jobs.clone(),
            occupancy: Arc::clone(&self.occupancy),
        }
    }
}

impl<J: Send + 'static> Threads<J> {
    /// Starts `count` threads, for which `queue` jobs may wait. `occupancy` counts how busy the threads are. The
    /// threads end when the last clone of this value is dropped.
    ///
    /// # Errors
    /// The system can't create a thread.
    pub(super) fn start(
        name: &str,
        count: usize,
        queue: usize,
        mailboxes: &Mailboxes,
        occupancy: &Arc<Occupancy>,
        run: fn(J) -> WorkerMessage,
    ) -> io::Result<Self> {
        let (jobs, receiver) = bounded::<QueuedJob<J>>(queue);
        occupancy.limit(count, queue);
        for index in 0..count {
            let (jobs, mailboxes) = (receiver.clone(), mailboxes.clone());
            let occupancy = Arc::clone(occupancy);
            thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || {
                    for QueuedJob { worker, job } in jobs {
                        occupancy.begun();
                        let message = run(job);
                        occupancy.done();
                        mailboxes.send(worker, message);
                    }
                })?;
        }
        Ok(Self {
            jobs,
            occupancy: Arc::clone(occupancy),
        })
    }

    /// Accepts a job.
    ///
    /// # Errors
    /// The job, when the queue is full.
    pub(super) fn submit(&self, worker: WorkerId, job: J) -> Result<(), J> {
        let queued = QueuedJob { worker, job };
        self.occupancy.queued();
        self.jobs.try_send(queued).map_err(|error| {
            self.occupancy.refused();
            error.into_inner().job
        })
    }
}
