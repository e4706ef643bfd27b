//! What startup parameters come to, remembered, so that not every login has to ask a server.

use std::collections::{HashMap, VecDeque};

use super::{Settings, Tracked};

/// What the startup parameters of a client came to.
#[derive(Debug, Clone)]
pub struct Startup {
    /// In PostgreSQL's spelling, without what every session has anyway.
    pub base: Settings,
    /// What every session has anyway.
    pub implied: Settings,
    /// What a client with these is told.
    pub tracked: Tracked,
}

/// What PostgreSQL made of the startup parameters of earlier clients of a pool.
#[derive(Debug, Default)]
pub struct Startups {
    known: HashMap<Settings, Startup>,
    /// The oldest goes first.
    order: VecDeque<Settings>,
}

impl Startups {
    /// The most that are remembered in a pool.
    pub const MAX: usize = 200;
    /// Longer ones are asked for each time, in bytes.
    const LONGEST: usize = 4096;

    /// What these came to.
    #[must_use]
    pub fn find(&self, asked: &Settings) -> Option<&Startup> {
        self.known.get(asked)
    }

    /// Remembers what these came to.
    pub fn keep(&mut self, asked: &Settings, startup: Startup) {
        if asked.bytes() > Self::LONGEST {
            return;
        }
        if self.known.insert(asked.clone(), startup).is_none() {
            self.order.push_back(asked.clone());
        }
        if self.order.len() > Self::MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Forgets all: PostgreSQL may think otherwise now.
    pub fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
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
