//! What an operator allows a pool.

/// What an operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most servers of the pool (at least 1).
    pub size: u32,
    /// So many more, once a client has waited for [`Limits::reserve_after`].
    pub reserve: u32,
    /// Microseconds; 0 is never.
    pub reserve_after: u64,
    /// So many more, once more clients wait than [`Limits::overflow_waiting`].
    pub overflow: u32,
    /// The most clients that wait before the overflow is used.
    pub overflow_waiting: u32,
    /// So many servers may be pinned; for each beyond that the pool may have one more.
    pub pinned: u32,
    /// The most that it may have more for that.
    pub pinned_overflow: u32,
    /// Fewest servers that are kept, as far as `size` allows.
    pub min: u32,
    /// Most servers that log in at the same time (at least 1).
    pub connecting: u32,
    /// How strict the order of waiting clients is over workers.
    pub order: Order,
    /// Microseconds to wait after a failed login before the next attempt.
    pub retry: u64,
}

/// How far a release may prefer a younger client of its own worker over the oldest of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// At most this many microseconds younger; 0 is strictly the oldest.
    Window(u64),
    /// The larger of 2 ms and a quarter of the time for which the oldest has waited.
    Auto,
}
