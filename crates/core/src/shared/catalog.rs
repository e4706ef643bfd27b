//! The catalog of each database: the facts about its functions and relations that pgweir has read, and the
//! [`Certificates`] that follow from them. One worker reads the facts from a server connection, and all workers use the
//! certificates.
//!
//! Each entry of `[databases]` has its own [`Catalog`] until a server has identified the physical database of the
//! entry. From then on, all entries of that database share one catalog, so DDL through any of them counts for all. DDL
//! through an entry whose database is not identified yet counts for every database.
//!
//! Before a client's text that may do DDL is sent, the certificates become invalid. They stay invalid until the
//! transaction of that text has ended and the catalog has been read again. A reading during which DDL began or ended is
//! discarded.

mod connected;
mod ddl;
mod evaluation;
mod login_state;
mod lost_ddl;
mod reading;
mod state;
mod usage;

pub use connected::Connected;
pub use ddl::Ddl;
pub use evaluation::{Evaluated, Evaluation};
pub use lost_ddl::LostDdlCounts;
pub use reading::Reading;

pub(crate) use evaluation::Findings;
pub(crate) use lost_ddl::{LostTransaction, ProcessSearch};

use self::{
    lost_ddl::LostDdl,
    state::{Changes, Readings},
};

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    base::time::Time,
    session::{
        Certificates, DdlCause,
        certificates::{Identity, SharedBuiltins},
    },
};

/// The shortest pause between two readings, in microseconds.
const PAUSE_MIN: u64 = 5_000;
/// The shortest pause between two readings, as a multiple of the time that the last reading took.
const SHARE: u64 = 20;
/// The shortest pause between two readings while the certificates are invalid because the catalog may have changed,
/// also as a multiple of that time.
const SHARE_AFTER_DDL: u64 = 4;

/// The time in microseconds after DDL in which a standby may not have replayed it: facts from a standby are discarded.
const REPLAY_MAX: u64 = 60_000_000;

/// The reason that is shown for an entry of `[databases]` whose servers belong to several clusters.
const MIXED: &str = "its servers are of different databases";

/// The certificates of one database.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The catalog of another entry for the same database, which replaces this one. The other catalog is never replaced
    /// itself.
    same: OnceLock<Arc<Catalog>>,
    others: Arc<Catalogs>,
    /// The generation of the certificates in force. Workers compare it with theirs.
    generation: AtomicU64,
    /// The generation since which the functions of the database, and the types of their variables, are the same.
    code_since: AtomicU64,
    state: Mutex<State>,
    /// The number of the schema in force. Only statements of clients change it.
    schema: AtomicU32,
    /// The number of schemas so far, those inside transactions included.
    schemas: AtomicU32,
    /// The number of errors by which servers reported a stale plan.
    stale_plans: AtomicU32,
}

/// All catalogs of the process.
#[derive(Debug, Default)]
pub struct Catalogs {
    /// Whether at least one catalog has been read.
    is_any_read: AtomicBool,
    list: Mutex<Vec<Weak<Catalog>>>,
    lost_ddl: Mutex<LostDdl>,
    builtins: SharedBuiltins,
}

#[derive(Debug, Default)]
struct State {
    certificates: Certificates,
    /// The physical database of the catalog.
    identity: Option<Identity>,
    /// Whether servers of the entry reported different databases. If so, nothing is certified for this entry.
    is_mixed: bool,
    /// The changes of the catalog.
    changes: Changes,
    /// The readings of the catalog.
    reading: Readings,
    /// Server connections to the database.
    servers: u32,
    /// Whether all server connections were closed since the database was identified: its name may belong to another
    /// database by now.
    is_unsure: bool,
    /// The certificates at that moment, and the number of changes up to then. The certificates become valid again if
    /// that number is still the same.
    kept: Option<(Certificates, u64)>,
}

/// The state of a catalog, for the console and the metrics.
#[derive(Debug)]
pub struct CatalogReport {
    /// The certificates in force.
    pub certificates: Certificates,
    /// The physical database, if it is known.
    pub identity: Option<Identity>,
    /// Whether a reading has succeeded and nothing may have changed since.
    pub is_known: bool,
    /// The time when the last reading ended, and its duration in microseconds.
    pub read_at: Option<(Time, u64)>,
    /// The number of successful readings.
    pub readings: u64,
    /// Transactions in progress that may change the catalog.
    pub ddl: u32,
    /// Whether servers of the entry reported different databases.
    pub is_mixed: bool,
    /// Why the catalog may have changed, if it may.
    pub cause: Option<DdlCause>,
}

impl CatalogReport {
    /// Returns `unread` if the catalog was never read, `unknown` if it may have changed since the last reading (in both
    /// states every text is opaque until the next reading), `opaque` if the facts that were read make every text
    /// opaque, else `known`.
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

    /// Returns the reason why every text is opaque: until the next reading in state `unknown`, otherwise for longer.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        if self.is_mixed {
            return Some(MIXED);
        }
        let cause = self.cause.as_ref().filter(|_| !self.is_known);
        let reason = self.certificates.opaque_reason();
        reason.or_else(|| cause.map(|cause| &*cause.words))
    }
}

