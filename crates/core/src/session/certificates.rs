//! Certificates (not those of TLS): which functions and relations of a database are certain to leave no session
//! state. [`Certificates`] are derived from the [`Facts`] of the database. The scanner looks up the words of clients'
//! texts in the certificates.
//!
//! A name is certified if every object of the database with that name, in any schema, leaves no session state. So
//! certificates depend neither on `search_path` nor on the case of letters. Everything unknown is opaque.
//!
//! Only hashes of names are stored. Two names of the catalog with the same hash share the effects of both, so a
//! collision can only make pgweir treat a text that leaves no state as opaque. A name that was not in the catalog
//! when the catalog was read can be mistaken for another with a probability of 1 in 2^64 for each stored name.

mod body;
mod declared_types;
mod extensions;
mod facts;
mod foreign_code;
mod graph;
mod names;
mod shared_builtins;
mod tree;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

pub(super) use body::block_effects;
use declared_types::DeclaredTypes;
pub use declared_types::MadeNames;
pub use facts::{FACT_MAX, Facts, Identity};
pub use foreign_code::ANY_FOREIGN_CODE;
use names::NameTable;
pub(crate) use shared_builtins::SharedBuiltins;

use crate::base::memory::OVERHEAD;

use super::sql::{CHANGE, Effects, Name, NameEffects, builtin_effects, is_found_as_word};

/// The statements that read the facts from a server, as one simple query. The statements work under any settings.
/// [`Facts`] takes the rows.
pub const FACTS: &str = include_str!("certificates/facts.sql");
/// The statement before [`FACTS`] that identifies the cluster. The server's user may lack the privilege.
pub const SYSTEM: &str = "SELECT 's', system_identifier FROM pg_catalog.pg_control_system()";

/// The statements after [`SYSTEM`] in place of [`FACTS`] when only the identity of the database is needed.
pub const IDENTITY: &str = "SELECT 'd', oid, pg_catalog.current_setting('server_encoding') FROM pg_catalog.pg_database \
    WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database();SELECT 'end'";

/// Functions that the configuration certifies, and extensions whose functions pin clients.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Functions with these names are certified (`certified_functions`).
    pub certified: HashSet<Box<str>>,
    /// Calls of these extensions' functions pin a client (`pin_extensions`).
    pub pinning: HashSet<Box<str>>,
}

/// The largest number of names. With more names, every text is opaque.
const NAMES_MAX: usize = 60_000;

/// The certificates of one database. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Certificates {
    known: Arc<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    generation: u64,
    /// A hash of all entries, independent of their order.
    digest: u64,
    /// The effects of words. Words that are not in the table have none.
    words: NameTable,
    /// Effects of users' functions by OID.
    calls: Arc<HashMap<u32, Effects>>,
    /// Effects of PostgreSQL's functions by OID, as far as they have any.
    builtin_calls: Arc<HashMap<u32, Effects>>,
    /// The effects that every text may have, whatever it contains.
    every_text: Effects,
    custom_names: BTreeSet<Box<[u8]>>,
    /// Names of code with effects that are tracked for code but not for texts.
    names: CodeNames,
    /// Whether the catalog is in UTF8.
    utf8: bool,
    /// Whether the catalog has been read, and nothing may have changed since.
    is_read: bool,
    /// The code that may do DDL.
    ddl: DdlCode,
    /// Whether an event trigger runs uncertified code at each login.
    logins_leave_state: bool,
    opaque_reason: Option<Box<str>>,
    cleaning: Cleaning,
    counts: Counts,
    /// Functions and relations that are not certified, for administrators, up to a limit.
    opaque_objects: Arc<[OpaqueObject]>,
}

/// Returns the bytes that a table of functions takes.
fn bytes_of(table: &HashMap<u32, Effects>) -> usize {
    table.capacity() * (size_of::<(u32, Effects)>() + 1)
}

/// Names of functions and relations, by the effects of [`Effects::OF_CODE`].
#[derive(Clone, Debug, Default)]
struct CodeNames {
    /// Names of code whose result differs between sessions.
    session_readers: Arc<HashSet<Name>>,
    /// Names of code whose use may change more than the session; `None` if every text may change more.
    data_changers: Option<Arc<HashSet<Name>>>,
}

