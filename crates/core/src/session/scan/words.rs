//! The words that decide something in a text: key words, and names of PostgreSQL's own that leave a
//! trace. One table, found by one hash.

use super::{Suspicion, denied};

/// What a word means where it stands as it is, without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A name, with or without quotes: what its use leaves behind, and what it leaves in a text that
    /// writes.
    Name(Suspicion, Suspicion),
    /// The function `set_config`.
    SetConfig,
    /// A key word.
    Key(Key),
}

/// The key words that matter, several of them together where they mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// ANALYZE, ANALYSE, VERBOSE
    Analyze,
    As,
    /// BEGIN, START, ABORT
    Begin,
    Call,
    /// CLOSE
    Close,
    /// COMMIT, END
    Commit,
    Copy,
    Deallocate,
    Declare,
    Delete,
    Discard,
    Do,
    Execute,
    Explain,
    /// FETCH, MOVE
    Fetch,
    For,
    Hold,
    Insert,
    Into,
    /// LISTEN, UNLISTEN
    Listen,
    Load,
    /// LOCK, NOTIFY
    Lock,
    Merge,
    Prepare,
    Program,
    Reset,
    Rollback,
    /// SAVEPOINT, RELEASE
    Savepoint,
    /// SELECT, VALUES, TABLE
    Select,
    Set,
    Show,
    Truncate,
    Update,
    With,
}

const KEYS: [(&str, Key); 44] = [
    ("abort", Key::Begin),
    ("analyse", Key::Analyze),
    ("analyze", Key::Analyze),
    ("as", Key::As),
    ("begin", Key::Begin),
    ("call", Key::Call),
    ("close", Key::Close),
    ("commit", Key::Commit),
    ("copy", Key::Copy),
    ("deallocate", Key::Deallocate),
    ("declare", Key::Declare),
    ("delete", Key::Delete),
    ("discard", Key::Discard),
    ("do", Key::Do),
    ("end", Key::Commit),
    ("execute", Key::Execute),
    ("explain", Key::Explain),
    ("fetch", Key::Fetch),
    ("for", Key::For),
    ("hold", Key::Hold),
    ("insert", Key::Insert),
    ("into", Key::Into),
    ("listen", Key::Listen),
    ("load", Key::Load),
    ("lock", Key::Lock),
    ("merge", Key::Merge),
    ("move", Key::Fetch),
    ("notify", Key::Lock),
    ("prepare", Key::Prepare),
    ("program", Key::Program),
    ("release", Key::Savepoint),
    ("reset", Key::Reset),
    ("rollback", Key::Rollback),
    ("savepoint", Key::Savepoint),
    ("select", Key::Select),
    ("set", Key::Set),
    ("show", Key::Show),
    ("start", Key::Begin),
    ("table", Key::Select),
    ("truncate", Key::Truncate),
    ("unlisten", Key::Listen),
    ("update", Key::Update),
    ("values", Key::Select),
    ("verbose", Key::Analyze),
    // WITH is looked up behind the array, so that its length shows a word forgotten here.
];

const SLOTS_LEN: usize = 2048;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sets the bit that tells a lower-case letter.
const FOLD: u64 = 0x2020_2020_2020_2020;
/// The longest word of the table.
const LEN_MAX: usize = 40;

/// How many words there are.
const LEN: usize =
    KEYS.len() + 2 + denied::TRACES.len() + denied::OPAQUE.len() + denied::CATALOGS.len();

/// All words, in lower case.
static WORDS: [(&str, Meaning); LEN] = all_words();

const fn all_words() -> [(&'static str, Meaning); LEN] {
    let mut words = [("with", Meaning::Key(Key::With)); LEN];
    words[1] = ("set_config", Meaning::SetConfig);
    let mut len = 2;
    let mut at = 0;
    while at < KEYS.len() {
        words[len] = (KEYS[at].0, Meaning::Key(KEYS[at].1));
        (at, len) = (at + 1, len + 1);
    }
    at = 0;
    while at < denied::TRACES.len() {
        let (name, read, write) = denied::TRACES[at];
        words[len] = (name, Meaning::Name(read, write));
        (at, len) = (at + 1, len + 1);
    }
    at = 0;
    while at < denied::OPAQUE.len() {
        let name = denied::OPAQUE[at];
        words[len] = (name, Meaning::Name(Suspicion::OPAQUE, Suspicion::NONE));
        (at, len) = (at + 1, len + 1);
    }
    at = 0;
    while at < denied::CATALOGS.len() {
        let change = Suspicion::OPAQUE.and(Suspicion::TEMP);
        words[len] = (denied::CATALOGS[at], Meaning::Name(Suspicion::NONE, change));
        (at, len) = (at + 1, len + 1);
    }
    words
}

/// Places in [`WORDS`] by the hash of a word, counted from one; zero is a free slot. A taken one leads
/// to the next.
static SLOTS: [u16; SLOTS_LEN] = {
    let mut slots = [0; SLOTS_LEN];
    let words = all_words();
    let mut number = 0;
    while number < LEN {
        let word = words[number].0.as_bytes();
        assert!(word.len() >= 2 && word.len() <= LEN_MAX);
        let mut slot = Letters::of_any(word).slot(word.len());
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOTS_LEN;
        }
        slots[slot] = number as u16 + 1;
        number += 1;
    }
    slots
};

