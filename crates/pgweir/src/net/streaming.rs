//! Servers that stream a large result: the kernel wakes the worker for many bytes at once.
//!
//! PostgreSQL sends 8 kB at a time. A wake-up for each of these pieces, and a send to the client after it, cost more than
//! to copy the bytes. So while a server streams, its socket reports bytes only when [`WAKE_BYTES`] of them have
//! arrived (`SO_RCVLOWAT`), and a timer reads what has arrived for [`PATIENCE_US`] without a report. The end of a result
//! is delayed by this time at most, and only if the result is large. The kernel reports the end of the connection at once.

use std::mem;

use pgweir_core::Token;

use super::{
    driver::Driver, io::Io, options::set_receive_mark, poller::Key, pooler::Pooler,
    table::Connection, timers::Timer,
};

/// The shortest read that counts as a part of a large result: what PostgreSQL sends at a time.
pub(super) const LONG_READ: usize = 8 * 1024;
/// The number of such reads after one request, after which the server streams.
const LONG_READS: u8 = 16;
/// The number of bytes for which the worker wakes up.
const WAKE_BYTES: i32 = 128 * 1024;
/// The longest time in microseconds that bytes wait for more bytes.
const PATIENCE_US: u64 = 1_000;

/// How far a server is in a large result: the number of long reads since pgweir has sent something to the server, or one
/// of the values [`ON`] and [`ON_QUIET`].
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct StreamState(u8);

/// The socket reports only many bytes.
const ON: u8 = u8::MAX;
/// The socket reports only many bytes, and there was no long read since the timer was set.
const ON_QUIET: u8 = u8::MAX - 1;

impl StreamState {
    /// Returns whether the socket reports only many bytes.
    #[inline]
    pub(super) fn is_on(self) -> bool {
        self.0 >= ON_QUIET
    }

    /// Notes that pgweir has sent something to the server: long reads before do not count.
    #[inline]
    pub(super) fn end_count(&mut self) {
        if !self.is_on() {
            self.0 = 0;
        }
    }

    /// Counts a long read. Returns whether the server streams from now on.
    fn count(&mut self) -> bool {
        if self.is_on() {
            self.0 = ON;
            return false;
        }
        self.0 = (self.0 + 1).min(LONG_READS);
        self.0 == LONG_READS
    }
}

impl<P: Pooler> Driver<P> {
    /// Counts a long read from a server.
    #[cold]
    pub(super) fn count_long_read(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if connection.stream.count() && set_receive_mark(&connection.fd, WAKE_BYTES).is_ok() {
            connection.stream = StreamState(ON);
            // With io_uring, the kernel would receive each piece.
            self.io.poller.stop_receiving(Key::Connection(token));
            self.io.set_stream_timer(token);
        }
    }

    /// Reads from a server that streams, whether its socket has reported bytes or not. The server does not stream any more if
    /// it has sent little since the timer was set.
    pub(super) fn on_stream_timer(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token).filter(|own| own.stream.is_on()) else {
            return;
        };
        if connection.stream.0 == ON_QUIET {
            connection.stop_streaming();
        } else {
            connection.stream = StreamState(ON_QUIET);
            connection.input.readable = true;
            self.io.set_stream_timer(token);
        }
        self.io.queue(token);
    }
}

impl Io {
    fn set_stream_timer(&mut self, token: Token) {
        let due = self.now.after(PATIENCE_US);
        self.timers.add(due, Timer::Stream(token));
    }
}

impl Connection {
    /// Notes that bytes have arrived. The first ones after pgweir has sent something belong to another result than the
    /// bytes before.
    #[inline]
    pub(super) fn note_received(&mut self) {
        if mem::replace(&mut self.output.answered, false) {
            self.stream.end_count();
        }
    }

    /// Lets the socket report each byte again.
    pub(super) fn stop_streaming(&mut self) {
        if self.stream.is_on() {
            self.stream = StreamState::default();
            self.input.readable = true;
            // The kernel has accepted the option for this socket before.
            let _ = set_receive_mark(&self.fd, 1);
        }
    }
}
