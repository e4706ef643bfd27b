//! What sessions begin with by ALTER ROLE and ALTER DATABASE SET, as far as all workers know it: of a
//! PostgreSQL, what is assigned; of a pool, how often that has changed, and what it was.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    Endpoint, Time,
    session::{Assigned, Origin, Settings, SettingsTable},
};

/// More servers' addresses than that are not told apart for long.
const SITES_MAX: usize = 10_000;
/// A worker that has missed more changes than that does without the oldest.
const CHANGES_MAX: usize = 64;

/// Where a PostgreSQL is: as it is configured, and the address that the name led to.
pub type Site = (Endpoint, Option<IpAddr>);

/// What is assigned, by PostgreSQL.
#[derive(Debug, Default)]
pub struct Assignments {
    known: Mutex<HashMap<Site, Known>>,
}

#[derive(Debug)]
struct Known {
    /// Questions that were asked.
    asked: u64,
    asked_at: Time,
    /// The question of the latest answer.
    answered: u64,
    assigned: Option<Arc<Assigned>>,
}

impl Assignments {
    /// A server is to be asked, unless its PostgreSQL was within so many microseconds: the question's number.
    pub fn ask(&self, site: Site, interval: u64, now: Time) -> Option<u64> {
        let mut all = self.known.lock();
        if all.len() >= SITES_MAX && !all.contains_key(&site) {
            all.clear();
        }
        let known = all.entry(site).or_insert(Known {
            asked: 0,
            asked_at: now,
            answered: 0,
            assigned: None,
        });
        if known.asked > 0 && now.since(known.asked_at) < interval {
            return None;
        }
        known.asked += 1;
        known.asked_at = now;
        Some(known.asked)
    }

    /// When a server's PostgreSQL is to be asked next.
    pub fn due(&self, site: &Site, interval: u64) -> Time {
        let all = self.known.lock();
        let known = all.get(site);
        known.map_or(Time(0), |known| known.asked_at.after(interval))
    }

    /// This was answered. `None` if an answer to a later question came before, or it is nothing new.
    pub fn learn(&self, site: &Site, asked: u64, found: Assigned) -> Option<Arc<Assigned>> {
        let mut all = self.known.lock();
        let known = all.get_mut(site)?;
        if asked < known.answered {
            return None;
        }
        known.answered = asked;
        if known
            .assigned
            .as_ref()
            .is_some_and(|known| **known == found)
        {
            return None;
        }
        let found = Arc::new(found);
        known.assigned = Some(Arc::clone(&found));
        Some(found)
    }

    /// What is assigned where this server is.
    pub fn of(&self, site: &Site) -> Option<Arc<Assigned>> {
        self.known.lock().get(site)?.assigned.clone()
    }
}

/// What sessions of a pool begin with.
#[derive(Debug, Default)]
pub struct Beginnings {
    /// Counts changes: tells servers whose sessions began with something else.
    present: u32,
    /// What is assigned to them, once that is known.
    assigned: Option<Settings>,
    origin: Option<Origin>,
    /// Of which changes on that was read.
    read: Option<u32>,
    /// What those keep that were there before each of the last changes.
    kept: VecDeque<Settings>,
}

impl Beginnings {
    /// Tells what sessions that begin now begin with from what they began with earlier.
    #[must_use]
    pub fn present(&self) -> u32 {
        self.present
    }

    /// Is a server of these beginnings to tell what its session has by itself?
    #[must_use]
    pub fn wants_origin(&self, of: u32) -> bool {
        of == self.present && self.read != Some(of)
    }

    /// A server of these beginnings has told; or it can't.
    pub fn has_origin(&mut self, of: u32, origin: Option<Origin>) {
        if of == self.present {
            self.read = Some(of);
            self.origin = origin.or(self.origin.take());
        }
    }

    /// This is assigned, as far as is known; it says nothing new of what was known before.
    pub fn begin(&mut self, assigned: impl FnOnce() -> Option<Settings>) {
        if self.assigned.is_none() {
            self.assigned = assigned();
        }
    }

