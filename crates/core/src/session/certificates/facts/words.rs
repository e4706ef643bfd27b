//! The words of functions' bodies.

use super::{
    super::{
        Name,
        body::{Language, Listener},
        graph::{At, Node},
    },
    Facts,
};
use crate::session::{
    literals::may_be_moment,
    sql::{Effects, builtin_effects, changes_data, is_catalog, pieces::Piece, reads_session},
    word_list::words,
};

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
        if has_moment(pieces) {
            let reason = "a literal like 'now' in its body is a constant in plans";
            self.facts.found(self.function, Effects::OPAQUE, reason);
        }
        // Only a function that is declared IMMUTABLE is opaque by this effect.
        if pieces
            .iter()
            .any(|piece| piece.is("from") || piece.is("table"))
            && pieces.iter().filter_map(Piece::name).any(|name| {
                is_catalog(name) || self.facts.types.relations.contains(&Name::of(name))
            })
        {
            self.facts.graph.add(self.function, Effects::READS_DATA);
        }
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

/// Returns whether a body has a string that may be a point in time which PostgreSQL computes when it analyses the body:
/// plans keep it, also for later clients. The format of RAISE is not analysed.
fn has_moment(pieces: &[Piece<'_>]) -> bool {
    const LEVELS: [&str; 7] = words("raise debug log info notice warning exception");
    let is_format = |at: usize| {
        let before = |back: usize| at.checked_sub(back).map(|at| pieces[at]);
        let is_raise = |piece: Option<Piece<'_>>| piece.is_some_and(|piece| piece.is("raise"));
        is_raise(before(1))
            || is_raise(before(2))
                && before(1).is_some_and(|level| LEVELS.iter().any(|word| level.is(word)))
    };
    pieces.iter().enumerate().any(|(at, piece)| match piece {
        Piece::Text(string) | Piece::Value(string) => may_be_moment(string) && !is_format(at),
        _ => false,
    })
}
