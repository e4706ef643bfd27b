//! The types of PL/pgSQL variables. PL/pgSQL looks up the names of types in DECLARE when a session first calls a function,
//! and keeps what it has found until the session ends. No statement makes it look again. So the function's types are those
//! of the `search_path`, the role and the temporary objects of the client that has called it first.
//!
//! A name matters under two conditions:
//!
//! - Several schemas have a type or relation of that name, so that `search_path` decides which of them is meant.
//! - A client makes a temporary table or type of that name: it hides all others, also those of `pg_catalog`.
//!
//! If a client alters or drops a type or relation of that name, all servers may keep the type as it was before.

use std::{collections::HashSet, sync::Arc};

use super::{Certificates, Known, Name, graph::At};
use crate::session::{
    sql::{
        Effects, NAME_MAX,
        pieces::{Piece, pieces, statements},
    },
    word_list::{begins, words},
};

/// Words before the name of an object that a statement creates or renames.
const BEFORE_NEW_NAME: [&str; 13] =
    words("table only exists view sequence type domain schema to into temp temporary unlogged");

/// The names of types in a database's PL/pgSQL functions.
#[derive(Debug, Clone, Default)]
pub(super) struct DeclaredTypes {
    /// The names without a schema.
    names: Arc<HashSet<Name>>,
    /// The names in the database that are those of relations which are not temporary.
    relations: Arc<HashSet<Name>>,
    /// Whether some function's names are not known: every name may be one of them.
    has_unknown: bool,
    /// A function and one of its names that several schemas have.
    ambiguous: Option<(Box<str>, Box<str>)>,
}

/// The names that have been read so far.
#[derive(Debug, Default)]
pub(super) struct TypeNames {
    /// The names of types that several schemas have.
    pub(super) of_several_schemas: HashSet<Name>,
    declared: HashSet<Name>,
    /// The names of relations.
    pub(super) relations: HashSet<Name>,
    /// Functions that make objects, and the names of these objects.
    made: Vec<(At, Name)>,
    found: DeclaredTypes,
}

