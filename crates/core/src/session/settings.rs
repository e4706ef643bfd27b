//! The settings of a session: names and values, shared by all clients that have the same.

use std::{
    borrow::Cow,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    interner::{self, Interner},
    sql::lower_case,
};
use crate::base::memory::{Memory, MemoryKind};

/// A name, in lower case: PostgreSQL ignores case in the names of its parameters.
type Name = Box<[u8]>;
/// A value, in the server's encoding.
type Value = Box<[u8]>;
/// A name in lower case and its value, both borrowed from the caller as far as possible.
type Pair<'p> = (Cow<'p, [u8]>, &'p [u8]);

/// Values of parameters. Two `Settings` of the same [`SettingsTable`] are equal if and only if they have the same address.
pub type Settings = SharedPairs;

/// Names and values, in the order of the names. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SharedPairs {
    /// `None` if there are none: the usual case takes no memory.
    entries: Option<Arc<[(Name, Value)]>>,
}

/// All settings of the process that are in use, each stored once.
#[derive(Debug)]
pub struct SettingsTable {
    interner: Mutex<Interner<[(Name, Value)]>>,
    hasher: RandomState,
}

impl Default for SettingsTable {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl SharedPairs {
    /// Builds the list. No two names may be the same.
    #[must_use]
    pub(super) fn new(mut entries: Vec<(Name, Value)>) -> Self {
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        Self {
            entries: (!entries.is_empty()).then(|| entries.into()),
        }
    }

    /// Returns whether both have the same address.
    #[must_use]
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        interner::is_same(self.entries.as_ref(), other.entries.as_ref())
    }

    /// Returns whether there are no names.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_none()
    }

    /// Returns names and values, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.as_deref().unwrap_or_default();
        entries.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a name, which is in lower case for a parameter.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let entries = self.entries.as_deref().unwrap_or_default();
        let found = entries.binary_search_by(|(own, _)| (**own).cmp(name));
        found.ok().map(|at| &*entries[at].1)
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes_of(self.entries.as_deref().unwrap_or_default())
    }
}

impl fmt::Debug for SharedPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        let names = self.iter().map(|(name, _)| String::from_utf8_lossy(name));
        f.debug_list().entries(names).finish()
    }
}

fn bytes_of(entries: &[(Name, Value)]) -> usize {
    let each = entries
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2 * size_of::<Name>());
    each.sum()
}

impl SettingsTable {
    /// Creates the table. `memory` counts the bytes of the settings.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> Self {
        Self {
            interner: Mutex::new(Interner::new(bytes_of, &memory, MemoryKind::SessionState)),
            hasher: RandomState::default(),
        }
    }

    /// Removes the settings that are not in use. Without this call, they are removed when the table has doubled since
    /// the last removal.
    pub fn sweep(&self) {
        self.interner.lock().sweep();
    }

    /// Returns the settings with these values. Of a name that occurs twice, the last value counts.
    #[must_use]
    pub fn intern<N, V>(&self, pairs: impl IntoIterator<Item = (N, V)>) -> Settings
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut pairs = pairs.into_iter();
        // The usual cases, none and only application_name, take no memory for sorting.
        let Some((name, value)) = pairs.next() else {
            return Settings::default();
        };
        let Some(second) = pairs.next() else {
            return self.share(&[(lower_case(name.as_ref()), value.as_ref())]);
        };
        let first_two = [(name, value), second];
        let pairs: Vec<(N, V)> = first_two.into_iter().chain(pairs).collect();
        let lower = pairs
            .iter()
            .map(|(name, value)| (lower_case(name.as_ref()), value.as_ref()));
        let mut sorted: Vec<Pair<'_>> = lower.collect();
        // The order of equal names stays the same, and of each name the last pair is kept.
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        sorted.dedup_by(|later, kept| {
            let is_same_name = later.0 == kept.0;
            if is_same_name {
                kept.1 = later.1;
            }
            is_same_name
        });
        self.share(&sorted)
    }

    /// Returns `base`, overlaid with the values of `own`.
    #[must_use]
    pub fn overlay(&self, base: &Settings, own: &Settings) -> Settings {
        if base.is_empty() {
            return own.clone();
        }
        if own.is_empty() {
            return base.clone();
        }
        self.intern(base.iter().chain(own.iter()))
    }

    /// Returns the settings with these pairs, which are sorted: at least one. Only new settings take memory.
    fn share(&self, pairs: &[Pair<'_>]) -> Settings {
        // The hashes are equal, as a value has the same hash whether it is borrowed or owned.
        let hash = self.hasher.hash_one(pairs);
        let hash_of = |entries: &[(Name, Value)]| self.hasher.hash_one(entries);
        let is_it = |known: &[(Name, Value)]| {
            let mut both = known.iter().zip(pairs);
            let is_equal = |(known, own): (&(Name, Value), &Pair<'_>)| {
                *known.0 == *own.0 && *known.1 == *own.1
            };
            known.len() == pairs.len() && both.all(is_equal)
        };
        let make = || {
            let owned = pairs.iter();
            owned
                .map(|(name, value)| (Name::from(&**name), Value::from(*value)))
                .collect()
        };
        let entries = self.interner.lock().intern(hash, is_it, hash_of, make);
        Settings {
            entries: Some(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::interner::SWEEP_MIN, *};

    #[test]
    fn equal_ones_are_the_same() {
        let table = SettingsTable::default();
        let one = table.intern([("B", "2"), ("a", "1")]);
        let other = table.intern([("a", "0"), ("b", "2"), ("A", "1")]);
        assert!(one.is_same(&other));
        assert!(!one.is_same(&table.intern([("a", "1")])));
        let none = table.intern::<&str, &str>([]);
        assert!(none.is_same(&Settings::default()) && none.is_empty());
        let pairs: Vec<_> = one.iter().collect();
        assert_eq!(pairs, [(&b"a"[..], &b"1"[..]), (b"b", b"2")]);
        assert_eq!(one.get(b"b"), Some(&b"2"[..]));
        assert_eq!(one.get(b"c"), None);
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let table = SettingsTable::default();
        let pairs = [("b", "1"), ("a", "1"), ("B", "2"), ("a", "2"), ("b", "3")];
        let last = table.intern(pairs);
        assert!(last.is_same(&table.intern([("a", "2"), ("b", "3")])));
    }

    #[test]
    fn one_over_another() {
        let table = SettingsTable::default();
        let base = table.intern([("a", "1"), ("b", "2")]);
        let own = table.intern([("b", "3"), ("c", "4")]);
        let both = table.overlay(&base, &own);
        assert!(both.is_same(&table.intern([("a", "1"), ("b", "3"), ("c", "4")])));
        assert!(table.overlay(&base, &Settings::default()).is_same(&base));
        assert!(table.overlay(&Settings::default(), &own).is_same(&own));
    }

    #[test]
    fn unused_settings_are_dropped() {
        let memory = Arc::<Memory>::default();
        let table = SettingsTable::new(Arc::clone(&memory));
        let kept = table.intern([("kept", "1")]);
        for number in 0..10 * SWEEP_MIN {
            let _ = table.intern([("number", number.to_string())]);
        }
        let count = || memory.usage(MemoryKind::SessionState).count;
        assert!(count() <= 2 * SWEEP_MIN);
        table.sweep();
        assert_eq!(count(), 1);
        assert!(kept.is_same(&table.intern([("kept", "1")])));
    }

    #[test]
    fn no_values_in_debug_output() {
        let table = SettingsTable::default();
        let shown = format!("{:?}", table.intern([("app.key", "secret")]));
        assert!(shown.contains("app.key") && !shown.contains("secret"));
    }
}
