//! Which functions and relations of a database are certain to leave no trace in the session that
//! uses them.
//!
//! A name is certified when everything in the database that has it is clean, in whichever schema:
//! so a certificate needs no search path, and no folding of case. What is not known is opaque.
//!
//! Names are held as hashes alone. Two names of the catalog that collide share what both are
//! suspected of, so a collision can only make a text more suspect; a name that the catalog did not
//! have when it was read could pass for another with a chance of one in 2^64 for each name held.

mod body;
mod extensions;
mod facts;
mod graph;
mod names;
mod tree;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

pub use facts::{Facts, Identity};
pub use names::Name;
use names::NameTable;

use super::scan::{DdlWords, Effects, builtin_traces};

/// What a function or relation of some name leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// When a function is called, when a relation is read.
    pub(crate) read: Effects,
    /// When a relation is written.
    pub(crate) write: Effects,
}

/// What to ask a server, as one simple query, with any settings: [`Facts`] takes the rows.
pub const FACTS: &str = include_str!("certificates/facts.sql");
/// What to ask it before: which cluster it is of. It may not have the right to say.
pub const SYSTEM: &str = "SELECT 's', system_identifier FROM pg_catalog.pg_control_system()";

/// What to ask it behind [`SYSTEM`] instead of [`FACTS`], if nothing is to be known but which database it is connected
/// to.
pub const IDENTITY: &str = "SELECT 'd', oid, pg_catalog.current_setting('server_encoding') FROM pg_catalog.pg_database \
    WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database();SELECT 'end'";

/// Whom the configuration trusts, or not.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Functions with these names are certified (`certified_functions`).
    pub certified: HashSet<Box<str>>,
    /// Calls of these extensions' functions pin a client (`pin_extensions`).
    pub pinning: HashSet<Box<str>>,
}

/// More names of a kind are not remembered; what is not known is opaque.
const NAMES_MAX: usize = 60_000;

/// What is certified of one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    known: Arc<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    generation: u64,
    /// A hash of all that is known, in any order.
    digest: u64,
    /// What words leave behind; that of others is nothing.
    words: NameTable,
    /// Functions by OID: users', and PostgreSQL's own that leave something.
    calls: Arc<HashMap<u32, Effects>>,
    /// Of every text, whatever it says.
    every_text: Effects,
    custom_names: BTreeSet<Box<[u8]>>,
    /// Whether the catalog is in UTF8.
    utf8: bool,
    /// A reading has told, and nothing may have changed since.
    is_read: bool,
    has_event_triggers: bool,
    /// Each session may hold something from its login on.
    logins_leave_state: bool,
    /// A function or a relation may do DDL.
    has_ddl_code: bool,
    /// One that does has a name that can't be found without reading a text as tokens.
    has_odd_ddl_name: bool,
    opaque_reason: Option<Box<str>>,
    unclean_reason: Option<Box<str>>,
    counts: Counts,
    /// Some that are not clean.
    suspects: Arc<[Suspect]>,
}

/// A function or relation that is not clean, for people.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    /// `function`, `relation` or `built-in`.
    pub(crate) kind: &'static str,
    pub(crate) name: Box<str>,
    pub(crate) traces: Traces,
    /// Why it is opaque.
    pub(crate) reason: Option<Box<str>>,
}

/// How much a reading of the catalog has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Functions of users.
    pub functions: usize,
    /// Those of them that are not certified.
    pub opaque_functions: usize,
    /// Tables, views and the like of users.
    pub relations: usize,
    /// Those of them that can't be read, or not be written, without calling such a function.
    pub opaque_relations: usize,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::unread()
    }
}

impl Certificates {
    /// What is true of every database: PostgreSQL's own functions and catalogs are certified, no
    /// relation or function of a user's is.
    #[must_use]
    pub fn none() -> Self {
        Self {
            known: Arc::new(Known::default()),
        }
    }

    /// What is true of a database of which nothing is known yet: it may have operators, casts and types that
    /// call functions, which no text need name. So every text is suspect.
    #[must_use]
    pub fn unread() -> Self {
        let mut known = Known::default();
        known.doubt_every_text();
        Self {
            known: Arc::new(known),
        }
    }

    /// These, when something may have changed since they were read: every text is opaque. What was known of words
    /// still tells which texts may do DDL.
    #[must_use]
    pub fn outdated(&self, generation: u64) -> Self {
        let mut known = (*self.known).clone();
        known.generation = generation;
        known.is_read = false;
        known.opaque_reason = None;
        known.doubt_every_text();
        Self {
            known: Arc::new(known),
        }
    }