impl TypeNames {
    /// Adds the names in a body. Returns whether `search_path` decides what one of them means. `function` is the name
    /// of the function, for messages.
    pub(super) fn add(&mut self, function: &str, pieces: &[Piece<'_>]) -> bool {
        let mut is_ambiguous = false;
        for name in declared(pieces) {
            let Some(name) = name else {
                self.found.has_unknown = true;
                is_ambiguous |= self.note_ambiguous(function, b"...");
                continue;
            };
            let hash = Name::of(name);
            self.declared.insert(hash);
            // The type of arrays of `t` is `_t`.
            let element = name.iter().position(|&byte| byte != b'_').unwrap_or(0);
            if element > 0 {
                self.declared.insert(Name::of(&name[element..]));
            }
            if self.of_several_schemas.contains(&hash) {
                is_ambiguous |= self.note_ambiguous(function, name);
            }
        }
        is_ambiguous
    }

    /// Notes that the names in a function's body are not known.
    pub(super) fn add_unread(&mut self, function: &str) -> bool {
        self.add(function, &[Piece::Word(b"declare"), Piece::Broken])
    }

    /// Notes the names of objects that a function may make.
    pub(super) fn add_made(&mut self, function: At, pieces: &[Piece<'_>]) {
        let names = new_names(pieces).map(|name| (function, Name::of(name)));
        self.made.extend(names);
    }

    /// Returns the functions that make objects whose names are declared. Must be called after the last function.
    pub(super) fn makers(&self) -> impl Iterator<Item = At> {
        let is_declared = |name: &Name| self.found.has_unknown || self.declared.contains(name);
        let made = self.made.iter();
        made.filter(move |(_, name)| is_declared(name))
            .map(|(at, _)| *at)
    }

    /// Returns whether `search_path` decides what a name means.
    pub(super) fn depend_on_path(&self) -> bool {
        self.found.ambiguous.is_some()
    }

    fn note_ambiguous(&mut self, function: &str, name: &[u8]) -> bool {
        let is_ambiguous = !self.of_several_schemas.is_empty();
        if is_ambiguous {
            let pair = || (function.into(), String::from_utf8_lossy(name).into());
            self.found.ambiguous.get_or_insert_with(pair);
        }
        is_ambiguous
    }

    pub(super) fn finish(self) -> DeclaredTypes {
        let is_declared = |name: &Name| self.found.has_unknown || self.declared.contains(name);
        let relations = self.relations.into_iter().filter(is_declared).collect();
        DeclaredTypes {
            relations: Arc::new(relations),
            names: Arc::new(self.declared),
            ..self.found
        }
    }
}

impl DeclaredTypes {
    /// Returns whether a type of this name may be declared.
    fn may_have(&self, name: &Name) -> bool {
        self.has_unknown || self.names.contains(name)
    }

    /// Returns the bytes that the names take.
    pub(super) fn bytes(&self) -> usize {
        (self.names.capacity() + self.relations.capacity()) * (size_of::<Name>() + 1)
    }

    /// Returns a number that differs between different names.
    pub(super) fn digest(&self) -> u64 {
        let names = self.names.iter().map(|name| name.mixed_with(1));
        let sum = names.fold(0, u64::wrapping_add);
        sum.wrapping_add(u64::from(self.has_unknown))
    }
}

/// The certificates of a database about the types of PL/pgSQL variables.
impl Certificates {
    /// Returns whether `search_path` decides which types a function of PL/pgSQL keeps for the session.
    #[must_use]
    #[inline]
    pub(crate) fn types_depend_on_path(&self) -> bool {
        self.known.cleaning.types.ambiguous.is_some()
    }

    /// Returns a number that differs between databases with different functions, or different types of their variables.
    #[must_use]
    pub(crate) fn code(&self) -> u64 {
        self.known.cleaning.code
    }

    /// Returns whether every text may run code that pgweir has not read.
    #[must_use]
    pub fn may_have_new_code(&self) -> bool {
        self.known.every_text.contains(Effects::UNREAD)
    }

    /// Returns a function whose types depend on `search_path`, and the name of one of them.
    #[must_use]
    pub fn ambiguous_type(&self) -> Option<(&str, &str)> {
        let pair = self.known.cleaning.types.ambiguous.as_ref();
        pair.map(|(function, name)| (&**function, &**name))
    }

    /// Returns whether a function of PL/pgSQL keeps types for the session that a temporary object may hide.
    #[must_use]
    pub(crate) fn has_declared_types(&self) -> bool {
        let types = &self.known.cleaning.types;
        !types.names.is_empty() || types.has_unknown
    }

    /// Returns whether one of these objects has the name of a type in a PL/pgSQL function.
    #[must_use]
    pub(crate) fn has_types_like(&self, made: &MadeNames) -> bool {
        let types = &self.known.cleaning.types;
        made.names.iter().any(|name| types.may_have(name))
    }

    /// Returns whether a text alters or drops what a PL/pgSQL function may keep as the type of a variable: a type, a
    /// relation, or the schema of one.
    #[must_use]
    pub(crate) fn alters_types(&self, text: &[u8]) -> bool {
        let types = &self.known.cleaning.types;
        let is_unread = self.is_unread();
        let is_altered = |statement: &[Piece<'_>]| {
            let [first, kind, rest @ ..] = statement else {
                return false;
            };
            let is_type = ["type", "domain", "schema"]
                .iter()
                .any(|word| kind.is(word));
            let is_kept = |name: &[u8]| {
                let name = Name::of(name);
                is_unread || types.may_have(&name) && (is_type || types.relations.contains(&name))
            };
            // The behaviour of DROP is the same for each name in its list.
            first.is("drop") && rest.iter().filter_map(Piece::name).any(is_kept)
                || first.is("alter") && new_names(statement).any(is_kept)
        };
        (is_unread || self.has_declared_types())
            && statements(&pieces(text).collect::<Vec<_>>()).any(is_altered)
    }

    /// Returns whether a statement gives a new object the name of a type in a PL/pgSQL function.
    #[must_use]
    pub(in crate::session) fn has_types_named_by(&self, pieces: &[Piece<'_>]) -> bool {
        let types = &self.known.cleaning.types;
        new_names(pieces).any(|name| types.may_have(&Name::of(name)))
    }
}

/// The names of objects that texts may have made in a session.
#[derive(Debug, Default)]
pub struct MadeNames {
    names: HashSet<Name>,
    /// Whether objects of any name may have been made.
    pub(crate) has_any: bool,
}

impl MadeNames {
    /// Adds the names in a text. If there are too many, objects may have any name.
    pub(crate) fn add(&mut self, text: &[u8]) {
        /// The largest number of names.
        const MADE_MAX: usize = 256;
        let pieces: Vec<_> = pieces(text).collect();
        for name in new_names(&pieces) {
            self.has_any |= self.names.len() == MADE_MAX;
            if !self.has_any {
                self.names.insert(Name::of(name));
            }
        }
    }
}

impl Known {
    /// Notes the types of PL/pgSQL functions.
    pub(super) fn note_types(&mut self, types: DeclaredTypes) {
        let digest = types.digest();
        self.digest = self.digest.wrapping_add(digest);
        self.cleaning.code = self.cleaning.code.wrapping_add(digest);
        self.cleaning.types = types;
    }
}

/// Returns the names of types without a schema in the DECLARE sections of a body; `None` stands for a name that the
/// scanner does not know. Other names in these sections may be among them.
fn declared<'p>(pieces: &[Piece<'p>]) -> Vec<Option<&'p [u8]>> {
    /// The next part of a declaration.
    #[derive(Clone, Copy)]
    enum Part {
        Outside,
        Variable,
        Type,
        Default,
    }
    let mut found = Vec::new();
    let mut part = Part::Outside;
    let mut before = Piece::Symbol(b';');
    for &piece in pieces {
        let was = before;
        before = piece;
        // DECLARE and BEGIN are reserved words, so no variable has one of these names.
        if piece.is("declare") {
            part = Part::Variable;
            continue;
        }
        part = match (part, piece) {
            (_, Piece::Broken) => {
                found.push(None);
                return found;
            }
            (Part::Outside, _) => Part::Outside,
            // `standard_conforming_strings` decides whether a backslash in a string is an escape.
            (_, Piece::Text(text)) if text.contains(&b'\\') => {
                found.push(None);
                part
            }
            (Part::Variable, _) if piece.is("begin") => Part::Outside,
            (Part::Variable, _) => Part::Type,
            (_, Piece::Symbol(b';')) => Part::Variable,
            (Part::Default, _) => Part::Default,
            (Part::Type, Piece::Symbol(b'=')) => Part::Default,
            // After FOR or IS, the query of a cursor follows.
            (Part::Type, _) if ["default", "for", "is"].iter().any(|word| piece.is(word)) => {
                Part::Default
            }
            (Part::Type, Piece::Word(name) | Piece::Quoted(name)) => {
                if was != Piece::Symbol(b'.') {
                    let is_known = name.len() <= NAME_MAX && !name.contains(&b'"');
                    found.push(is_known.then_some(name));
                }
                Part::Type
            }
            (Part::Type, _) => Part::Type,
        };
    }
    found
}

