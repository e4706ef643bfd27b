//! The common table expressions that a statement begins with, where each is a plain query.

use super::Reader;
use crate::session::{
    certificates::Name,
    scan::{
        ctes::Ctes,
        quick_words::{self, Source},
    },
};

impl Reader<'_> {
    /// WITH was read, which ends at `at`. Gives where to go on in the first query.
    #[cold]
    pub(super) fn with(&mut self, at: usize) -> Option<usize> {
        if self.ctes.is_some() {
            return None;
        }
        let mut ctes = Ctes::default();
        ctes.begin();
        let mut at = self.gap(at)?;
        if quick_words::RECURSIVE.stands(self.text, at) {
            at = self.gap(at + quick_words::RECURSIVE.len)?;
            // Or that is a name.
            if self.byte(at) == b'(' || quick_words::AS.stands(self.text, at) {
                return None;
            }
            ctes.recursive = true;
        }
        self.ctes = Some(ctes);
        self.cte(at)
    }

    /// `name AS (SELECT` comes next, perhaps with columns, or a list of values, or what writes. Gives where
    /// to go on in the query.
    fn cte(&mut self, at: usize) -> Option<usize> {
        let at = self.gap(at)?;
        let (name, end) = self.part(at)?;
        if !self.utf8 && !name.is_ascii() || quick_words::is_before_relation(self.text, at, end) {
            return None;
        }
        let name = Name::of(name);
        let mut at = self.gap(end)?;
        if self.byte(at) == b'(' {
            at = self.columns(at)?;
        }
        let open = self.materialized(self.expect(at, &quick_words::AS)?)?;
        if self.byte(open) != b'(' {
            return None;
        }
        self.ctes.as_mut()?.name(name);
        self.push(false)?;
        let body = self.gap(open + 1)?;
        if quick_words::source(self.text, body) == Source::Values {
            let end = body + "values".len();
            return (self.byte(self.gap(end)?) == b'(').then_some(end);
        }
        let (verb, len) = quick_words::verb(self.text, body)?;
        self.verb(verb, body + len)
    }

    /// Goes past `[[NOT] MATERIALIZED]`.
    fn materialized(&self, at: usize) -> Option<usize> {
        const WORD: &[u8] = b"materialized";
        let mut at = self.gap(at)?;
        if self.byte(at) == b'(' {
            return Some(at);
        }
        if quick_words::NOT.stands(self.text, at) {
            at = self.gap(at + quick_words::NOT.len)?;
        }
        let end = self.end_of_word(at);
        let is_it = self.text[at..end].eq_ignore_ascii_case(WORD)
            && self.certificates.call(Name::of(WORD)).read.is_empty();
        if is_it { self.gap(end) } else { None }
    }

    /// The end of the list of plain names in parentheses at `at`.
    fn columns(&self, at: usize) -> Option<usize> {
        let mut at = at;
        loop {
            at = self.gap(at + 1)?;
            if quick_words::keyword(quick_words::eight(self.text, at)).is_some() {
                return None;
            }
            let (_, end) = self.part(at)?;
            at = self.gap(end)?;
            match self.byte(at) {
                b',' => {}
                b')' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// The query of a common table expression was read: another one comes, or the statement that has
    /// use for them.
    #[cold]
    pub(super) fn after_cte(&mut self, at: usize) -> Option<()> {
        let at = self.gap(at)?;
        let ctes = self.ctes.as_mut()?;
        let next = if self.text.get(at) == Some(&b',') {
            ctes.settle();
            self.cte(at + 1)?
        } else {
            ctes.end();
            self.first(at)?
        };
        self.go_on(next);
        Some(())
    }

    /// Is the WITH clause still being read?
    #[inline]
    pub(super) fn lists_ctes(&self) -> bool {
        self.depth == 0 && self.ctes.as_ref().is_some_and(|ctes| ctes.lists_at(0))
    }

    /// Is the relation from `at` to `end` one of the statement's own?
    #[inline]
    pub(super) fn is_cte(&self, name: Name, at: usize, end: usize) -> bool {
        let is_plain = || !self.text[at..end].contains(&b'.');
        self.ctes.as_ref().is_some_and(|ctes| ctes.has(name)) && is_plain()
    }
}