impl Catalogs {
    /// Returns how many transactions with DDL were lost with their server connections.
    #[must_use]
    pub fn lost_ddl_counts(&self) -> LostDdlCounts {
        self.lost_ddl.lock().counts()
    }

    /// Creates the catalog of an entry.
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

    /// Makes all certificates invalid until the catalogs have been read again, since the settings trust other functions now.
    pub(crate) fn doubt(&self) {
        for catalog in self.living() {
            catalog.begin_ddl(true);
            catalog.end_ddl();
        }
    }

    fn living(&self) -> Vec<Arc<Catalog>> {
        self.list.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Catalog {
    /// Returns the catalog that replaces this one, or this one.
    #[inline]
    fn canonical(&self) -> &Self {
        self.same.get().map_or(self, |same| same)
    }

    /// Returns the catalog that counts, and locks its state.
    fn locked(&self) -> (&Self, MutexGuard<'_, State>) {
        let state = self.state.lock();
        match self.same.get() {
            None => (self, state),
            Some(same) => {
                drop(state);
                same.locked()
            }
        }
    }

    /// Returns the number that distinguishes the certificates in force from earlier ones.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.canonical().generation.load(Ordering::Acquire)
    }

    /// Returns the generation since which the functions of the database, and the types of their variables, are the same.
    #[must_use]
    pub fn code_since(&self) -> u64 {
        self.canonical().code_since.load(Ordering::Acquire)
    }

    /// Returns the certificates in force.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.canonical().state.lock().certificates.clone()
    }

    /// Returns whether the catalog of at least one database has been read.
    #[must_use]
    #[inline]
    pub fn is_any_read(&self) -> bool {
        self.others.is_any_read.load(Ordering::Acquire)
    }

