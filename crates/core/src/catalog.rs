//! What is certified of a database: read by one worker from one of its servers, and used by all.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{session::Certificates, time::Time};

/// A reading that took longer than this many microseconds is given up, and may be begun anew.
const READING_MAX: u64 = 30_000_000;
/// At least so many microseconds lie between two readings.
const PAUSE: u64 = 500_000;
/// A catalog is being read for at most one in so many microseconds.
const SHARE: u64 = 20;

/// The certificates of one database.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Those of the certificates in force: what workers look at.
    generation: AtomicU64,
    state: Mutex<State>,
    /// The schema in force, as far as clients' own statements have changed it.
    schema: AtomicU32,
    /// How many schemas there have been, in transactions too.
    schemas: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    certificates: Certificates,
    /// Counts changes that were seen: what was read before one says nothing of it.
    changes: u64,
    /// Something may have changed since the last reading.
    is_stale: bool,
    /// A reading is under way since.
    begun_at: Option<Time>,
    /// When the last one ended, and how many microseconds it took.
    read_at: Option<(Time, u64)>,
}

/// A reading under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    changes: u64,
    begun_at: Time,
}

impl Catalog {
    /// Tells the certificates in force from earlier ones.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The certificates in force.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.state.lock().certificates.clone()
    }

    /// Is the catalog to be read now? `interval` is the longest time without, in microseconds.
    pub fn begin(&self, interval: u64, now: Time) -> Option<Reading> {
        let mut state = self.state.lock();
        if state.begun_at.is_some_and(|at| now.since(at) < READING_MAX) {
            return None;
        }
        if let Some((at, took)) = state.read_at {
            let pause = PAUSE.max(took.saturating_mul(SHARE));
            let due = if state.is_stale {
                pause
            } else {
                pause.max(interval)
            };
            if now.since(at) < due {
                return None;
            }
        }
        state.begun_at = Some(now);
        Some(Reading {
            changes: state.changes,
            begun_at: now,
        })
    }

    /// A reading has ended: `rows` are what was found, if it went well.
    pub fn finish(&self, reading: Reading, rows: Option<&[[Vec<u8>; 4]]>, now: Time) {
        let generation = self.generation() + 1;
        let certificates = rows.map(|rows| {
            let rows = rows
                .iter()
                .map(|row| [0, 1, 2, 3].map(|at| row[at].as_slice()));
            Certificates::from_rows(generation, rows)
        });
        let mut state = self.state.lock();
        if state.begun_at != Some(reading.begun_at) {
            return;
        }
        state.begun_at = None;
        state.read_at = Some((now, now.since(reading.begun_at)));
        let is_current = state.changes == reading.changes;
        state.is_stale = !is_current;
        if let Some(certificates) = certificates
            && is_current
            && generation == self.generation() + 1
        {
            state.certificates = certificates;
            self.generation.store(generation, Ordering::Release);
        }
    }

    /// The schema in force: a statement that was prepared under another one may give other columns now.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> u32 {
        self.schema.load(Ordering::Acquire)
    }

    /// A client is about to change the schema, in its transaction: the number of what it sees there.
    #[must_use]
    pub fn schema_within(&self) -> u32 {
        self.schemas.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// That transaction is over: what was prepared before is of another schema, or may be.
    pub fn schema_changed(&self) {
        let number = self.schema_within();
        self.schema.store(number, Ordering::Release);
    }

    /// A client has changed the catalog, or may have: nothing is certified until it is read again.
    pub fn changed(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        state.is_stale = true;
        let generation = self.generation() + 1;
        state.certificates = state.certificates.outdated(generation);
        self.generation.store(generation, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    fn rows() -> Vec<[Vec<u8>; 4]> {
        let row = ["r", "accounts", "", ""];
        vec![row.map(|column| column.as_bytes().to_vec())]
    }

    #[test]
    fn read_once_in_a_while() {
        let catalog = Catalog::default();
        let reading = catalog.begin(10_000_000, at(0)).expect("never read");
        assert_eq!(catalog.begin(10_000_000, at(1)), None, "another one reads");
        catalog.finish(reading, Some(&rows()), at(1));
        assert_eq!(catalog.generation(), 1);
        assert_eq!(
            catalog.begin(10_000_000, at(10)),
            None,
            "a share of the time"
        );
        assert!(catalog.begin(10_000_000, at(22)).is_some());
    }

    #[test]
    fn a_change_takes_all_certificates() {
        let catalog = Catalog::default();
        let reading = catalog.begin(0, at(0)).unwrap();
        catalog.changed();
        let changed = catalog.generation();
        catalog.finish(reading, Some(&rows()), at(0));
        assert_eq!(catalog.generation(), changed, "read before the change");
        let again = catalog.begin(60_000_000, at(1)).expect("stale");
        catalog.finish(again, Some(&rows()), at(1));
        assert!(catalog.generation() > changed);
        assert_eq!(catalog.certificates().generation(), catalog.generation());
    }

    #[test]
    fn a_transaction_has_its_own_schema() {
        let catalog = Catalog::default();
        let before = catalog.schema();
        let within = catalog.schema_within();
        assert_eq!(catalog.schema(), before, "nobody else sees it");
        catalog.schema_changed();
        assert!(catalog.schema() != before && catalog.schema() != within);
    }

    #[test]
    fn one_that_never_ends_is_given_up() {
        let catalog = Catalog::default();
        let lost = catalog.begin(0, at(0)).unwrap();
        let other = catalog.begin(0, at(60)).expect("given up");
        catalog.finish(lost, Some(&rows()), at(61));
        assert_eq!(catalog.generation(), 0);
        catalog.finish(other, None, at(61));
        assert_eq!(catalog.generation(), 0, "it failed");
    }
}
