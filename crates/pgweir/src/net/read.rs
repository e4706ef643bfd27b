//! The incoming side: one shared buffer, and never a read before somebody wants the bytes.

use pgweir_core::{Closed, ReadMode, Token};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    driver::Driver,
    io::Pending,
    pooler::Pooler,
    table::{Connection, Removed},
};

/// How often one connection is read in a turn before the others have theirs.
const READS_PER_TURN: u8 = 4;

impl<P: Pooler> Driver<P> {
    /// Does for a connection what its mode allows: one read, or one notice.
    pub(super) fn serve(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        connection.queued = false;
        if connection.frozen {
            return;
        }
        if connection.peek && connection.has_input() {
            connection.peek = false;
            self.io.pending.push_back(Pending::Peek(token));
        }
        match connection.mode {
            ReadMode::Deliver if connection.has_input() => self.read(token),
            ReadMode::Deliver => {}
            ReadMode::Hold | ReadMode::Notify => self.notify(token),
        }
    }

    /// The connection is gone: closes it and tells the core.
    pub(super) fn end(&mut self, token: Token, why: Closed) {
        let Some(Removed::Open(connection)) = self.io.table.remove(token) else {
            return;
        };
        let why = connection.failed.map_or(why, error_text);
        self.io.let_go(connection);
        self.call(|pooler, now, out| pooler.closed(token, &why, now, out));
    }

    /// Answers a Peek. Should the byte not be there yet, the answer follows when it is.
    pub(super) fn peek(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let looked = match connection.tls {
            Some(_) => self.look_secure(token),
            None => look(connection),
        };
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        let first = match looked {
            Ok(first) => first,
            Err(Errno::AGAIN) => {
                connection.readable = false;
                connection.peek = true;
                return;
            }
            Err(error) => return self.end(token, error_text(error)),
        };
        self.call(|pooler, now, out| pooler.peeked(token, first, now, out));
    }

    fn read(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if connection.turn != self.io.turn {
            connection.turn = self.io.turn;
            connection.reads = 0;
        }
        if connection.reads >= READS_PER_TURN {
            return self.io.carry(token);
        }
        connection.reads += 1;
        if connection.tls.is_some() {
            return self.read_secure(token);
        }
        match recv(&connection.fd, &mut *self.buffer, RecvFlags::empty()) {
            Ok((_, 0)) => self.end(token, Closed::Eof),
            Ok((_, length)) => {
                connection.answered = false;
                // A short read has emptied the socket: more bytes will be a new edge. Only the
                // end of the stream may have been told already.
                connection.readable = length == self.buffer.len() || connection.hung_up;
                let bytes = &self.buffer[..length];
                self.pooler
                    .received(token, bytes, self.io.now, &mut self.actions);
                self.io.execute(&mut self.actions, bytes);
                self.queue_if_readable(token);
            }
            Err(Errno::AGAIN) if connection.failed.is_none() => connection.readable = false,
            Err(Errno::INTR) => self.io.queue(token),
            Err(error) => self.end(token, error_text(error)),
        }
    }

    pub(super) fn queue_if_readable(&mut self, token: Token) {
        if let Some(connection) = self.io.table.get(token)
            && connection.has_input()
            && connection.mode != ReadMode::Hold
        {
            self.io.queue(token);
        }
    }

    /// Tells of a hang-up, or of bytes that are waiting, without reading.
    fn notify(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        if let Some(error) = connection.failed {
            return self.end(token, error_text(error));
        }
        if connection.hung_up && !connection.hung_up_told {
            connection.hung_up_told = true;
            self.call(|pooler, now, out| pooler.hung_up(token, now, out));
            // It may still want to know of the bytes.
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

/// The first unread byte, left where it is; `None` at the end of the stream.
pub(super) fn look(connection: &Connection) -> Result<Option<u8>, Errno> {
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

pub(super) fn error_text(error: Errno) -> Closed {
    Closed::Error(std::io::Error::from(error).to_string())
}
