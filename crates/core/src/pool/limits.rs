//! The configured limits of a pool.

/// The configured limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most servers of the pool (at least 1).
    pub size: u32,
    /// How many more servers may be opened once a client has waited for [`Limits::reserve_after`].
    pub reserve: u32,
    /// Microseconds that a client waits before the reserve is used; 0 is never.
    pub reserve_after: u64,
    /// How many more servers may be opened while more than [`Limits::overflow_waiting`] clients wait.
    pub overflow: u32,
    /// The most clients that may wait before the overflow is used.
    pub overflow_waiting: u32,
    /// The number of pinned servers that allow the pool no more servers: each pinned server beyond them allows one
    /// more.
    pub pinned: u32,
    /// The most servers that pinned servers allow above the size.
    pub pinned_overflow: u32,
    /// The fewest servers that the pool keeps, as far as `size` allows (`min_pool_size`).
    pub min: u32,
    /// Most servers that log in at the same time (at least 1).
    pub connecting: u32,
    /// How strict the order of waiting clients of several workers is.
    pub order: WaitOrder,
    /// Microseconds to wait after a failed login before the next attempt.
    pub retry: u64,
}

/// How far a worker that releases a server may prefer its own waiting client to a client of another worker that has
/// waited longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOrder {
    /// The worker's own client may have waited up to this many microseconds less; 0: the longest-waiting client is
    /// next.
    Window(u64),
    /// The worker's own client may have waited less by the larger of 2 ms and a quarter of the longest wait.
    Auto,
}
