//! Which functions and relations of a database are certain to leave no trace in the session that
//! uses them.
//!
//! A name is certified when everything in the database that has it is clean, in whichever schema:
//! so a certificate needs no search path, and no folding of case. What is not known is opaque.
//!
//! Names are held as hashes alone. Two names of the catalog that collide share what both are
//! suspected of, so a collision can only make a text more suspect; a name that the catalog did not
//! have when it was read could pass for another with a chance of one in 2^64 for each name held.

mod builtin;
mod names;

use std::{collections::BTreeSet, sync::Arc};

pub use names::Name;
use names::NameTable;

use super::{scan::Suspicion, schema::is_one_of};

/// What a function or relation of some name leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// When a function is called, when a relation is read.
    pub(crate) read: Suspicion,
    /// When a relation is written.
    pub(crate) write: Suspicion,
}

/// The place in [`QUERY`] for the names of extensions.
const NO_EXTENSIONS: &str = "ARRAY[]::text[]";

/// The query, where calls of these extensions' functions pin a client. Their names have no quotes.
#[must_use]
pub fn query(pinning: &[String]) -> String {
    if pinning.is_empty() {
        return QUERY.to_owned();
    }
    let names = format!("ARRAY['{}']::text[]", pinning.join("','"));
    QUERY.replacen(NO_EXTENSIONS, &names, 1)
}

/// What to ask a server, as one simple query, with any settings: its last statement returns the rows
/// that [`Certificates::from_rows`] takes. It takes 10 to 30 ms where there is little, a second where
/// there are thousands of tables, views and functions.
pub const QUERY: &str = include_str!("certificates/query.sql");

/// More names of a kind are not remembered; what is not known is opaque.
const NAMES_MAX: usize = 60_000;
/// More words or operators that are suspect wherever they stand make every text opaque.
const TRIPWIRES_MAX: usize = 64;
/// PostgreSQL's own objects have smaller OIDs (`FirstNormalObjectId`).
const FIRST_USER_OID: u32 = 16_384;
/// More names of custom parameters are not watched.
const CUSTOM_NAMES_MAX: usize = 256;

/// What is not known.
#[cfg(test)]
const OPAQUE: Traces = Traces {
    read: Suspicion::OPAQUE,
    write: Suspicion::OPAQUE,
};

/// Marks the functions that are called with FROM between their arguments, in place of what they
/// write: `extract(year FROM x)`.
pub(crate) const CALL_WITH_FROM: Suspicion = Suspicion::DISCARD;

/// What is certified of one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    known: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    /// A hash of all rows, in any order.
    digest: u64,
    /// A hash of those rows that make something suspect wherever it stands.
    tripwires: u64,
    functions: NameTable,
    relations: NameTable,
    /// Of every text, whatever it says.
    every_text: Suspicion,
    /// Of names wherever they stand: types that run something, functions that read as columns.
    words: NameTable,
    /// All names of the database that leave a trace, wherever they stand.
    suspects: NameTable,
    custom_names: BTreeSet<Box<[u8]>>,
    /// Whether the catalog is in UTF8.
    utf8: bool,
}

