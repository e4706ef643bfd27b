//! Whether a server connection must be replaced by another one, and why.

use crate::Time;

/// Whether a server connection must be replaced by another one, and why.
#[derive(Debug)]
pub struct Retirement {
    /// The reason, for the log, if the server must not be lent again. Once there is one, it can't be removed.
    pub(super) reason: Option<&'static str>,
    /// When another connection was requested that replaces this one, since this one is nearly too old.
    pub(crate) successor_at: Option<Time>,
    /// The epoch in which the connection was opened: see the pool's [`Epochs`](crate::pool::Epochs).
    pub(crate) epoch: u32,
    /// The session defaults at login ([`SharedPool::defaults`]).
    pub(crate) defaults: u32,
}

impl Retirement {
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
