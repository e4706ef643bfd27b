//! Derives keys (PBKDF2, milliseconds each) on separate threads.

use std::{io, sync::Arc};

use pgweir_auth::scram::DeriveJob;
use pgweir_config::Settings;
use pgweir_core::{Token, WorkerId, shared::occupancy::Occupancy};

use super::{Overloaded, threads::Threads};
use crate::net::{Mailboxes, WorkerMessage};

/// Accepts jobs. The keys are sent to the worker's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Deriver(Threads<(Token, DeriveJob)>);

impl Deriver {
    /// Starts `scram_threads` threads, which compete with the workers for the cores; `scram_queue` jobs may wait for
    /// them. The threads end when the last `Deriver` is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        settings: &Settings,
        mailboxes: &Mailboxes,
        occupancy: &Arc<Occupancy>,
    ) -> io::Result<Self> {
        let (count, queue) = (
            settings.scram_threads as usize,
            settings.scram_queue as usize,
        );
        Threads::start("derive", count, queue, mailboxes, occupancy, derived).map(Self)
    }

    /// Accepts a job.
    ///
    /// # Errors
    /// When the queue is full.
    pub(crate) fn submit(
        &self,
        worker: WorkerId,
        conn: Token,
        job: DeriveJob,
    ) -> Result<(), Overloaded> {
        self.0.submit(worker, (conn, job)).map_err(|_| Overloaded)
    }
}

fn derived((conn, job): (Token, DeriveJob)) -> WorkerMessage {
    let keys = job.run();
    WorkerMessage::Derived { conn, keys }
}
