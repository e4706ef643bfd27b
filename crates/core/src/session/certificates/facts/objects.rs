//! The parts of the facts about a database: PostgreSQL's own objects, reasons, the database's identity, and sizes.

use std::collections::{HashMap, HashSet};

use super::super::{Name, graph::At};
use crate::session::Effects;

/// PostgreSQL's own functions and views.
#[derive(Debug, Default)]
pub(in crate::session::certificates) struct OwnObjects {
    /// Effects of PostgreSQL's own functions that have any, by OID.
    pub(in crate::session::certificates) effects: HashMap<u32, Effects>,
    /// Names of the functions in `builtin`.
    pub(in crate::session::certificates) names: HashMap<u32, Box<str>>,
    /// Names of PostgreSQL's own views.
    pub(in crate::session::certificates) views: HashSet<Name>,
    /// PostgreSQL's own views, and the tables of the information schema. A user may have attached code (triggers,
    /// rules) to them.
    pub(in crate::session::certificates) relations: Vec<(u32, Box<str>)>,
    /// PostgreSQL's own relations to which somebody has attached code.
    pub(in crate::session::certificates) altered: HashSet<u32>,
    /// Names of PostgreSQL's own functions that pgweir does not know.
    pub(in crate::session::certificates) unknown: Vec<String>,
}

/// The reasons why code is opaque.
#[derive(Debug, Default)]
pub(in crate::session::certificates) struct Reasons {
    /// The reason why a function is opaque by itself.
    pub(in crate::session::certificates) by_function: HashMap<u32, Box<str>>,
    /// The objects that make every text call a function.
    pub(in crate::session::certificates) everywhere: Vec<(u32, Box<str>)>,
    /// The first reason why every text is opaque, as a sentence.
    pub(in crate::session::certificates) doubt: Option<String>,
    pub(in crate::session::certificates) unclean: Option<String>,
}

impl Reasons {
    /// Notes why the code of this node is opaque by itself.
    pub(super) fn note(&mut self, at: At, reason: &str) {
        self.by_function.insert(at.number(), reason.into());
    }
}

/// The database that the facts are about.
#[derive(Debug, Default)]
pub(in crate::session::certificates) struct DatabaseIdentity {
    pub(in crate::session::certificates) database: Option<u32>,
    pub(in crate::session::certificates) is_of_standby: bool,
    pub(in crate::session::certificates) system: Option<u64>,
}

/// The size of the facts.
#[derive(Debug, Default)]
pub(in crate::session::certificates) struct FactsSize {
    pub(in crate::session::certificates) bytes: usize,
    pub(in crate::session::certificates) is_whole: bool,
    pub(in crate::session::certificates) too_much: bool,
}
