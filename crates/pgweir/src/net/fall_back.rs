//! Moves a worker from io_uring to epoll when the kernel refuses a request. All connections stay.

use std::{io, os::fd::AsFd, sync::Arc};

use rustix::io::Errno;

use super::{
    driver::Driver,
    io::Io,
    poller::Key,
    pooler::Pooler,
    ring::{Completed, Outbox, Ring},
};

impl<P: Pooler> Driver<P> {
    /// Goes on with epoll. Everything that was received is kept, and everything that was watched is watched again.
    ///
    /// # Errors
    /// The given error, if the poller is epoll already, or the error that prevents epoll.
    pub(super) fn fall_back(&mut self, why: io::Error) -> io::Result<()> {
        let Some(mut ring) = self.io.poller.ring.take() else {
            return Err(why);
        };
        ring.count_failure();
        self.io.warn(format!(
            "io_uring has failed: {why}; this worker goes on with epoll"
        ));
        // A receive that can't be cancelled takes no more bytes: the kernel reads a socket only during a call of the
        // ring, and there is none after this one.
        let _ = ring.cancel_all();
        let outbox = ring.take_outbox();
        self.io.keep_received(&mut ring);
        let has_lost = ring.has_lost_completions();
        if has_lost {
            self.io.fail_received(&mut ring);
        }
        drop(ring);
        self.io.watch_all()?;
        if has_lost {
            self.io.fail_unknown(&outbox);
        }
        self.io.process_results(&outbox);
        Ok(())
    }
}

impl Io {
    /// Keeps all bytes that the ring has received.
    fn keep_received(&mut self, ring: &mut Ring) {
        while let Some(completed) = ring.next() {
            match completed {
                Completed::Received(token, filled) => {
                    ring.take(filled, |bytes| self.keep_early(token, bytes));
                }
                Completed::Broken(token, error) => {
                    self.fail(token, Errno::from_io_error(&error).unwrap_or(Errno::IO));
                }
                // epoll reports the present state.
                Completed::Ready(..) | Completed::Refused(_) => {}
            }
        }
    }

    /// Ends the connections of which it is unknown what the kernel has received.
    fn fail_received(&mut self, ring: &mut Ring) {
        for token in self.table.tokens() {
            if ring.is_receiving(Key::Connection(token)) {
                self.fail(token, Errno::IO);
            }
        }
    }

    /// Ends the connections of which it is unknown what the kernel has sent.
    fn fail_unknown(&mut self, outbox: &Outbox) {
        for send in outbox.unfinished() {
            if send.result.is_none() {
                self.fail(send.to, Errno::IO);
            }
        }
    }

    /// Watches everything with the present poller.
    fn watch_all(&mut self) -> io::Result<()> {
        let mailboxes = self.threads.mailboxes.clone();
        if let Some(wake_descriptor) = mailboxes.wake_descriptor(self.id) {
            self.poller.add_mailbox(wake_descriptor)?;
        }
        let listeners = Arc::clone(&self.acceptor.listeners);
        for (index, listener) in listeners.iter().enumerate() {
            if !self.acceptor.rest.covers(listener) {
                self.poller.add_listener(listener, index as u32)?;
            }
        }
        for token in self.table.tokens() {
            self.watch_again(token);
        }
        for (slot, lingering) in &self.closing {
            // Without a watch, its timer closes it.
            let _ = self
                .poller
                .add(&lingering.fd, Key::Closing(slot as u32), true);
        }
        Ok(())
    }

    fn watch_again(&mut self, token: pgweir_core::Token) {
        let key = Key::Connection(token);
        if let Some(connection) = self.table.get(token) {
            let outgoing = connection.output.has_room;
            match self.poller.add(&connection.fd, key, outgoing) {
                Ok(()) => self.queue(token),
                Err(error) => self.fail(token, Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        } else if let Some(fd) = self
            .table
            .get_connecting(token)
            .and_then(|one| one.fd.as_ref())
            && let Err(error) = self.poller.add(fd.as_fd(), key, true)
        {
            self.give_up(token, &error);
        }
    }
}
