//! The same verdict as the careful reading's, for what applications say most, at a small part of
//! its cost; or none.
//!
//! It goes from one place that matters to the next: words of four letters and more (the key words it
//! knows have as many), quotes, parentheses, comments. Where it meets anything unusual, or a name
//! that is not clean, it gives up, and the careful reading decides. A test holds the two against
//! each other.
//!
//! What it costs, `examples/scan_cost.rs` counts.

mod with;

use super::{
    Suspicion, blocks,
    ctes::Ctes,
    lexer::{is_of_word, is_space, starts_word},
    quick_words::{self, Action},
};
use crate::session::certificates::{CALL_WITH_FROM, Certificates, Name};

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
        base: 0,
        resume: 0,
        starts: 0,
        long: 0,
        special: 0,
        events: 0,
    };
    reader.resume = reader.first(0)?;
    reader.base = reader.resume & !(blocks::LEN - 1);
    while reader.base < text.len() {
        reader.load();
        let base = reader.base;
        while reader.events != 0 {
            let events = reader.events;
            reader.events = events & (events - 1);
            let at = base + events.trailing_zeros() as usize;
            let Some(&byte) = text.get(at) else {
                break;
            };
            if byte < b'A' {
                reader.special(at, byte)?;
            } else if let Some(keyword) = quick_words::candidate(text, at) {
                reader.keyword(at, keyword)?;
            } else if reader.lists & HERE != 0 && reader.may_matter(at, byte) {
                reader.listed(at)?;
            }
        }
        reader.base = (base + blocks::LEN).max(reader.resume & !(blocks::LEN - 1));
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
    /// Where the last comment ended: nothing before it is looked back at.
    barrier: usize,
    /// The block that is being read, where reading goes on, and what there is to see.
    base: usize,
    resume: usize,
    starts: u64,
    long: u64,
    special: u64,
    events: u64,
}

