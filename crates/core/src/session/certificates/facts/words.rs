//! The words of functions' bodies.

use super::{
    super::{
        Name,
        body::{Language, Listener},
        graph::{At, Node},
    },
    Facts,
};
use crate::session::sql::{Effects, builtin_effects, changes_data, pieces::Piece, reads_session};

/// Collects the words of one function's body.
pub(super) struct Words<'f> {
    pub(super) facts: &'f mut Facts,
    pub(super) function: At,
    pub(super) name: &'f str,
    pub(super) language: Language,
}

impl Listener for Words<'_> {
    fn name(&mut self, name: &[u8]) -> Effects {
        let hash = Name::of(name);
        if self.facts.names.contains(&hash) {
            let named = self.facts.graph.at(Node::Named(hash));
            self.facts.graph.add_use(self.function, named);
        }
        if changes_data(name) {
            self.facts.graph.add(self.function, Effects::CHANGES_DATA);
        }
        let builtin = builtin_effects(name).unwrap_or_default();
        let found = builtin.read | builtin.write;
        if reads_session(name) || self.facts.own.views.contains(&hash) {
            return found | Effects::READS_SESSION;
        }
        found
    }

    fn pieces(&mut self, pieces: &[Piece<'_>]) {
        let Facts { graph, types, .. } = self.facts;
        types.add_made(self.function, pieces);
        if self.language == Language::PlPgSql
            && types.add(self.name, pieces)
            && !graph.has_path(self.function)
        {
            graph.add(self.function, Effects::TYPES);
        }
    }

    fn custom(&mut self, name: &[u8]) {
        self.facts.watch(name);
    }
}