/// The first eight letters of a word and the last eight, in lower case, with zeros behind.
#[derive(Clone, Copy)]
struct Letters {
    first: u64,
    last: u64,
}

impl Letters {
    const fn of_any(word: &[u8]) -> Self {
        let (mut first, mut last) = (0, 0);
        let mut at = 0;
        while at < 8 && at < word.len() {
            first |= ((word[at] | 0x20) as u64) << (8 * at);
            let end = if word.len() > 8 {
                word.len() - 8 + at
            } else {
                at
            };
            last |= ((word[end] | 0x20) as u64) << (8 * at);
            at += 1;
        }
        Self { first, last }
    }

    /// Of the word that stands in `text` from `start` to `end`; it is not empty.
    #[inline]
    fn of(text: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        let Some(first) = text.get(start..).and_then(<[u8]>::first_chunk::<8>) else {
            return Self::of_any(&text[start..end]);
        };
        let first = u64::from_le_bytes(*first) | FOLD;
        if len <= 8 {
            let first = first & u64::MAX >> (64 - 8 * len);
            return Self { first, last: first };
        }
        let last = text[start..end].last_chunk::<8>();
        let last = last.map_or(0, |last| u64::from_le_bytes(*last) | FOLD);
        Self { first, last }
    }

    #[inline]
    const fn slot(self, len: usize) -> usize {
        let hash = self.first ^ self.last.rotate_left(23) ^ len as u64;
        (hash.wrapping_mul(MULTIPLIER) >> 53) as usize
    }

    #[inline]
    fn begin(self, with: &[u8; 8], len: usize) -> bool {
        let mask = u64::MAX >> (64 - 8 * len);
        (self.first ^ (u64::from_le_bytes(*with) | FOLD)) & mask == 0
    }
}

/// What the word means that stands in `text` from `start` to `end`, in any case. `None`: nothing, in
/// every PostgreSQL.
#[inline]
pub(super) fn meaning(text: &[u8], start: usize, end: usize) -> Option<Meaning> {
    let len = end - start;
    if len < 2 {
        return None;
    }
    let letters = Letters::of(text, start, end);
    let mut slot = letters.slot(len);
    while SLOTS[slot] != 0 {
        let (word, meaning) = WORDS[usize::from(SLOTS[slot]) - 1];
        if word.len() == len && text[start..end].eq_ignore_ascii_case(word.as_bytes()) {
            return Some(meaning);
        }
        slot = (slot + 1) % SLOTS_LEN;
    }
    by_beginning(letters, len)
}

/// Names that are known by how they begin.
#[inline]
fn by_beginning(letters: Letters, len: usize) -> Option<Meaning> {
    if len >= 7 && letters.begin(b"pg_temp\0", 7) {
        let change = Suspicion::OPAQUE.and(Suspicion::TEMP);
        return Some(Meaning::Name(change, Suspicion::NONE));
    }
    if len >= 8 && letters.begin(b"binary_u", 8) {
        return Some(Meaning::Name(Suspicion::OPAQUE, Suspicion::NONE));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all() {
        let of = |word: &str| meaning(word.as_bytes(), 0, word.len());
        for (word, expect) in WORDS {
            for text in [
                word.to_owned(),
                format!("{}; and more", word.to_uppercase()),
            ] {
                let found = meaning(text.as_bytes(), 0, word.len());
                assert_eq!(found, Some(expect), "{text}");
            }
        }
        for word in [
            "a",
            "fro",
            "selects",
            "selec",
            "set_confi",
            "set_configs",
            "pg_tem",
            "pg_catalog",
            "binary",
            "nextva",
            "_nextval",
        ] {
            assert_eq!(of(word), None, "{word}");
        }
        assert!(of("pg_temp_12").is_some() && of("PG_TEMP").is_some());
        assert!(of("Binary_upgrade_set_next_pg_enum_oid").is_some());
    }

    #[test]
    fn no_word_stands_twice() {
        let mut words: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
        words.sort_unstable();
        let len = words.len();
        words.dedup();
        assert_eq!(words.len(), len);
        assert!(words.iter().all(|word| *word == word.to_ascii_lowercase()));
    }
}
