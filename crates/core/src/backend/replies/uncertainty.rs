//! Cases in which pgweir can't know how many replies a server still has to send: after a COPY that
//! failed early, or messages that a client sent against the protocol's rules.

use pgweir_wire::tag::backend;

use super::{Replies, countdown::Countdown};
use crate::{backend::request::Request, base::conditions::first_of};

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

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(in crate::backend) fn unfinished(&self) -> Option<&'static str> {
        let countdowns = [self.certainty.dropping, self.certainty.restoring];
        first_of(&[
            (!self.is_settled(), "an outstanding reply"),
            (self.certainty.is_uncertain, "an uncertain reply"),
            (self.early > 0, "a reply that pgweir has to send"),
            (self.awaited || self.is_full, "client messages that wait"),
            (self.skipping, "messages that the server skips"),
            (
                self.copy.ignored_syncs > 0,
                "a Sync that the server ignores",
            ),
            (self.has_unmarked_portal, "a Describe of a portal"),
            (
                !Countdown::are_over(countdowns),
                "uncertain names or startup values",
            ),
        ])
    }
}
