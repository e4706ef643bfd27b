//! The facts of a database: takes the rows of `facts.sql` one by one and derives conclusions from them.
//!
//! Each row is evaluated when it arrives: of function bodies and stored trees, only the list of functions and relations
//! that they use is kept. After the last row, an object that uses an opaque object becomes opaque, too. Objects that a
//! text can use without naming them (casts, operators, types) count for every text; all others count for the texts that
//! name them.

mod columns;
mod conclusions;
mod objects;
mod words;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use self::columns::Columns;
use self::objects::{DatabaseIdentity, FactsSize, OwnObjects, Reasons};
use self::words::Words;
use super::{
    Known, Name, Trust,
    body::{self, ANYTHING, Language},
    declared_types::TypeNames,
    extensions::{self, Extensions},
    graph::{At, Graph, Node},
    opaque_unless_plain, tree,
};
use crate::session::{
    may_misread_bodies,
    sql::{self, Effects, affects_compilation, builtin_effects, changes_data, is_harmless},
    word_list::words,
};

/// The largest number of functions, relations and uses. A database with more is not evaluated.
const GRAPH_MAX: usize = 4_000_000;
/// The largest size of the facts in bytes. A database with more is not evaluated.
const BYTES_MAX: usize = 512 * 1024 * 1024;
/// The size of the facts in bytes above which their evaluation is moved to another thread.
const MANY_BYTES: usize = 1024 * 1024;
/// The value that `facts.sql` returns in place of a body or a stored tree above 256 kB, to keep rows below [`FACT_MAX`].
const TOO_LONG: &[u8] = b"?";
/// The longest row of facts that pgweir reads, in bytes. If there is a longer one, every text is opaque.
pub const FACT_MAX: usize = 1024 * 1024;
/// The largest number of watched custom parameters. Further names are ignored.
const CUSTOM_NAMES_MAX: usize = 256;
/// The first OID of users' objects. PostgreSQL's own objects have smaller OIDs.
pub(super) const FIRST_OF_USERS: u32 = 16384;
/// The C functions that construct range types.
const RANGE_CONSTRUCTORS: [&str; 5] = words(
    "range_constructor2 range_constructor3 multirange_constructor0 multirange_constructor1 \
     multirange_constructor2",
);

/// The facts of a database that have been read so far.
#[derive(Debug, Default)]
pub struct Facts {
    trust: Trust,
    /// The certified objects so far; at first those of every database.
    known: Known,
    graph: Graph,
    /// Names of the database's functions and relations: a word in a body may name one of them.
    names: HashSet<Name>,
    /// PostgreSQL's own objects.
    own: OwnObjects,
    /// The types of PL/pgSQL functions.
    types: TypeNames,
    functions: Vec<(At, u32, Box<str>)>,
    relations: Vec<(u32, Box<str>)>,
    /// The reasons why code is opaque.
    reasons: Reasons,
    customs: BTreeSet<Box<[u8]>>,
    has_event_triggers: bool,
    /// The function that closes the connections of postgres_fdw; empty if clients may call none.
    disconnects: Option<Arc<str>>,
    /// Functions that run at each login, and the names of their triggers.
    login_triggers: Vec<(At, Box<str>)>,
    extensions: Option<Extensions>,
    /// The database.
    identity: DatabaseIdentity,
    /// The size of the rows so far.
    size: FactsSize,
}

/// The identity of a physical database: the cluster's system identifier and the database's OID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `pg_control_system().system_identifier`, or the configured address if the server's user lacks the privilege.
    pub system: Box<str>,
    /// The OID of the database.
    pub database: u32,
}