/// The facts about the database on which the clean of a session depends.
#[derive(Debug, Clone, Default)]
struct Cleaning {
    /// The reason why a session can't be cleaned after opaque statements.
    unclean_reason: Option<Box<str>>,
    /// The function that closes the connections of postgres_fdw, quoted for SQL.
    disconnects: Option<Arc<str>>,
    /// The sum of the OIDs of extensions and languages; `None` if the catalog was never read.
    foreign_code: Option<u64>,
    /// The types that PL/pgSQL functions keep for the session.
    types: DeclaredTypes,
    /// A hash of all functions and their types.
    code: u64,
}

/// The code of a database that may do DDL.
#[derive(Debug, Clone, Default)]
struct DdlCode {
    has_event_triggers: bool,
    /// Whether a function or a relation may do DDL.
    has_code: bool,
    /// Whether one of them has a name that only a tokenizer can find in a text.
    has_odd_name: bool,
    /// Whether the language of the name `plpgsql` is another one.
    has_other_plpgsql: bool,
}

/// A function or relation that is not certified, as shown to administrators.
#[derive(Clone, Debug)]
pub(crate) struct OpaqueObject {
    /// `function`, `relation` or `built-in`.
    pub(crate) kind: &'static str,
    pub(crate) name: Box<str>,
    pub(crate) traces: NameEffects,
    /// The reason why the object is opaque.
    pub(crate) reason: Option<Box<str>>,
}

/// The numbers of objects in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Users' functions.
    pub functions: usize,
    /// Users' functions that are not certified.
    pub opaque_functions: usize,
    /// Users' tables, views and other relations.
    pub relations: usize,
    /// Users' relations that can't be read, or can't be written, without calling an uncertified function.
    pub opaque_relations: usize,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::unread()
    }
}

