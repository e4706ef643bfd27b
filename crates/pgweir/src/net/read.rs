//! The incoming side: one shared buffer for all connections. Nothing is read before the core wants the bytes.

use pgweir_core::{Closed, ReadMode, Time, Token};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    driver::Driver,
    io::Pending,
    poller::Key,
    pooler::Pooler,
    streaming::LONG_READ,
    table::{Connection, Removed},
};

/// The number of reads of one connection in a turn before the other connections are served.
const READS_PER_TURN: u8 = 4;
/// The time in microseconds for processing one read. After a longer time the other connections are served, and the
/// connection's next read is half as long.
const SLICE_US: u64 = 1_000;
/// The message by which a client announces its end.
const TERMINATE: [u8; 5] = *b"X\0\0\0\x04";
/// The shortest read. Its bytes are processed in less than a slice.
const READ_MIN: usize = 16 * 1024;

impl<P: Pooler> Driver<P> {
    /// Serves a connection as its mode allows: with one read, or one notice.
    pub(super) fn serve(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        connection.queued = false;
        if connection.frozen {
            return;
        }
        if connection.input.peek && connection.has_input() {
            connection.input.peek = false;
            self.io.pending.push_back(Pending::Peek(token));
        }
        match connection.mode {
            ReadMode::Deliver if connection.has_input() => self.read(token),
            ReadMode::Deliver => {}
            ReadMode::Hold | ReadMode::Notify => self.notify(token),
        }
    }

    /// Closes a connection that is gone, and informs the core.
    pub(super) fn end(&mut self, token: Token, why: Closed) {
        let Some(Removed::Open(connection)) = self.io.remove(token) else {
            return;
        };
        let why = connection.output.failed.map_or(why, error_text);
        self.io.let_go(connection);
        self.call(|pooler, now, out| pooler.closed(token, &why, now, out));
    }

    /// Answers a Peek. If the byte has not arrived yet, the answer follows when it does.
    pub(super) fn peek(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let peeked = match connection.tls {
            Some(_) => self.peek_secure(token),
            None if connection.input.receive.early => Ok(self.io.first_early(token)),
            None if connection.is_leaving() => return self.read_last(token),
            None => peek_byte(connection),
        };
        self.answer_peek(token, peeked);
    }

