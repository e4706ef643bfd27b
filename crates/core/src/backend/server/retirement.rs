//! Whether a server connection must be replaced by another one, and why.

use crate::Time;

/// Whether a server connection must be replaced by another one, and why.
#[derive(Debug)]
pub struct Retirement {
    /// The reason, for the log, if the server must not be lent again. Once there is one, it can't be removed.
    reason: Option<&'static str>,
    /// When another connection was requested that replaces this one, since this one is nearly too old.
    successor_at: Option<Time>,
    /// The epoch in which the connection was opened: see the pool's [`Epochs`](crate::pool::Epochs).
    epoch: u32,
    /// The session defaults at login ([`SharedPool::defaults`]).
    defaults: u32,
}

impl Retirement {
    /// The reason for closing a server because of state that its session may have.
    pub const KEEPS_STATE: &'static str = "its session may keep state that no clean removes";

    /// Returns the state of a connection that is opened in this epoch, and under these session defaults.
    #[must_use]
    pub fn new(epoch: u32, defaults: u32) -> Self {
        Self {
            reason: None,
            successor_at: None,
            epoch,
            defaults,
        }
    }

    /// Returns the epoch in which the connection was opened.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the session defaults at login.
    #[must_use]
    pub fn defaults(&self) -> u32 {
        self.defaults
    }

    /// Returns when another connection was requested that replaces this one, if one was.
    #[must_use]
    #[inline]
    pub fn successor_at(&self) -> Option<Time> {
        self.successor_at
    }

    /// Notes that another connection is requested, since this one is nearly too old.
    pub fn note_successor(&mut self, now: Time) {
        self.successor_at = Some(now);
    }

    /// Returns whether the server must not be lent again.
    #[must_use]
    #[inline]
    pub fn is_required(&self) -> bool {
        self.reason.is_some()
    }

    /// Returns the reason for which the server must not be lent again, if it must not.
    #[must_use]
    #[inline]
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Notes that the server must not be lent again, for this reason even if there is another one already.
    pub fn replace_reason(&mut self, why: &'static str) {
        self.reason = Some(why);
    }

    /// Notes that the server must not be lent again, for this reason if there is none yet.
    pub fn require(&mut self, why: &'static str) {
        self.reason.get_or_insert(why);
    }
}