impl Reader<'_> {
    /// Looks at the block at `base`.
    #[inline]
    fn load(&mut self) {
        let masks = blocks::masks(self.text, self.base);
        let letters = masks.letters;
        let before = self.base > 0 && quick_words::is_letter(self.text[self.base - 1]);
        // What follows a letter and a dot is no key word.
        let attributes = (masks.dots & letters << 1) << 1;
        self.starts = letters & !(letters << 1 | u64::from(before) | attributes);
        // What begins at the end of the block may go on in the next.
        let long = letters >> 1 & (letters >> 2 | 1 << 62) & (letters >> 3 | 3 << 61) | 7 << 61;
        self.long = self.starts & long;
        self.special = masks.special;
        self.refresh();
    }

    /// Takes what there is to see from `resume` on. In a list every word matters.
    #[inline]
    fn refresh(&mut self) {
        let words = if self.lists & HERE == 0 {
            self.long
        } else {
            self.starts
        };
        let skipped = self.resume.saturating_sub(self.base);
        self.events = if skipped < blocks::LEN {
            (words | self.special) & u64::MAX << skipped
        } else {
            0
        };
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

    /// May the word at `at`, in a list, follow a comma, or end the list? Anything is possible if that
    /// is not clear at once.
    #[inline]
    fn may_matter(&self, at: usize, first: u8) -> bool {
        let before = match at.checked_sub(2).and_then(|from| self.text.get(from..)) {
            Some(&[before, b' ', ..]) | Some(&[_, before, ..]) => before,
            _ => return true,
        };
        // FOR, DO.
        let ends = matches!(first, b'f' | b'F' | b'd' | b'D');
        ends || at < self.barrier + 2 || !is_of_word(before) && before != b'"' && before != b'='
    }

    #[inline]
    fn special(&mut self, at: usize, byte: u8) -> Option<()> {
        match byte {
            b'(' => self.open(at),
            b')' => self.close(at),
            b'\'' => self.string(at),
            b'"' => self.quoted(at),
            b'$' => self.dollar(at),
            b'-' if self.byte(at + 1) == b'-' => {
                let rest = self.text.get(at..)?;
                let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                self.passed_comment(at + end.unwrap_or(rest.len()))
            }
            b'/' if self.byte(at + 1) == b'*' => {
                let end = blocks::comment_end(self.text, at)?;
                self.passed_comment(end)
            }
            b';' => self.semicolon(at),
            _ => Some(()),
        }
    }

    #[inline]
    fn string(&mut self, at: usize) -> Option<()> {
        let before = self.byte(at.wrapping_sub(1));
        if before | 0x20 == b'e' || before == b'&' {
            return None;
        }
        self.pass_quotes(at, b'\'')
    }

    fn quoted(&mut self, at: usize) -> Option<()> {
        if self.byte(at.wrapping_sub(1)) == b'&' {
            return None;
        }
        if self.lists & HERE != 0 && self.byte(self.before(at)?) == b',' {
            return self.source(at);
        }
        self.pass_quotes(at, b'"')
    }

    /// Goes on after the quote that closes the one at `at`. A doubled one closes, and opens again.
    #[inline]
    fn pass_quotes(&mut self, at: usize, quote: u8) -> Option<()> {
        // Words in it are no events.
        let opens = self.special & (u64::MAX << 1) << (at - self.base);
        let mut rest = opens;
        while rest != 0 {
            let next = self.base + rest.trailing_zeros() as usize;
            if self.byte(next) == quote {
                self.events &= (u64::MAX << 1) << (next - self.base);
                return Some(());
            }
            rest &= rest - 1;
        }
        let end = blocks::find(self.text, self.base + blocks::LEN, quote)?;
        self.resume = end + 1;
        self.events = 0;
        Some(())
    }

    /// A parameter, or part of a name; not a string in dollars.
    fn dollar(&mut self, at: usize) -> Option<()> {
        let before = self.byte(at.wrapping_sub(1));
        let is_parameter = self.byte(at + 1).is_ascii_digit();
        let word = at - blocks::word_len_before(self.text, at);
        // Not `1x$`.
        let in_name = starts_word(before) && starts_word(self.byte(word));
        // `1.$1`
        let touches = is_of_word(before) || before == b'.';
        (in_name || is_parameter && !touches).then_some(())
    }

    fn passed_comment(&mut self, end: usize) -> Option<()> {
        self.barrier = end;
        self.skip_to(end);
        Some(())
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

    /// Where the last byte before `at` stands that is no blank; none if a comment is between, or
    /// there is none.
    #[inline]
    fn before(&self, at: usize) -> Option<usize> {
        let mut at = at;
        if let Some(from) = at.checked_sub(2)
            && let Some(&[last, b' ', ..]) = self.text.get(from..)
            && !is_space(last)
        {
            return (from >= self.barrier).then_some(from);
        }
        while at > self.barrier {
            at -= 1;
            if !is_space(*self.text.get(at)?) {
                return Some(at);
            }
        }
        None
    }

    /// Reads the beginning of a statement, and gives where to go on: a verb, and the relation that it
    /// writes.
    fn first(&mut self, from: usize) -> Option<usize> {
        let mut at = self.skip_blank(from);
        while self.byte(at) == b'/' && self.byte(at + 1) == b'*' {
            let end = blocks::comment_end(self.text, at)?;
            self.barrier = end;
            at = self.skip_blank(end);
        }
        if at == self.text.len() {
            return Some(at);
        }
        let (verb, len) = quick_words::verb(self.text, at)?;
        let end = at + len;
        match verb {
            quick_words::Verb::Select => {
                self.verbs |= HERE;
                (self.byte(end) != b'.').then_some(end)
            }
            quick_words::Verb::Insert => {
                let into = self.expect(end, &quick_words::INTO)?;
                self.target(into)
            }
            quick_words::Verb::Update => self.target(end),
            quick_words::Verb::Delete => {
                let from = self.expect(end, &quick_words::FROM)?;
                self.deletes = true;
                self.target(from)
            }
            quick_words::Verb::Transaction => {
                let next = self.skip_blank(end);
                (next == self.text.len() || self.text[next] == b';').then_some(next)
            }
            quick_words::Verb::With => self.with(end),
        }
    }

    #[inline]
    fn end_of_word(&self, at: usize) -> usize {
        at + blocks::word_len(self.text, at)
    }

    /// The end of the word that must come next.
    fn expect(&self, at: usize, word: &quick_words::Word) -> Option<usize> {
        let start = self.skip_blank(at);
        word.stands(self.text, start).then_some(start + word.len)
    }

    /// The relation that is written comes next. Gives its end.
    fn target(&mut self, at: usize) -> Option<usize> {
        self.verbs |= HERE;
        let (name, end, _) = self.name(self.skip_blank(at))?;
        let traces = self.certificates.relation(name).write;
        self.found |= traces;
        self.columns_after = end;
        (!traces.contains(Suspicion::OPAQUE)).then_some(end)
    }

    /// The name at `at`, its end, and whether a parenthesis follows. None for what is no plain name,
    /// or may not end there.
    #[inline]
    fn name(&self, at: usize) -> Option<(Name, usize, bool)> {
        let (mut part, mut end) = self.part(at)?;
        while self.byte(end) == b'.' {
            if quick_words::is_temporary(part) {
                return None;
            }
            (part, end) = self.part(end + 1)?;
        }
        if !self.utf8 && !part.is_ascii() {
            return None;
        }
        let next = self.skip_blank(end);
        match self.byte(next) {
            b'.' | b'/' | b'-' => None,
            after => Some((Name::of(part), end, after == b'(' && next < self.text.len())),
        }
    }

    /// One identifier, without its quotes, and where it ends.
    #[inline]
    fn part(&self, at: usize) -> Option<(&[u8], usize)> {
        let first = self.byte(at);
        if first == b'"' {
            let close = blocks::find(self.text, at + 1, b'"')?;
            let part = &self.text[at + 1..close];
            return (self.byte(close + 1) != b'"').then_some((part, close + 1));
        }
        if !starts_word(first) {
            return None;
        }
        let end = self.end_of_word(at);
        // `u&"x"`, `e'x'`
        let plain = !matches!(self.byte(end), b'&' | b'\'' | b'"');
        plain.then_some((&self.text[at..end], end))
    }

    /// A relation or function that is read comes next, or a parenthesis with more of them.
    #[inline]
    fn source(&mut self, at: usize) -> Option<()> {
        let at = self.skip_blank(at);
        if self.byte(at) == b'(' {
            return self.group(at);
        }
        let (name, end, is_call) = self.name(at)?;
        if is_call {
            if quick_words::is_before_relation(self.text, at) {
                return None;
            }
        } else if !self.is_cte(name, at, end) {
            let traces = self.certificates.relation(name).read;
            if traces.contains(Suspicion::OPAQUE) {
                return None;
            }
            self.found |= traces;
        }
        self.go_on(end);
        Some(())
    }

    /// A parenthesis where a relation may stand: a query, values, or relations that are joined.
    fn group(&mut self, at: usize) -> Option<()> {
        self.push(false)?;
        self.lists |= HERE;
        let at = self.skip_blank(at + 1);
        let end = at + "select".len();
        match quick_words::source(self.text, at) {
            quick_words::Source::Select => {
                self.verbs |= HERE;
                self.lists &= !HERE;
                self.go_on(end);
                Some(())
            }
            quick_words::Source::Values if self.byte(self.skip_blank(end)) == b'(' => {
                self.lists &= !HERE;
                self.go_on(end);
                Some(())
            }
            quick_words::Source::Name => self.source(at),
            _ => None,
        }
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
        }
        let listed = self.lists & HERE != 0;
        self.push(call)?;
        if listed {
            self.go_on(at + 1);
        }
        Some(())
    }

    /// A name before a parenthesis, which ends at `end`: is FROM part of its call? None if it leaves
    /// a trace.
    #[inline]
    fn call(&self, end: usize) -> Option<bool> {
        let start = end - blocks::word_len_before(self.text, end);
        let name = &self.text[start..end];
        let qualified = match self.before(start) {
            Some(last) if self.text[last] == b'.' => {
                self.qualifier(start, last)?;
                true
            }
            Some(_) => false,
            // A comment may be between.
            None => return None,
        };
        if !self.utf8 && !name.is_ascii() {
            return None;
        }
        let traces = self.certificates.call(Name::of(name));
        if !traces.read.is_empty() {
            return None;
        }
        Some(!qualified && traces.write.contains(CALL_WITH_FROM))
    }

    /// The schema of a name that starts at `start` must be a plain one, right before it.
    fn qualifier(&self, start: usize, dot: usize) -> Option<()> {
        if dot + 1 != start || dot == 0 {
            return None;
        }
        let mut from = dot;
        while from > 0 && is_of_word(self.text[from - 1]) {
            from -= 1;
        }
        let part = self.text[from..dot].trim_ascii();
        (!part.is_empty() && !quick_words::is_temporary(part)).then_some(())
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

    /// A word in a list: one more relation after a comma; the end of the list.
    #[inline(never)]
    fn listed(&mut self, at: usize) -> Option<()> {
        if at > 0 && is_of_word(self.text[at - 1]) {
            return Some(());
        }
        match self.text[self.before(at)?] {
            b',' => return self.source(at),
            b'.' => return Some(()),
            _ => {}
        }
        if quick_words::FOR.stands(self.text, at) || quick_words::DO.stands(self.text, at) {
            self.lists &= !HERE;
            self.go_on(at + 2);
        }
        Some(())
    }

    /// A word that begins as a key word does.
    #[inline(never)]
    fn keyword(&mut self, at: usize, keyword: &quick_words::Keyword) -> Option<()> {
        let end = at + keyword.word.len;
        if !keyword.word.stands(self.text, at) {
            return if self.lists & HERE != 0 {
                self.listed(at)
            } else {
                Some(())
            };
        }
        if at > 0 && is_of_word(self.text[at - 1]) {
            // Part of a name, or what older versions take for a number and a key word.
            let start = at - blocks::word_len_before(self.text, at);
            return starts_word(self.text[start]).then_some(());
        }
        let last = self.before(at)?;
        if self.text[last] == b'.' {
            // A name after a dot; after a number's dot it is none.
            let digit = last > 0 && self.text[last - 1].is_ascii_digit();
            return (!digit).then_some(());
        }
        self.act(keyword.action, last, end)
    }

    #[inline]
    fn end_list(&mut self, at: usize) {
        if self.lists & HERE != 0 {
            self.lists &= !HERE;
            self.go_on(at);
        }
    }

    fn act(&mut self, action: Action, last: usize, end: usize) -> Option<()> {
        match action {
            Action::From if self.calls & HERE != 0 => {}
            Action::From => {
                // `IS DISTINCT FROM`, perhaps.
                let before = &self.text[..=last];
                let tail = &before[before.len().saturating_sub(8)..];
                if tail.eq_ignore_ascii_case(b"distinct") {
                    return None;
                }
                self.lists |= HERE;
                return self.source(end);
            }
            Action::Join => return self.source(end),
            Action::Select => {
                self.verbs |= HERE;
                self.end_list(end);
            }
            Action::Ends => self.end_list(end),
            Action::Using => {
                let columns = self.byte(self.skip_blank(end)) == b'(';
                return (columns && !self.deletes).then_some(());
            }
            Action::Verb if self.verbs & HERE != 0 => {}
            Action::Verb | Action::Unusual => return None,
        }
        Some(())
    }
}
