//! The same verdict as the careful reading's, for what applications say most, at a small part of
//! its cost; or none.
//!
//! It goes from one place that matters to the next: words as long as the key words it knows, quotes,
//! parentheses, comments, and commas in a list of relations. Where it meets anything unusual, or a name
//! that is not clean, it gives up, and the careful reading decides. A test holds the two against
//! each other.
//!
//! What it costs, `examples/scan_cost.rs` counts.

mod literals;
mod names;
mod with;

use std::ops::Range;

use super::{
    Suspicion,
    blocks::{self, Blocks, Masks},
    ctes::Ctes,
    lexer::{is_of_word, is_space, starts_word},
    quick_words::{self, Action, KEYWORD_LENS, Verb},
};
use crate::session::certificates::Certificates;

/// So many parentheses may be open.
const DEPTH_MAX: u32 = 60;
/// The bit of the innermost parenthesis.
const HERE: u64 = 1;

/// What the text may leave behind, if a quick look can tell.
pub(super) fn read(text: &[u8], utf8: bool, certificates: &Certificates) -> Option<Suspicion> {
    let mut reader = Reader {
        text,
        certificates,
        utf8,
        found: Suspicion::NONE,
        lists: 0,
        verbs: 0,
        calls: 0,
        depth: 0,
        deletes: false,
        ctes: None,
        columns_after: 0,
        barrier: 0,
        before_comment: None,
        earlier_barrier: 0,
        blocks: Blocks::of(text),
        base: 0,
        resume: 0,
        letters: 0,
        words: 0,
        special: 0,
        commas: None,
        events: 0,
    };
    reader.resume = match quick_words::begins_with_select(text) {
        Some(end) => reader.select(end)?,
        None => reader.first(0)?,
    };
    reader.base = reader.resume & !(blocks::LEN - 1);
    while reader.base < text.len() {
        reader.load();
        reader.block()?;
        reader.base = (reader.base + blocks::LEN).max(reader.resume & !(blocks::LEN - 1));
    }
    (reader.depth == 0 && !reader.lists_ctes()).then_some(reader.found)
}

struct Reader<'a> {
    text: &'a [u8],
    certificates: &'a Certificates,
    utf8: bool,
    found: Suspicion,
    /// Levels of parentheses, the innermost lowest: a comma is followed by one more relation.
    lists: u64,
    /// The verb has been read.
    verbs: u64,
    /// FROM is part of a call.
    calls: u64,
    depth: u32,
    deletes: bool,
    /// Of the statement that begins with WITH.
    ctes: Option<Ctes>,
    /// Where the relation ends that columns in parentheses may follow.
    columns_after: usize,
    /// Where the last comment ended, what stands before it, and where the comment before that ended.
    barrier: usize,
    before_comment: Option<usize>,
    earlier_barrier: usize,
    blocks: Blocks<'a>,
    /// The block that is being read, where reading goes on, and what there is to see.
    base: usize,
    resume: usize,
    letters: u64,
    /// Words as long as a key word.
    words: u64,
    /// Quotes, parentheses and the like.
    special: u64,
    /// Once they were looked for.
    commas: Option<u64>,
    events: u64,
}

