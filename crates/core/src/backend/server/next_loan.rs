//! The work that must end before a server is lent again.

use crate::pool::Waiter;

/// The work that must end before a server is lent again.
#[derive(Debug, Default)]
pub struct NextLoan {
    /// Whether `server_reset_query` must run before.
    pub(crate) needs_reset: bool,
    /// The number of cancel requests for this server that are under way.
    pub(crate) cancels: u32,
    /// The client of another worker that the server is being sent to.
    pub(crate) destined: Option<Waiter>,
}