    /// This is assigned now. `true` if sessions begin with something else from here on: so they do also where
    /// it is not known what they began with, and a client may have changed it.
    pub fn assign(&mut self, found: Settings, by_client: bool, table: &SettingsTable) -> bool {
        let before = match self.assigned.replace(found.clone()) {
            Some(before) if before.is_same(&found) => return false,
            None if !by_client => return false,
            before => before.unwrap_or_default(),
        };
        let kept = self.origin.as_mut().map(|origin| {
            let kept = origin.kept(&before, &found, table);
            origin.forget(&before, &found, table);
            kept
        });
        self.present = self.present.wrapping_add(1);
        self.keep(kept.unwrap_or_default());
        true
    }

    /// Sessions begin with the same, and are no more what those are that have begun.
    pub fn renew(&mut self) {
        self.present = self.present.wrapping_add(1);
        self.keep(Settings::default());
    }

    fn keep(&mut self, kept: Settings) {
        self.kept.push_back(kept);
        if self.kept.len() > CHANGES_MAX {
            self.kept.pop_front();
        }
    }

    /// What sessions keep that were there when so many changes had been.
    #[must_use]
    pub fn kept_since(&self, then: u32, table: &SettingsTable) -> Settings {
        let changes = self.present.wrapping_sub(then) as usize;
        let kept = self.kept.iter().rev().take(changes);
        // Of the oldest change, since they have had it from then on.
        kept.fold(Settings::default(), |later, earlier| {
            table.overlay(&later, earlier)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(table: &SettingsTable, values: &[(&str, &str)]) -> Origin {
        let row = |&(name, value): &(&str, &str)| {
            ["u", name, value, ""].map(|column| column.as_bytes().to_vec())
        };
        let rows: Vec<_> = values.iter().map(row).collect();
        Origin::from_rows(&rows, table)
    }

    #[test]
    fn who_was_there_keeps_what_it_had() {
        let table = SettingsTable::default();
        let of = |pairs: &[(&str, &str)]| table.intern(pairs.iter().copied());
        let mut pool = Beginnings::default();
        assert!(pool.wants_origin(0));
        pool.has_origin(0, Some(origin(&table, &[("a", "0"), ("b", "0")])));
        pool.begin(|| Some(Settings::default()));
        assert!(!pool.wants_origin(0));
        assert!(!pool.assign(Settings::default(), true, &table), "the same");
        assert!(pool.assign(of(&[("a", "1")]), false, &table));
        // Before a server has told anew.
        assert!(pool.assign(of(&[("a", "2"), ("b", "1")]), false, &table));
        assert!(pool.wants_origin(2) && !pool.wants_origin(1));
        pool.has_origin(2, Some(origin(&table, &[("a", "2"), ("b", "1")])));
        assert!(pool.assign(of(&[("b", "1")]), false, &table));
        assert!(
            pool.kept_since(0, &table)
                .is_same(&of(&[("a", "0"), ("b", "0")]))
        );
        assert_eq!(pool.kept_since(1, &table).get(b"b"), Some(&b"0"[..]));
        assert!(pool.kept_since(2, &table).is_same(&of(&[("a", "2")])));
        assert!(pool.kept_since(3, &table).is_empty());
        for number in 0..2 * CHANGES_MAX {
            assert!(pool.assign(of(&[("c", &number.to_string())]), false, &table));
        }
        assert_eq!(pool.kept.len(), CHANGES_MAX);
    }

    #[test]
    fn what_is_not_known_may_have_changed() {
        let table = SettingsTable::default();
        let found = table.intern([("a", "1")]);
        let mut pool = Beginnings::default();
        assert!(!pool.assign(found.clone(), false, &table), "the first look");
        assert!(!pool.assign(found.clone(), true, &table), "the same");
        let mut other = Beginnings::default();
        assert!(other.assign(found, true, &table), "a client's own change");
    }
}