impl Reader<'_> {
    /// Looks at the block at `base`.
    #[inline]
    fn load(&mut self) {
        const { assert!(*KEYWORD_LENS.start() == 4 && *KEYWORD_LENS.end() == 6) };
        let Masks { letters, special } = self.blocks.masks(self.base / blocks::LEN);
        let starts = letters & !(letters << 1);
        // What begins at the end of the block may go on in the next.
        let long = letters >> 1 & letters >> 2 & letters >> 3 | 7 << 61;
        let longer = letters >> 4 & letters >> 5 & letters >> 6;
        self.letters = letters;
        self.words = starts & long & !longer;
        self.special = special;
        self.commas = None;
        self.refresh();
    }

    /// Takes what there is to see from `resume` on.
    #[inline]
    fn refresh(&mut self) {
        let skipped = self.resume.saturating_sub(self.base);
        self.events = self.words | self.special;
        if self.lists & HERE != 0 {
            self.events |= self.commas();
        }
        self.events &= match skipped {
            0..blocks::LEN => u64::MAX << skipped,
            _ => 0,
        };
    }

    /// Of this block.
    #[inline]
    fn commas(&mut self) -> u64 {
        let (blocks, base) = (&self.blocks, self.base);
        *self
            .commas
            .get_or_insert_with(|| blocks.commas(base / blocks::LEN))
    }

    /// Goes through what there is to see.
    #[inline]
    fn block(&mut self) -> Option<()> {
        while self.events != 0 {
            let at = self.base + self.events.trailing_zeros() as usize;
            self.events &= self.events - 1;
            let eight = quick_words::eight(self.text, at);
            let byte = eight as u8;
            if byte < b'A' {
                self.special(at, byte)?;
            } else if let Some(keyword) = quick_words::keyword(eight)
                && (keyword.action != Action::Ends || self.lists & HERE != 0)
            {
                self.keyword(at, keyword)?;
            }
        }
        Some(())
    }

    /// Goes on at `at`; whether a list is read may have changed.
    #[inline]
    fn go_on(&mut self, at: usize) {
        self.resume = at;
        self.refresh();
    }

    /// Goes on at `at`.
    #[inline]
    fn skip_to(&mut self, at: usize) {
        let skipped = at - self.base;
        if skipped < blocks::LEN {
            self.events &= u64::MAX << skipped;
        } else {
            self.resume = at;
            self.events = 0;
        }
    }

    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(b' ')
    }

    #[inline]
    fn special(&mut self, at: usize, byte: u8) -> Option<()> {
        match byte {
            b'(' => self.open(at),
            b')' => self.close(at),
            b',' => self.comma(at),
            b'\'' => self.string(at),
            b'"' => self.quoted(at),
            b'$' => self.dollar(at),
            b'-' | b'/' => self.comment(at),
            b'&' => self.follows_no_number(at, self.byte(at.wrapping_sub(1))),
            b';' => self.semicolon(at),
            _ => Some(()),
        }
    }

    /// One in a list: a relation comes next. A parenthesis or a quote speaks for itself.
    fn comma(&mut self, at: usize) -> Option<()> {
        let next = self.gap(at + 1)?;
        match self.byte(next) {
            byte if starts_word(byte) => self.source(next),
            b'.' => None,
            _ => Some(()),
        }
    }

    fn semicolon(&mut self, at: usize) -> Option<()> {
        if self.depth > 0 || self.lists_ctes() {
            return None;
        }
        self.ctes = None;
        self.lists = 0;
        self.verbs = 0;
        self.calls = 0;
        self.deletes = false;
        let after = self.first(at + 1)?;
        self.go_on(after);
        Some(())
    }

    #[inline]
    fn skip_blank(&self, mut at: usize) -> usize {
        while self.text.get(at).is_some_and(|&byte| is_space(byte)) {
            at += 1;
        }
        at
    }

    /// Where the last byte before `at` stands that is in no blank and no comment. None if there is none,
    /// or more than one comment to look back at.
    #[inline]
    fn before(&self, at: usize) -> Option<usize> {
        if at < self.barrier {
            return self.before_last_comment(at);
        }
        let last = self.last_between(self.barrier, at);
        last.or(self.before_comment)
    }

    #[cold]
    fn before_last_comment(&self, at: usize) -> Option<usize> {
        let last = self.before_comment?;
        if at > last {
            return Some(last);
        }
        self.last_between(self.earlier_barrier, at)
    }

    /// Where the last byte that is no blank stands between the end of a comment and `at`.
    #[inline]
    fn last_between(&self, barrier: usize, at: usize) -> Option<usize> {
        let mut at = at;
        while at > barrier {
            at -= 1;
            if !is_space(*self.text.get(at)?) {
                return Some(at);
            }
        }
        None
    }

    /// Where the word ends that begins at `at`; it may be empty.
    #[inline]
    fn end_of_word(&self, at: usize) -> usize {
        let place = at.wrapping_sub(self.base);
        if place < blocks::LEN {
            let run = (self.letters >> place).trailing_ones() as usize;
            if place + run < blocks::LEN && !is_of_word(self.byte(at + run)) {
                return at + run;
            }
        }
        at + blocks::word_len(self.text, at)
    }

    /// Where the word begins that ends at `end`; it may be empty.
    #[inline]
    fn start_of_word(&self, end: usize) -> usize {
        let place = end.wrapping_sub(self.base);
        if (1..blocks::LEN).contains(&place) {
            let run = (self.letters << (blocks::LEN - place)).leading_ones() as usize;
            if run < place && !is_of_word(self.byte(end - run - 1)) {
                return end - run;
            }
        }
        end - blocks::word_len_before(self.text, end)
    }

    /// Reads the beginning of a statement, and gives where to go on: a verb, and the relation that it
    /// writes.
    fn first(&mut self, from: usize) -> Option<usize> {
        let mut at = self.gap(from)?;
        while self.byte(at) == b'(' && self.ctes.is_none() {
            self.push(false)?;
            at = self.gap(at + 1)?;
        }
        if at == self.text.len() || self.text[at] == b';' {
            return Some(at);
        }
        let (verb, len) = quick_words::verb(self.text, at)?;
        let end = at + len;
        match verb {
            Verb::Transaction | Verb::With if self.depth > 0 => None,
            Verb::Transaction => {
                let next = self.gap(end)?;
                (next == self.text.len() || self.text[next] == b';').then_some(next)
            }
            Verb::With => self.with(end),
            _ if self.depth > 0 && verb != Verb::Select => None,
            _ => self.verb(verb, end),
        }
    }

    /// A verb ends at `end`: reads the relation that it writes, and gives where to go on.
    fn verb(&mut self, verb: Verb, end: usize) -> Option<usize> {
        match verb {
            Verb::Select => self.select(end),
            Verb::Insert => {
                let into = self.expect(end, &quick_words::INTO)?;
                self.target(into)
            }
            Verb::Update => self.target(end),
            Verb::Delete => {
                let from = self.expect(end, &quick_words::FROM)?;
                self.deletes = true;
                self.target(from)
            }
            Verb::Transaction | Verb::With => None,
        }
    }

    #[inline]
    fn select(&mut self, end: usize) -> Option<usize> {
        self.verbs |= HERE;
        self.is_no_schema(end)?;
        Some(end)
    }

    /// The end of the word that must come next.
    fn expect(&self, at: usize, word: &quick_words::Word) -> Option<usize> {
        let start = self.gap(at)?;
        word.stands(self.text, start).then_some(start + word.len)
    }

    #[inline]
    fn push(&mut self, call: bool) -> Option<()> {
        self.depth += 1;
        self.lists <<= 1;
        self.verbs <<= 1;
        self.calls = self.calls << 1 | u64::from(call);
        (self.depth <= DEPTH_MAX).then_some(())
    }

    #[inline(never)]
    fn open(&mut self, at: usize) -> Option<()> {
        let last = self.before(at)?;
        let byte = self.text[last];
        let mut call = false;
        if is_of_word(byte) {
            if last + 1 != self.columns_after {
                call = self.call(last + 1)?;
            }
        } else if byte == b'"' {
            if last + 1 != self.columns_after {
                return None;
            }
        } else if byte == b',' && self.lists & HERE != 0 {
            return self.group(at);
        } else if byte == b'.' {
            return None;
        }
        let listed = self.lists & HERE != 0;
        self.push(call)?;
        if listed {
            self.go_on(at + 1);
        }
        Some(())
    }

    fn close(&mut self, at: usize) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        let changes = (self.lists ^ self.lists >> 1) & HERE != 0;
        self.lists >>= 1;
        self.verbs >>= 1;
        self.calls >>= 1;
        if self.lists_ctes() {
            return self.after_cte(at + 1);
        }
        if changes {
            self.go_on(at + 1);
        }
        Some(())
    }

    /// A word that is written as a key word is.
    #[inline(never)]
    fn keyword(&mut self, at: usize, keyword: &quick_words::Keyword) -> Option<()> {
        if at > 0 && is_of_word(self.text[at - 1]) {
            // Part of a name, or what older versions take for a number and a key word.
            let start = self.start_of_word(at);
            return starts_word(self.text[start]).then_some(());
        }
        let last = self.before(at)?;
        if self.text[last] == b'.' {
            // A name after a dot; after a number's dot it is none.
            let digit = last > 0 && self.text[last - 1].is_ascii_digit();
            return (!digit).then_some(());
        }
        let end = at + usize::from(keyword.len);
        match keyword.action {
            Action::From if self.calls & HERE != 0 || self.ends_distinct(last)? => {}
            Action::From => {
                self.lists |= HERE;
                return self.source(end);
            }
            Action::Join => return self.source(end),
            Action::Select => {
                self.is_no_schema(end)?;
                self.verbs |= HERE;
                self.end_list(end);
            }
            // Of a list; elsewhere it isn't looked at.
            Action::Ends => {
                self.is_no_schema(end)?;
                self.end_list(end);
            }
            Action::Using if self.deletes && self.verbs & HERE != 0 => {
                self.lists |= HERE;
                return self.source(end);
            }
            Action::Using => {
                let columns = self.byte(self.gap(end)?) == b'(';
                return (columns && !self.deletes).then_some(());
            }
            Action::Update | Action::Verb if self.verbs & HERE == 0 => return None,
            Action::Update if self.lists & HERE != 0 && self.ends_for_or_do(last)? => {
                self.end_list(end);
            }
            Action::Update | Action::Verb => {}
            Action::Unusual => return None,
        }
        Some(())
    }

    /// None if a dot follows the word that ends at `end`.
    #[inline]
    pub(super) fn is_no_schema(&self, end: usize) -> Option<()> {
        (self.byte(self.gap(end)?) != b'.').then_some(())
    }

    #[inline]
    fn end_list(&mut self, at: usize) {
        if self.lists & HERE != 0 {
            self.lists &= !HERE;
            self.go_on(at);
        }
    }

    /// Does `IS [NOT] DISTINCT` end at `last`? None if it is another DISTINCT.
    #[inline]
    fn ends_distinct(&self, last: usize) -> Option<bool> {
        if !quick_words::ends_distinct(self.text, last + 1) {
            return Some(false);
        }
        let word = self.word_before(last + 1);
        let mut before = self.word_before(self.before(word.start)? + 1);
        if self.text[before.clone()].eq_ignore_ascii_case(b"not") {
            before = self.word_before(self.before(before.start)? + 1);
        }
        let is = self.text[word].len() == "distinct".len()
            && self.text[before.clone()].eq_ignore_ascii_case(b"is")
            && self.text[self.before(before.start)?] != b'.';
        is.then_some(true)
    }

    /// Does FOR or DO end at `last`, which end a list?
    fn ends_for_or_do(&self, last: usize) -> Option<bool> {
        let word = self.word_before(last + 1);
        let is_name = self.text[self.before(word.start)?] == b'.';
        let word = &self.text[word];
        let ends = word.eq_ignore_ascii_case(b"for") || word.eq_ignore_ascii_case(b"do");
        Some(ends && !is_name)
    }

    /// The word that ends at `end`; it may be empty.
    fn word_before(&self, end: usize) -> Range<usize> {
        self.start_of_word(end)..end
    }
}