/// May the text change what the catalog says of functions and relations? Beginnings of statements that
/// certainly don't: what is dropped can't do any more harm, and temporary objects are their session's.
/// CREATE INDEX and CREATE SCHEMA are not among them: an index calls the functions of its expressions when
/// a row is written, and a schema can be made together with what is in it.
#[must_use]
pub fn changes_catalog(text: &[u8]) -> bool {
    const HARMLESS: [&[u8]; 11] = [
        b"drop ",
        b"vacuum",
        b"analyze",
        b"reindex",
        b"grant ",
        b"revoke ",
        b"comment ",
        b"cluster",
        b"refresh ",
        b"create temp ",
        b"create temporary ",
    ];
    !is_one_of(text, &HARMLESS)
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
            known: Arc::new(Known::builtin()),
        }
    }

    /// What is true of a database of which nothing is known yet: it may have operators, casts and types that
    /// call functions, which no text need name. So every text is suspect.
    #[must_use]
    pub fn unread() -> Self {
        let mut known = Known::builtin();
        known.doubt_every_text();
        Self {
            known: Arc::new(known),
        }
    }

    /// These, when something has changed since they were read: as [`unread`](Self::unread), and what was
    /// suspect of more still is.
    #[must_use]
    pub fn outdated(&self, generation: u64) -> Self {
        let mut known = Known::builtin();
        known.generation = generation;
        known.digest = self.known.tripwires;
        known.tripwires = self.known.tripwires;
        known.every_text = self.known.every_text;
        known.words = self.known.words.clone();
        known.suspects = self.known.suspects.clone();
        known.custom_names = self.known.custom_names.clone();
        known.doubt_every_text();
        Self {
            known: Arc::new(known),
        }
    }

    /// What a reading of the catalog has found: rows of kind, name, what a use leaves behind and
    /// what writing to it does, both as names of suspicions with blanks between, or empty.
    ///
    /// Kinds: `f` function, `r` relation, `w` word, `o` operator, `s` custom parameter, `e` every
    /// text (with the name `utf8`: the database is in UTF8). A row that is not understood makes
    /// every text opaque.
    pub fn from_rows<'a>(generation: u64, rows: impl IntoIterator<Item = [&'a [u8]; 4]>) -> Self {
        let mut known = Known::builtin();
        known.generation = generation;
        for [kind, name, read, write] in rows {
            known.add(kind, name, suspicions(read), suspicions(write));
        }
        Self {
            known: Arc::new(known),
        }
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
    pub(crate) fn every_text(&self) -> Suspicion {
        self.known.every_text
    }

    /// Do names beyond ASCII stand in the catalog as in a text in UTF8?
    #[inline]
    pub(crate) fn is_utf8(&self) -> bool {
        self.known.utf8
    }

    /// What a word or quoted identifier leaves behind wherever it stands: as the name of a function, a
    /// relation or a type of the database. Nothing, if it is none of them.
    #[inline]
    pub(crate) fn word(&self, name: Name) -> Traces {
        self.known.suspects.get(name).unwrap_or_default()
    }

    /// Has the database a function named `set_config` of its own that leaves a trace?
    pub(crate) fn redefines_set_config(&self) -> bool {
        let traces = self.word(Name::of(b"set_config"));
        !(traces.read | traces.write).is_empty()
    }

    /// May values of the type with this OID run something that leaves a trace?
    pub(crate) fn is_type_suspect(&self, oid: u32) -> bool {
        oid >= FIRST_USER_OID && self.known.words.len() > 0
    }

    /// Custom parameters that functions and policies of the database name, in lower case. Nothing in
    /// SQL lists such parameters; only those can be asked for whose names are known.
    pub fn custom_names(&self) -> impl Iterator<Item = &[u8]> {
        self.known.custom_names.iter().map(|name| &**name)
    }

    /// What a call of a function with this name leaves behind.
    #[cfg(test)]
    pub(crate) fn function(&self, name: Name) -> Suspicion {
        self.known
            .functions
            .get(name)
            .map_or(Suspicion::OPAQUE, |traces| traces.read)
    }

    /// What the use of a relation with this name leaves behind.
    #[cfg(test)]
    pub(crate) fn relation(&self, name: Name) -> Traces {
        self.known.relations.get(name).unwrap_or(OPAQUE)
    }
}

impl Known {
    fn builtin() -> Self {
        let mut known = Self::default();
        let clean = builtin::CLEAN_FUNCTIONS.lines();
        for name in clean.chain(builtin::GRAMMAR.split_ascii_whitespace()) {
            known
                .functions
                .add(Name::of(name.as_bytes()), Traces::default());
        }
        for name in builtin::CALLS_WITH_FROM {
            let write = CALL_WITH_FROM;
            let read = Suspicion::NONE;
            known
                .functions
                .add(Name::of(name.as_bytes()), Traces { read, write });
        }
        for &(name, read) in builtin::SUSPECT_FUNCTIONS {
            let write = Suspicion::NONE;
            let traces = Traces { read, write };
            known.functions.add(Name::of(name.as_bytes()), traces);
        }
        for name in builtin::CLEAN_RELATIONS.lines().chain(builtin::COPY_ENDS) {
            known
                .relations
                .add(Name::of(name.as_bytes()), Traces::default());
        }
        for &(name, read, write) in builtin::SUSPECT_RELATIONS {
            known
                .relations
                .add(Name::of(name.as_bytes()), Traces { read, write });
        }
        known
    }

    /// Every text may do anything: what is said under such certificates must not be taken for what is said
    /// under others.
    fn doubt_every_text(&mut self) {
        const DOUBT: &[u8] = b"e/unread";
        self.every_text |= Suspicion::OPAQUE;
        self.digest = self.digest.wrapping_add(Name::of(DOUBT).mixed_with(0));
    }

