//! A cache of the values that servers have reported for sets of startup parameters, so that not every login has to
//! try its parameters on a server.

use lru::LruCache;

use super::{Settings, Tracked};

/// The result of a client's startup parameters.
#[derive(Debug, Clone)]
pub struct Startup {
    /// The values in PostgreSQL's spelling, without those that every session has by default.
    pub base: Settings,
    /// The values that every session has by default.
    pub implied: Settings,
    /// The reported parameters that a client with these values receives.
    pub tracked: Tracked,
}

/// The results of the startup parameters of earlier clients of a pool. The one that was added first is removed first.
#[derive(Debug)]
pub struct Startups {
    known: LruCache<Settings, Startup>,
}

impl Default for Startups {
    fn default() -> Self {
        Self {
            // A bounded one would allocate all its entries for each pool.
            known: LruCache::unbounded(),
        }
    }
}

impl Startups {
    /// The largest number of results that are remembered in a pool.
    pub const MAX: usize = 200;
    /// The largest number of bytes of startup parameters that are remembered. Longer ones are tried at each login.
    const LONGEST: usize = 4096;

    /// Returns the result of these startup parameters.
    #[must_use]
    pub fn find(&self, asked: &Settings) -> Option<&Startup> {
        self.known.peek(asked)
    }

    /// Remembers the result of these startup parameters.
    pub fn keep(&mut self, asked: &Settings, startup: Startup) {
        if asked.bytes() <= Self::LONGEST {
            self.known.put(asked.clone(), startup);
            if self.known.len() > Self::MAX {
                self.known.pop_lru();
            }
        }
    }

    /// Forgets all results: PostgreSQL may give other results now.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SettingsTable, TrackedNames};
    use super::*;

    #[test]
    fn bounded() {
        let (table, names) = (SettingsTable::default(), TrackedNames::new(&[]));
        let asked = |number: usize| table.intern([("timezone", number.to_string())]);
        let mut startups = Startups::default();
        for number in 0..2 * Startups::MAX {
            let startup = Startup {
                base: asked(number),
                implied: Settings::default(),
                tracked: names.unset(),
            };
            startups.keep(&asked(number), startup);
        }
        assert!(startups.find(&asked(0)).is_none());
        let last = asked(2 * Startups::MAX - 1);
        assert!(
            startups
                .find(&last)
                .is_some_and(|found| found.base.is_same(&last))
        );
        assert_eq!(startups.known.len(), Startups::MAX);
        let long = table.intern([("application_name", "x".repeat(5000))]);
        let startup = startups.find(&last).unwrap().clone();
        startups.keep(&long, startup);
        assert!(startups.find(&long).is_none());
        startups.clear();
        assert!(startups.find(&last).is_none());
    }
}