    /// Answers a Peek with the first byte, or keeps it for later.
    fn answer_peek(&mut self, token: Token, peeked: Result<Option<u8>, Errno>) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let first = match peeked {
            Ok(first) => first,
            Err(Errno::AGAIN) => {
                connection.input.readable = false;
                connection.input.peek = true;
                return;
            }
            Err(error) => return self.end(token, error_text(error)),
        };
        self.call(|pooler, now, out| pooler.peeked(token, first, now, out));
    }

    /// Answers a Peek for a client that has hung up. Reads all bytes that the client has sent, so that its end, which
    /// is Terminate in most cases, needs no other read. If the client does not end now, core gets the bytes later.
    fn read_last(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let room = connection.read_max(self.buffer.len());
        let read = recv(&connection.fd, &mut self.buffer[..room], RecvFlags::empty());
        let length = match read {
            Ok((_, length)) => length,
            Err(error) => return self.answer_peek(token, Err(error)),
        };
        connection.output.closes_cleanly = length < room;
        let last = &self.buffer[..length];
        let first = last.first().copied();
        let is_terminate = *last == TERMINATE;
        if !is_terminate {
            self.io.keep_early(token, last);
        }
        self.answer_peek(token, Ok(first));
        if is_terminate && self.io.table.get(token).is_some() {
            self.io.keep_early(token, &TERMINATE);
        }
        self.queue_if_readable(token);
    }

    fn read(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if connection.input.turn != self.io.turn.number {
            connection.input.turn = self.io.turn.number;
            connection.input.reads = 0;
        }
        if connection.input.reads >= READS_PER_TURN {
            return self.io.carry(token);
        }
        connection.input.reads += 1;
        if connection.tls.is_some() {
            return self.read_secure(token);
        }
        if connection.input.receive.early {
            return self.read_early(token);
        }
        let is_ring = self.io.poller.is_ring();
        if is_ring && self.io.poller.stop_receiving(Key::Connection(token)) {
            // Bytes that the ring has received come first. An event follows when the socket may be read.
            return;
        }
        let room = connection.read_max(self.buffer.len());
        match recv(&connection.fd, &mut self.buffer[..room], RecvFlags::empty()) {
            Ok((_, 0)) => self.end(token, Closed::Eof),
            Ok((_, length)) => {
                connection.note_received();
                // A short read has emptied the socket, so more bytes will be a new edge. Only the end of the stream may
                // have been reported already.
                connection.input.readable = length == room || connection.input.hung_up;
                let is_long = length >= LONG_READ && !connection.client;
                if is_ring {
                    connection.count_read(length == room || is_long);
                }
                self.process_read(token, length);
                if is_long {
                    self.count_long_read(token);
                }
                if is_ring {
                    self.io.receive_soon(token);
                }
            }
            Err(Errno::AGAIN) if connection.output.failed.is_none() => {
                connection.input.readable = false
            }
            Err(Errno::INTR) => self.io.queue(token),
            Err(error) => self.end(token, error_text(error)),
        }
    }

    /// Passes the first `length` bytes of the buffer to core, and carries out the resulting actions.
    #[inline(always)]
    pub(super) fn process_read(&mut self, token: Token, length: usize) {
        let began = self.begin_slice(length);
        let bytes = &self.buffer[..length];
        self.pooler
            .received(token, bytes, self.io.now, &mut self.actions);
        self.io.execute(&mut self.actions, bytes);
        self.end_slice(token, began);
        self.queue_if_readable(token);
    }

    /// Begins to process `length` bytes of one read. Returns the time if processing may take long.
    #[inline(always)]
    pub(super) fn begin_slice(&self, length: usize) -> Option<Time> {
        (length >= READ_MIN).then(|| self.clock.now())
    }

    /// Ends the processing of the bytes.
    #[inline]
    pub(super) fn end_slice(&mut self, token: Token, began: Option<Time>) {
        let Some(took_us) = began.map(|began| self.clock.now().since(began)) else {
            return;
        };
        let most = self.buffer.len();
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if took_us > SLICE_US {
            connection.input.reads = READS_PER_TURN;
            connection.input.halvings += u8::from(connection.read_max(most) > READ_MIN);
        } else if took_us < SLICE_US / 4 {
            connection.input.halvings = connection.input.halvings.saturating_sub(1);
        }
    }

    #[inline(always)]
    pub(super) fn queue_if_readable(&mut self, token: Token) {
        if let Some(connection) = self.io.table.get(token)
            && connection.has_input()
            && connection.mode != ReadMode::Hold
        {
            self.io.queue(token);
        }
    }

    /// Reports a hang-up, or waiting bytes, without reading.
    fn notify(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if let Some(error) = connection.output.failed {
            return self.end(token, error_text(error));
        }
        if connection.input.hung_up && !connection.input.hang_up_reported {
            connection.input.hang_up_reported = true;
            self.call(|pooler, now, out| pooler.hung_up(token, now, out));
            // The core may still want to know about the bytes.
            self.queue_if_readable(token);
        } else if connection.mode == ReadMode::Notify && connection.has_input() {
            if connection.tls.is_some() && !self.has_something_to_say(token) {
                return;
            }
            if let Some(connection) = self.io.table.get(token) {
                connection.mode = ReadMode::Hold;
            }
            self.call(|pooler, now, out| pooler.readable(token, now, out));
        }
    }
}

impl Connection {
    /// Returns the largest length of the connection's next read, into a buffer of this size.
    #[inline]
    pub(super) fn read_max(&self, buffer: usize) -> usize {
        // Each message of a client is parsed; many messages of a server are forwarded unparsed.
        let most = if self.client { buffer / 4 } else { buffer };
        (most >> self.input.halvings).max(READ_MIN).min(buffer)
    }
}

/// Returns the first unread byte without reading it, or `None` at the end of the stream.
pub(super) fn peek_byte(connection: &Connection) -> Result<Option<u8>, Errno> {
    let mut byte = [0];
    loop {
        match recv(&connection.fd, &mut byte, RecvFlags::PEEK) {
            Ok((_, 0)) => return Ok(None),
            Ok(_) => return Ok(Some(byte[0])),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns why a connection ends whose socket has reported an error. `None`: the connection is read first, since a read
/// is due anyway (`Deliver`), or a server has sent something before the error. A client that is gone needs no answer to
/// what it sent before.
pub(super) fn end_after_error(connection: &Connection) -> Option<Closed> {
    if connection.mode == ReadMode::Deliver {
        return None;
    }
    match peek_byte(connection) {
        Ok(Some(_)) if !connection.client => None,
        Ok(_) | Err(Errno::AGAIN) => Some(Closed::Eof),
        Err(error) => Some(error_text(error)),
    }
}

pub(super) fn error_text(error: Errno) -> Closed {
    Closed::Error(std::io::Error::from(error).to_string())
}