impl Certificates {
    /// Returns the bytes that the certificates take, without tables that databases share.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let known = &*self.known;
        let customs = known.custom_names.iter();
        let changers = known.names.data_changers.as_ref();
        let changers = changers.map_or(0, |names| names.capacity());
        let opaque_objects = known.opaque_objects.iter();
        size_of::<Known>()
            + known.words.bytes()
            + bytes_of(&known.calls)
            + known.cleaning.types.bytes()
            + (known.names.session_readers.capacity() + changers) * (size_of::<Name>() + 1)
            + customs.map(|name| name.len() + 3 * OVERHEAD).sum::<usize>()
            + opaque_objects
                .map(|object| size_of::<OpaqueObject>() + object.name.len() + 2 * OVERHEAD)
                .sum::<usize>()
    }

    fn of(known: Known) -> Self {
        let known = Arc::new(known);
        Self { known }
    }

    /// Returns the certificates that hold in every database: PostgreSQL's own functions and catalogs are certified,
    /// users' relations and functions are not.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Known::default())
    }

    /// Returns the certificates of a database that was not read yet. The database may have operators, casts and types
    /// that call functions without being named in a text, so every text is opaque.
    #[must_use]
    pub fn unread() -> Self {
        let mut known = Known::default();
        known.add_to_every_text(Effects::OPAQUE | Effects::UNREAD);
        Self::of(known)
    }

    /// Returns these certificates for the time after a possible change of the catalog: every text is opaque, and may run
    /// new code. The effects of words still show which texts may do DDL.
    #[must_use]
    pub fn outdated(&self, generation: u64) -> Self {
        let mut outdated = self.outdated_by_tables(generation);
        Arc::make_mut(&mut outdated.known).add_to_every_text(Effects::UNREAD);
        outdated
    }

    /// Like [`outdated`](Self::outdated), but there is no new code.
    #[must_use]
    pub fn outdated_by_tables(&self, generation: u64) -> Self {
        let mut known = (*self.known).clone();
        known.generation = generation;
        known.is_read = false;
        known.opaque_reason = None;
        known.add_to_every_text(Effects::OPAQUE);
        Self::of(known)
    }

    /// Derives certificates from the facts of a database. The time grows with the number of its functions, relations
    /// and uses.
    #[must_use]
    pub fn from_facts(generation: u64, mut facts: Facts) -> Self {
        let mut known = facts.conclude();
        known.generation = generation;
        if known.words.len() > NAMES_MAX {
            known.add_to_every_text(Effects::OPAQUE | Effects::UNREAD);
            known.opaque_reason = Some("too many of its functions and relations are opaque".into());
        }
        Self::of(known)
    }

    /// Makes these certificates share their table of PostgreSQL's own functions with other databases.
    pub(crate) fn share_builtins(&mut self, shared: &SharedBuiltins) {
        let own = Arc::clone(&self.known.builtin_calls);
        let same = shared.same_as(own);
        Arc::make_mut(&mut self.known).builtin_calls = same;
    }

    /// Creates certificates from rows, for tests of scanners. A row has a kind, a name, the effects of a use and the
    /// effects of a write. Effects are names separated by blanks, or empty.
    ///
    /// Kinds: `f` function, `r` relation, `w` word, `s` custom parameter, `e` every text (with the name `utf8`: the
    /// database is in UTF8). A row of another kind makes every text opaque.
    pub fn from_rows<'a>(generation: u64, rows: impl IntoIterator<Item = [&'a [u8]; 4]>) -> Self {
        let mut known = Known {
            generation,
            names: CodeNames {
                data_changers: Some(Arc::default()),
                ..CodeNames::default()
            },
            ..Known::default()
        };
        for [kind, name, read, write] in rows {
            let (read, write) = (all_effects(read), all_effects(write));
            match kind {
                b"f" => known.add_function(name, read | write),
                b"r" => known.add_relation(name, NameEffects { read, write }),
                b"w" => known.words.add(Name::of(name), NameEffects { read, write }),
                b"s" => {
                    known.custom_names.insert(name.into());
                }
                b"e" if name == b"utf8" => known.note_utf8(),
                b"e" => known.add_to_every_text(read | write),
                _ => known.add_to_every_text(Effects::OPAQUE),
            }
        }
        Self::of(known)
    }

    /// Returns these certificates with another generation.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        Arc::make_mut(&mut self.known).generation = generation;
        self
    }

    /// Returns the generation, which grows with each reading of the catalog. A verdict of another generation is
    /// outdated.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.known.generation
    }

    /// Returns a number that differs between certificates with different content, those of different databases
    /// included. A result that was found under certificates with the same id is still valid. The id has 64 - [`Effects::KINDS`]
    /// bits and is never zero.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.known.digest >> Effects::KINDS | 1
    }

    /// Returns the effects that every text may have.
    #[inline]
    pub(crate) fn every_text(&self) -> Effects {
        self.known.every_text
    }

    /// Returns whether every text may do DDL, since code that does DDL can be called without its name.
    #[must_use]
    pub fn every_text_may_do_ddl(&self) -> bool {
        may_do_ddl(self.known.every_text)
    }

    /// Returns whether names beyond ASCII have the same bytes in the catalog as in a text in UTF8.
    #[inline]
    pub(crate) fn is_utf8(&self) -> bool {
        self.known.utf8
    }

    /// Returns the effects of a word or quoted identifier, wherever it stands: `read` in any text, `write` in a text
    /// that may write. An unknown name has no effects.
    #[inline]
    #[must_use]
    pub(crate) fn word(&self, name: Name) -> NameEffects {
        self.known.words.get(name).unwrap_or_default()
    }

    /// Returns the effects of a word, including those of PostgreSQL's own functions and relations, which the scanner of
    /// texts knows without certificates.
    #[must_use]
    pub(crate) fn any_word(&self, name: &[u8]) -> NameEffects {
        let builtin = builtin_effects(name).unwrap_or_default();
        let own = self.word(Name::of(name));
        NameEffects {
            read: own.read | builtin.read,
            write: own.write | builtin.write,
        }
    }

    /// Returns the function, quoted for SQL, that closes the connections of postgres_fdw. The sessions of these
    /// connections belong to the client whose texts have opened them.
    #[must_use]
    pub(crate) fn disconnects(&self) -> Option<&str> {
        self.known.cleaning.disconnects.as_deref()
    }

    /// Returns whether a user's function or relation of this name reads a parameter, the user or the like, so that its
    /// result differs between sessions.
    pub(crate) fn reads_session(&self, name: &[u8]) -> bool {
        self.known.names.session_readers.contains(&Name::of(name))
    }

    /// Returns whether the use of a user's function or relation of this name may change more than the session.
    pub(crate) fn changes_data(&self, name: Name) -> bool {
        let names = self.known.names.data_changers.as_ref();
        names.is_none_or(|names| names.contains(&name))
    }

    /// Returns whether a call of the function with this OID may do DDL.
    #[must_use]
    pub fn calls_ddl(&self, oid: u32) -> bool {
        may_do_ddl(self.call_by_oid(oid))
    }

    /// Returns whether a function or a relation of the database may do DDL.
    #[must_use]
    pub fn has_ddl_code(&self) -> bool {
        self.known.ddl.has_code
    }

    /// Returns whether a function or relation that may do DDL has a name that is not found when a text is split into
    /// words.
    #[must_use]
    pub fn has_odd_ddl_name(&self) -> bool {
        self.known.ddl.has_odd_name
    }

    /// Returns whether another language than PL/pgSQL has its name.
    pub(crate) fn has_other_plpgsql(&self) -> bool {
        self.known.ddl.has_other_plpgsql
    }

    /// Returns the effects of a call of the function with this OID.
    pub(crate) fn call_by_oid(&self, oid: u32) -> Effects {
        let unknown = if oid < facts::FIRST_OF_USERS {
            Effects::NONE
        } else {
            body::ANYTHING
        };
        let known = self.known.calls.get(&oid);
        let known = known.or_else(|| self.known.builtin_calls.get(&oid));
        known.copied().unwrap_or(unknown)
    }

    /// Returns whether the database has an event trigger, which any DDL may fire.
    #[must_use]
    pub(crate) fn has_event_triggers(&self) -> bool {
        self.known.ddl.has_event_triggers
    }

    /// Returns whether each session may have session state from its login on, since an event trigger runs uncertified
    /// code at login.
    #[must_use]
    pub fn logins_leave_state(&self) -> bool {
        self.known.logins_leave_state
    }

    /// Returns why every text is opaque: the object that is the reason and its effect; `None` if the catalog contains
    /// no such object.
    #[must_use]
    pub fn opaque_reason(&self) -> Option<&str> {
        self.known.opaque_reason.as_deref()
    }

    /// Returns why a clean is not enough after opaque statements: a language or function of the database may keep state
    /// that no clean removes.
    #[must_use]
    pub fn unclean_reason(&self) -> Option<&str> {
        self.known.cleaning.unclean_reason.as_deref()
    }

    /// Returns the functions and relations that are not certified, up to a limit.
    pub(crate) fn opaque_objects(&self) -> &[OpaqueObject] {
        &self.known.opaque_objects
    }

    /// Returns whether the catalog was read and contains no functions of users.
    #[must_use]
    pub fn has_no_functions(&self) -> bool {
        self.known.is_read && self.known.counts.functions == 0
    }

    /// Returns the numbers of objects that were found.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.known.counts
    }

    /// Returns whether the database has a user's function named `set_config` that has effects.
    pub(crate) fn redefines_set_config(&self) -> bool {
        self.word(Name::of(b"set_config")) != NameEffects::default()
    }

    /// Returns the custom parameters that functions and policies of the database name, in lower case. No SQL statement
    /// lists such parameters; a server can only be asked for parameters whose names are known.
    pub fn custom_names(&self) -> impl Iterator<Item = &[u8]> {
        self.known.custom_names.iter().map(|name| &**name)
    }
}