/// Returns the words of a text at places where a statement names a new object of any kind.
fn new_names<'p>(pieces: &[Piece<'p>]) -> impl Iterator<Item = &'p [u8]> {
    let before = |at: usize, back: usize| at.checked_sub(back).map(|at| pieces[at]);
    (0..pieces.len()).filter_map(move |at| {
        let name = pieces[at].name()?;
        let mut start = at;
        while before(start, 1) == Some(Piece::Symbol(b'.')) && start >= 2 {
            start -= 2;
        }
        let schema = pieces[start].name().filter(|_| start < at);
        let is_temporary = schema.is_some_and(|schema| begins(schema, "pg_temp"));
        let word = before(start, 1);
        let is_new = |word: Piece<'_>| BEFORE_NEW_NAME.iter().any(|before| word.is(before));
        (is_temporary || word.is_some_and(is_new)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::sql::pieces::pieces;

    #[test]
    fn declarations() {
        let check = |body: &str, expect: &[&str]| {
            let pieces: Vec<_> = pieces(body.as_bytes()).collect();
            let text = |name: Option<&[u8]>| String::from_utf8_lossy(name.unwrap_or(b"?")).into();
            let found: Vec<String> = declared(&pieces).into_iter().map(text).collect();
            assert_eq!(found, expect, "{body}");
        };
        check("BEGIN RETURN orders; END", &[]);
        check("DECLARE orders t1; BEGIN orders := 1; END", &["t1"]);
        check(
            "declare a t1%ROWTYPE; b CONSTANT s.t2[] = t3; \"B\" \"T4\".x%type := t5; BEGIN",
            &["t1", "ROWTYPE", "CONSTANT", "s", "T4", "type"],
        );
        check(
            "DECLARE a int := begin; b t6 COLLATE c NOT NULL DEFAULT t7; BEGIN x; y; END",
            &["int", "t6", "COLLATE", "c", "NOT", "NULL"],
        );
        check(
            "BEGIN IF a THEN <<l>> DECLARE c CURSOR (d t8) FOR SELECT 1; BEGIN END; END IF; END",
            &["CURSOR", "d", "t8"],
        );
        check("DECLARE a \"t\"\"9\"; BEGIN 'x", &["?", "?"]);
    }

    #[test]
    fn new_objects() {
        let check = |text: &str, expect: &[&str]| {
            let pieces: Vec<_> = pieces(text.as_bytes()).collect();
            let found: Vec<_> = new_names(&pieces)
                .map(|name| String::from_utf8_lossy(name))
                .collect();
            assert_eq!(found, expect, "{text}");
        };
        check("CREATE TEMP TABLE a (b text, c a.d)", &["TABLE", "a"]);
        check(
            "create table pg_temp_3.\"A\" as select b.c from d",
            &["pg_temp_3", "A"],
        );
        check("CREATE TABLE IF NOT EXISTS a ()", &["IF", "a"]);
        check("SELECT a INTO TEMP b FROM c", &["TEMP", "b"]);
        check("ALTER TABLE a RENAME TO b", &["a", "b"]);
        check("CREATE TYPE pg_temp.a AS (b c)", &["pg_temp", "a"]);
        check("CREATE TABLE x.y.a (b c.d)", &["x", "y", "a"]);
        check("SELECT pg_temp.a, .b", &["a"]);
    }
}
