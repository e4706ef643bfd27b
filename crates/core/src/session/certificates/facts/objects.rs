//! The parts of the facts about a database: PostgreSQL's own objects, reasons, the database's identity, and sizes.

use std::collections::{HashMap, HashSet};

use super::super::{Name, graph::At};
use crate::session::Effects;

/// PostgreSQL's own functions and views.
#[derive(Debug, Default)]
pub(super) struct OwnObjects {
    /// Effects of PostgreSQL's own functions that have any, by OID.
    pub(super) effects: HashMap<u32, Effects>,
    /// Names of the functions in `effects`.
    pub(super) names: HashMap<u32, Box<str>>,
    /// Names of PostgreSQL's own views.
    pub(super) views: HashSet<Name>,
    /// PostgreSQL's own views, and the tables of the information schema. A user may have attached code (triggers,
    /// rules) to them.
    pub(super) relations: Vec<(u32, Box<str>)>,
    /// PostgreSQL's own relations to which somebody has attached code.
    pub(super) altered: HashSet<u32>,
    /// Names of PostgreSQL's own functions that pgweir does not know.
    pub(super) unknown: Vec<String>,
}

/// The reasons why code is opaque.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    /// The reason why a function is opaque by itself.
    pub(super) by_function: HashMap<u32, Box<str>>,
    /// The objects that make every text call a function.
    pub(super) everywhere: Vec<(u32, Box<str>)>,
    /// The first reason why every text is opaque, as a sentence.
    pub(super) doubt: Option<String>,
    pub(super) unclean: Option<String>,
}

impl Reasons {
    /// Notes why the code of this node is opaque by itself.
    pub(super) fn note(&mut self, at: At, reason: &str) {
        self.by_function.insert(at.number(), reason.into());
    }
}

/// The database that the facts are about.
#[derive(Debug, Default)]
pub(super) struct DatabaseIdentity {
    pub(super) database: Option<u32>,
    pub(super) is_of_standby: bool,
    /// Whether the database is in UTF8.
    pub(super) utf8: bool,
    pub(super) system: Option<u64>,
    /// The sum of the OIDs of extensions and languages.
    pub(super) foreign_code: Option<u64>,
}

/// The size of the facts.
#[derive(Debug, Default)]
pub(super) struct FactsSize {
    pub(super) bytes: usize,
    pub(super) is_whole: bool,
    pub(super) too_much: bool,
}
