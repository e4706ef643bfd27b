//! Mailboxes, by which workers, the control thread and the blocking threads send to a worker.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use parking_lot::Mutex;
use pgweir_auth::scram::DerivedKeys;
use pgweir_core::{
    AuthCheckResult, ConnectError, Token, WorkerId, backend::Server, frontend::MovedClient,
    mail::Mail,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::takeover::Arriving;

use super::{Listeners, NetOptions, accept::AcceptedClient, table::Connection};

/// One item in a mailbox.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// A message for the core.
    Mail(Mail),
    /// A client that another worker accepted.
    Client(AcceptedClient),
    /// An idle server connection that another worker hands over.
    Server {
        server: Box<Server>,
        connection: Box<Connection>,
        /// Bytes that were received already.
        early: Vec<u8>,
    },
    /// An idle client that another worker hands over.
    MovedClient {
        client: Box<MovedClient>,
        connection: Box<Connection>,
        /// Bytes that were received already.
        early: Vec<u8>,
    },
    /// A client from the other process of an online restart.
    Arrived(Arriving),
    /// Keys that were derived for a connection.
    Derived { conn: Token, keys: DerivedKeys },
    /// The result of a check of a client.
    Found {
        conn: Token,
        result: AuthCheckResult,
    },
    /// The addresses of a host that a connection waits for.
    Resolved {
        conn: Token,
        result: Result<Arc<[SocketAddr]>, ConnectError>,
    },
    /// Changed settings of the driver.
    Options(Arc<NetOptions>),
    /// Accept clients on these sockets only, and release the others.
    AcceptOn(Arc<Listeners>),
}

/// The mailboxes of all workers.
#[derive(Debug, Clone)]
pub(crate) struct Mailboxes(Arc<[Mailbox]>);

#[derive(Debug)]
struct Mailbox {
    messages: Mutex<Vec<WorkerMessage>>,
    wake: OwnedFd,
}

impl Mailboxes {
    /// Creates mailboxes for `workers` workers.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        let one = |_| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Mailbox {
                messages: Mutex::default(),
                wake,
            })
        };
        Ok(Self((0..workers).map(one).collect::<io::Result<_>>()?))
    }

    /// Puts a message into a worker's mailbox. Messages from one sender arrive in their order.
    ///
    /// Only the sender that finds the mailbox empty wakes the worker. The worker empties the whole mailbox after every
    /// wake-up, so a sender that finds the mailbox filled knows that a wake-up is on its way.
    pub(crate) fn send(&self, to: WorkerId, message: WorkerMessage) {
        let Some(mailbox) = self.0.get(to.index()) else {
            return;
        };
        let first = {
            let mut messages = mailbox.messages.lock();
            messages.push(message);
            messages.len() == 1
        };
        if first {
            // The write can only fail when the counter is at its end, after 2^64 wake-ups.
            let _ = rustix::io::write(&mailbox.wake, &1u64.to_ne_bytes());
        }
    }

    /// Sends the same message to every worker.
    pub(crate) fn send_all(&self, mut message: impl FnMut() -> WorkerMessage) {
        for id in self.workers() {
            self.send(id, message());
        }
    }

    /// Returns the ids of all workers.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.0.len()).map(|index| WorkerId(index as u8))
    }

    /// Moves everything from a mailbox into the empty `messages`.
    pub(crate) fn take(&self, of: WorkerId, messages: &mut Vec<WorkerMessage>) {
        if let Some(mailbox) = self.0.get(of.index()) {
            std::mem::swap(&mut *mailbox.messages.lock(), messages);
        }
    }

    /// Returns the descriptor that becomes readable when the worker is woken.
    pub(crate) fn wake_descriptor(&self, of: WorkerId) -> Option<BorrowedFd<'_>> {
        self.0.get(of.index()).map(|mailbox| mailbox.wake.as_fd())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout)] // the measurement

    use std::{env, sync::Barrier, thread};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::clock::Clock;

    const RECEIVER: WorkerId = WorkerId(0);

    fn numbered(sender: u32, number: u32) -> WorkerMessage {
        WorkerMessage::Mail(Mail::LookUpAgain(Token {
            slot: sender,
            generation: number,
        }))
    }

    /// Waits for wake-ups, as a worker does, until this many messages have arrived. Returns the number of wake-ups.
    fn receive(mailboxes: &Mailboxes, next: &mut [u32], mut missing: u32) -> u32 {
        let mut messages = Vec::new();
        let mut wakes = 0;
        while missing > 0 {
            let wake = mailboxes.wake_descriptor(RECEIVER).expect("a mailbox");
            poll(&mut [PollFd::new(&wake, PollFlags::IN)], None).expect("a wake-up");
            rustix::io::read(wake, &mut [0; 8]).expect("a number of wake-ups");
            wakes += 1;
            mailboxes.take(RECEIVER, &mut messages);
            missing -= messages.len() as u32;
            for message in messages.drain(..) {
                let WorkerMessage::Mail(Mail::LookUpAgain(token)) = message else {
                    panic!("nobody has sent this: {message:?}");
                };
                let next = &mut next[token.slot as usize];
                assert_eq!(token.generation, *next, "messages keep their order");
                *next += 1;
            }
        }
        wakes
    }

    /// With `PGWEIR_CONTENTION_MESSAGES=100000`, and `--nocapture`, this prints what a message costs.
    #[test]
    fn many_threads_fill_one_mailbox_and_each_message_arrives_once() {
        let asked = env::var("PGWEIR_CONTENTION_MESSAGES").ok();
        let each: u32 = asked.as_ref().map_or(500, |n| n.parse().expect("a number"));
        for senders in [1, 4, 16, 63] {
            let mailboxes = Mailboxes::new(1).expect("a descriptor");
            let barrier = Barrier::new(senders + 1);
            let mut next = vec![0; senders];
            thread::scope(|scope| {
                for sender in 0..senders as u32 {
                    let (mailboxes, barrier) = (&mailboxes, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        for number in 0..each {
                            mailboxes.send(RECEIVER, numbered(sender, number));
                        }
                    });
                }
                barrier.wait();
                let clock = Clock::start();
                let begin = clock.now();
                let all = each * senders as u32;
                let wakes = receive(&mailboxes, &mut next, all);
                if asked.is_some() {
                    let ns = clock.now().since(begin) * 1000 / u64::from(all);
                    println!("{senders} senders: {ns} ns per message, {wakes} wake-ups of {all}");
                }
            });
            assert_eq!(next, vec![each; senders]);
        }
    }
}
