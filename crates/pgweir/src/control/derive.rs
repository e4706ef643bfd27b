//! Key derivation (PBKDF2, milliseconds each) on threads of its own.

use std::{io, sync::Arc};

use pgweir_auth::scram::DeriveJob;
use pgweir_core::{Token, WorkerId, occupancy::Occupancy};

use super::{Overloaded, threads::Threads};
use crate::net::{Mailboxes, Parcel};

/// So many threads derive keys; they compete with the workers for the cores.
const THREADS: usize = 2;
/// So many jobs may wait: more than clients that can log in at once, but not without bound, since a
/// client that leaves does not take its job along.
const QUEUE: usize = 16_384;

/// Takes jobs; the keys come by mail.
#[derive(Debug, Clone)]
pub(crate) struct Deriver(Threads<DeriveJob>);

impl Deriver {
    /// Starts the threads. They end when the last `Deriver` is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(mailboxes: &Mailboxes, occupancy: &Arc<Occupancy>) -> io::Result<Self> {
        Threads::start("derive", THREADS, QUEUE, mailboxes, occupancy, derived).map(Self)
    }

    /// Takes a job.
    ///
    /// # Errors
    /// When too many wait already.
    pub(crate) fn submit(
        &self,
        worker: WorkerId,
        conn: Token,
        job: DeriveJob,
    ) -> Result<(), Overloaded> {
        self.0.submit(worker, conn, job)
    }
}

fn derived(conn: Token, job: DeriveJob) -> Parcel {
    let keys = job.run();
    Parcel::Derived { conn, keys }
}
