//! An interner: stores each of many equal values once, so that two equal values have the same address.

use std::sync::Arc;

use hashbrown::HashTable;

/// The number of values below which nothing is swept.
pub(super) const SWEEP_MIN: usize = 64;

/// Values, each stored once. A sweep removes those that are not in use any more, before there are twice as many as were
/// in use at the last sweep.
#[derive(Debug)]
pub(super) struct Interner<T: ?Sized> {
    table: HashTable<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            sweep_at: 0,
        }
    }
}

impl<T: ?Sized> Interner<T> {
    /// Returns the value with this hash that `is_it` accepts, and makes it if there is none.
    pub(super) fn intern(
        &mut self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        hash_of: impl Fn(&T) -> u64,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        if let Some(found) = self.table.find(hash, |value| is_it(value)) {
            return Arc::clone(found);
        }
        self.sweep();
        let value = make();
        let kept = Arc::clone(&value);
        self.table.insert_unique(hash, kept, |value| hash_of(value));
        value
    }

    /// Returns all values; some may be unused by now.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.iter().map(|value| &**value)
    }

    fn sweep(&mut self) {
        if self.table.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        // Only a holder of the value, or this table, can make another reference to it.
        self.table.retain(|value| Arc::strong_count(value) > 1);
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
