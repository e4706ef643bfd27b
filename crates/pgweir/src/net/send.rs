//! The outgoing side: writes at once, and keeps only what the socket does not accept. With io_uring, short writes wait
//! until the end of the turn, and are then made in one call.

use std::{io::IoSlice, mem, os::fd::AsFd};

use pgweir_core::Token;
use rustix::{
    io::Errno,
    net::{self, SendAncillaryBuffer, SendFlags},
};

use super::{
    io::{Io, Pending},
    poller::Key,
    ring::{Outbox, Unfinished},
};

/// The largest number of pieces in one write.
pub(super) const PIECES_MAX: usize = 16;

/// Bytes that a socket did not accept. Exists only while there are any.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: Vec<u8>,
    start: usize,
}

impl Unsent {
    /// Keeps `pieces` without their first `taken` bytes.
    fn after(pieces: &[&[u8]], taken: usize) -> Box<Self> {
        let mut unsent = Box::new(Self {
            bytes: Vec::new(),
            start: 0,
        });
        let total = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        unsent.bytes.reserve_exact(total.saturating_sub(taken));
        let mut skip = taken;
        for piece in pieces {
            let skipped = skip.min(piece.len());
            unsent.bytes.extend_from_slice(&piece[skipped..]);
            skip -= skipped;
        }
        unsent
    }

    /// Keeps bytes that the old process could not write.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, start: 0 }
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the remaining bytes.
    pub(super) fn into_rest(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }

    fn append(&mut self, pieces: &[&[u8]]) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Writes as much as the socket accepts. Returns `true` when nothing is left.
    pub(super) fn write(&mut self, fd: impl AsFd) -> Result<bool, Errno> {
        while self.start < self.bytes.len() {
            match send(&fd, &[&self.bytes[self.start..]]) {
                Ok(taken) => self.start += taken,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Io {
    /// Writes the pieces, encrypted if the connection is, or queues them after earlier unsent bytes.
    pub(super) fn write(&mut self, to: Token, pieces: &[&[u8]]) {
        match self.table.get(to) {
            Some(connection) if connection.tls.is_some() => self.write_sealed(to, pieces),
            Some(_) => self.put(to, pieces),
            None => {}
        }
    }

    /// Writes the pieces unchanged, in one call, or queues them.
    pub(super) fn put(&mut self, to: Token, pieces: &[&[u8]]) {
        if self.poller.ring.is_none() || !self.add_to_outbox(to, pieces) {
            self.put_at_once(to, pieces);
        }
    }

    /// Lets the pieces wait for the end of the turn. Returns `false` if they have to be written at once.
    fn add_to_outbox(&mut self, to: Token, pieces: &[&[u8]]) -> bool {
        let (Some(ring), Some(connection)) = (&mut self.poller.ring, self.table.get(to)) else {
            return false;
        };
        let output = &mut connection.output;
        if output.failed.is_some() || output.unsent.is_some() {
            return false;
        }
        let fd = connection.fd.as_fd();
        if !ring.outbox.add(to, fd, pieces) {
            self.send_waiting(to);
            return false;
        }
        output.answered = true;
        true
    }

    /// Writes the pieces without waiting for others.
    fn put_at_once(&mut self, to: Token, pieces: &[&[u8]]) {
        let Some(connection) = self.table.get(to) else {
            return;
        };
        connection.output.answered = true;
        if connection.output.failed.is_some() {
            return;
        }
        if let Some(unsent) = &mut connection.output.unsent {
            unsent.append(pieces);
            return;
        }
        match send(&connection.fd, pieces) {
            Ok(taken) => self.keep_rest(to, pieces, taken),
            Err(Errno::AGAIN) => self.keep_rest(to, pieces, 0),
            Err(error) => self.fail(to, error),
        }
    }

    /// Keeps what the socket has not accepted, if anything.
    fn keep_rest(&mut self, to: Token, pieces: &[&[u8]], taken: usize) {
        if taken >= pieces.iter().map(|piece| piece.len()).sum() {
            return;
        }
        if let Some(connection) = self.table.get(to) {
            connection.output.unsent = Some(Unsent::after(pieces, taken));
            self.pending.push_back(Pending::Blocked(to));
            self.watch_for_room(to);
        }
    }

    /// Writes the bytes that wait in the outbox for one connection, before something else happens to the connection.
    pub(super) fn send_waiting(&mut self, to: Token) {
        let ring = self.poller.ring.as_mut();
        if let Some(bytes) = ring.and_then(|ring| ring.outbox.take_back(to)) {
            self.put_at_once(to, &[&bytes]);
        }
    }

    /// Returns the number of connections whose bytes wait in the outbox.
    #[inline]
    pub(super) fn sends_waiting(&self) -> usize {
        let ring = self.poller.ring.as_ref();
        ring.map_or(0, |ring| ring.outbox.len())
    }

    /// Empties the outbox: writes what the ring has not written, and processes the results of what it has.
    pub(super) fn empty_outbox(&mut self) {
        let Some(ring) = &mut self.poller.ring else {
            return;
        };
        let mut outbox = mem::take(&mut ring.outbox);
        self.process_results(&outbox);
        outbox.clear();
        if let Some(ring) = &mut self.poller.ring {
            ring.outbox = outbox;
        }
    }

    /// Writes what the ring could not write.
    pub(super) fn process_results(&mut self, outbox: &Outbox) {
        for Unfinished { to, bytes, result } in outbox.unfinished() {
            match result.map(|result| (usize::try_from(result), Errno::from_raw_os_error(-result)))
            {
                None | Some((Err(_), Errno::INTR)) => self.put_at_once(to, &[bytes]),
                Some((Ok(taken), _)) => self.keep_rest(to, &[bytes], taken),
                Some((Err(_), Errno::AGAIN)) => self.keep_rest(to, &[bytes], 0),
                Some((Err(_), error)) => self.fail(to, error),
            }
        }
    }

    /// Watches a connection for room to write, after its socket was full for the first time.
    fn watch_for_room(&mut self, token: Token) {
        let Some(connection) = self.table.get(token) else {
            return;
        };
        if mem::replace(&mut connection.output.has_room, true) {
            return;
        }
        if let Err(error) = self
            .poller
            .watch_for_room(&connection.fd, Key::Connection(token))
        {
            self.fail(token, Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }

    /// Writes unsent bytes when the socket accepts bytes again.
    pub(super) fn flush(&mut self, token: Token) {
        let Some(connection) = self.table.get(token) else {
            return;
        };
        let Some(unsent) = &mut connection.output.unsent else {
            return;
        };
        match unsent.write(&connection.fd) {
            Ok(false) => {}
            Ok(true) => {
                connection.output.unsent = None;
                self.pending.push_back(Pending::Drained(token));
            }
            Err(error) => self.fail(token, error),
        }
    }
}

#[inline]
fn send(fd: impl AsFd, pieces: &[&[u8]]) -> Result<usize, Errno> {
    loop {
        let sent = match pieces {
            [piece] => net::send(&fd, piece, SendFlags::NOSIGNAL),
            _ => {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                for (slice, piece) in slices.iter_mut().zip(pieces) {
                    *slice = IoSlice::new(piece);
                }
                let count = pieces.len().min(PIECES_MAX);
                net::sendmsg(
                    &fd,
                    &slices[..count],
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::NOSIGNAL,
                )
            }
        };
        if sent != Err(Errno::INTR) {
            return sent;
        }
    }
}
