//! Key derivation (PBKDF2, milliseconds each) on threads of its own.

use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use pgweir_auth::scram::DeriveJob;
use pgweir_core::{Token, WorkerId};

use crate::net::{Mailboxes, Parcel};

/// So many threads derive keys; they compete with the workers for the cores.
const THREADS: usize = 2;
/// So many jobs may wait: more than clients that can log in at once, but not without bound, since a
/// client that leaves does not take its job along.
const QUEUE: usize = 16_384;

#[derive(Debug)]
struct Order {
    worker: WorkerId,
    conn: Token,
    job: DeriveJob,
}

/// Takes jobs; the keys come by mail.
#[derive(Debug, Clone)]
pub(crate) struct Deriver(Sender<Order>);

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;

impl Deriver {
    /// Starts the threads. They end when the last `Deriver` is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(mailboxes: &Mailboxes) -> io::Result<Self> {
        let (sender, receiver) = bounded(QUEUE);
        for index in 0..THREADS {
            let (orders, mailboxes) = (receiver.clone(), mailboxes.clone());
            thread::Builder::new()
                .name(format!("derive-{index}"))
                .spawn(move || work(&orders, &mailboxes))?;
        }
        Ok(Self(sender))
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
        self.0
            .try_send(Order { worker, conn, job })
            .map_err(|_| Overloaded)
    }
}

fn work(orders: &Receiver<Order>, mailboxes: &Mailboxes) {
    for Order { worker, conn, job } in orders {
        mailboxes.send(
            worker,
            Parcel::Derived {
                conn,
                keys: job.run(),
            },
        );
    }
}