    /// What follows from the facts of a database. Takes a time that grows with the number of its functions,
    /// relations and uses.
    #[must_use]
    pub fn from_facts(generation: u64, mut facts: Facts) -> Self {
        let mut found = facts.conclude();
        let mut known = std::mem::take(&mut facts.known);
        known.generation = generation;
        for name in &facts.unknown {
            known.add_function(name.as_bytes(), Effects::OPAQUE);
        }
        known.counts = Counts::default();
        known.suspects = std::mem::take(&mut found.suspects).into();
        for (name, bits) in &found.functions {
            known.add_function(name.as_bytes(), *bits);
        }
        for &(ref name, read, write) in &found.relations {
            known.add_relation(name.as_bytes(), Traces { read, write });
        }
        known.calls = Arc::new(found.calls);
        known.add_to_every_text(found.every_text);
        known.utf8 = facts.utf8;
        known.is_read = facts.are_all_taken();
        known.has_event_triggers = facts.has_event_triggers;
        known.logins_leave_state = found.logins_leave_state;
        known.custom_names = std::mem::take(&mut facts.customs);
        known.opaque_reason = found.opaque_reason.map(Into::into);
        known.unclean_reason = found.unclean_reason.map(Into::into);
        if known.words.len() > NAMES_MAX {
            known.add_to_every_text(Effects::OPAQUE);
            known.opaque_reason = Some("too many of its functions and relations are opaque".into());
        }
        Self {
            known: Arc::new(known),
        }
    }

    /// What is said of names, for tests of those who read texts: rows of kind, name, what a use leaves behind
    /// and what writing to it does, both as names of suspicions with blanks between, or empty.
    ///
    /// Kinds: `f` function, `r` relation, `w` word, `s` custom parameter, `e` every text (with the name `utf8`:
    /// the database is in UTF8). A row that is not understood makes every text opaque.
    pub fn from_rows<'a>(generation: u64, rows: impl IntoIterator<Item = [&'a [u8]; 4]>) -> Self {
        let mut known = Known {
            generation,
            ..Known::default()
        };
        for [kind, name, read, write] in rows {
            let (read, write) = (all_effects(read), all_effects(write));
            match kind {
                b"f" => known.add_function(name, read | write),
                b"r" => known.add_relation(name, Traces { read, write }),
                b"w" => known.words.add(Name::of(name), Traces { read, write }),
                b"s" => {
                    known.custom_names.insert(name.into());
                }
                b"e" if name == b"utf8" => known.utf8 = true,
                b"e" => known.add_to_every_text(read | write),
                _ => known.add_to_every_text(Effects::OPAQUE),
            }
        }
        Self {
            known: Arc::new(known),
        }
    }

    /// The same, with another generation.
    #[must_use]
    pub fn stamped(mut self, generation: u64) -> Self {
        Arc::make_mut(&mut self.known).generation = generation;
        self
    }

    /// Grows with each reading of the catalog: a verdict of another generation is not of now.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.known.generation
    }

    /// Tells certificates apart that say different things, those of different databases too: what
    /// was found under others with the same id holds under these. 44 bits, and never zero.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.known.digest >> 20 | 1
    }

    /// What every text is suspected of.
    #[inline]
    pub(crate) fn every_text(&self) -> Effects {
        self.known.every_text
    }

    /// Do names beyond ASCII stand in the catalog as in a text in UTF8?
    #[inline]
    pub(crate) fn is_utf8(&self) -> bool {
        self.known.utf8
    }

    /// What a word or quoted identifier leaves behind, wherever it stands: `read` in any text, `write` in one
    /// that may write. A name that is not known leaves nothing.
    #[inline]
    #[must_use]
    pub(crate) fn word(&self, name: Name) -> Traces {
        self.known.words.get(name).unwrap_or_default()
    }

    /// The same, with what PostgreSQL's own functions and relations leave behind, which readers of texts know by
    /// themselves.
    #[must_use]
    pub(crate) fn any_word(&self, name: &[u8]) -> Traces {
        let builtin = builtin_traces(name).unwrap_or_default();
        let own = self.word(Name::of(name));
        Traces {
            read: own.read | builtin.read,
            write: own.write | builtin.write,
        }
    }

    /// May a call of the function with this OID do DDL?
    #[must_use]
    pub fn calls_ddl(&self, oid: u32) -> bool {
        may_do_ddl(self.call_by_oid(oid))
    }

    /// May a function or a relation of the database do DDL?
    #[must_use]
    pub fn has_ddl_code(&self) -> bool {
        self.known.has_ddl_code
    }

    /// May one of those have a name that is not found by splitting a text into words?
    #[must_use]
    pub fn has_odd_ddl_name(&self) -> bool {
        self.known.has_odd_ddl_name
    }

    /// What a call of the function with this OID leaves behind.
    pub(crate) fn call_by_oid(&self, oid: u32) -> Effects {
        let unknown = if oid < facts::FIRST_OF_USERS {
            Effects::NONE
        } else {
            body::ANYTHING
        };
        self.known.calls.get(&oid).copied().unwrap_or(unknown)
    }

    /// Is there an event trigger, which any DDL may fire?
    #[must_use]
    pub(crate) fn has_event_triggers(&self) -> bool {
        self.known.has_event_triggers
    }

    /// May each session hold something from its login on, since an event trigger runs code then that is not certified?
    #[must_use]
    pub fn logins_leave_state(&self) -> bool {
        self.known.logins_leave_state
    }

    /// Why every text is opaque: the object and what it does, if a reading has found one.
    #[must_use]
    pub fn opaque_reason(&self) -> Option<&str> {
        self.known.opaque_reason.as_deref()
    }

    /// Why a clean would not do after opaque statements: which language or function of the database may keep
    /// what no clean takes away.
    #[must_use]
    pub fn unclean_reason(&self) -> Option<&str> {
        self.known.unclean_reason.as_deref()
    }

    /// Functions and relations that are not clean, as many as are remembered.
    pub(crate) fn suspects(&self) -> &[Suspect] {
        &self.known.suspects
    }

    /// Is it certain that the database has no function of a user's?
    #[must_use]
    pub fn has_no_functions(&self) -> bool {
        self.known.is_read && self.known.counts.functions == 0
    }

    /// How much was found.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.known.counts
    }

    /// Has the database a function named `set_config` of its own that leaves a trace?
    pub(crate) fn redefines_set_config(&self) -> bool {
        self.word(Name::of(b"set_config")) != Traces::default()
    }

    /// Custom parameters that functions and policies of the database name, in lower case. Nothing in
    /// SQL lists such parameters; only those can be asked for whose names are known.
    pub fn custom_names(&self) -> impl Iterator<Item = &[u8]> {
        self.known.custom_names.iter().map(|name| &**name)
    }
}

