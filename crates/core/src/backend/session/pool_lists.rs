//! The pool's lists and counts of servers that stay with their clients between transactions.

use crate::Time;

/// Whether the pool lists or counts a server that stays with its client.
#[derive(Debug, Default)]
pub struct PoolLists {
    /// The time at which the pool's list of servers that stay with their clients without an inspection has the server.
    listed_at: Option<Time>,
    /// Whether the pool counts the server among those that clients keep.
    is_counted: bool,
}

impl PoolLists {
    /// Notes that the pool lists the server at this time, unless it lists the server already. Returns whether it does.
    pub fn list(&mut self, at: Time) -> bool {
        let is_listed = self.listed_at.is_some();
        self.listed_at.get_or_insert(at);
        is_listed
    }

    /// Notes that the pool has moved the server to this time.
    pub fn list_again(&mut self, at: Time) {
        self.listed_at = Some(at);
    }

    /// Notes that the pool does not list the server. Returns the time at which it has listed the server.
    pub fn unlist(&mut self) -> Option<Time> {
        self.listed_at.take()
    }

    /// Returns whether the pool counts the server among those that clients keep.
    #[must_use]
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Notes that the pool counts the server. Returns whether it has counted the server before.
    pub fn count(&mut self) -> bool {
        std::mem::replace(&mut self.is_counted, true)
    }

    /// Notes that the pool does not count the server. Returns whether it has counted the server before.
    #[inline]
    pub fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.is_counted)
    }
}
