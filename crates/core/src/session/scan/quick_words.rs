//! The words that the quick reading knows.

use std::ops::RangeInclusive;

use super::{blocks, lexer::is_of_word};

/// What a key word in a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    From,
    Join,
    Select,
    Using,
    /// Ends the list of relations.
    Ends,
    /// It writes, if it is the verb.
    Verb,
    /// The same, and it may come after FOR and DO.
    Update,
    /// Let the careful reading see it.
    Unusual,
}

/// A word of the grammar, by its first eight letters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    letters: u64,
    mask: u64,
    pub(super) len: usize,
    /// The ninth letter, if there is one.
    last: u8,
}

impl Word {
    /// `word` is in lower case, and has nine letters at most.
    const fn new(word: &str) -> Self {
        let word = word.as_bytes();
        let mut letters = 0;
        let mut mask = 0;
        let mut at = 0;
        while at < word.len() && at < 8 {
            letters |= ((word[at] | 0x20) as u64) << (8 * at);
            mask |= 0xff << (8 * at);
            at += 1;
        }
        assert!(word.len() <= 9);
        Self {
            letters,
            mask,
            len: word.len(),
            last: if word.len() > 8 { word[8] } else { 0 },
        }
    }

    /// Do eight letters begin with it, which stand in `text` at `at`? More letters may follow.
    #[inline]
    fn begins(&self, eight: u64, text: &[u8], at: usize) -> bool {
        eight & self.mask == self.letters
            && (self.last == 0
                || text
                    .get(at + 8)
                    .is_some_and(|byte| byte | 0x20 == self.last))
    }

    /// Does it stand in `text` at `at`, in any case, with no more letters?
    #[inline]
    pub(super) fn stands(&self, text: &[u8], at: usize) -> bool {
        self.begins(lower_eight(text, at), text, at)
            && !text
                .get(at + self.len)
                .is_some_and(|&byte| is_of_word(byte))
    }
}

/// Eight bytes from `at` on, with zeros behind the last.
#[inline]
pub(super) fn eight(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => last_ones(text, at),
    }
}

#[cold]
fn last_ones(text: &[u8], at: usize) -> u64 {
    blocks::padded(text.get(at..).unwrap_or_default()) as u64
}

/// Letters in lower case. What is no letter may look like another that is none.
#[inline]
fn lower(eight: u64) -> u64 {
    eight | 0x2020_2020_2020_2020
}

/// Eight bytes from `at` on, letters in lower case.
#[inline]
fn lower_eight(text: &[u8], at: usize) -> u64 {
    lower(eight(text, at))
}

pub(super) const AS: Word = Word::new("as");
pub(super) const RECURSIVE: Word = Word::new("recursive");
pub(super) const INTO: Word = Word::new("into");
pub(super) const FROM: Word = Word::new("from");
const ONLY: Word = Word::new("only");
const LATERAL: Word = Word::new("lateral");
const SELECT: Word = Word::new("select");
const VALUES: Word = Word::new("values");
pub(super) const NOT: Word = Word::new("not");
const WITH: Word = Word::new("with");
const TABLE: Word = Word::new("table");
const PG_TEMP: Word = Word::new("pg_temp");
const PG_TOAST: Word = Word::new("pg_toast");

/// A key word that does something within a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyword {
    letters: u64,
    mask: u64,
    pub(super) len: u8,
    pub(super) action: Action,
}

/// As long are the key words, at least and at most.
pub(super) const KEYWORD_LENS: RangeInclusive<usize> = 4..=6;

const KEYWORDS: [Keyword; 19] = {
    const fn keyword(word: &'static str, action: Action) -> Keyword {
        assert!(*KEYWORD_LENS.start() <= word.len() && word.len() <= *KEYWORD_LENS.end());
        let Word { letters, mask, .. } = Word::new(word);
        Keyword {
            letters,
            mask,
            len: word.len() as u8,
            action,
        }
    }
    [
        keyword("from", Action::From),
        keyword("join", Action::Join),
        keyword("select", Action::Select),
        keyword("using", Action::Using),
        keyword("where", Action::Ends),
        keyword("group", Action::Ends),
        keyword("having", Action::Ends),
        keyword("order", Action::Ends),
        keyword("window", Action::Ends),
        keyword("union", Action::Ends),
        keyword("except", Action::Ends),
        keyword("limit", Action::Ends),
        keyword("offset", Action::Ends),
        keyword("insert", Action::Verb),
        keyword("update", Action::Update),
        keyword("delete", Action::Verb),
        keyword("merge", Action::Verb),
        keyword("into", Action::Unusual),
        keyword("table", Action::Unusual),
    ]
};

