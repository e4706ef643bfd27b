//! Connections that the core has forgotten, until the peer has received their last bytes.
//!
//! Closing a socket with unread bytes sends a reset, and the reset may destroy an error message that the peer has not
//! read yet. So after the last byte is written, the driver shuts down its sending side, and reads and drops further
//! input for a short and bounded time.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use pgweir_core::{
    SharedPool, Token,
    mail::{FleetMail, Mail},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, Shutdown, recv, shutdown},
};

use super::{
    io::{Io, Pending},
    poller::Key,
    send::Unsent,
    table::{Connection, Removed},
};

/// The time in microseconds that the peer has to close after pgweir did.
const LINGER_US: u64 = 1_000_000;
/// The number of no timer.
const NO_TIMER: u32 = u32::MAX;
/// The largest number of bytes that are read from the peer meanwhile.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// The number of bytes that are read and dropped at once.
const SINK_BYTES: usize = 4096;
/// The largest number of connections that linger at once. Above this number, connections are closed at once.
const LINGERING_MAX: usize = 4096;

/// A connection that is being closed.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) fd: OwnedFd,
    unsent: Option<Box<Unsent>>,
    /// The number of bytes that were read and dropped.
    dropped: usize,
    /// Whether an event of this connection waits in the queue of postponed events (`logins`).
    pub(super) is_postponed: bool,
    /// Distinguishes the timer of this stage from older ones.
    serial: u32,
    /// The pool to inform when the peer, a server, has closed its side. There is no limit on this time: the server
    /// counts until then.
    report_to: Option<Arc<SharedPool>>,
}

impl Lingering {
    /// Returns the bytes that the peer has not taken yet.
    pub(super) fn unsent_bytes(&self) -> usize {
        let unsent = self.unsent.as_ref();
        unsent.map_or(0, |unsent| unsent.capacity())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Gone,
    Waits,
}

impl Io {
    /// Closes a connection that the core has forgotten already.
    pub(super) fn close(&mut self, token: Token) {
        self.close_and_report(token, None);
    }

    /// Closes a connection that the core has forgotten, and reports to the core when the peer has closed its side, or
    /// when there is nothing to wait for.
    pub(super) fn close_and_report(&mut self, token: Token, report_to: Option<Arc<SharedPool>>) {
        self.close_notify(token);
        let Some(Removed::Open(mut connection)) = self.remove_watched(token) else {
            return self.report_closed(report_to);
        };
        let finish = connection.output.failed.is_none()
            && (connection.output.answered || connection.output.unsent.is_some());
        if !finish || self.closing.len() >= LINGERING_MAX {
            self.poller.forget(Key::Connection(token));
            self.report_closed(report_to);
            return self.let_go(connection);
        }
        if connection.client {
            self.load.remove(self.id);
            connection.client = false;
        }
        self.linger(token, connection, report_to);
    }

    fn report_closed(&mut self, report_to: Option<Arc<SharedPool>>) {
        let mail = report_to.map(|pool| Mail::Fleet(FleetMail::ServerClosed(pool)));
        self.pending.extend(mail.map(Pending::Mail));
    }

    /// Handles an event of a connection that is being closed.
    pub(super) fn on_closing(&mut self, slot: u32, buffer: &mut [u8]) {
        let Some(lingering) = self.closing.get_mut(slot as usize) else {
            return;
        };
        lingering.is_postponed = false;
        let flushed = lingering.unsent.is_some();
        let fate = lingering.advance(buffer);
        let shut_down = flushed && lingering.unsent.is_none();
        if shut_down && lingering.report_to.is_some() {
            // The timer of the flush must not end the wait for the server.
            lingering.serial = NO_TIMER;
        }
        if fate == Fate::Gone {
            self.gone(slot);
        } else if shut_down && lingering.report_to.is_none() {
            lingering.serial = self.timers.add_linger(self.now.after(LINGER_US), slot);
        }
    }

    /// Handles the timeout of a connection that is being closed.
    pub(super) fn on_linger_timer(&mut self, slot: u32, serial: u32) {
        if self
            .closing
            .get(slot as usize)
            .is_some_and(|lingering| lingering.serial == serial)
        {
            self.gone(slot);
        }
    }

    fn gone(&mut self, slot: u32) {
        self.poller.forget(Key::Closing(slot));
        let lingering = self.closing.remove(slot as usize);
        self.report_closed(lingering.report_to);
        self.resume_accepting();
    }

    fn linger(&mut self, token: Token, connection: Connection, report_to: Option<Arc<SharedPool>>) {
        let hung_up = connection.input.hung_up;
        let closes_cleanly = connection.output.closes_cleanly;
        let unsent = connection.output.unsent;
        let unsent_left = unsent.is_some();
        let mut lingering = Lingering {
            fd: connection.fd,
            unsent,
            dropped: 0,
            is_postponed: false,
            serial: NO_TIMER,
            report_to,
        };
        if !unsent_left && (closes_cleanly || lingering.is_done(hung_up)) {
            self.poller.forget(Key::Connection(token));
            self.report_closed(lingering.report_to.take());
            drop(lingering);
            return self.resume_accepting();
        }
        let entry = self.closing.vacant_entry();
        let slot = entry.key() as u32;
        if self
            .poller
            .rename(
                &lingering.fd,
                (Key::Connection(token), Key::Closing(slot)),
                unsent_left,
            )
            .is_err()
        {
            return self.report_closed(lingering.report_to.take());
        }
        if !unsent_left && lingering.report_to.is_some() {
            entry.insert(lingering);
            return;
        }
        let patience_us = if unsent_left {
            self.options.close_flush_us
        } else {
            LINGER_US
        };
        lingering.serial = self.timers.add_linger(self.now.after(patience_us), slot);
        entry.insert(lingering);
    }
}

impl Lingering {
    /// Writes the remaining bytes, then waits for the peer to close.
    fn advance(&mut self, buffer: &mut [u8]) -> Fate {
        if let Some(unsent) = &mut self.unsent {
            match unsent.write(&self.fd) {
                Ok(false) => return Fate::Waits,
                Ok(true) => self.unsent = None,
                Err(_) => return Fate::Gone,
            }
            if shutdown(&self.fd, Shutdown::Write).is_err() {
                return Fate::Gone;
            }
        }
        self.drop_input(|fd| {
            let (_, length) = recv(fd, &mut *buffer, RecvFlags::empty())?;
            Ok(length)
        })
    }

    /// Shuts down a connection whose bytes are all written. Returns `true` if there is nothing left to wait for.
    fn is_done(&mut self, hung_up: bool) -> bool {
        // Uninitialized, since each client that leaves comes here.
        let mut sink = [MaybeUninit::<u8>::uninit(); SINK_BYTES];
        let mut receive = |fd: &OwnedFd| {
            let (_, length) = recv(fd, &mut sink[..], RecvFlags::empty())?;
            Ok(length)
        };
        // The usual end: the peer has closed. All its bytes were read, so closing sends no reset.
        if hung_up && matches!(receive(&self.fd), Ok(length) if length < SINK_BYTES) {
            return true;
        }
        shutdown(&self.fd, Shutdown::Write).is_err() || self.drop_input(receive) == Fate::Gone
    }

    fn drop_input(&mut self, mut receive: impl FnMut(&OwnedFd) -> Result<usize, Errno>) -> Fate {
        loop {
            match receive(&self.fd) {
                Ok(0) => return Fate::Gone,
                Ok(length) => self.dropped += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Fate::Waits,
                Err(_) => return Fate::Gone,
            }
            if self.dropped > LINGER_BYTES_MAX {
                return Fate::Gone;
            }
        }
    }
}
