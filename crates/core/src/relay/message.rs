//! A message of a client, from the arrival of its header on, and the position in the client's input.

use pgweir_wire::tag::frontend;

use crate::{Actions, Token, frontend::Head};

/// A message whose header has arrived.
#[derive(Debug)]
pub(super) struct Message<'b> {
    pub(super) head: Head,
    /// The input from the message's body on. The input may end within the body, or contain more messages after it.
    pub(super) rest: &'b [u8],
}

/// The position in a client's input.
#[derive(Debug)]
pub(super) struct Cursor<'b> {
    pub(super) bytes: &'b [u8],
    /// The position up to which the input is read.
    pub(super) at: usize,
    /// The position up to which the input, or a replacement for it, is sent.
    pub(super) sent: usize,
    /// The definition of an unnamed statement that was not used yet.
    pub(super) unused: Option<&'b [u8]>,
}

impl<'b> Message<'b> {
    #[inline]
    pub(super) fn tag(&self) -> u8 {
        self.head.header.tag
    }

    /// Returns whether the message is a request by itself, without a Sync.
    #[inline]
    pub(super) fn is_simple(&self) -> bool {
        matches!(self.tag(), frontend::QUERY | frontend::FUNCTION_CALL)
    }

    /// Returns the length of the body.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.header.body_len as usize
    }

    /// Returns the part of the body that has arrived.
    #[inline]
    pub(super) fn body(&self) -> &'b [u8] {
        &self.rest[..self.rest.len().min(self.len())]
    }

    /// Returns whether the body has arrived completely.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.rest.len() >= self.len()
    }
}

impl<'b> Cursor<'b> {
    #[inline]
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            sent: 0,
            unused: None,
        }
    }

    /// Sends the bytes in front of a message.
    #[inline]
    pub(super) fn flush(&mut self, server: Token, message: &Message<'_>, out: &mut Actions) {
        out.send_input(server, self.sent, message.head.start);
        self.sent = message.head.start;
    }

    /// Skips bytes that pgweir has replaced or answered.
    #[inline]
    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
        self.sent = self.at;
    }
}
