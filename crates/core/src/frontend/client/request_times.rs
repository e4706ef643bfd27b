//! The times of a client's present request, and what the request has to wait for.

use crate::{Time, backend::LostHosts, transaction_trace::Recording};

/// The times of a client's present request, or of its last one.
#[derive(Debug)]
pub struct RequestTimes {
    /// The time at which the client sent the request.
    sent_at: Time,
    /// The time at which the transaction got its server.
    transaction_at: Time,
    /// Whether the client was sent a notice that it waits for a server, in the present wait.
    wait_notice_was_sent: bool,
    /// The recorded data of the present transaction, while transactions are traced.
    recording: Option<Box<Recording>>,
    /// The hosts that were lost before they replied to the request, which waits for another one.
    lost_hosts: Option<Box<LostHosts>>,
    /// The writes that the request must see (`read_after_write`), until it is relayed.
    must_see: Option<MustSee>,
}

impl RequestTimes {
    /// Returns the times of a client that has just connected.
    pub(super) fn new(now: Time) -> Self {
        Self {
            sent_at: now,
            transaction_at: now,
            wait_notice_was_sent: false,
            recording: None,
            lost_hosts: None,
            must_see: None,
        }
    }

    /// Returns when the client sent the request.
    #[must_use]
    #[inline]
    pub fn sent_at(&self) -> Time {
        self.sent_at
    }

    /// Notes when the client sent the request.
    #[inline]
    pub fn note_sent(&mut self, at: Time) {
        self.sent_at = at;
    }

    /// Returns when the transaction got its server.
    #[must_use]
    #[inline]
    pub fn transaction_at(&self) -> Time {
        self.transaction_at
    }

    /// Notes that a transaction gets its server.
    #[inline]
    pub fn note_transaction(&mut self, now: Time) {
        self.transaction_at = now;
    }

    /// Notes that the client begins to wait for a server.
    pub fn begin_wait(&mut self) {
        self.wait_notice_was_sent = false;
    }

    /// Returns whether the client was sent a notice that it waits, in the present wait.
    #[must_use]
    pub fn wait_notice_was_sent(&self) -> bool {
        self.wait_notice_was_sent
    }

    /// Notes that the client is sent a notice that it waits.
    pub fn note_wait_notice(&mut self) {
        self.wait_notice_was_sent = true;
    }

    /// Returns the recorded data of the present transaction, while transactions are traced.
    #[must_use]
    #[inline]
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.recording.as_deref()
    }

    /// Returns the place of the recorded data.
    #[inline]
    pub(crate) fn recording_mut(&mut self) -> &mut Option<Box<Recording>> {
        &mut self.recording
    }

    /// Returns the hosts that were lost before they replied to the request.
    #[must_use]
    #[inline]
    pub fn lost_hosts(&self) -> Option<&LostHosts> {
        self.lost_hosts.as_deref()
    }

    /// Notes that the request is repeated, since these hosts were lost before they replied to it.
    pub fn note_lost_hosts(&mut self, hosts: LostHosts) {
        self.lost_hosts = Some(Box::new(hosts));
    }

    /// Takes the hosts that were lost, since the request is relayed or given up.
    pub fn take_lost_hosts(&mut self) -> Option<Box<LostHosts>> {
        self.lost_hosts.take()
    }

    /// Returns the writes that the request must see.
    #[inline]
    pub(crate) fn must_see(&self) -> Option<MustSee> {
        self.must_see
    }

    /// Demands that the request sees these writes.
    pub(crate) fn set_must_see(&mut self, must_see: MustSee) {
        self.must_see = Some(must_see);
    }

    /// Takes the writes that the request must see, since it is about to be relayed.
    pub(crate) fn take_must_see(&mut self) -> Option<MustSee> {
        self.must_see.take()
    }
}

/// The writes that a request must see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MustSee {
    /// The number of writes when the request arrived.
    writes: u64,
    /// When the request arrived.
    since: Time,
    /// The end of the present wait for the replay; `None` before it begins.
    until: Option<Time>,
    /// Whether the wait is over, and the client has to leave its server.
    is_late: bool,
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

    /// Returns the number of writes when the request arrived.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns when the request arrived.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// Returns the end of the present wait for the replay; `None` before it begins.
    pub(crate) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Returns whether the client has waited for long enough.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Returns whether the wait is over, and the client has to leave its server.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Returns the same writes, before the wait for the replay begins.
    pub(crate) fn before_wait(self) -> Self {
        Self {
            until: None,
            ..self
        }
    }

    /// Returns the same writes, for a wait that ends at this time.
    pub(crate) fn waiting_until(self, until: Time) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// Returns the same writes, for a client that has to leave its server until this time.
    pub(crate) fn leaving_until(self, until: Time) -> Self {
        Self {
            until: Some(until),
            is_late: true,
            ..self
        }
    }
}
