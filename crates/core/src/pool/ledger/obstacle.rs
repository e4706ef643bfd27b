//! What keeps a pool from opening one more server.

use super::Ledger;
use crate::{Time, pool::Scope};

/// Why a pool in which clients wait opens no more servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It has as many as it may.
    Size,
    /// This cap is full.
    Cap {
        /// Which.
        by: Scope,
        /// Its limit.
        limit: u32,
    },
    /// The last login failed; the next is tried at this time.
    Failed(Time),
    /// An operator has paused it.
    Paused,
    /// It does, but they have not logged in yet.
    Connecting,
    /// Nothing.
    None,
}

impl Ledger {
    /// Why no more servers are opened.
    #[must_use]
    pub fn obstacle(&self, now: Time) -> Obstacle {
        if self.paused {
            Obstacle::Paused
        } else if !self.has_room(now) {
            Obstacle::Size
        } else if let Some(by) = self.denied {
            let (_, limit) = self.seat.usage(by);
            Obstacle::Cap { by, limit }
        } else if now < self.retry_at {
            Obstacle::Failed(self.retry_at)
        } else if self.connecting > 0 {
            Obstacle::Connecting
        } else {
            Obstacle::None
        }
    }

    /// Since when the first client has waited that takes any server.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Time> {
        self.oldest().map(|(_, waiter)| waiter.since)
    }
}
