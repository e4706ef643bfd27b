//! Encrypted connections: decrypts bytes before they reach the core, and encrypts what the core sends.
//!
//! Only a read shows whether an encrypted client has sent data. In mode `Notify`, the driver reads one record, and
//! keeps its plaintext until the core wants it.

use std::{mem, os::fd::OwnedFd};

use pgweir_core::{Closed, TlsRole, Token};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    driver::Driver,
    io::{Io, Pending},
    poller::Key,
    pooler::Pooler,
    read::error_text,
};
use crate::tls::{SessionError, TlsSession};

/// The number of handshake steps in one turn: a step costs about as much as twenty transactions, and transactions come
/// first.
pub(super) const HANDSHAKE_STEPS_PER_TURN: u32 = 16;
/// The largest size of a record, header and overhead included.
const RECORD_MAX: usize = 16_384 + 2_053;
/// Buffers are freed after use if they have more than this many bytes.
const KEPT: usize = 256 * 1024;

/// The shared state for encryption, created for the first encrypted connection.
#[derive(Debug, Default)]
pub(super) struct SecureBuffers {
    /// The bytes that were read; they are decrypted in place.
    cipher: Vec<u8>,
    plain: Vec<u8>,
    answer: Vec<u8>,
}

/// An encrypted connection.
struct Secured<'c> {
    session: &'c mut TlsSession,
    fd: &'c OwnedFd,
    readable: &'c mut bool,
    hung_up: &'c mut bool,
    answered: &'c mut bool,
    failed: bool,
}

/// The result of a read.
enum Read {
    /// There may be some plaintext.
    Some,
    /// The socket is empty.
    Nothing,
    /// The read was interrupted and has to be repeated.
    Interrupted,
    /// The peer will send nothing more.
    End,
    Failed(Errno),
    Broken(SessionError),
}

impl Io {
    /// Starts to encrypt a connection.
    pub(super) fn start_tls(&mut self, conn: Token, role: TlsRole) {
        if self.poller.stop_receiving(Key::Connection(conn)) {
            // TLS begins before a server has sent as much as makes the driver receive from it.
            let why = "the server has sent messages already".to_owned();
            return self.pending.push_back(Pending::Insecure(conn, why));
        }
        let session = TlsSession::new(role, &self.options.tls);
        let Some(connection) = self.table.get(conn) else {
            return;
        };
        match session {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                connection.input.readable = true;
                self.queue(conn);
            }
            Err(error) => self
                .pending
                .push_back(Pending::Insecure(conn, error.to_string())),
        }
    }

    /// Encrypts bytes and sends them.
    pub(super) fn write_sealed(&mut self, to: Token, pieces: &[&[u8]]) {
        let Some(connection) = self.table.get(to) else {
            return;
        };
        let Some(session) = connection
            .tls
            .as_deref_mut()
            .filter(|_| connection.output.failed.is_none())
        else {
            return;
        };
        let mut sealed = mem::take(&mut self.encryption.sealed);
        let mut gathered = mem::take(&mut self.encryption.gathered);
        let outcome = match pieces {
            [piece] => session.seal(piece, &mut sealed),
            _ => {
                for piece in pieces {
                    gathered.extend_from_slice(piece);
                }
                session.seal(&gathered, &mut sealed)
            }
        };
        match outcome {
            Ok(()) => self.put(to, &[&sealed]),
            Err(_) => self.fail(to, Errno::PIPE),
        }
        self.encryption.sealed = emptied(sealed);
        self.encryption.gathered = emptied(gathered);
    }

    /// Sends `close_notify`, if neither side has hung up yet.
    pub(super) fn close_notify(&mut self, conn: Token) {
        let Some(connection) = self.table.get(conn) else {
            return;
        };
        if connection.input.hung_up || connection.output.failed.is_some() {
            return;
        }
        let Some(session) = &mut connection.tls else {
            return;
        };
        let mut sealed = Vec::new();
        session.close(&mut sealed);
        if !sealed.is_empty() {
            self.put(conn, &[&sealed]);
        }
    }

    /// Returns whether another step of a handshake may be made in this turn.
    fn may_shake_hands(&mut self) -> bool {
        let may = self.turn.handshake_steps > 0;
        self.turn.handshake_steps = self.turn.handshake_steps.saturating_sub(1);
        may
    }
}

