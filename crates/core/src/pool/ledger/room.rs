//! How many servers a pool may have: its size, and what is allowed above it while clients wait.

use super::Ledger;
use crate::{Time, WorkerId, pool::Waiter};

/// What allows a server above the pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    /// A client has waited for long.
    Reserve,
    /// Many clients wait.
    Overflow,
}

impl Ledger {
    /// May it have one more?
    pub(super) fn has_room(&self, now: Time) -> bool {
        self.servers < self.limits.size || self.servers < self.most_now(now)
    }

    /// More servers than the limits allow at any time?
    #[must_use]
    pub fn is_above_size(&self) -> bool {
        let above = self.limits.reserve.saturating_add(self.limits.overflow);
        self.servers > self.limits.size.saturating_add(above)
    }

    /// The most that it may have at this time.
    fn most_now(&self, now: Time) -> u32 {
        let above = self.reserve_now(now).saturating_add(self.overflow_now());
        self.limits.size.saturating_add(above)
    }

    /// What allows a server above the size at this time.
    pub(super) fn above(&self, now: Time) -> Above {
        match self.reserve_now(now) {
            0 => Above::Overflow,
            _ => Above::Reserve,
        }
    }

    /// The reserve is for those who have waited for long.
    fn reserve_now(&self, now: Time) -> u32 {
        let after = self.limits.reserve_after;
        let is_due = |(_, oldest): (WorkerId, Waiter)| now.since(oldest.since) >= after;
        let is_used = self.limits.reserve > 0 && after > 0 && self.oldest().is_some_and(is_due);
        if is_used { self.limits.reserve } else { 0 }
    }

    /// The overflow is for many who wait.
    fn overflow_now(&self) -> u32 {
        let is_used = self.waiting > self.limits.overflow_waiting as usize;
        if is_used { self.limits.overflow } else { 0 }
    }
}
