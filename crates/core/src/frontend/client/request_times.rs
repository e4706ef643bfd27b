//! The times of a client's present request, and what the request has to wait for.

use crate::{Time, backend::LostHosts, transaction_trace::Recording};

/// The times of a client's present request, or of its last one.
#[derive(Debug)]
pub struct RequestTimes {
    /// The time at which the client sent the request.
    pub(crate) sent_at: Time,
    /// The time at which the transaction got its server.
    pub(crate) transaction_at: Time,
    /// Whether the client was sent a notice that it waits for a server, in the present wait.
    pub(crate) wait_notice_was_sent: bool,
    /// The recorded data of the present transaction, while transactions are traced.
    pub(crate) recording: Option<Box<Recording>>,
    /// The hosts that were lost before they replied to the request, which waits for another one.
    pub(crate) lost_hosts: Option<Box<LostHosts>>,
    /// The writes that the request must see (`read_after_write`), until it is relayed.
    pub(crate) must_see: Option<MustSee>,
}

/// The writes that a request must see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MustSee {
    /// The number of writes when the request arrived.
    pub(crate) writes: u64,
    /// When the request arrived.
    pub(crate) since: Time,
    /// The end of the present wait for the replay; `None` before it begins.
    pub(crate) until: Option<Time>,
    /// Whether the wait is over, and the client has to leave its server.
    pub(crate) is_late: bool,
}

impl MustSee {
    /// Demands this number of writes from now on.
    pub(crate) fn new(writes: u64, now: Time) -> Self {
        Self {
            writes,
            since: now,
            until: None,
            is_late: false,
        }
    }

    /// Returns whether the client has waited for long enough.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
