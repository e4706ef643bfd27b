//! Short sends that wait for the next call of the ring, which makes all of them.
//!
//! Input: bytes for a connection. Output: the result of each send.
//!
//! The kernel makes each send within the call that submits it, since a send may not wait. So the bytes are used by the
//! kernel during calls of the ring only, and no send outlasts its call.

use std::{
    mem,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

use io_uring::{opcode, types};
use pgweir_core::Token;

use super::{queue::Queue, request};

/// The largest number of bytes that wait for one connection. More bytes are sent at once: copying them would cost more than
/// a call saves.
const BYTES_MAX: usize = 4096;

/// The sends of one worker that wait.
#[derive(Debug, Default)]
pub(in crate::net) struct Outbox {
    /// The first `count` of them wait. The others keep their memory for later.
    sends: Vec<Waiting>,
    count: usize,
    /// By slot of a connection, the index of its last send, which may have been made since.
    places: Vec<u16>,
    /// The largest number of sends that wait.
    most: usize,
    /// The number of sends whose result is not known yet.
    unknown: usize,
}

#[derive(Debug)]
struct Waiting {
    /// `None` after the send was taken back.
    to: Option<Token>,
    fd: RawFd,
    bytes: Vec<u8>,
    /// The number of bytes sent, or a negative error number. `None` before the kernel has made the send.
    result: Option<i32>,
}

/// A send that the kernel has not made, or not completely.
#[derive(Debug)]
pub(in crate::net) struct Unfinished<'o> {
    pub(in crate::net) to: Token,
    pub(in crate::net) bytes: &'o [u8],
    /// The number of bytes sent, or a negative error number. `None` if the kernel has not made the send.
    pub(in crate::net) result: Option<i32>,
}

impl Outbox {
    /// Creates an outbox for so many sends.
    pub(super) fn new(most: u16) -> Self {
        Self {
            most: most.into(),
            ..Self::default()
        }
    }

    /// Returns the number of sends that wait.
    pub(in crate::net) fn len(&self) -> usize {
        self.count
    }

    /// Adds bytes to those that wait for a connection, or begins a send for it. Returns `false` if there is no room.
    pub(in crate::net) fn add(&mut self, to: Token, fd: BorrowedFd<'_>, pieces: &[&[u8]]) -> bool {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let index = match self.find(to) {
            Some(index) if self.sends[index].bytes.len() + length <= BYTES_MAX => index,
            None if self.count < self.most && length <= BYTES_MAX => self.begin(to, fd.as_raw_fd()),
            _ => return false,
        };
        for piece in pieces {
            self.sends[index].bytes.extend_from_slice(piece);
        }
        true
    }

    fn begin(&mut self, to: Token, fd: RawFd) -> usize {
        let index = self.count;
        self.count += 1;
        let slot = to.slot as usize;
        if slot >= self.places.len() {
            self.places.resize(slot + 1, 0);
        }
        self.places[slot] = index as u16;
        match self.sends.get_mut(index) {
            Some(free) => {
                free.to = Some(to);
                free.fd = fd;
                free.bytes.clear();
                free.result = None;
            }
            None => self.sends.push(Waiting {
                to: Some(to),
                fd,
                bytes: Vec::new(),
                result: None,
            }),
        }
        index
    }

    fn find(&self, to: Token) -> Option<usize> {
        let index = usize::from(*self.places.get(to.slot as usize)?);
        let is_its = index < self.count && self.sends[index].to == Some(to);
        is_its.then_some(index)
    }

    /// Takes back the bytes that wait for a connection, to be sent otherwise.
    pub(in crate::net) fn take_back(&mut self, to: Token) -> Option<Vec<u8>> {
        let index = self.find(to)?;
        let send = &mut self.sends[index];
        send.to = None;
        Some(mem::take(&mut send.bytes))
    }

    /// Queues all sends for the next call of the ring. Returns whether there are any.
    pub(super) fn submit(&mut self, queue: &mut Queue) -> bool {
        for (index, send) in self.sends[..self.count].iter().enumerate() {
            if send.to.is_none() {
                continue;
            }
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            let entry = opcode::Send::new(
                types::Fd(send.fd),
                send.bytes.as_ptr(),
                send.bytes.len() as u32,
            );
            let entry = entry.flags(flags).build();
            queue.push(&entry.user_data(request::send(index as u32)));
            self.unknown += 1;
        }
        self.unknown > 0
    }

    /// Takes the results that the kernel has reported. Returns whether all are known.
    pub(super) fn complete(&mut self, queue: &mut Queue) -> bool {
        for (index, result) in queue.sent.drain(..) {
            if let Some(send) = self.sends.get_mut(index as usize) {
                send.result = Some(result);
                self.unknown = self.unknown.saturating_sub(1);
            }
        }
        self.unknown == 0
    }

    /// Returns the sends that the kernel has not made, or not completely.
    pub(in crate::net) fn unfinished(&self) -> impl Iterator<Item = Unfinished<'_>> {
        self.sends[..self.count].iter().filter_map(|send| {
            let sent = send.result.and_then(|result| usize::try_from(result).ok());
            let is_done = sent.is_some_and(|sent| sent >= send.bytes.len());
            let to = send.to.filter(|_| !is_done)?;
            Some(Unfinished {
                to,
                bytes: &send.bytes,
                result: send.result,
            })
        })
    }

    /// Forgets all sends.
    pub(in crate::net) fn clear(&mut self) {
        self.count = 0;
        self.unknown = 0;
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let bytes: usize = self.sends.iter().map(|send| send.bytes.capacity()).sum();
        bytes
            + self.sends.capacity() * size_of::<Waiting>()
            + self.places.capacity() * size_of::<u16>()
    }
}
