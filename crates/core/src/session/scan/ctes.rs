//! The common table expressions that a statement begins with: names that are no relations.

use crate::session::certificates::Name;

/// So many are known by name; the others are taken for relations.
const NAMES_MAX: usize = 24;

/// The names of the common table expressions that the statement begins with. They hold to its end,
/// each from where its body ends, or all along with RECURSIVE; those of WITH clauses further in are
/// taken for relations.
#[derive(Debug, Default)]
pub(super) struct Ctes {
    pub(super) recursive: bool,
    listing: bool,
    names: [Option<Name>; NAMES_MAX],
    len: usize,
    pending: Option<Name>,
}

impl Ctes {
    pub(super) fn begin(&mut self) {
        self.listing = true;
    }

    /// Is the WITH clause still being read, at this depth?
    pub(super) fn lists_at(&self, depth: u32) -> bool {
        self.listing && depth == 0
    }

    pub(super) fn end(&mut self) {
        self.settle();
        self.listing = false;
    }

    /// One more is defined from here on.
    pub(super) fn name(&mut self, name: Name) {
        self.pending = Some(name);
        if self.recursive {
            self.settle();
        }
    }

    /// The definition of the last one has ended.
    pub(super) fn settle(&mut self) {
        if let Some(name) = self.pending.take()
            && let Some(free) = self.names.get_mut(self.len)
        {
            *free = Some(name);
            self.len += 1;
        }
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.names[..self.len].contains(&Some(name))
    }
}