impl Known {
    fn add_to_every_text(&mut self, bits: Effects) {
        if !self.every_text.contains(bits) {
            self.every_text |= bits;
            self.note(b"e", b"", NameEffects::of_use(bits));
        }
    }

    fn add_function(&mut self, name: &[u8], bits: Effects) {
        let is_opaque = self.add(b"f", name, NameEffects::of_use(bits));
        self.counts.functions += 1;
        self.counts.opaque_functions += usize::from(is_opaque);
    }

    fn add_relation(&mut self, name: &[u8], traces: NameEffects) {
        let is_opaque = self.add(b"r", name, traces);
        self.counts.relations += 1;
        self.counts.opaque_relations += usize::from(is_opaque);
    }

    /// Adds a function or relation. Returns whether it is opaque.
    fn add(&mut self, kind: &[u8], name: &[u8], traces: NameEffects) -> bool {
        let all = traces.read | traces.write;
        self.note(kind, name, traces);
        if may_do_ddl(all) {
            self.ddl.has_code = true;
            self.ddl.has_odd_name |= !is_found_as_word(name);
        }
        if !all.is_empty() {
            self.words.add_up_to(NAMES_MAX + 1, Name::of(name), traces);
        }
        all.contains(Effects::OPAQUE)
    }

    /// Notes that the catalog is in UTF8. In another encoding, the same text may stand for other names.
    fn note_utf8(&mut self) {
        self.utf8 = true;
        self.note(b"e", b"utf8", NameEffects::default());
    }

