//! An interner: stores each of many equal values once, so that two equal values have the same address.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::base::memory::{Memory, MemoryKind, MemoryUsage};

/// The number of values below which no sweep runs.
pub(super) const SWEEP_MIN: usize = 64;

/// Values, each stored once. A sweep removes the values that are no longer in use; it runs before their number has
/// doubled since the last sweep.
#[derive(Debug)]
pub(super) struct Interner<T: ?Sized> {
    table: HashTable<Arc<T>>,
    sweep_at: usize,
    /// The bytes of a value.
    bytes_of: fn(&T) -> usize,
    usage: MemoryUsage,
    /// Counts the memory of the values under this kind.
    memory: Arc<Memory>,
    kind: MemoryKind,
}

impl<T: ?Sized> Interner<T> {
    /// Creates a table without values. `bytes_of` returns the bytes of a value. `memory` counts them under this kind.
    pub(super) fn new(bytes_of: fn(&T) -> usize, memory: &Arc<Memory>, kind: MemoryKind) -> Self {
        Self {
            table: HashTable::new(),
            sweep_at: 0,
            bytes_of,
            usage: MemoryUsage::default(),
            memory: Arc::clone(memory),
            kind,
        }
    }

    /// Returns the value with this hash that `is_it` accepts, if there is one.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let found = self.table.find(hash, |value| is_it(value));
        found.map(Arc::clone)
    }

    /// Returns the value with this hash that `is_it` accepts, and makes it if there is none.
    pub(super) fn intern(
        &mut self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        hash_of: impl Fn(&T) -> u64,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        if let Some(found) = self.find(hash, is_it) {
            return found;
        }
        if self.table.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep();
        }
        let value = make();
        let before = self.usage;
        self.usage.add((self.bytes_of)(&value));
        self.memory.change(self.kind, before, self.usage);
        let kept = Arc::clone(&value);
        self.table.insert_unique(hash, kept, |value| hash_of(value));
        value
    }

    /// Removes the values that are not in use.
    pub(super) fn sweep(&mut self) {
        let before = std::mem::take(&mut self.usage);
        let (usage, bytes_of) = (&mut self.usage, self.bytes_of);
        self.table.retain(|value| {
            // Only a holder of the value, or this table, can make another reference to it.
            let is_used = Arc::strong_count(value) > 1;
            if is_used {
                usage.add(bytes_of(value));
            }
            is_used
        });
        self.memory.change(self.kind, before, self.usage);
        self.sweep_at = 2 * self.table.len();
    }
}

/// Returns whether both are the same value, by address.
#[inline]
pub(super) fn is_same<T: ?Sized>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}
