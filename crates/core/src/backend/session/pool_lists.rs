//! The pool's lists and counts of servers that stay with their clients between transactions.

/// Whether the pool lists or counts a server that stays with its client.
#[derive(Debug, Default)]
pub struct PoolLists {
    /// Whether the pool lists the server among those that stay with their clients without an inspection.
    is_listed: bool,
    /// Whether the pool counts the server among those that clients keep.
    is_counted: bool,
}

impl PoolLists {
    /// Notes that the pool lists the server. Returns whether it has listed the server before.
    pub fn list(&mut self) -> bool {
        std::mem::replace(&mut self.is_listed, true)
    }

    /// Notes that the pool does not list the server.
    pub fn unlist(&mut self) {
        self.is_listed = false;
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