    /// Adds to the digest what the entries for words do not show.
    fn note_rest(&mut self) {
        let rest = format!(
            "{:?} {:?} {:?} {} {} {}",
            self.custom_names,
            self.cleaning.unclean_reason,
            self.cleaning.disconnects,
            self.ddl.has_event_triggers,
            self.names.data_changers.is_some(),
            self.logins_leave_state
        );
        self.note(b"c", rest.as_bytes(), NameEffects::default());
        let of_changers = self
            .names
            .data_changers
            .iter()
            .flat_map(|names| names.iter());
        let of_readers = self.names.session_readers.iter();
        let names = of_changers.map(|name| name.mixed_with(1));
        for name in names.chain(of_readers.map(|name| name.mixed_with(2))) {
            self.digest = self.digest.wrapping_add(name);
        }
    }

    /// Adds an entry to the digest, by which certificates differ.
    fn note(&mut self, kind: &[u8], name: &[u8], traces: NameEffects) {
        let row = [kind, b"/", name].concat();
        let bits = u64::from(traces.read.bits()) << 32 | u64::from(traces.write.bits());
        let entry = Name::of(&row).mixed_with(bits);
        self.digest = self.digest.wrapping_add(entry);
        if kind == b"f" || (traces.read | traces.write).contains(Effects::UNREAD) {
            self.cleaning.code = self.cleaning.code.wrapping_add(entry);
        }
    }
}

/// Returns whether code with these effects may have done DDL.
pub(super) fn may_do_ddl(found: Effects) -> bool {
    found.contains(CHANGE)
}

/// Adds OPAQUE to the effects of code outside of clients' texts, unless all of them are in `PLAIN`. For other effects,
/// pgweir would have to know the details, such as the parameter that is set, and such code does not show them.
fn opaque_unless_plain(found: Effects) -> Effects {
    /// Effects that need no details.
    const PLAIN: Effects = Effects::SEQUENCE
        .and(Effects::READS_SEQUENCE)
        .and(Effects::STATEMENTS_VIEW)
        .and(Effects::CHANNELS_VIEW)
        .and(Effects::TERMINATES)
        .and(Effects::CANCELS)
        .and(Effects::TYPES)
        .and(Effects::PATH)
        .and(Effects::OF_CODE);
    if found.without(PLAIN).is_empty() {
        found
    } else {
        found | Effects::OPAQUE
    }
}

/// Parses names of effects, separated by blanks. An unknown name counts as OPAQUE.
fn all_effects(names: &[u8]) -> Effects {
    names
        .split(|&byte| byte == b' ')
        .filter(|name| !name.is_empty())
        .fold(Effects::NONE, |sum, name| {
            sum | Effects::named(name).unwrap_or(Effects::OPAQUE)
        })
}

/// Builds a row of a server's answer, for tests.
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