    /// Adds to what leaves a trace. What does not fit makes every text opaque.
    fn suspect(&mut self, name: Name, read: Suspicion, write: Suspicion) {
        if (read | write).is_empty() {
            return;
        }
        if self.suspects.len() >= NAMES_MAX && self.suspects.get(name).is_none() {
            self.every_text |= Suspicion::OPAQUE;
            return;
        }
        self.suspects.add(name, Traces { read, write });
    }

    fn add(&mut self, kind: &[u8], name: &[u8], read: Suspicion, write: Suspicion) {
        let traces = Traces { read, write };
        let hashed = Name::of(name);
        let row = [kind, b"/", name].concat();
        let bits = u64::from(read.bits()) << 32 | u64::from(write.bits());
        let hash = Name::of(&row).mixed_with(bits);
        self.digest = self.digest.wrapping_add(hash);
        if !matches!(kind, b"f" | b"r" | b"s") && name != b"utf8" {
            self.tripwires = self.tripwires.wrapping_add(hash);
        }
        match kind {
            b"f" | b"w" => self.suspect(hashed, read | write, Suspicion::NONE),
            b"r" => self.suspect(hashed, read, write),
            // Casts, comparisons and key words call operators without their symbols.
            b"o" => self.every_text |= read | write,
            _ => {}
        }
        match kind {
            b"f" => {
                let (read, write) = (read | write, Suspicion::NONE);
                self.functions
                    .add_up_to(NAMES_MAX, hashed, Traces { read, write });
            }
            // In the place of a relation these are key words, if they have no quotes.
            b"r" if builtin::BEFORE_RELATIONS
                .iter()
                .any(|word| name.eq_ignore_ascii_case(word)) => {}
            b"r" => self.relations.add_up_to(NAMES_MAX, hashed, traces),
            b"w" if self.words.len() < TRIPWIRES_MAX && is_plain(name) => {
                self.words.add(hashed, traces);
            }
            b"o" => {}
            b"s" if self.custom_names.len() < CUSTOM_NAMES_MAX => {
                self.custom_names.insert(name.into());
            }
            b"s" => {}
            b"e" if name == b"utf8" => self.utf8 = true,
            b"e" => self.every_text |= read | write,
            _ => self.every_text |= Suspicion::OPAQUE,
        }
    }
}

/// Does every text write the name with these bytes?
fn is_plain(name: &[u8]) -> bool {
    name.is_ascii() && !name.contains(&b'"')
}

