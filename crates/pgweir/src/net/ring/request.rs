//! The requests to io_uring: the 64 bits that identify each, and the meaning of results.

use std::io;

use io_uring::cqueue;
use pgweir_core::Token;

use super::buffers::BUFFER_BYTES;
use crate::net::poller::Key;

/// The kinds of requests, in the upper bits of a slot.
pub(super) const POLL: u32 = 0;
pub(super) const RECEIVE: u32 = 1;
/// A request whose completion matters only if it failed.
pub(super) const CANCEL: u32 = 2;
/// A send. Its slot is the index in the outbox.
pub(super) const SEND: u32 = 3;
/// The identification of a completion that was dealt with. No connection has this generation.
pub(super) const DONE: u64 = u64::MAX;
const SLOT_BITS: u32 = 24;
/// The largest slot that a request can name.
pub(super) const SLOT_MAX: u32 = (1 << SLOT_BITS) - 1;
const NUMBERS: u8 = 64;

/// One completion, as the kernel reported it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// A buffer with received bytes. [`Ring::take`](super::Ring::take) has to take it.
#[derive(Debug)]
pub(in crate::net) struct Filled {
    pub(super) id: u16,
    pub(super) length: usize,
}

impl Filled {
    /// Returns whether more bytes of the same message may be on their way.
    pub(in crate::net) fn is_full(&self) -> bool {
        self.length >= BUFFER_BYTES
    }
}

/// Returns the 64 bits that identify a request: generation, kind, number, slot.
pub(super) fn request(key: Key, kind: u32, number: u8) -> u64 {
    let token = key.to_token();
    let lower = kind << 30 | u32::from(number) << SLOT_BITS | token.slot & SLOT_MAX;
    u64::from(token.generation) << 32 | u64::from(lower)
}

/// Returns the 64 bits that identify a send.
pub(super) fn send(index: u32) -> u64 {
    u64::from(SEND << 30 | index & SLOT_MAX)
}

/// Returns the index of a send, if this is the identification of one.
pub(super) fn sent(data: u64) -> Option<u32> {
    (data as u32 >> 30 == SEND).then_some(data as u32 & SLOT_MAX)
}

/// Returns the subject and the number of a request.
pub(super) fn subject(data: u64) -> (Key, u8) {
    let slot = data as u32 & SLOT_MAX;
    let generation = (data >> 32) as u32;
    let number = (data >> SLOT_BITS) as u8 & (NUMBERS - 1);
    (Key::from_token(Token { slot, generation }), number)
}

pub(super) fn next_number(number: u8) -> u8 {
    (number + 1) % NUMBERS
}

/// Returns the buffer that a completion names; it may be empty.
pub(super) fn filled(completion: Completion) -> Option<Filled> {
    let length = usize::try_from(completion.result).unwrap_or(0);
    let id = cqueue::buffer_select(completion.flags)?;
    Some(Filled { id, length })
}

/// Returns whether a receive ended without a fault of the connection: cancelled, interrupted, or without a buffer.
pub(super) fn is_restart(result: i32) -> bool {
    matches!(
        -result,
        libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM
    )
}

/// Returns the error of a cancellation, unless the request had completed already.
pub(super) fn refusal(result: i32) -> Option<io::Error> {
    match -result {
        libc::ENOENT | libc::EALREADY => None,
        error => Some(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_contains_its_connection_and_number() {
        let token = Token {
            slot: SLOT_MAX,
            generation: 3,
        };
        let key = Key::Connection(token);
        for kind in [POLL, RECEIVE] {
            for number in [0, 1, NUMBERS - 1] {
                let data = request(key, kind, number);
                assert_eq!((data as u32) >> 30, kind);
                assert_eq!(subject(data), (key, number));
                assert_eq!(sent(data), None);
            }
        }
        assert_eq!(next_number(NUMBERS - 1), 0);
        assert_eq!(sent(send(63)), Some(63));
    }
}
