//! What is certified of a database: read by one worker from one of its servers, and used by all.
//!
//! An entry of `[databases]` has a [`Catalog`] of its own until a server has said which physical database the
//! entry leads to; from then on all entries that lead there use one. So DDL through any of them counts for all.
//! DDL through an entry whose database is not known yet counts for every database.
//!
//! From the moment when a text is sent that may do DDL, nothing is certain, until the catalog has been read
//! after the end of that text's transaction. A reading that has seen DDL begin or end is of no use.

mod connected;

pub use connected::Connected;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{
    session::{
        Certificates,
        certificates::{Facts, Identity},
    },
    time::Time,
};

/// A reading that took longer than this many microseconds is given up, and may be begun anew.
const READING_MAX: u64 = 30_000_000;
/// At least so many microseconds lie between two readings.
const PAUSE_MIN: u64 = 5_000;
/// A catalog is being read for at most one in so many microseconds,
const SHARE: u64 = 20;
/// and, while nothing is certified since it may have changed, in so many.
const SHARE_AFTER_DDL: u64 = 4;

/// For so many microseconds after DDL, a standby may not have replayed it: what it tells of its catalog does not count.
const REPLAY_MAX: u64 = 60_000_000;

/// What is said of an entry of `[databases]` that leads to several clusters.
const MIXED: &str = "its servers are of different databases";

/// The certificates of one database.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The catalog of another entry that leads to the same database. It leads nowhere else itself.
    same: OnceLock<Arc<Catalog>>,
    others: Arc<Catalogs>,
    /// Those of the certificates in force: what workers look at.
    generation: AtomicU64,
    state: Mutex<State>,
    /// The schema in force, as far as clients' own statements have changed it.
    schema: AtomicU32,
    /// How many schemas there have been, in transactions too.
    schemas: AtomicU32,
    /// How often a server has said that a plan is stale.
    stale_plans: AtomicU32,
}

/// All catalogs of the process.
#[derive(Debug, Default)]
pub struct Catalogs {
    /// One of them has been read.
    is_any_read: AtomicBool,
    list: Mutex<Vec<Weak<Catalog>>>,
}

#[derive(Debug, Default)]
struct State {
    certificates: Certificates,
    /// Which database it is of.
    identity: Option<Identity>,
    /// Servers have named different databases: nothing is ever certified.
    is_mixed: bool,
    /// Counts what may have changed it: what was read before says nothing of it.
    changes: u64,
    /// The last change that a reading took note of, and when.
    noted: (u64, Time),
    /// Transactions under way that may change it.
    ddl: u32,
    /// Transactions under way whose DDL was judged quiet,
    quiet: u32,
    /// under the certificates before so many changes.
    judged_at: u64,
    /// Something may have changed since the last reading.
    is_stale: bool,
    /// Something has changed that leaves what is known in force.
    is_behind: bool,
    /// A reading is under way since.
    begun_at: Option<Time>,
    /// When the last one ended, and how many microseconds it took.
    read_at: Option<(Time, u64)>,
    /// How many readings have been of use.
    readings: u64,
    /// The reason that was last logged.
    logged: Option<Box<str>>,
    /// Server connections to the database.
    servers: u32,
    /// There was no server connection since the database has said which it is: another one may have its name now.
    is_unsure: bool,
    /// What was in force at that moment, and the number of changes since when it may be again.
    kept: Option<(Certificates, u64)>,
}

/// A reading under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    changes: u64,
    begun_at: Time,
    /// The server is only asked which database it is connected to.
    pub is_of_identity: bool,
}

/// A transaction that may change catalogs; it ends when this is dropped.
#[derive(Debug)]
pub struct Ddl {
    catalogs: Vec<Arc<Catalog>>,
    /// Its DDL was judged quiet, under certificates of this number.
    quiet: Option<u64>,
}

impl Ddl {
    /// Was all DDL of the transaction judged quiet?
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }
}