/// From the names of suspicions, with blanks between. An unknown one is anything.
fn suspicions(names: &[u8]) -> Suspicion {
    names
        .split(|&byte| byte == b' ')
        .filter(|name| !name.is_empty())
        .fold(Suspicion::NONE, |sum, name| {
            sum | Suspicion::named(name).unwrap_or(Suspicion::OPAQUE)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated() {
        let rows = [row("r", "accounts", "", ""), row("o", "###", "SETTING", "")];
        let read = Certificates::from_rows(1, rows);
        let outdated = read.outdated(2);
        assert_eq!(outdated.generation(), 2);
        assert_ne!(outdated.id(), read.id());
        assert_eq!(outdated.outdated(3).id(), outdated.id());
        assert_eq!(read.relation(Name::of(b"accounts")).read, Suspicion::NONE);
        assert_eq!(
            outdated.relation(Name::of(b"accounts")).read,
            Suspicion::OPAQUE
        );
    }

    #[test]
    fn nothing_is_clean_before_the_catalog_is_read() {
        let unread = Certificates::default();
        assert_eq!(unread.every_text(), Suspicion::OPAQUE);
        assert_ne!(unread.id(), Certificates::none().id());
        let read = Certificates::from_rows(1, [row("r", "accounts", "", "")]);
        assert_eq!(read.outdated(2).id(), unread.id());
        assert_eq!(read.outdated(2).every_text(), Suspicion::OPAQUE);
    }

    #[test]
    fn what_changes_the_catalog() {
        for text in [
            "CREATE INDEX ON t (f(a))",
            "create unique index on t (a)",
            "CREATE SCHEMA s CREATE VIEW t AS SELECT f()",
            "create domain d as text check (f(value))",
            "DROP TABLE a; CREATE TABLE b ()",
        ] {
            assert!(changes_catalog(text.as_bytes()), "{text}");
        }
        for text in ["DROP TABLE a;", "create temp table a ()", " VACUUM "] {
            assert!(!changes_catalog(text.as_bytes()), "{text}");
        }
    }

    fn row<'a>(kind: &'a str, name: &'a str, read: &'a str, write: &'a str) -> [&'a [u8]; 4] {
        [kind, name, read, write].map(str::as_bytes)
    }

    fn function(certificates: &Certificates, name: &str) -> Suspicion {
        certificates.function(Name::of(name.as_bytes()))
    }

    #[test]
    fn extensions_that_pin() {
        assert_eq!(query(&[]), QUERY);
        let named = query(&["dblink".to_owned(), "uuid-ossp".to_owned()]);
        assert!(named.contains("ANY (ARRAY['dblink','uuid-ossp']::text[])"));
    }

    #[test]
    fn the_catalog_adds_to_what_is_known() {
        let certificates = Certificates::from_rows(
            7,
            [
                row("f", "mine", "", ""),
                row("f", "Lower", "LOCK SEED", ""),
                row("f", "odd", "SOMETHING", ""),
                row("r", "mine", "", "SEQUENCE"),
                row("s", "a.b", "", ""),
            ],
        );
        assert_eq!(certificates.generation(), 7);
        assert_eq!(function(&certificates, "mine"), Suspicion::NONE);
        assert_eq!(
            function(&certificates, "lower"),
            Suspicion::LOCK | Suspicion::SEED
        );
        assert_eq!(function(&certificates, "odd"), Suspicion::OPAQUE);
        assert_eq!(function(&certificates, "other"), Suspicion::OPAQUE);
        let mine = certificates.relation(Name::of(b"mine"));
        assert_eq!(
            (mine.read, mine.write),
            (Suspicion::NONE, Suspicion::SEQUENCE)
        );
        assert_eq!(certificates.custom_names().collect::<Vec<_>>(), [b"a.b"]);
        assert!(certificates.every_text().is_empty());
    }

    #[test]
    fn others_have_another_id() {
        let rows = [row("f", "a", "", ""), row("r", "b", "LOCK", "")];
        let id = |rows: &[[&[u8]; 4]]| Certificates::from_rows(1, rows.iter().copied()).id();
        assert_eq!(id(&rows), id(&[rows[1], rows[0]]));
        assert_eq!(id(&[]), Certificates::none().id());
        for other in [
            row("r", "b", "", "LOCK"),
            row("r", "c", "LOCK", ""),
            row("f", "b", "LOCK", ""),
        ] {
            assert_ne!(id(&rows), id(&[rows[0], other]));
        }
        assert_ne!(id(&rows), id(&rows[..1]));
    }

    #[test]
    fn what_does_not_fit_is_not_clean() {
        let names: Vec<_> = (0..NAMES_MAX + 10).map(|n| format!("f{n}")).collect();
        let rows = names.iter().map(|name| row("f", name, "", ""));
        let late = row("f", "upper", "LOCK", "");
        let certificates = Certificates::from_rows(1, rows.chain([late]));
        assert_eq!(
            function(&certificates, &names[NAMES_MAX + 9]),
            Suspicion::OPAQUE
        );
        assert_eq!(function(&certificates, "upper"), Suspicion::LOCK);
        let names: Vec<_> = (0..=TRIPWIRES_MAX).map(|n| format!("w{n}")).collect();
        let rows = names.iter().map(|name| row("w", name, "LOCK", ""));
        assert_eq!(
            Certificates::from_rows(1, rows).every_text(),
            Suspicion::OPAQUE
        );
    }

    /// The query has to know what PostgreSQL's own functions do, and can't be told.
    #[test]
    fn the_query_knows_the_same_functions() {
        let suspect: BTreeSet<_> = builtin::SUSPECT_FUNCTIONS
            .iter()
            .map(|(name, suspicion)| format!("('{name}', '{suspicion}')"))
            .collect();
        let list = QUERY.split("builtin(name, bit)").nth(1).unwrap();
        let list = list.split("verb(word, bit)").next().unwrap();
        for entry in &suspect {
            assert!(list.contains(entry.as_str()), "{entry} is not in the query");
        }
        let clean: BTreeSet<_> = builtin::CLEAN_FUNCTIONS.lines().collect();
        for entry in list.split("('").skip(1) {
            let (name, rest) = entry.split_once("', '").unwrap();
            assert!(
                !clean.contains(name),
                "{name} is on the list of clean functions"
            );
            let opaque = rest.starts_with("OPAQUE");
            let known = suspect
                .iter()
                .any(|entry| entry.starts_with(&format!("('{name}'")));
            assert!(opaque || known, "{name} is only in the query");
        }
    }
}
