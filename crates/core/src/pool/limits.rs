//! The configured limits of a pool.

/// The configured limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of servers of the pool (at least 1).
    pub size: u32,
    /// How many more servers may be opened once a client has waited for [`Limits::reserve_after`].
    pub reserve: u32,
    /// Microseconds that a client waits before the reserve is used; 0 is never.
    pub reserve_after: u64,
    /// How many more servers may be opened while more than [`Limits::overflow_waiting`] clients wait.
    pub overflow: u32,
    /// The largest number of clients that may wait before the overflow is used.
    pub overflow_waiting: u32,
    /// The number of pinned servers up to which the pool may have no additional servers. Each further pinned server
    /// allows the pool one more server.
    pub pinned: u32,
    /// The largest number of servers that pinned servers allow above the size.
    pub pinned_overflow: u32,
    /// The smallest number of servers that the pool keeps, as far as `size` allows (`min_pool_size`).
    pub min: u32,
    /// The largest number of servers that log in at the same time (at least 1).
    pub connecting: u32,
    /// The order in which waiting clients of several workers get servers.
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