impl<P: Pooler> Driver<P> {
    /// Reads an encrypted connection in mode `Deliver` once.
    pub(super) fn read_secure(&mut self, token: Token) {
        let Some(Secured {
            session, answered, ..
        }) = self.io.secured(token)
        else {
            return;
        };
        if !session.waiting().is_empty() {
            let plain = session.take_waiting();
            *answered = false;
            return self.deliver(token, &plain);
        }
        if session.has_ended() {
            return self.end(token, Closed::Eof);
        }
        let was_established = session.is_established();
        if !was_established && !self.io.may_shake_hands() {
            return self.io.carry(token);
        }
        // A record takes a few reads at most.
        let most = self
            .io
            .table
            .get(token)
            .map_or(0, |own| own.read_max(self.buffer.len()));
        let read = self.receive(token, most.max(2 * RECORD_MAX));
        self.send_answer(token);
        match read {
            Read::Interrupted => return self.io.queue(token),
            Read::Failed(error) => return self.end(token, error_text(error)),
            Read::Broken(error) => return self.broken(token, &error.to_string()),
            Read::End if !was_established => {
                return self.broken(token, "the connection was closed");
            }
            Read::End => return self.end(token, Closed::Eof),
            Read::Some | Read::Nothing => {}
        }
        let plain = mem::take(&mut self.secure.plain);
        self.decrypted(token, was_established, &plain);
        self.secure.plain = emptied(plain);
    }

    /// Passes the results of a read to the core.
    fn decrypted(&mut self, token: Token, was_established: bool, plain: &[u8]) {
        let Some(Secured {
            session, answered, ..
        }) = self.io.secured(token)
        else {
            return;
        };
        *answered = false;
        if session.is_established() && !was_established {
            // The core may change the mode before it receives plaintext that arrived with the end of the handshake.
            session.keep(plain);
            if let Some(facts) = session.facts() {
                self.call(|pooler, now, out| pooler.secured(token, facts, now, out));
            }
            return self.queue_if_readable(token);
        }
        if plain.is_empty() {
            return self.queue_if_readable(token);
        }
        self.deliver(token, plain);
    }

    /// Returns the first byte of plaintext, or `None` if the peer will send nothing more.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] while there is no plaintext. Any other error has ended the connection.
    pub(super) fn peek_secure(&mut self, token: Token) -> Result<Option<u8>, Errno> {
        loop {
            let session = self.io.secured(token).ok_or(Errno::BADF)?.session;
            if let Some(first) = session.waiting().first() {
                return Ok(Some(*first));
            }
            if session.has_ended() {
                return Ok(None);
            }
            let read = self.receive(token, RECORD_MAX);
            self.send_answer(token);
            match read {
                Read::Some => {
                    if let Some(secured) = self.io.secured(token) {
                        secured.session.keep(&self.secure.plain);
                    }
                }
                Read::Nothing => return Err(Errno::AGAIN),
                Read::Interrupted => {}
                Read::End => return Ok(None),
                Read::Failed(error) => {
                    self.end(token, error_text(error));
                    return Err(error);
                }
                Read::Broken(error) => {
                    self.broken(token, &error.to_string());
                    return Err(Errno::PROTO);
                }
            }
        }
    }

    /// Returns whether there is plaintext, or the end. If not, the connection is reported when there is.
    pub(super) fn has_something_to_say(&mut self, token: Token) -> bool {
        if self.peek_secure(token).is_err() {
            return false;
        }
        let Some(connection) = self.io.table.get(token) else {
            return false;
        };
        let has_ended = connection.tls.as_deref().is_some_and(TlsSession::has_ended);
        if has_ended && !connection.input.hang_up_reported {
            // The end is reported first: a client that only closes its connection needs no server.
            connection.input.hung_up = true;
            self.io.queue(token);
            return false;
        }
        true
    }

