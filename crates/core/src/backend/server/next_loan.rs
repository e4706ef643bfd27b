//! The work that must end before a server is lent again.

use crate::{base::conditions::first_of, pool::Waiter};

/// The work that must end before a server is lent again.
#[derive(Debug, Default)]
pub struct NextLoan {
    /// Whether `server_reset_query` must run before the next loan.
    needs_reset: bool,
    /// The number of cancel requests for this server that are under way.
    cancels: u32,
    /// The client of another worker that the server is being sent to.
    destined: Option<Waiter>,
}

impl NextLoan {
    /// Returns whether `server_reset_query` must run before the next loan.
    #[must_use]
    #[inline]
    pub fn needs_reset(&self) -> bool {
        self.needs_reset
    }

    /// Demands that `server_reset_query` runs before the next loan.
    pub fn demand_reset(&mut self) {
        self.needs_reset = true;
    }

    /// Notes that `server_reset_query` runs now. Returns whether it was demanded.
    pub fn begin_reset(&mut self) -> bool {
        std::mem::take(&mut self.needs_reset)
    }

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

    /// Notes the client of another worker that the server is sent to.
    pub fn set_destination(&mut self, waiter: Waiter) {
        self.destined = Some(waiter);
    }

    /// Takes the client that the server was sent to, once the server has arrived.
    pub fn take_destination(&mut self) -> Option<Waiter> {
        self.destined.take()
    }
}
