//! The reason why a pool opens no more servers.

use super::Ledger;
use crate::{Time, pool::Scope};

/// Why a pool in which clients wait opens no more servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// The pool has as many servers as its size allows.
    Size,
    /// A cap that the pool shares with others is full.
    Cap {
        /// The cap.
        by: Scope,
        /// The cap's limit.
        limit: u32,
    },
    /// The last login failed; the next is tried at this time.
    Failed(Time),
    /// The pool is paused.
    Paused,
    /// The pool is opening servers that have not logged in yet.
    Connecting,
    /// The pool needs no more servers.
    None,
}

impl WaitReason {
    /// Returns the reason in a word: the setting that limits the pool, or the state that must end first.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Size => Some("pool_size"),
            Self::Cap { by, .. } => Some(by.setting()),
            Self::Failed(_) => Some("server_login_retry"),
            Self::Paused => Some("paused"),
            Self::Connecting => Some("connecting"),
            Self::None => None,
        }
    }
}

impl Ledger {
    /// Returns why the pool opens no more servers.
    #[must_use]
    pub fn wait_reason(&self, now: Time) -> WaitReason {
        if self.paused {
            WaitReason::Paused
        } else if !self.has_room(now) {
            WaitReason::Size
        } else if let Some(by) = self.denied {
            let (_, limit) = self.caps.usage(by);
            WaitReason::Cap { by, limit }
        } else if now < self.retry_at {
            WaitReason::Failed(self.retry_at)
        } else if self.servers.connecting > 0 {
            WaitReason::Connecting
        } else {
            WaitReason::None
        }
    }

    /// Returns when the longest-waiting client that takes any server began to wait.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Time> {
        self.waits.oldest().map(|(_, waiter)| waiter.since)
    }
}
