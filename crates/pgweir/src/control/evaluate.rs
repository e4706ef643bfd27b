//! Evaluates the catalogs of databases on a separate thread. An evaluation may take seconds if a database has very many
//! functions.

use std::{io, sync::Arc};

use pgweir_core::{Evaluation, WorkerId, mail::Mail, shared::occupancy::Occupancy};

use super::threads::Threads;
use crate::net::{Mailboxes, WorkerMessage};

/// The largest number of evaluations that may wait: each database has at most one, whose facts stay in memory
/// meanwhile. If there is one more, its reading counts as failed.
const WAITING_MAX: usize = 64;

/// Accepts facts to evaluate. The certificates are sent to the worker's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Evaluator(Threads<Box<Evaluation>>);

impl Evaluator {
    /// Starts the thread, which ends when the last `Evaluator` is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(mailboxes: &Mailboxes, occupancy: &Arc<Occupancy>) -> io::Result<Self> {
        Threads::start("catalog", 1, WAITING_MAX, mailboxes, occupancy, evaluate).map(Self)
    }

    /// Accepts facts.
    ///
    /// # Errors
    /// The facts, when the queue is full.
    pub(crate) fn submit(
        &self,
        worker: WorkerId,
        evaluation: Box<Evaluation>,
    ) -> Result<(), Box<Evaluation>> {
        self.0.submit(worker, evaluation)
    }
}

fn evaluate(evaluation: Box<Evaluation>) -> WorkerMessage {
    WorkerMessage::Mail(Mail::CatalogEvaluated(Box::new(evaluation.run())))
}
