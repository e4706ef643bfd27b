//! The work that must end before a server is lent again.

use crate::{base::conditions::first_of, pool::Waiter};

/// The work that must end before a server is lent again.
#[derive(Debug, Default)]
pub struct NextLoan {
    /// Whether `server_reset_query` must run before the next loan.
    pub(crate) needs_reset: bool,
    /// The number of cancel requests for this server that are under way.
    cancels: u32,
    /// The client of another worker that the server is being sent to.
    pub(crate) destined: Option<Waiter>,
}

impl NextLoan {
    /// Returns the number of cancel requests for this server that are under way.
    #[must_use]
    pub fn cancels(&self) -> u32 {
        self.cancels
    }

    /// Returns whether a cancel request for this server is under way.
    #[must_use]
    #[inline]
    pub fn awaits_cancels(&self) -> bool {
        self.cancels > 0
    }

    /// Notes that a cancel request for this server is opened.
    pub fn note_cancel_opened(&mut self) {
        self.cancels += 1;
    }

    /// Notes that a cancel request for this server has ended.
    pub fn note_cancel_ended(&mut self) {
        debug_assert!(self.cancels > 0, "no cancel request is under way");
        self.cancels = self.cancels.saturating_sub(1);
    }

    /// Returns a description of work that must still end before the next loan: see
    /// [`Server::unfinished`](super::Server::unfinished).
    pub(crate) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (self.needs_reset, "server_reset_query"),
            (self.awaits_cancels(), "a cancel request"),
            (self.destined.is_some(), "a move to another worker"),
        ])
    }
}