    /// Handles a failed handshake or a corrupted record. The peer gets an alert before the socket closes.
    pub(super) fn broken(&mut self, token: Token, why: &str) {
        let established = self
            .io
            .secured(token)
            .is_some_and(|secured| secured.session.is_established());
        let why = match established {
            false => Closed::Tls(why.to_owned()),
            true => Closed::Error(why.to_owned()),
        };
        if let Some(connection) = self.io.table.get(token) {
            connection.tls = None;
        }
        self.io.close(token);
        self.call(|pooler, now, out| pooler.closed(token, &why, now, out));
    }

    /// Reads once, at most `most` bytes, and decrypts them into `secure.plain`.
    fn receive(&mut self, token: Token, most: usize) -> Read {
        self.secure.plain.clear();
        self.secure.answer.clear();
        let wanted = self.buffer.len().max(2 * RECORD_MAX);
        if self.secure.cipher.len() < wanted {
            self.secure.cipher.resize(wanted, 0);
        }
        let Some(secured) = self.io.secured(token) else {
            return Read::Nothing;
        };
        let Secured { session, fd, .. } = secured;
        let kept = session.put_partial(&mut self.secure.cipher);
        let end = self.secure.cipher.len().min(most.max(kept + 1));
        let space = end - kept;
        let read = recv(fd, &mut self.secure.cipher[kept..end], RecvFlags::empty());
        let length = match read {
            Ok((_, 0)) if !session.is_due => {
                session.end();
                *secured.hung_up = true;
                return Read::End;
            }
            Ok((_, length)) => {
                // A short read has emptied the socket, except for the end of the stream.
                *secured.readable = length == space || length == 0 || *secured.hung_up;
                length
            }
            Err(Errno::AGAIN) if session.is_due && !secured.failed => {
                *secured.readable = false;
                0
            }
            Err(error) => {
                session.restore_partial(&self.secure.cipher[..kept]);
                return match error {
                    Errno::INTR => Read::Interrupted,
                    Errno::AGAIN if !secured.failed => {
                        *secured.readable = false;
                        Read::Nothing
                    }
                    error => Read::Failed(error),
                };
            }
        };
        let bytes = &mut self.secure.cipher[..kept + length];
        let outcome = session.receive(bytes, &mut self.secure.plain, &mut self.secure.answer);
        if session.has_ended() {
            *secured.hung_up = true;
            *secured.readable = true;
        }
        match outcome {
            Ok(()) => Read::Some,
            Err(error) => Read::Broken(error),
        }
    }

    /// Sends messages of TLS itself: the handshake, alerts, new keys.
    fn send_answer(&mut self, token: Token) {
        if !self.secure.answer.is_empty() {
            let answer = mem::take(&mut self.secure.answer);
            self.io.put(token, &[&answer]);
            self.secure.answer = emptied(answer);
        }
    }

    /// Passes plaintext to the core.
    pub(super) fn deliver(&mut self, token: Token, plain: &[u8]) {
        let began = self.begin_slice(plain.len());
        self.pooler
            .received(token, plain, self.io.now, &mut self.actions);
        self.io.execute(&mut self.actions, plain);
        self.end_slice(token, began);
        self.queue_if_readable(token);
    }
}

impl Io {
    fn secured(&mut self, token: Token) -> Option<Secured<'_>> {
        let connection = self.table.get(token)?;
        Some(Secured {
            session: connection.tls.as_deref_mut()?,
            fd: &connection.fd,
            readable: &mut connection.input.readable,
            hung_up: &mut connection.input.hung_up,
            answered: &mut connection.output.answered,
            failed: connection.output.failed.is_some(),
        })
    }
}

fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    if buffer.capacity() > KEPT {
        return Vec::new();
    }
    buffer
}
