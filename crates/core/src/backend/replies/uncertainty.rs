//! COPYs that failed early, and clients that take liberties, leave it open what the server still owes.

use pgweir_wire::tag::backend;

use super::Replies;
use crate::backend::request::Request;

impl Replies {
    /// A reply may come that nobody counts on: close the server instead of lending it again.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.certainty.is_uncertain
    }

    /// The server says a message of this kind.
    #[inline]
    pub fn said(&mut self, tag: u8) {
        self.certainty.answering |= self.certainty.is_uncertain && tag != backend::READY_FOR_QUERY;
    }

    /// A ReadyForQuery that comes now is for the client, for a Sync that was thought ignored: none of our own
    /// requests is answered by that alone.
    #[must_use]
    #[inline]
    pub fn owes_client_first(&self) -> bool {
        self.certainty.is_uncertain
            && !self.certainty.answering
            && matches!(self.current(), Some(Request::Internal(_)))
            && self.front_mark().is_none()
    }
}
