//! One entry of the statistics: a statement of a pool, and its counts.

use std::{ops::AddAssign, sync::Arc};

use crate::{base::stats::Histogram, pool::PoolKey};

/// Identifies an entry. The id of an entry that was removed matches no other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementId {
    pub(super) slot: u32,
    pub(super) version: u32,
}

impl StatementId {
    /// The id of no entry.
    pub const NONE: Self = Self {
        slot: u32::MAX,
        version: 0,
    };
}

impl Default for StatementId {
    fn default() -> Self {
        Self::NONE
    }
}

/// A pool's number, and a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Key {
    pub(super) pool: u64,
    pub(super) fingerprint: u64,
}

impl Key {
    /// Fingerprints are hashes already.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        (self.fingerprint ^ self.pool.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The counts of a statement. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The number of times that the statement ran, with success or not.
    pub calls: u64,
    /// The number of times that the server reported an error.
    pub errors: u64,
    /// The rows that were returned or changed.
    pub rows: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
    /// The number of times that a client was pinned after the statement.
    pub pins: u64,
    /// Inspections of the session after the statement.
    pub inspections: u64,
    /// The time that transactions which began with this statement waited for a server connection.
    pub wait: u64,
    /// The longest of these times.
    pub max_wait: u64,
    /// The times from a request to the end of the server's answer.
    pub server: Histogram,
    /// The longest of these times.
    pub max_server: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.rows += other.rows;
        self.received += other.received;
        self.sent += other.sent;
        self.pins += other.pins;
        self.inspections += other.inspections;
        self.wait += other.wait;
        self.max_wait = self.max_wait.max(other.max_wait);
        self.server += other.server;
        self.max_server = self.max_server.max(other.max_server);
    }
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// The number of entries that this slot has had.
    pub(super) version: u32,
    /// Calls, halved each time that entries are removed.
    pub(super) uses: u32,
    pub(super) is_present: bool,
    pub(super) pool: Arc<PoolKey>,
    pub(super) text: Arc<str>,
    pub(super) counts: Counts,
}

impl Entry {
    #[inline]
    pub(super) fn id(&self, slot: u32) -> StatementId {
        StatementId {
            slot,
            version: self.version,
        }
    }

    pub(super) fn fill(&mut self, key: Key, pool: Arc<PoolKey>, text: Box<str>) {
        self.key = key;
        // A new entry is not the first to be removed.
        self.uses = 1;
        self.is_present = true;
        self.pool = pool;
        self.text = text.into();
        self.counts = Counts::default();
    }

    /// Empties the entry. From now on, its id matches nothing.
    pub(super) fn clear(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.is_present = false;
        self.uses = 0;
        self.text = Arc::default();
    }
}
