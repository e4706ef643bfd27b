//! Cases in which pgweir can't know how many replies a server still has to send: after a COPY that
//! failed early, or messages that a client sent against the protocol's rules.

use pgweir_wire::tag::backend;

use super::Replies;
use crate::backend::request::Request;

impl Replies {
    /// Returns whether the server may send a reply that pgweir does not expect. If so, the server must be closed, not
    /// lent again.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.certainty.is_uncertain
    }

    /// Notes that the server has sent a message with this tag.
    #[inline]
    pub fn note_message(&mut self, tag: u8) {
        self.certainty.answering |= self.certainty.is_uncertain && tag != backend::READY_FOR_QUERY;
    }

    /// Returns whether a ReadyForQuery that arrives now belongs to the client: it answers a Sync that pgweir expected
    /// the server to ignore. The answer to a query of pgweir's own never consists of a ReadyForQuery alone.
    #[must_use]
    #[inline]
    pub fn owes_client_first(&self) -> bool {
        self.certainty.is_uncertain
            && !self.certainty.answering
            && matches!(self.current(), Some(Request::Internal(_)))
            && self.front_mark().is_none()
    }
}
