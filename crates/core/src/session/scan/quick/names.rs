//! Names of relations and functions, and what is certified of them.

use super::{HERE, Reader, Suspicion, blocks, quick_words, starts_word};
use crate::session::certificates::{CALL_WITH_FROM, Name};

impl Reader<'_> {
    /// The relation that is written comes next. Gives its end.
    pub(super) fn target(&mut self, at: usize) -> Option<usize> {
        self.verbs |= HERE;
        let (name, end, _) = self.name(self.gap(at)?)?;
        let traces = self.certificates.relation(name).write;
        self.found |= traces;
        self.columns_after = end;
        (!traces.contains(Suspicion::OPAQUE)).then_some(end)
    }

    /// The name at `at`, its end, and what stands behind it. None for what is no plain name, or may not
    /// end there.
    #[inline]
    fn name(&self, at: usize) -> Option<(Name, usize, u8)> {
        let (mut part, mut end) = self.part(at)?;
        let mut behind = self.byte(end);
        while behind == b'.' {
            (part, end) = self.part_after(part, end)?;
            behind = self.byte(end);
        }
        if !self.utf8 && !part.is_ascii() {
            return None;
        }
        if !matches!(behind, b',' | b')' | b'(') {
            behind = self.byte(self.gap(end)?);
        }
        // Another part may come.
        (behind != b'.').then(|| (Name::of(part), end, behind))
    }

    /// The part of a name behind the dot at `dot`, and where it ends.
    #[cold]
    fn part_after(&self, part: &[u8], dot: usize) -> Option<(&[u8], usize)> {
        if quick_words::is_temporary(part) {
            return None;
        }
        self.part(dot + 1)
    }

    /// One identifier, without its quotes, and where it ends.
    #[inline]
    pub(super) fn part(&self, at: usize) -> Option<(&[u8], usize)> {
        let first = self.byte(at);
        if !starts_word(first) {
            return self.quoted_part(at);
        }
        let end = self.end_of_word(at);
        // `u&"x"`, `e'x'`
        let is_plain = !matches!(self.byte(end), b'&' | b'\'' | b'"');
        is_plain.then_some((&self.text[at..end], end))
    }

    #[cold]
    fn quoted_part(&self, at: usize) -> Option<(&[u8], usize)> {
        if self.byte(at) != b'"' {
            return None;
        }
        let close = blocks::find(self.text, at + 1, b'"')?;
        let part = &self.text[at + 1..close];
        (self.byte(close + 1) != b'"').then_some((part, close + 1))
    }

    /// A relation or function that is read comes next, or a parenthesis with more of them.
    #[inline(never)]
    pub(super) fn source(&mut self, at: usize) -> Option<()> {
        let mut at = self.gap(at)?;
        loop {
            if self.byte(at) == b'(' {
                return self.group(at);
            }
            let (name, end, behind) = self.name(at)?;
            let is_certified = match behind {
                // What a function does is seen at the parenthesis.
                b'(' if quick_words::keyword(quick_words::eight(self.text, at)).is_some() => {
                    return None;
                }
                b'(' => !quick_words::is_before_relation(self.text, at, end),
                _ => self.is_cte(name, at, end) || self.certificates.relation(name).read.is_empty(),
            };
            if is_certified {
                self.go_on(end);
                return Some(());
            }
            if !quick_words::is_before_relation(self.text, at, end) {
                return None;
            }
            at = self.gap(end)?;
        }
    }

    /// A parenthesis where a relation may stand: a query, values, or relations that are joined.
    pub(super) fn group(&mut self, at: usize) -> Option<()> {
        self.push(false)?;
        self.lists |= HERE;
        let at = self.gap(at + 1)?;
        let end = at + "select".len();
        match quick_words::source(self.text, at) {
            quick_words::Source::Select => {
                self.is_no_schema(end)?;
                self.verbs |= HERE;
                self.lists &= !HERE;
                self.go_on(end);
                Some(())
            }
            quick_words::Source::Values if self.byte(self.gap(end)?) == b'(' => {
                self.lists &= !HERE;
                self.go_on(end);
                Some(())
            }
            quick_words::Source::Name => self.source(at),
            _ => None,
        }
    }

    /// A name before a parenthesis, which ends at `end`: is FROM part of its call? None if it leaves
    /// a trace.
    #[inline]
    pub(super) fn call(&self, end: usize) -> Option<bool> {
        let start = self.start_of_word(end);
        let name = &self.text[start..end];
        let last = self.before(start)?;
        let qualified = self.text[last] == b'.';
        if qualified {
            self.qualifier(start, last)?;
        }
        if !self.utf8 && !name.is_ascii() {
            return None;
        }
        let traces = self.certificates.call(Name::of(name));
        if !traces.read.is_empty() && (qualified || !self.is_label(start, last)?) {
            return None;
        }
        Some(!qualified && traces.write.contains(CALL_WITH_FROM))
    }

    /// Is the name at `start`, after what ends at `last`, a label, by the word AS?
    #[cold]
    fn is_label(&self, start: usize, last: usize) -> Option<bool> {
        let word = self.word_before(last + 1);
        let is_as = self.text[word.clone()].eq_ignore_ascii_case(b"as");
        let is_name = starts_word(self.text[start]);
        Some(is_as && is_name && self.text[self.before(word.start)?] != b'.')
    }

    /// The schema of a name that starts at `start` must be a plain one, right before it, and all that is.
    fn qualifier(&self, start: usize, dot: usize) -> Option<()> {
        if dot + 1 != start || dot == 0 {
            return None;
        }
        let part = self.word_before(dot);
        let is_all = self.text[self.before(part.start)?] != b'.';
        let part = &self.text[part];
        let is_name = part.first().is_some_and(|&byte| starts_word(byte));
        (is_all && is_name && !quick_words::is_temporary(part)).then_some(())
    }
}
