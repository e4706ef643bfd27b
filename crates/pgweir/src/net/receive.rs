//! Receives of io_uring: the kernel reads a server's bytes before the core asks for them.
//!
//! The core does not know of this. The driver keeps bytes that the core does not want yet, and delivers them before all
//! later bytes.

use std::io;

use pgweir_core::{ReadMode, Token};
use rustix::io::Errno;

use super::{
    driver::Driver,
    io::Io,
    poller::Key,
    pooler::Pooler,
    read::error_text,
    ring::{Completed, Filled},
    streaming::LONG_READ,
    table::Connection,
};

/// The number of consecutive reads that have emptied the socket, after which the kernel receives the bytes of a server.
/// The number is above the number of replies that a server sends before TLS begins.
const SHORT_READS: u8 = 4;

impl<P: Pooler> Driver<P> {
    /// Processes the events of a ring. Returns whether there were any.
    pub(super) fn dispatch_completed(&mut self) -> io::Result<bool> {
        let mut were_any = false;
        while let Some(ring) = &mut self.io.poller.ring
            && let Some(completed) = ring.next()
        {
            were_any = true;
            match completed {
                Completed::Ready(key, flags) => self.dispatch(key, flags),
                Completed::Received(token, filled) => self.on_received(token, filled),
                Completed::Broken(token, error) => {
                    let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    self.end(token, error_text(error));
                }
                Completed::Refused(error) => self.fall_back(error)?,
            }
            self.settle();
        }
        Ok(were_any)
    }

    fn on_received(&mut self, token: Token, filled: Filled) {
        let Some(ring) = &mut self.io.poller.ring else {
            return;
        };
        let is_full = filled.is_full();
        let buffer = &mut self.buffer;
        // Copied, so that the kernel has the buffer back at once. Large messages are not read here.
        let length = ring.take(filled, |bytes| {
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            length
        });
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let input = &mut connection.input;
        let is_wanted = connection.mode == ReadMode::Deliver
            && !connection.frozen
            && !input.receive.early
            && !input.peek;
        if is_full || !is_wanted {
            input.receive.short_reads = 0;
            self.io.poller.stop_receiving(Key::Connection(token));
        }
        if !is_wanted {
            self.io.keep_early(token, &self.buffer[..length]);
            return self.serve(token);
        }
        connection.note_received();
        self.process_read(token, length);
        if length >= LONG_READ {
            self.count_long_read(token);
        }
    }

    /// Passes bytes to the core that were kept for it.
    pub(super) fn read_early(&mut self, token: Token) {
        let early = self.io.table.early.remove(&token).unwrap_or_default();
        if let Some(connection) = self.io.table.get(token) {
            connection.input.receive.early = false;
            connection.output.answered = false;
        }
        if !early.is_empty() {
            self.deliver(token, &early);
        }
    }
}

impl Io {
    /// Keeps bytes that the core does not want yet.
    pub(super) fn keep_early(&mut self, token: Token, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(connection) = self.table.get(token) {
            connection.input.receive.early = true;
            self.table
                .early
                .entry(token)
                .or_default()
                .extend_from_slice(bytes);
        }
    }

    /// Returns the first byte that was kept.
    pub(super) fn first_early(&self, token: Token) -> Option<u8> {
        self.table.early.get(&token)?.first().copied()
    }

    /// Makes the kernel receive the bytes of a server from now on, if its messages are short.
    pub(super) fn receive_soon(&mut self, token: Token) {
        let Some(ring) = &mut self.poller.ring else {
            return;
        };
        if let Some(connection) = self.table.get(token)
            && connection.may_be_received()
        {
            connection.output.has_room = false;
            ring.receive(Key::Connection(token));
        }
    }
}

impl Connection {
    /// Counts a read, which has filled its buffer or emptied the socket.
    pub(super) fn count_read(&mut self, has_filled: bool) {
        self.input.receive.short_reads = match has_filled {
            true => 0,
            false => self.input.receive.short_reads.saturating_add(1),
        };
    }

    fn may_be_received(&self) -> bool {
        self.input.receive.short_reads >= SHORT_READS
            && !self.client
            && self.mode == ReadMode::Deliver
            && self.tls.is_none()
            && !self.frozen
            && !self.stream.is_on()
            && !self.has_input()
            && !self.input.hung_up
            && !self.input.peek
            && self.output.unsent.is_none()
            && self.output.failed.is_none()
    }
}