impl Known {
    /// Every text may do anything.
    fn doubt_every_text(&mut self) {
        self.add_to_every_text(Effects::OPAQUE);
    }

    fn add_to_every_text(&mut self, bits: Effects) {
        if !self.every_text.contains(bits) {
            self.every_text |= bits;
            self.note(
                b"e",
                b"",
                Traces {
                    read: bits,
                    write: Effects::NONE,
                },
            );
        }
    }

    fn add_function(&mut self, name: &[u8], bits: Effects) {
        let traces = Traces {
            read: bits,
            write: Effects::NONE,
        };
        let hashed = Name::of(name);
        self.note(b"f", name, traces);
        self.note_ddl(name, bits);
        self.counts.functions += 1;
        self.counts.opaque_functions += usize::from(bits.contains(Effects::OPAQUE));
        if !bits.is_empty() {
            self.words.add_up_to(NAMES_MAX + 1, hashed, traces);
        }
    }

    fn add_relation(&mut self, name: &[u8], traces: Traces) {
        let hashed = Name::of(name);
        self.note(b"r", name, traces);
        self.note_ddl(name, traces.read | traces.write);
        let is_opaque = (traces.read | traces.write).contains(Effects::OPAQUE);
        self.counts.relations += 1;
        self.counts.opaque_relations += usize::from(is_opaque);
        if traces != Traces::default() {
            self.words.add_up_to(NAMES_MAX + 1, hashed, traces);
        }
    }

    fn note_ddl(&mut self, name: &[u8], bits: Effects) {
        if may_do_ddl(bits) {
            self.has_ddl_code = true;
            self.has_odd_ddl_name |= !DdlWords::finds(name);
        }
    }

    /// One more thing by which certificates differ.
    fn note(&mut self, kind: &[u8], name: &[u8], traces: Traces) {
        let row = [kind, b"/", name].concat();
        let bits = u64::from(traces.read.bits()) << 32 | u64::from(traces.write.bits());
        self.digest = self.digest.wrapping_add(Name::of(&row).mixed_with(bits));
    }
}

/// Do the bytes stand somewhere in these?
fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// May what leaves this behind have done DDL?
pub(super) fn may_do_ddl(found: Effects) -> bool {
    found.contains(body::ANYTHING)
}

/// What code that is not SQL of a client leaves behind, if it does such things: they can't be read off its text,
/// so that it may do anything of the kind.
fn serious(found: Effects) -> Effects {
    /// What is the same whoever does it.
    const PLAIN: Effects = Effects::SEQUENCE
        .and(Effects::READS_SEQUENCE)
        .and(Effects::STATEMENTS_VIEW)
        .and(Effects::TERMINATES)
        .and(Effects::CANCELS)
        .and(Effects::READS_SESSION);
    if found.without(PLAIN).is_empty() {
        found
    } else {
        found | Effects::OPAQUE
    }
}

/// From the names of suspicions, with blanks between. An unknown one is anything.
fn all_effects(names: &[u8]) -> Effects {
    names
        .split(|&byte| byte == b' ')
        .filter(|name| !name.is_empty())
        .fold(Effects::NONE, |sum, name| {
            sum | Effects::named(name).unwrap_or(Effects::OPAQUE)
        })
}

/// A row of a server's answer, for tests.
#[cfg(test)]
pub(crate) fn row(columns: &[&str]) -> Vec<u8> {
    let mut row = (columns.len() as u16).to_be_bytes().to_vec();
    for column in columns {
        row.extend((column.len() as u32).to_be_bytes());
        row.extend(column.as_bytes());
    }
    row
}

#[cfg(test)]
mod tests;
