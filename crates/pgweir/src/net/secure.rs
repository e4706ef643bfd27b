//! Encrypted connections: what is read of them is decrypted before the core gets it, what is written is
//! encrypted after it has gone.
//!
//! Whether an encrypted client has said something shows only when it is read: in mode `Notify` one
//! record's worth is, and waits as plaintext.

use std::{mem, os::fd::OwnedFd};

use pgweir_core::{Closed, TlsRole, Token};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    driver::Driver,
    io::{Io, Pending},
    pooler::Pooler,
    read::error_text,
};
use crate::tls::{SessionError, TlsSession};

/// Steps of handshakes in one turn: each costs about as much as twenty transactions, and those come first.
pub(super) const HANDSHAKE_STEPS_PER_TURN: u32 = 16;
/// A record, with all that belongs to it.
const RECORD_MAX: usize = 16_384 + 2_053;
/// Above this many bytes, buffers are given back after use.
const KEPT: usize = 256 * 1024;

/// What encryption needs besides the connections: made when the first is encrypted.
#[derive(Debug, Default)]
pub(super) struct SecureBuffers {
    /// What was read, decrypted in place.
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

/// What came of a read.
enum Read {
    /// Perhaps some plaintext.
    Some,
    /// The socket is empty.
    Nothing,
    /// Again, please.
    Interrupted,
    /// The peer will send no more.
    End,
    Failed(Errno),
    Broken(SessionError),
}

impl Io {
    /// Encrypts a connection from here on.
    pub(super) fn start_tls(&mut self, conn: Token, role: TlsRole) {
        let session = TlsSession::new(role, &self.options.tls);
        let Some(connection) = self.table.get(conn) else {
            return;
        };
        match session {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                connection.readable = true;
                self.queue(conn);
            }
            Err(error) => self
                .pending
                .push_back(Pending::Insecure(conn, error.to_string())),
        }
    }

    /// Encrypts what is to be sent, and sends it.
    pub(super) fn write_sealed(&mut self, to: Token, pieces: &[&[u8]]) {
        let Some(connection) = self.table.get(to) else {
            return;
        };
        let Some(session) = connection
            .tls
            .as_deref_mut()
            .filter(|_| connection.failed.is_none())
        else {
            return;
        };
        let mut sealed = mem::take(&mut self.sealed);
        let mut gathered = mem::take(&mut self.gathered);
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
        self.sealed = emptied(sealed);
        self.gathered = emptied(gathered);
    }

    /// Says goodbye, if nobody has hung up yet.
    pub(super) fn close_notify(&mut self, conn: Token) {
        let Some(connection) = self.table.get(conn) else {
            return;
        };
        if connection.hung_up || connection.failed.is_some() {
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

    /// May another step of a handshake be made in this turn?
    fn may_shake_hands(&mut self) -> bool {
        let may = self.handshake_steps > 0;
        self.handshake_steps = self.handshake_steps.saturating_sub(1);
        may
    }
}

impl<P: Pooler> Driver<P> {
    /// One read of an encrypted connection in mode `Deliver`.
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

    /// Tells the core of what came.
    fn decrypted(&mut self, token: Token, was_established: bool, plain: &[u8]) {
        let Some(Secured {
            session, answered, ..
        }) = self.io.secured(token)
        else {
            return;
        };
        *answered = false;
        if session.is_established() && !was_established {
            // The core may change the mode before it gets to hear what came with the end of it.
            session.keep(plain);
            let facts = session.facts();
            self.call(|pooler, now, out| pooler.secured(token, facts, now, out));
            return self.queue_if_readable(token);
        }
        if plain.is_empty() {
            return self.queue_if_readable(token);
        }
        self.deliver(token, plain);
    }

    /// Looks whether an encrypted connection has something to say: its first byte; `None` if it will say
    /// nothing more.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] while it says nothing. Any other one has ended it.
    pub(super) fn look_secure(&mut self, token: Token) -> Result<Option<u8>, Errno> {
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

    /// Is there plaintext, or the end? If not, the connection says so when it is.
    pub(super) fn has_something_to_say(&mut self, token: Token) -> bool {
        if self.look_secure(token).is_err() {
            return false;
        }
        let Some(connection) = self.io.table.get(token) else {
            return false;
        };
        let has_ended = connection.tls.as_deref().is_some_and(TlsSession::has_ended);
        if has_ended && !connection.hung_up_told {
            // That is told first: who only says goodbye needs no server.
            connection.hung_up = true;
            self.io.queue(token);
            return false;
        }
        true
    }

    /// The handshake failed, or what came is not what the peer sent. It is told so before the socket closes.
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

    /// Reads once, at most so many bytes, and decrypts what came into `secure.plain`.
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
                // A short read has emptied the socket, but for the end of the stream.
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

    /// Sends what the protocol itself has to say: the handshake, alerts, new keys.
    fn send_answer(&mut self, token: Token) {
        if !self.secure.answer.is_empty() {
            let answer = mem::take(&mut self.secure.answer);
            self.io.put(token, &[&answer]);
            self.secure.answer = emptied(answer);
        }
    }

    /// Gives the core plaintext.
    fn deliver(&mut self, token: Token, plain: &[u8]) {
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
            readable: &mut connection.readable,
            hung_up: &mut connection.hung_up,
            answered: &mut connection.answered,
            failed: connection.failed.is_some(),
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