    /// Returns whether both stand for the same physical database.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self.canonical(), other.canonical())
    }

    /// Returns whether another catalog replaces this one.
    #[must_use]
    pub fn is_alias(&self) -> bool {
        self.same.get().is_some()
    }

    /// Returns whether the catalog should be read soon, since it may have changed.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let state = self.canonical().state.lock();
        state.changes.is_stale && !state.is_mixed
    }

    /// Begins a reading if one is due. `interval` is the longest time between two readings, in microseconds.
    pub fn begin(self: &Arc<Self>, interval: u64, now: Time) -> Option<Reading> {
        let mut state = self.canonical().state.lock();
        let is_read = state.reading.begun_at.is_some();
        if is_read || state.changes.ddl > 0 || state.is_mixed {
            return None;
        }
        if state.changes.noted.0 != state.changes.count {
            state.changes.noted = (state.changes.count, now);
        }
        let is_of_identity = state.may_be_as_before();
        if !is_of_identity && let Some((at, took)) = state.reading.ended_at {
            let share = if state.changes.is_stale {
                SHARE_AFTER_DDL
            } else {
                SHARE
            };
            let pause = PAUSE_MIN.max(took.saturating_mul(share));
            let due = if state.changes.is_stale || state.changes.is_behind {
                pause
            } else {
                pause.max(interval)
            };
            if now.since(at) < due {
                return None;
            }
        }
        Some(Reading::begin(self, &mut state, is_of_identity, now))
    }

    /// Begins to ask a server for the identity of its database, if the database is not known. This is for an entry
    /// whose servers read no catalog: if the catalog of another entry for the same database was read, that catalog
    /// shows which functions may do DDL.
    pub fn begin_identity(self: &Arc<Self>, now: Time) -> Option<Reading> {
        let mut state = self.canonical().state.lock();
        let is_read = state.reading.begun_at.is_some();
        let is_known = state.identity.is_some() && !state.is_unsure;
        if is_read || is_known || state.is_mixed || !self.is_any_read() {
            return None;
        }
        Some(Reading::begin(self, &mut state, true, now))
    }

    /// Ends a reading.
    pub(crate) fn finish(&self, reading: &Reading, findings: Findings, now: Time) {
        let Findings {
            identity,
            certificates: read,
            is_of_standby,
        } = findings;
        if reading.is_of_identity {
            let canonical = self.canonical();
            if canonical.note_identity(reading, identity.as_ref())
                && let Some(identity) = identity
            {
                canonical.identify(&identity);
            }
            return;
        }
        let canonical = self.canonical();
        {
            let mut state = canonical.state.lock();
            if state.reading.begun_at != Some(reading.begun_at) {
                return;
            }
            state.reading.begun_at = None;
            state.reading.ended_at = Some((now, now.since(reading.begun_at)));
            let may_lag = is_of_standby
                && state.changes.count > 0
                && now.since(state.changes.noted.1) < REPLAY_MAX;
            let is_current =
                state.changes.count == reading.changes && state.changes.ddl == 0 && !may_lag;
            state.changes.is_stale = !is_current;
            state.changes.cause.take_if(|_| is_current);
            state.changes.is_behind = state.changes.quiet > 0;
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
                state.reading.count += 1;
                self.others.is_any_read.store(true, Ordering::Release);
                if state.may_have_missed_changes(reading, &read) {
                    // The next texts are examined by what is known of the code now.
                    state.doubt();
                    canonical.put(&mut state, read.outdated(0));
                } else if state.certificates.id() != read.id() || state.reading.count == 1 {
                    // Equal certificates are not replaced: replacing them would only invalidate what workers derived from
                    // them.
                    canonical.put(&mut state, read);
                }
            }
            if state.is_mixed {
                let unknown = state.certificates.outdated(0);
                canonical.put(&mut state, unknown);
            }
        }
        if let Some(identity) = identity {
            canonical.identify(&identity);
        }
    }

    /// Puts certificates in force.
    fn put(&self, state: &mut State, certificates: Certificates) {
        let generation = self.generation.load(Ordering::Acquire) + 1;
        if state.certificates.code() != certificates.code() {
            self.code_since.store(generation, Ordering::Release);
        }
        state.certificates = certificates.with_generation(generation);
        self.generation.store(generation, Ordering::Release);
    }

    /// Records the identity that a server reported, and merges this catalog with those of other entries for the same
    /// database.
    fn identify(&self, identity: &Identity) {
        {
            let mut state = self.state.lock();
            if state.identity.is_some() {
                return;
            }
            state.identity = Some(identity.clone());
        }
        // The first catalog in the list replaces all others, so that two catalogs that merge at once don't replace each
        // other.
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

    /// Replaces another catalog from now on.
    fn take_over(self: &Arc<Self>, other: &Self) {
        let (ddl, count, servers, generation) = {
            let state = other.state.lock();
            if other.same.set(Arc::clone(self)).is_err() {
                return;
            }
            (
                state.changes.ddl + state.changes.quiet,
                state.changes.count,
                state.servers,
                other.generation.load(Ordering::Acquire),
            )
        };
        let mut state = self.state.lock();
        state.servers += servers;
        state.changes.ddl += ddl;
        // DDL through the other entry may have ended while this catalog was read.
        let is_doubtful = ddl > 0 || count > 0;
        if is_doubtful {
            // Both catalogs have had smaller numbers so far.
            state.changes.count = state.changes.count.max(count);
            state.doubt();
        }
        // Workers that have seen the other catalog's generation notice the change.
        self.generation.fetch_max(generation, Ordering::AcqRel);
        self.code_since.fetch_max(generation + 1, Ordering::AcqRel);
        let certificates = match is_doubtful {
            false => state.certificates.clone(),
            true => state.certificates.outdated(0),
        };
        self.put(&mut state, certificates);
    }

    /// Returns the schema in force. A statement that was prepared under another schema may return other columns now.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> u32 {
        self.canonical().schema.load(Ordering::Acquire)
    }

    /// Returns a new schema number for a client that is about to change the schema inside its transaction.
    #[must_use]
    pub fn schema_within(&self) -> u32 {
        let schemas = &self.canonical().schemas;
        schemas.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Ends that transaction: the schema of statements that were prepared before may be outdated.
    pub fn schema_changed(&self) {
        let number = self.schema_within();
        self.canonical().schema.store(number, Ordering::Release);
    }

    /// Records that a server reported a stale plan: the schema was changed by something other than a text of a client.
    /// Statements that servers have prepared before are prepared again before their next use.
    pub fn plan_is_stale(&self) {
        self.canonical().stale_plans.fetch_add(1, Ordering::AcqRel);
        self.schema_changed();
    }

    /// Returns the number of stale plans that servers have reported.
    #[must_use]
    #[inline]
    pub fn stale_plans(&self) -> u32 {
        self.canonical().stale_plans.load(Ordering::Acquire)
    }

    /// Returns the transactions of all databases that server processes may still commit.
    pub(crate) fn lost_ddl(&self) -> &Mutex<LostDdl> {
        &self.others.lost_ddl
    }

    /// Returns the state of the catalog.
    #[must_use]
    pub fn report(&self) -> CatalogReport {
        let state = self.canonical().state.lock();
        CatalogReport {
            certificates: state.certificates.clone(),
            identity: state.identity.clone(),
            is_known: state.reading.count > 0 && !state.changes.is_stale && !state.is_mixed,
            read_at: state.reading.ended_at,
            readings: state.reading.count,
            ddl: state.changes.ddl,
            is_mixed: state.is_mixed,
            cause: state.changes.cause.clone(),
        }
    }

    /// Returns the reason why every text of the database is opaque, once for each new reason.
    #[must_use]
    pub fn news(&self) -> Option<Box<str>> {
        let mut state = self.canonical().state.lock();
        let reason = if state.is_mixed {
            Some(MIXED)
        } else {
            state.certificates.opaque_reason()
        };
        let reason: Option<Box<str>> = reason.map(Into::into);
        if state.reading.logged == reason || reason.is_none() && state.changes.is_stale {
            return None;
        }
        state.reading.logged.clone_from(&reason);
        reason
    }
}

#[cfg(test)]
mod tests;