impl Facts {
    /// Creates the facts of a database before any row was read.
    #[must_use]
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            ..Self::default()
        }
    }

    /// Adds one row. Returns `false` if the row is not understood: then all facts are to be discarded.
    pub fn take(&mut self, row: &[u8]) -> bool {
        self.size.bytes += row.len();
        self.size.too_much |= self.size.bytes > BYTES_MAX || self.graph.len() > GRAPH_MAX;
        if self.size.too_much {
            return true;
        }
        Columns::of(row)
            .and_then(|columns| self.add(&columns))
            .is_some()
    }

    /// Notes a row that was not read, since it is longer than [`FACT_MAX`].
    pub fn skip_row(&mut self) {
        let reason = "a row of its catalog is longer than 1 MB";
        self.reasons.doubt.get_or_insert_with(|| reason.into());
    }

    /// Returns whether all rows have arrived.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.size.is_whole
    }

    /// Returns whether the evaluation takes longer than a few milliseconds.
    #[must_use]
    pub fn are_many(&self) -> bool {
        self.size.bytes > MANY_BYTES
    }

    /// Returns whether the facts come from a standby, which may not have replayed the last changes.
    #[must_use]
    pub fn are_of_standby(&self) -> bool {
        self.identity.is_of_standby
    }

    /// Returns the identity of the database. `address` is the address of the servers, for those that can't report the
    /// system identifier.
    #[must_use]
    pub fn identity(&self, address: &str) -> Option<Identity> {
        let system = self
            .identity
            .system
            .map_or_else(|| address.into(), |number| number.to_string().into());
        let database = self.identity.database?;
        Some(Identity { system, database })
    }

    fn add(&mut self, row: &Columns<'_>) -> Option<()> {
        match row.text(0) {
            "s" => self.identity.system = Some(row.text(1).parse::<i64>().ok()?.cast_unsigned()),
            "d" => {
                self.identity.database = Some(row.oid(1)?);
                self.identity.utf8 = row.text(2) == "UTF8";
                self.identity.is_of_standby = row.text(3) == "t";
            }
            "b" => self.add_builtin(row.oid(1)?, row.text(2), row.text(3) == "f"),
            "i" => {
                let read = self.own.effects.entry(row.oid(1)?).or_default();
                *read |= Effects::READS_SESSION;
            }
            "c" => {
                let replaced = row.text(1);
                self.reasons
                    .doubt
                    .get_or_insert_with(|| format!("PostgreSQL's {replaced} was replaced"));
            }
            "q" => {
                let what = format!(
                    "{}{} calls functions in a way that pgweir does not know",
                    row.text(1),
                    row.text(2)
                );
                self.reasons.doubt.get_or_insert(what);
            }
            "l" => self.add_language(row.text(1)),
            "j" => self.identity.foreign_code = row.text(1).parse().ok(),
            "o" => self.disconnects = Some(row.text(1).into()),
            "v" => self.add_event_trigger(row),
            "w" => {
                let written = self.graph.at(Node::Written(row.oid(1)?));
                self.graph.add(written, ANYTHING);
                self.reasons.note(written, "it writes to a system catalog");
            }
            "r" => self.add_relation(row.oid(1)?, row),
            "z" => self.add_own_relation(row.oid(1)?, row),
            "n" => {
                self.names.insert(Name::of(row.bytes(1)));
            }
            "m" => {
                let name = Name::of(row.bytes(1));
                self.types.of_several_schemas.insert(name);
            }
            "f" => self.add_function(row.oid(1)?, row),
            "g" => {
                let aggregate = self.graph.at(Node::Function(row.oid(1)?));
                self.add_call(aggregate, row.oid(2)?);
            }
            "t" => {
                let user = self.used_as(row.text(1), row.oid(2)?);
                self.add_tree(user, row.text(1) == "w", row.bytes(3));
            }
            "u" => {
                let user = self.used_as(row.text(1), row.oid(2)?);
                self.add_call(user, row.oid(3)?);
            }
            "a" => self.add_arguments(row.text(1)),
            "k" => {
                let [from, to] =
                    [row.oid(1)?, row.oid(2)?].map(|oid| self.graph.at(Node::Written(oid)));
                self.add_both(from, to);
            }
            "h" => {
                let (parent, child) = (row.oid(1)?, row.oid(2)?);
                self.note_altered(parent);
                for node in [Node::Read, Node::Written] {
                    let [from, to] = [parent, child].map(|oid| self.graph.at(node(oid)));
                    self.add_both(from, to);
                }
            }
            "x" => {
                let at = self.add_everywhere(row.text(1));
                self.add_call(at, row.oid(2)?);
            }
            "y" => {
                let at = self.add_everywhere(row.text(1));
                self.add_tree(at, false, row.bytes(2));
            }
            "end" => self.size.is_whole = true,
            _ => return None,
        }
        Some(())
    }

    /// Adds a language that is not PL/pgSQL, SQL or C.
    fn add_language(&mut self, language: &str) {
        self.known.ddl.has_other_plpgsql |= language == "plpgsql";
        self.reasons
            .unclean
            .get_or_insert_with(|| format!("language {language} is installed"));
    }

    fn add_event_trigger(&mut self, row: &Columns<'_>) {
        self.has_event_triggers = true;
        if let Some(function) = row.oid(3).filter(|_| row.text(2) == "login") {
            let at = self.graph.at(Node::Function(function));
            self.login_triggers.push((at, row.text(1).into()));
        }
    }

    fn note_altered(&mut self, oid: u32) {
        if oid < FIRST_OF_USERS {
            self.own.altered.insert(oid);
        }
    }

    fn used_as(&mut self, mode: &str, oid: u32) -> At {
        self.note_altered(oid);
        self.graph.at(if mode == "w" {
            Node::Written(oid)
        } else {
            Node::Read(oid)
        })
    }

    fn add_both(&mut self, one: At, other: At) {
        self.graph.add_use(one, other);
        self.graph.add_use(other, one);
    }

    /// Adds a function of PostgreSQL itself. `is_declared_harmless`: its row declares the function neither volatile nor
    /// parallel unsafe or restricted. Then the function has only those effects that pgweir knows by its name.
    fn add_builtin(&mut self, oid: u32, name: &str, is_declared_harmless: bool) {
        let bits = match builtin_effects(name.as_bytes()) {
            Some(traces) => traces.read,
            None if is_declared_harmless => return,
            None if changes_data(name.as_bytes()) => Effects::CHANGES_DATA,
            None if is_harmless(name) => return,
            None => {
                self.own.unknown.push(name.to_owned());
                Effects::OPAQUE
            }
        };
        self.own.effects.insert(oid, bits);
        self.own.names.insert(oid, name.into());
    }

    fn add_relation(&mut self, oid: u32, row: &Columns<'_>) {
        let (name, kind) = (row.text(2), row.text(3));
        let read = self.graph.at(Node::Read(oid));
        let written = self.graph.at(Node::Written(oid));
        self.graph.add_use(written, read);
        if kind == "f" {
            self.graph.add(read, ANYTHING);
            self.reasons.note(read, "it is a foreign table");
        }
        if row.text(4) == "t" {
            self.graph.add(written, Effects::SEQUENCE);
        }
        if row.text(5) == "t" {
            // The row security policies that apply to this relation depend on the user.
            self.graph.add(read, Effects::READS_SESSION);
        }
        let hash = Name::of(name.as_bytes());
        let named = self.graph.at(Node::Named(hash));
        self.graph.add_use(named, written);
        self.names.insert(hash);
        self.types.relations.insert(hash);
        self.relations.push((oid, name.into()));
    }

    fn add_own_relation(&mut self, oid: u32, row: &Columns<'_>) {
        let (name, is_of_catalog, kind) = (row.text(2), row.text(3) == "t", row.text(4));
        let read = self.graph.at(Node::Read(oid));
        let written = self.graph.at(Node::Written(oid));
        if kind == "v" {
            self.graph.add(read, Effects::READS_SESSION);
        }
        let hash = Name::of(name.as_bytes());
        if is_of_catalog {
            self.own.views.insert(hash);
        }
        let Some(traces) = builtin_effects(name.as_bytes()).filter(|_| is_of_catalog) else {
            self.graph.add_use(written, read);
            self.names.insert(hash);
            self.own.relations.push((oid, name.into()));
            return;
        };
        self.graph.add(
            read,
            opaque_unless_plain(traces.read.without(Effects::OPAQUE)),
        );
        self.graph.add(written, opaque_unless_plain(traces.write));
        self.reasons.note(written, &format!("it writes to {name}"));
    }

    /// Records that `user` calls a function.
    fn add_call(&mut self, user: At, oid: u32) {
        if oid >= FIRST_OF_USERS {
            let called = self.graph.at(Node::Function(oid));
            self.graph.add_use(user, called);
        } else if let Some(&bits) = self.own.effects.get(&oid) {
            let called = self.graph.at(Node::Function(oid));
            let sets = bits.contains(Effects::SETTING);
            let path = if sets { Effects::PATH } else { Effects::NONE };
            self.graph.add(called, opaque_unless_plain(bits | path));
            self.graph.add_use(user, called);
            let name = self.own.names.get(&oid).map_or("", |name| name);
            self.reasons.note(called, &format!("it calls {name}"));
        }
    }

    /// Adds a function's body and the defaults of its arguments, as trees. If a function changes no rows, it only reads
    /// the system catalogs that it names.
    fn add_code(&mut self, user: At, tree: &[u8]) {
        let least = match tree::changes_rows(tree) {
            true => 0,
            false => FIRST_OF_USERS,
        };
        let is_relation = |found| matches!(found, tree::Reference::Relation(_));
        if tree::references(tree).any(is_relation) {
            self.graph.add(user, Effects::READS_DATA);
        }
        self.add_tree_from(user, least, tree);
    }

    /// Records that `user` runs a stored tree. `writes` says whether the relations in the tree may be written.
    fn add_tree(&mut self, user: At, writes: bool, tree: &[u8]) {
        self.add_tree_from(user, if writes { 0 } else { u32::MAX }, tree);
    }

    /// Records that `user` runs a stored tree, which may write relations whose OID is at least `least`.
    fn add_tree_from(&mut self, user: At, least: u32, tree: &[u8]) {
        if tree == TOO_LONG {
            self.found(user, ANYTHING, "its definition is longer than 256 kB");
        }
        for found in tree::references(tree) {
            match found {
                tree::Reference::Function(oid) => self.add_call(user, oid),
                tree::Reference::Relation(oid) => {
                    let node = if oid >= least {
                        Node::Written(oid)
                    } else {
                        Node::Read(oid)
                    };
                    let used = self.graph.at(node);
                    if used != user {
                        self.graph.add_use(user, used);
                    }
                }
                tree::Reference::NextValue => self.graph.add(user, Effects::SEQUENCE),
                tree::Reference::SessionValue => self.graph.add(user, Effects::READS_SESSION),
            }
        }
        for name in tree::custom_names(tree) {
            self.watch(&name);
        }
        if tree::computes_name(tree) {
            self.graph.add(user, Effects::COMPUTED_NAME);
        }
    }

    /// Adds a node for an object that no text needs to name. Each such object has its own node, so that the reason can
    /// be reported.
    fn add_everywhere(&mut self, label: &str) -> At {
        let at = self.graph.at(Node::Unnamed(self.reasons.everywhere.len()));
        let every_text = self.graph.at(Node::EveryText);
        self.graph.add_use(every_text, at);
        self.reasons.everywhere.push((at.number(), label.into()));
        at
    }

    /// Adds the arguments of a trigger: strings that each end with a zero byte, in hexadecimal digits.
    fn add_arguments(&mut self, hex: &str) {
        let bytes: Vec<u8> = hex
            .as_bytes()
            .chunks_exact(2)
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        for argument in bytes.split(|&byte| byte == 0) {
            if body::is_custom_name(argument) {
                self.watch(argument);
            }
        }
    }

    fn watch(&mut self, custom: &[u8]) {
        if self.customs.len() < CUSTOM_NAMES_MAX {
            self.customs.insert(custom.to_ascii_lowercase().into());
        }
    }

    fn add_function(&mut self, oid: u32, row: &Columns<'_>) {
        let (name, language, kind, extension) =
            (row.text(2), row.text(3), row.text(4), row.text(5));
        let at = self.graph.at(Node::Function(oid));
        if row.text(10) == "v" {
            self.graph.add(at, Effects::CHANGES_DATA);
        }
        if row.text(10) == "i" && !self.trust.certified.contains(name) {
            self.graph.keep_in_plans(at);
        }
        let named = self.graph.at(Node::Named(Name::of(name.as_bytes())));
        self.graph.add_use(named, at);
        self.functions.push((at, oid, name.into()));
        if self.trust.pinning.contains(extension) || self.trust.pinning.contains(language) {
            let bits = Effects::LIBRARY.and(Effects::OPAQUE);
            self.found(at, bits, "pin_extensions names its extension");
        }
        if self.trust.certified.contains(name) {
            return;
        }
        let settings = || row.bytes(8).split(|&byte| byte == b',');
        if settings().any(|name| name == b"search_path") {
            self.graph.set_path(at);
        }
        self.add_code(at, row.bytes(7));
        if let Some(support) = row.oid(9) {
            self.add_call(at, support);
        }
        if settings().any(affects_compilation) {
            self.graph.add(at, body::COMPILES);
        }
        let is_harmful = |name: &[u8]| !name.is_empty() && !body::is_harmless_parameter(name);
        if settings().any(is_harmful) {
            self.found(
                at,
                ANYTHING,
                "it has a SET clause whose effect may outlast the call",
            );
        }
        if may_misread_bodies(row.bytes(8)) || may_misread_bodies(row.bytes(6)) {
            let reason = || format!("function {name} sets standard_conforming_strings");
            self.reasons.unclean.get_or_insert_with(reason);
        }
        match language {
            _ if kind == "a" => {}
            "sql" | "plpgsql" => self.add_body(at, row),
            "c" | "internal" => self.add_compiled(at, name, language, extension, row.text(6)),
            other => {
                self.found(at, ANYTHING, &format!("it is written in {other}"));
                self.reasons
                    .unclean
                    .get_or_insert_with(|| format!("function {name} is written in {other}"));
            }
        }
    }

    fn found(&mut self, at: At, bits: Effects, reason: &str) {
        self.graph.add(at, bits);
        if bits.contains(Effects::OPAQUE) {
            self.reasons
                .by_function
                .entry(at.number())
                .or_insert_with(|| reason.into());
        }
    }

    fn add_compiled(&mut self, at: At, name: &str, language: &str, extension: &str, symbol: &str) {
        if language == "internal" && RANGE_CONSTRUCTORS.contains(&symbol) {
            return;
        }
        match self
            .extensions
            .get_or_insert_with(Extensions::new)
            .get(extension, name)
        {
            Some(extensions::Known::Clean) => {}
            Some(extensions::Known::RunsSql) => self.found(at, ANYTHING, "it may run any SQL"),
            None => {
                self.found(
                    at,
                    ANYTHING,
                    &format!("pgweir does not know what this function in {language} does"),
                );
                self.reasons
                    .unclean
                    .get_or_insert_with(|| format!("function {name} is written in {language}"));
            }
        }
    }

    fn add_body(&mut self, at: At, row: &Columns<'_>) {
        let (language, source) = (row.text(3), row.bytes(6));
        if source.is_empty() || source == TOO_LONG {
            // There is no body: the function's statements are stored as a tree, or the body is too long to be read.
            if language == "plpgsql" && self.types.add_unread(row.text(2)) {
                self.graph.add(at, Effects::TYPES | Effects::PATH);
            }
            if source == TOO_LONG || row.bytes(7).is_empty() || language == "plpgsql" {
                self.found(at, ANYTHING, "its body is not read");
            }
            return;
        }
        let language = if language == "sql" {
            Language::Sql
        } else {
            Language::PlPgSql
        };
        let utf8 = self.identity.utf8;
        let mut words = Words {
            facts: self,
            function: at,
            name: row.text(2),
            language,
        };
        let verdict = body::read(source, language, utf8, &mut words);
        if !verdict.found.is_empty() {
            // The body may execute a string that contains the name. A name that ends with `$` includes the end of the
            // string.
            let names = sql::custom_names(source);
            let names = names.iter().filter(|name| !name.ends_with(b"$"));
            names.for_each(|name| self.watch(name));
        }
        self.found(
            at,
            verdict.found,
            verdict.reason.as_deref().unwrap_or_default(),
        );
    }
}

#[cfg(test)]
mod tests;