/// What there is to tell of a catalog.
#[derive(Debug)]
pub struct CatalogReport {
    /// The certificates in force.
    pub certificates: Certificates,
    /// Which database it is of, if that is known.
    pub identity: Option<Identity>,
    /// A reading has been of use, and nothing may have changed since.
    pub is_known: bool,
    /// The last reading: its end, and how many microseconds it took.
    pub read_at: Option<(Time, u64)>,
    /// How many readings have been of use.
    pub readings: u64,
    /// Transactions under way that may change it.
    pub ddl: u32,
    /// Servers of the entry have named different databases.
    pub is_mixed: bool,
}

impl CatalogReport {
    /// `unread` and `unknown`: every text is opaque until the catalog has been read, `unknown` for a change that
    /// was seen; `opaque`: for what was read. Else `known`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.is_mixed || self.certificates.opaque_reason().is_some() {
            "opaque"
        } else if self.is_known {
            "known"
        } else if self.readings > 0 {
            "unknown"
        } else {
            "unread"
        }
    }

    /// Why every text is opaque, if it is so for long.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        if self.is_mixed {
            return Some(MIXED);
        }
        self.certificates.opaque_reason()
    }
}

impl Catalogs {
    /// A new catalog of an entry.
    #[must_use]
    pub fn add(self: &Arc<Self>) -> Arc<Catalog> {
        let catalog = Arc::new(Catalog {
            others: Arc::clone(self),
            ..Catalog::default()
        });
        let mut list = self.list.lock();
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(&catalog));
        catalog
    }

    fn living(&self) -> Vec<Arc<Catalog>> {
        self.list.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Catalog {
    /// The one that is used in its place.
    #[inline]
    fn real(&self) -> &Self {
        self.same.get().map_or(self, |same| same)
    }

    /// Tells the certificates in force from earlier ones.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.real().generation.load(Ordering::Acquire)
    }

    /// The certificates in force.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.real().state.lock().certificates.clone()
    }

    /// Is anything certified of any database?
    #[must_use]
    #[inline]
    pub fn is_any_read(&self) -> bool {
        self.others.is_any_read.load(Ordering::Acquire)
    }

    /// Does another catalog stand for it?
    #[must_use]
    pub fn is_alias(&self) -> bool {
        self.same.get().is_some()
    }

    /// Is the catalog to be read soon, since it may have changed?
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let state = self.real().state.lock();
        state.is_stale && !state.is_mixed
    }

    /// Is the catalog to be read now? `interval` is the longest time without, in microseconds.
    pub fn begin(&self, interval: u64, now: Time) -> Option<Reading> {
        let mut state = self.real().state.lock();
        let is_read = state.begun_at.is_some_and(|at| now.since(at) < READING_MAX);
        if is_read || state.ddl > 0 || state.is_mixed {
            return None;
        }
        if state.noted.0 != state.changes {
            state.noted = (state.changes, now);
        }
        let is_of_identity = state.may_be_as_before();
        if is_of_identity {
            state.begun_at = Some(now);
            return Some(Reading {
                changes: state.changes,
                begun_at: now,
                is_of_identity,
            });
        }
        if let Some((at, took)) = state.read_at {
            let share = if state.is_stale {
                SHARE_AFTER_DDL
            } else {
                SHARE
            };
            let pause = PAUSE_MIN.max(took.saturating_mul(share));
            let due = if state.is_stale || state.is_behind {
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
            is_of_identity,
        })
    }

    /// A reading has ended: these are the facts, if it went well. `address` is where the server is.
    pub fn finish(&self, reading: Reading, facts: Option<Facts>, address: &str, now: Time) {
        let facts = facts.filter(Facts::is_whole);
        let identity = facts.as_ref().and_then(|facts| facts.identity(address));
        if reading.is_of_identity {
            return self.real().identity_told(reading, identity.as_ref());
        }
        let is_of_standby = facts.as_ref().is_some_and(Facts::are_of_standby);
        let read = facts.map(|facts| Certificates::from_facts(0, facts));
        let real = self.real();
        {
            let mut state = real.state.lock();
            if state.begun_at != Some(reading.begun_at) {
                return;
            }
            state.begun_at = None;
            state.read_at = Some((now, now.since(reading.begun_at)));
            let may_lag =
                is_of_standby && state.changes > 0 && now.since(state.noted.1) < REPLAY_MAX;
            let is_current = state.changes == reading.changes && state.ddl == 0 && !may_lag;
            state.is_stale = !is_current;
            state.is_behind = state.quiet > 0;
            if state.is_unsure && identity.is_some() {
                state.is_unsure = false;
                state.identity = None;
            }
            state.is_mixed |=
                state.identity.is_some() && identity.is_some() && state.identity != identity;
            if let Some(read) = read
                && is_current
                && !state.is_mixed
            {
                state.readings += 1;
                self.others.is_any_read.store(true, Ordering::Release);
                // Other certificates with the same say change nothing for those who use them.
                if state.certificates.id() != read.id() || state.readings == 1 {
                    real.put(&mut state, read);
                }
            }
            if state.is_mixed {
                let unknown = state.certificates.outdated(0);
                real.put(&mut state, unknown);
            }
        }
        if let Some(identity) = identity {
            real.identify(&identity);
        }
    }

    /// Puts certificates in force.
    fn put(&self, state: &mut State, certificates: Certificates) {
        let generation = self.generation.load(Ordering::Acquire) + 1;
        state.certificates = certificates.stamped(generation);
        self.generation.store(generation, Ordering::Release);
    }

    /// A server has said which database it is of: another entry may lead there.
    fn identify(&self, identity: &Identity) {
        {
            let mut state = self.state.lock();
            if state.identity.is_some() {
                return;
            }
            state.identity = Some(identity.clone());
        }
        // The first in the list stands for all, so that two that join do not take each other.
        let living = self.others.living();
        let of_same = |catalog: &&Arc<Self>| {
            let state = catalog.state.lock();
            !catalog.is_alias() && !state.is_unsure && state.identity.as_ref() == Some(identity)
        };
        let same: Vec<_> = living.iter().filter(of_same).collect();
        if let Some((first, rest)) = same.split_first() {
            for catalog in rest {
                first.take_over(catalog);
            }
        }
    }

    /// Stands for another one from now on.
    fn take_over(self: &Arc<Self>, other: &Self) {
        let (ddl, servers, generation) = {
            let state = other.state.lock();
            if other.same.set(Arc::clone(self)).is_err() {
                return;
            }
            (
                state.ddl + state.quiet,
                state.servers,
                other.generation.load(Ordering::Acquire),
            )
        };
        let mut state = self.state.lock();
        state.servers += servers;
        state.ddl += ddl;
        if ddl > 0 {
            state.doubt();
        }
        // Who has looked at the other one notices.
        self.generation.fetch_max(generation, Ordering::AcqRel);
        let certificates = match ddl {
            0 => state.certificates.clone(),
            _ => state.certificates.outdated(0),
        };
        self.put(&mut state, certificates);
    }

    /// The schema in force: a statement that was prepared under another one may give other columns now.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> u32 {
        self.real().schema.load(Ordering::Acquire)
    }

    /// A client is about to change the schema, in its transaction: the number of what it sees there.
    #[must_use]
    pub fn schema_within(&self) -> u32 {
        let schemas = &self.real().schemas;
        schemas.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// That transaction is over: what was prepared before is of another schema, or may be.
    pub fn schema_changed(&self) {
        let number = self.schema_within();
        self.real().schema.store(number, Ordering::Release);
    }

    /// A server has said that a statement's plan is stale: something has changed that no client's text has told of. What
    /// servers have prepared before is made anew before it is used.
    pub fn plan_is_stale(&self) {
        self.real().stale_plans.fetch_add(1, Ordering::AcqRel);
        self.schema_changed();
    }

    /// How often a server has said so.
    #[must_use]
    #[inline]
    pub fn stale_plans(&self) -> u32 {
        self.real().stale_plans.load(Ordering::Acquire)
    }

    /// A text is about to be sent that may change the catalog: nothing is certified until the end of its
    /// transaction, when the value returned is to be dropped, and until the catalog has been read after that.
    #[must_use]
    pub fn ddl_begins(self: &Arc<Self>) -> Ddl {
        let is_known = {
            let state = self.real().state.lock();
            state.identity.is_some() && !state.is_unsure
        };
        let mut catalogs = vec![Arc::clone(self)];
        if !is_known {
            let living = self.others.living();
            catalogs.extend(living.into_iter().filter(|other| !Arc::ptr_eq(other, self)));
        }
        for catalog in &catalogs {
            catalog.begin_ddl();
        }
        Ddl {
            catalogs,
            quiet: None,
        }
    }

    /// A text with DDL is about to be sent that was judged quiet under the certificates in force: they stay. If
    /// other DDL begins before the transaction has ended, it counts as such, since the judgement is of no use then.
    #[must_use]
    pub fn quiet_begins(self: &Arc<Self>) -> Ddl {
        let mut state = self.real().state.lock();
        state.quiet += 1;
        Ddl {
            catalogs: vec![Arc::clone(self)],
            quiet: Some(state.judged_at),
        }
    }

    fn end_quiet(&self, judged_at: u64) {
        let mut state = self.state.lock();
        if let Some(same) = self.same.get() {
            drop(state);
            // It was counted as DDL when that one took over.
            return same.end_ddl();
        }
        if state.judged_at == judged_at {
            state.quiet = state.quiet.saturating_sub(1);
            state.is_behind = true;
        } else {
            state.ddl = state.ddl.saturating_sub(1);
            state.changes += 1;
        }
    }

    fn begin_ddl(&self) {
        let mut state = self.state.lock();
        if let Some(same) = self.same.get() {
            drop(state);
            return same.begin_ddl();
        }
        let was_certain = !state.is_stale || state.readings == 0;
        state.ddl += 1;
        state.doubt();
        // What is unknown already does not change.
        if was_certain {
            let unknown = state.certificates.outdated(0);
            self.put(&mut state, unknown);
        }
    }

    fn end_ddl(&self) {
        let mut state = self.state.lock();
        if let Some(same) = self.same.get() {
            drop(state);
            return same.end_ddl();
        }
        state.ddl = state.ddl.saturating_sub(1);
        state.changes += 1;
    }

    /// What there is to tell of it.
    #[must_use]
    pub fn report(&self) -> CatalogReport {
        let state = self.real().state.lock();
        CatalogReport {
            certificates: state.certificates.clone(),
            identity: state.identity.clone(),
            is_known: state.readings > 0 && !state.is_stale && !state.is_mixed,
            read_at: state.read_at,
            readings: state.readings,
            ddl: state.ddl,
            is_mixed: state.is_mixed,
        }
    }

    /// Why every text of the database is opaque, if that has not been asked since it became so.
    #[must_use]
    pub fn news(&self) -> Option<Box<str>> {
        let mut state = self.real().state.lock();
        let reason = if state.is_mixed {
            Some(MIXED)
        } else {
            state.certificates.opaque_reason()
        };
        let reason: Option<Box<str>> = reason.map(Into::into);
        if state.logged == reason || reason.is_none() && state.is_stale {
            return None;
        }
        state.logged.clone_from(&reason);
        reason
    }
}

impl State {
    /// DDL has begun: what was read says nothing any more, and what was judged quiet was so under what was read.
    fn doubt(&mut self) {
        self.changes += 1;
        self.is_stale = true;
        self.ddl += std::mem::take(&mut self.quiet);
        self.judged_at += 1;
    }
}

impl Drop for Ddl {
    fn drop(&mut self) {
        for catalog in &self.catalogs {
            match self.quiet {
                Some(judged_at) => catalog.end_quiet(judged_at),
                None => catalog.end_ddl(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
