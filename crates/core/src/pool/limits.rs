//! The configured limits of a pool.

/// The configured limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most servers of the pool (at least 1).
    pub size: u32,
    /// How many more servers may be opened once a client has waited for [`Limits::reserve_after`].
    pub reserve: u32,
    /// Microseconds; 0 is never.
    pub reserve_after: u64,
    /// How many more servers may be opened while more than [`Limits::overflow_waiting`] clients wait.
    pub overflow: u32,
    /// The most clients that wait before the overflow is used.
    pub overflow_waiting: u32,
    /// How many servers may be pinned before each further pinned server allows the pool one more server.
    pub pinned: u32,
    /// The most servers that pinned servers allow above the size.
    pub pinned_overflow: u32,
    /// The fewest servers that the pool keeps, as far as `size` allows (`min_pool_size`).
    pub min: u32,
    /// Most servers that log in at the same time (at least 1).
    pub connecting: u32,
    /// How strict the order of waiting clients of several workers is.
    pub order: Order,
    /// Microseconds to wait after a failed login before the next attempt.
    pub retry: u64,
}

/// How far a worker that releases a server may prefer its own client over one of another worker that waits longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Its own client may have waited up to so many microseconds less; with 0 the client that waits longest is next.
    Window(u64),
    /// Its own client may have waited less by the larger of 2 ms and a quarter of the longest wait.
    Auto,
}
