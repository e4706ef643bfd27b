//! The words that the quick reading knows.

use super::lexer::is_of_word;

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

/// Eight bytes from `at` on, letters in lower case. What is no letter may look like another that is
/// none.
#[inline]
fn lower_eight(text: &[u8], at: usize) -> u64 {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight) | LOWER,
        None => padded(rest),
    }
}

#[cold]
fn padded(rest: &[u8]) -> u64 {
    rest.iter()
        .rev()
        .fold(0, |eight, byte| eight << 8 | u64::from(byte | 0x20))
}

pub(super) const FOR: Word = Word::new("for");
pub(super) const DO: Word = Word::new("do");
pub(super) const AS: Word = Word::new("as");
pub(super) const RECURSIVE: Word = Word::new("recursive");
pub(super) const INTO: Word = Word::new("into");
pub(super) const FROM: Word = Word::new("from");
const ONLY: Word = Word::new("only");
const LATERAL: Word = Word::new("lateral");
const SELECT: Word = Word::new("select");
const VALUES: Word = Word::new("values");
const WITH: Word = Word::new("with");
const TABLE: Word = Word::new("table");
const PG_TEMP: Word = Word::new("pg_temp");
const PG_TOAST: Word = Word::new("pg_toast");

/// A key word that does something within a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyword {
    pub(super) word: Word,
    pub(super) action: Action,
}

const KEYWORDS: [Keyword; 20] = {
    const fn keyword(word: &'static str, action: Action) -> Keyword {
        Keyword {
            word: Word::new(word),
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
        keyword("returning", Action::Ends),
        keyword("insert", Action::Verb),
        keyword("update", Action::Verb),
        keyword("delete", Action::Verb),
        keyword("merge", Action::Verb),
        keyword("into", Action::Unusual),
        keyword("table", Action::Unusual),
    ]
};

/// Key words by a hash of their first four letters: those, and the place in `KEYWORDS`.
static SLOTS: [(u32, u32); SLOTS_LEN] = {
    let mut slots = [(0, 0); SLOTS_LEN];
    let mut number = 0;
    while number < KEYWORDS.len() {
        let key = KEYWORDS[number].word.letters as u32;
        let slot = slot(key);
        assert!(
            slots[slot].0 == 0,
            "two key words in one place: take another MULTIPLIER"
        );
        slots[slot] = (key, number as u32);
        number += 1;
    }
    slots
};

const SLOTS_LEN: usize = 64;
const MULTIPLIER: u32 = 0x1e2f_eb89;

#[inline]
const fn slot(key: u32) -> usize {
    (key.wrapping_mul(MULTIPLIER) >> 26) as usize
}

/// The key word that begins with the four letters in `text` at `at`, in any case.
#[inline]
pub(super) fn candidate(text: &[u8], at: usize) -> Option<&'static Keyword> {
    let four = text.get(at..at + 4)?.first_chunk()?;
    let key = u32::from_le_bytes(*four) | 0x2020_2020;
    let (known, number) = SLOTS[slot(key)];
    if known != key {
        return None;
    }
    KEYWORDS.get(number as usize)
}

#[inline]
pub(super) fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
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
    const VERBS: [(Word, Verb); 8] = [
        (SELECT, Verb::Select),
        (Word::new("insert"), Verb::Insert),
        (Word::new("update"), Verb::Update),
        (Word::new("delete"), Verb::Delete),
        (WITH, Verb::With),
        (Word::new("begin"), Verb::Transaction),
        (Word::new("commit"), Verb::Transaction),
        (Word::new("rollback"), Verb::Transaction),
    ];
    let eight = lower_eight(text, at);
    let (word, verb) = VERBS
        .iter()
        .find(|(word, _)| eight & word.mask == word.letters)?;
    let ends = !text
        .get(at + word.len)
        .is_some_and(|&byte| is_of_word(byte));
    ends.then_some((*verb, word.len))
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

/// May the word at `at` stand between FROM and a parenthesis with relations?
pub(super) fn is_before_relation(text: &[u8], at: usize) -> bool {
    ONLY.stands(text, at) || LATERAL.stands(text, at)
}

/// Is it the schema of somebody's temporary objects?
#[inline]
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let eight = lower_eight(name, 0);
    PG_TEMP.begins(eight, name, 0) || PG_TOAST.begins(eight, name, 0)
}
