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

use std::sync::Arc;

pub use names::Name;
use names::NameTable;

use super::scan::Suspicion;

/// What a function or relation of some name leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// When a function is called, when a relation is read.
    pub(crate) read: Suspicion,
    /// When a relation is written.
    pub(crate) write: Suspicion,
}

/// What is certified of one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    generation: u64,
    functions: NameTable,
    relations: NameTable,
    /// Of every text, whatever it says.
    every_text: Suspicion,
    /// Whether the catalog is in UTF8.
    utf8: bool,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::none()
    }
}

impl Certificates {
    /// What is true of every database: PostgreSQL's own functions and catalogs are certified, no
    /// relation or function of a user's is.
    #[must_use]
    pub fn none() -> Self {
        let mut functions = NameTable::default();
        let clean = builtin::CLEAN_FUNCTIONS.lines();
        for name in clean.chain(builtin::GRAMMAR.split_ascii_whitespace()) {
            functions.add(Name::of(name.as_bytes()), Traces::default());
        }
        for &(name, read) in builtin::SUSPECT_FUNCTIONS {
            functions.add(Name::of(name.as_bytes()), Traces { read, write: read });
        }
        let mut relations = NameTable::default();
        let clean = builtin::CLEAN_RELATIONS.lines().chain(builtin::COPY_ENDS);
        for name in clean {
            relations.add(Name::of(name.as_bytes()), Traces::default());
        }
        for &(name, read, write) in builtin::SUSPECT_RELATIONS {
            relations.add(Name::of(name.as_bytes()), Traces { read, write });
        }
        Self {
            known: Arc::new(Known {
                generation: 0,
                functions,
                relations,
                every_text: Suspicion::NONE,
                utf8: false,
            }),
        }
    }

    /// What a reading of the catalog has found: rows of kind, name, what a use leaves behind and
    /// what writing to it does, both as names of suspicions with blanks between.
    ///
    /// Kinds: `f` function, `r` relation, `e` every text (the name is `utf8` for a database in
    /// UTF8). A row that is not understood makes every text opaque.
    pub fn from_rows<'a>(generation: u64, rows: impl IntoIterator<Item = [&'a [u8]; 4]>) -> Self {
        let Self { known } = Self::none();
        let Ok(mut known) = Arc::try_unwrap(known) else {
            return Self::none();
        };
        known.generation = generation;
        for [kind, name, read, write] in rows {
            let traces = Traces {
                read: suspicions(read),
                write: suspicions(write),
            };
            match kind {
                b"f" => known.functions.add(Name::of(name), traces),
                b"r" => known.relations.add(Name::of(name), traces),
                b"e" if name == b"utf8" => known.utf8 = true,
                b"e" => known.every_text |= traces.read | traces.write,
                _ => known.every_text |= Suspicion::OPAQUE,
            }
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

    /// What a call of a function with this name leaves behind.
    #[inline]
    pub(crate) fn function(&self, name: Name) -> Suspicion {
        self.known
            .functions
            .get(name)
            .map_or(Suspicion::OPAQUE, |traces| traces.read)
    }

    /// What the use of a relation with this name leaves behind.
    #[inline]
    pub(crate) fn relation(&self, name: Name) -> Traces {
        self.known.relations.get(name).unwrap_or(Traces {
            read: Suspicion::OPAQUE,
            write: Suspicion::OPAQUE,
        })
    }
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
