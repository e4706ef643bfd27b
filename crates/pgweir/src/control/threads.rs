//! Work that may take its time, on threads of its own; what comes of it goes to its worker by mail.

use std::{io, thread};

use crossbeam_channel::{Sender, bounded};
use pgweir_core::{Token, WorkerId};

use crate::net::{Mailboxes, Parcel};

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;

#[derive(Debug)]
struct Order<J> {
    worker: WorkerId,
    conn: Token,
    job: J,
}

/// Takes jobs of one kind.
#[derive(Debug)]
pub(super) struct Threads<J>(Sender<Order<J>>);

impl<J> Clone for Threads<J> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<J: Send + 'static> Threads<J> {
    /// Starts `count` threads, for which `queue` jobs may wait. They end when the last clone of this is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        name: &str,
        count: usize,
        queue: usize,
        mailboxes: &Mailboxes,
        run: fn(Token, J) -> Parcel,
    ) -> io::Result<Self> {
        let (sender, receiver) = bounded::<Order<J>>(queue);
        for index in 0..count {
            let (orders, mailboxes) = (receiver.clone(), mailboxes.clone());
            thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || {
                    for Order { worker, conn, job } in orders {
                        mailboxes.send(worker, run(conn, job));
                    }
                })?;
        }
        Ok(Self(sender))
    }

    /// Takes a job of a client.
    ///
    /// # Errors
    /// When too many wait already.
    pub(super) fn submit(&self, worker: WorkerId, conn: Token, job: J) -> Result<(), Overloaded> {
        let order = Order { worker, conn, job };
        self.0.try_send(order).map_err(|_| Overloaded)
    }
}
