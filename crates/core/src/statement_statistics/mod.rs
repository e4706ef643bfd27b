//! Statistics of statements: each worker counts, per pool and fingerprint, how often a statement ran, how long it took,
//! and its rows and bytes. The console merges the counts of all workers.
//!
//! The fingerprint of a statement is stored beside the scanner's cached result for its text, so a text that was seen
//! before is neither read nor hashed again.

mod client;
mod entry;
mod report;
mod running;
mod slow;

pub use self::{
    client::{ClientStatements, PartialText},
    entry::{Counts, StatementId},
    report::{StatementReport, StatementRow},
    running::{Ended, Extent, RunningStatements, rows_in_tag},
    slow::{SlowTransaction, SlowTransactionLog},
};

use std::sync::Arc;

use hashbrown::HashTable;

use self::entry::{Entry, Key};
use crate::pool::PoolKey;

/// The fingerprint under which statements are counted whose text pgweir has not seen as a whole.
const UNKNOWN: u64 = 0;
/// The text that stands for those statements.
const UNKNOWN_TEXT: &str = "(unknown statement)";

/// The statistics of the statements that ran on one worker, a bounded number of them.
#[derive(Debug, Default)]
pub struct StatementStatistics {
    /// `statement_statistics`: the largest number of entries; 0 if nothing is counted.
    most: usize,
    slots: Vec<Entry>,
    free: Vec<u32>,
    index: HashTable<u32>,
    evicted: u64,
    /// The lines about slow transactions.
    pub(crate) slow: SlowTransactionLog,
}

/// A pool, as the statistics know it.
#[derive(Debug, Clone, Copy)]
pub struct StatementPool<'a> {
    /// The pool's number, which no other pool of the process ever has.
    pub number: u64,
    /// The pool's database and user.
    pub key: &'a PoolKey,
}

impl StatementStatistics {
    /// Sets the largest number of entries. Surplus entries are removed.
    #[inline]
    pub fn set_limit(&mut self, most: u32) {
        if self.most != most as usize {
            self.change_limit(most as usize);
        }
    }

    #[cold]
    fn change_limit(&mut self, most: usize) {
        self.most = most;
        if most == 0 {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.index.clear();
        }
        while self.entries() > most {
            self.evict(self.entries() - most);
        }
    }

    /// Returns whether statements are counted.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Returns the number of entries.
    #[must_use]
    pub(crate) fn entries(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the number of entries that were removed to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the bytes that the entries and their texts take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts: usize = self.present().map(|entry| entry.text.len()).sum();
        self.slots.capacity() * size_of::<Entry>() + texts
    }

    /// Removes all entries, for lack of memory.
    pub fn give_back(&mut self) {
        self.evict(self.entries());
    }