/// Key words by a hash of their first four letters.
static SLOTS: [Keyword; SLOTS_LEN] = {
    let mut slots = [Keyword {
        letters: 0,
        mask: u64::MAX,
        len: 0,
        action: Action::Unusual,
    }; SLOTS_LEN];
    let mut number = 0;
    while number < KEYWORDS.len() {
        let slot = slot(KEYWORDS[number].letters);
        assert!(
            slots[slot].len == 0,
            "two key words in one place: take another MULTIPLIER"
        );
        slots[slot] = KEYWORDS[number];
        number += 1;
    }
    slots
};

const SLOTS_LEN: usize = 64;
/// There is no key word in most places.
const MULTIPLIER: u32 = 0x1e2f_eb89;

#[inline]
const fn slot(eight: u64) -> usize {
    ((eight as u32).wrapping_mul(MULTIPLIER) >> 26) as usize
}

/// The key word that eight bytes begin with, in any case. No more letters follow it.
#[inline]
pub(super) fn keyword(eight: u64) -> Option<&'static Keyword> {
    let letters = lower(eight);
    let keyword = &SLOTS[slot(letters)];
    if letters & keyword.mask != keyword.letters {
        return None;
    }
    // None is as long as eight letters.
    let after = (eight >> (8 * keyword.len)) as u8;
    (!is_of_word(after)).then_some(keyword)
}

/// Do eight bytes of `text` that end at `end` spell DISTINCT?
#[inline]
pub(super) fn ends_distinct(text: &[u8], end: usize) -> bool {
    const DISTINCT: Word = Word::new("distinct");
    let from = end.wrapping_sub(DISTINCT.len);
    lower_eight(text, from) == DISTINCT.letters
}

/// What a statement begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Select,
    Insert,
    Update,
    Delete,
    /// BEGIN, COMMIT and so on, with nothing behind.
    Transaction,
    With,
}

/// The verb that stands in `text` at `at`, if it is known here, and its length.
#[inline]
pub(super) fn verb(text: &[u8], at: usize) -> Option<(Verb, usize)> {
    let eight = lower_eight(text, at);
    let (word, verb) = match eight as u8 {
        b's' => (const { Word::new("select") }, Verb::Select),
        b'i' => (const { Word::new("insert") }, Verb::Insert),
        b'u' => (const { Word::new("update") }, Verb::Update),
        b'd' => (const { Word::new("delete") }, Verb::Delete),
        b'w' => (const { Word::new("with") }, Verb::With),
        b'b' => (const { Word::new("begin") }, Verb::Transaction),
        b'c' => (const { Word::new("commit") }, Verb::Transaction),
        b'r' => (const { Word::new("rollback") }, Verb::Transaction),
        _ => return None,
    };
    word.stands(text, at).then_some((verb, word.len))
}

/// Where SELECT ends, if a text begins with it and a blank.
#[inline]
pub(super) fn begins_with_select(text: &[u8]) -> Option<usize> {
    const BEGINNING: Word = Word::new("select ");
    let begins = lower_eight(text, 0) & BEGINNING.mask == BEGINNING.letters;
    begins.then_some(SELECT.len)
}

/// What stands in parentheses where a relation may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Select,
    Values,
    /// A relation, a function, or one more parenthesis.
    Name,
    Unusual,
}

pub(super) fn source(text: &[u8], at: usize) -> Source {
    if SELECT.stands(text, at) {
        Source::Select
    } else if VALUES.stands(text, at) {
        Source::Values
    } else if WITH.stands(text, at) || TABLE.stands(text, at) {
        Source::Unusual
    } else {
        Source::Name
    }
}

/// Is what stands from `at` to `end` a key word that may come before a relation?
pub(super) fn is_before_relation(text: &[u8], at: usize, end: usize) -> bool {
    [ONLY, LATERAL]
        .iter()
        .any(|word| end - at == word.len && word.stands(text, at))
}

/// Is it the schema of somebody's temporary objects?
#[inline]
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let eight = lower_eight(name, 0);
    PG_TEMP.begins(eight, name, 0) || PG_TOAST.begins(eight, name, 0)
}