    fn present(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.is_present)
    }

    /// Returns the statement with this fingerprint in this pool. `text` makes its normalized text if it is new.
    #[inline]
    pub fn statement(
        &mut self,
        pool: StatementPool<'_>,
        fingerprint: u64,
        text: impl FnOnce() -> Box<str>,
    ) -> StatementId {
        let key = Key {
            pool: pool.number,
            fingerprint,
        };
        let slots = &self.slots;
        let is_it = |&slot: &u32| slots[slot as usize].key == key;
        match self.index.find(key.hash(), is_it) {
            Some(&slot) => self.slots[slot as usize].id(slot),
            None => self.add(key, pool.key, text()),
        }
    }

    /// Returns the entry for the statements of a pool whose text is not known.
    #[cold]
    pub fn unknown(&mut self, pool: StatementPool<'_>) -> StatementId {
        self.statement(pool, UNKNOWN, || UNKNOWN_TEXT.into())
    }

    #[cold]
    fn add(&mut self, key: Key, pool: &PoolKey, text: Box<str>) -> StatementId {
        if self.entries() >= self.most {
            // A twentieth at once, since each search reads all entries.
            self.evict((self.most / 20).max(1));
        }
        let pool = Arc::new(pool.clone());
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Entry::default());
                (self.slots.len() - 1) as u32
            }
        };
        let entry = &mut self.slots[slot as usize];
        entry.fill(key, pool, text);
        let id = entry.id(slot);
        let slots = &self.slots;
        self.index
            .insert_unique(key.hash(), slot, |&slot| slots[slot as usize].key.hash());
        id
    }

    /// Removes the entries with the fewest recent uses.
    fn evict(&mut self, count: usize) {
        let mut uses: Vec<(u32, u32)> = (0..)
            .zip(&self.slots)
            .filter(|(_, entry)| entry.is_present)
            .map(|(slot, entry)| (entry.uses, slot))
            .collect();
        let count = count.min(uses.len());
        if count > 0 {
            uses.select_nth_unstable(count - 1);
        }
        for &(_, slot) in &uses[..count] {
            let entry = &mut self.slots[slot as usize];
            let hash = entry.key.hash();
            entry.clear();
            if let Ok(found) = self.index.find_entry(hash, |&at| at == slot) {
                found.remove();
            }
            self.free.push(slot);
            self.evicted += 1;
        }
        for entry in &mut self.slots {
            entry.uses /= 2;
        }
    }

    #[inline]
    fn entry(&mut self, id: StatementId) -> Option<&mut Entry> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        (entry.version == id.version).then_some(entry)
    }

    /// Returns the fingerprint and the normalized text of a statement, unless its entry was removed since.
    #[must_use]
    pub fn text(&self, id: StatementId) -> Option<(u64, &Arc<str>)> {
        let entry = self.slots.get(id.slot as usize)?;
        (entry.version == id.version).then_some((entry.key.fingerprint, &entry.text))
    }

    /// Counts a client that was pinned by this statement.
    #[cold]
    pub fn pinned(&mut self, id: StatementId) {
        if let Some(entry) = self.entry(id) {
            entry.counts.pins += 1;
        }
    }

    /// Counts an inspection of the session after this statement.
    pub fn inspected(&mut self, id: StatementId) {
        if let Some(entry) = self.entry(id) {
            entry.counts.inspections += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(statistics: &mut StatementStatistics, pool: u64, fingerprint: u64) -> StatementId {
        let key = PoolKey {
            database: "app".into(),
            user: "ann".into(),
        };
        let pool = StatementPool {
            number: pool,
            key: &key,
        };
        statistics.statement(pool, fingerprint, || format!("SELECT {fingerprint}").into())
    }

    #[test]
    fn one_entry_for_each_pool_and_fingerprint() {
        let mut statistics = StatementStatistics::default();
        assert!(!statistics.is_on());
        statistics.set_limit(10);
        let one = add(&mut statistics, 1, 7);
        assert_eq!(one, add(&mut statistics, 1, 7));
        let other = add(&mut statistics, 2, 7);
        assert_ne!(one, other);
        assert_eq!(statistics.entries(), 2);
        let text = statistics
            .text(one)
            .map(|(fingerprint, text)| (fingerprint, text.to_string()));
        assert_eq!(text, Some((7, "SELECT 7".to_owned())));
        assert_eq!(statistics.text(StatementId::NONE), None);
        statistics.set_limit(0);
        assert_eq!((statistics.entries(), statistics.text(one)), (0, None));
    }

    #[test]
    fn statements_that_are_used_stay() {
        let mut statistics = StatementStatistics::default();
        statistics.set_limit(100);
        let usual: Vec<_> = (0..50)
            .map(|number| add(&mut statistics, 1, number))
            .collect();
        for number in 1000..20_000 {
            for id in &usual {
                statistics
                    .entry(*id)
                    .expect("a statement that is used")
                    .uses += 1;
            }
            let passing = add(&mut statistics, 1, number);
            assert!(
                statistics.text(passing).is_some(),
                "the newest one is there"
            );
            assert!(statistics.entries() <= 100);
        }
        assert_eq!(
            statistics.evicted() as usize,
            50 + 19_000 - statistics.entries()
        );
        assert_eq!(statistics.index.len(), statistics.entries());
        let texts: usize = statistics.present().map(|entry| entry.text.len()).sum();
        assert!(statistics.bytes() < 256 * size_of::<Entry>() + texts);
        // An entry that was removed is not confused with the one in its place.
        let old = add(&mut statistics, 1, 7_000_000);
        for number in 0..200 {
            add(&mut statistics, 3, number);
        }
        assert_eq!(statistics.text(old), None);
        statistics.set_limit(20);
        assert_eq!(statistics.entries(), 20);
    }
}
