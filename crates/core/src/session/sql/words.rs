//! The words that the scanner looks for in a text: key words, and those names of PostgreSQL's own whose effects are
//! known. All are in one hash table.

use super::{
    Effects, Name, NameEffects, denied,
    meaning::{CHANGE, Key, Meaning},
};
use crate::session::word_list::{begins, first_word};

/// The key words by their meaning.
const KEYS: [(&str, Key); 32] = [
    ("abort begin start", Key::Begin),
    ("analyse analyze verbose", Key::Analyze),
    ("call", Key::Call),
    ("close", Key::Close),
    ("commit end", Key::Commit),
    ("copy", Key::Copy),
    ("deallocate", Key::Deallocate),
    ("declare", Key::Declare),
    ("delete", Key::Delete),
    ("discard", Key::Discard),
    ("do", Key::Do),
    ("execute", Key::Execute),
    ("explain", Key::Explain),
    ("fetch move", Key::Fetch),
    ("hold", Key::Hold),
    ("insert", Key::Insert),
    ("into", Key::Into),
    ("listen unlisten", Key::Listen),
    ("load", Key::Load),
    ("lock notify", Key::Lock),
    ("merge", Key::Merge),
    ("prepare", Key::Prepare),
    ("program", Key::Program),
    ("release savepoint", Key::Savepoint),
    ("reset", Key::Reset),
    ("rollback", Key::Rollback),
    ("select table values", Key::Select),
    ("set", Key::Set),
    ("show", Key::Show),
    ("truncate", Key::Truncate),
    ("update", Key::Update),
    ("with", Key::With),
];

/// The number of places in the table is 2^11.
const BITS: u32 = 11;
const PLACES: usize = 1 << BITS;

/// Returns a list of words with the same meaning.
const fn group(at: usize) -> (&'static str, Meaning) {
    match at.checked_sub(KEYS.len()) {
        None => (KEYS[at].0, Meaning::Key(KEYS[at].1)),
        Some(at) => denied::NAMES[at],
    }
}

/// Writes the words that have room, in lower case, and returns the number of all words.
const fn write_words(out: &mut [(&'static str, Meaning)]) -> usize {
    let mut len = 0;
    let mut at = 0;
    while at < KEYS.len() + denied::NAMES.len() {
        let (mut rest, meaning) = group(at);
        while let Some((word, others)) = first_word(rest) {
            if len < out.len() {
                out[len] = (word, meaning);
            }
            (len, rest) = (len + 1, others);
        }
        at += 1;
    }
    len
}

const LEN: usize = write_words(&mut []);

/// All words.
static WORDS: [(&str, Meaning); LEN] = {
    let mut words = [("", Meaning::SetConfig); LEN];
    write_words(&mut words);
    words
};

/// Maps the hash of a word to its index in [`WORDS`], counted from one; zero is a free place. A taken place leads to
/// the next.
static TABLE: [u16; PLACES] = {
    let mut table = [0; PLACES];
    let mut number = 0;
    while number < LEN {
        let mut place = Name::of(WORDS[number].0.as_bytes()).place(BITS);
        while table[place] != 0 {
            place = (place + 1) % PLACES;
        }
        table[place] = number as u16 + 1;
        number += 1;
    }
    table
};

/// A bit for each hash of a word, selected by the upper bits of the hash. Most words of a text have no meaning, and
/// this filter excludes most of these.
static FILTER: [u64; 128] = {
    let mut filter = [0; 128];
    let mut number = 0;
    while number < LEN {
        let bit = Name::of(WORDS[number].0.as_bytes()).place(13);
        filter[bit / 64] |= 1 << (bit % 64);
        number += 1;
    }
    filter
};

/// Returns whether a word with this hash may have a meaning. `false` is certain only for words that do not begin with p
/// or b.
#[inline]
pub(in crate::session) fn may_mean(name: Name, first: u8) -> bool {
    let bit = name.place(13);
    FILTER[bit / 64] >> (bit % 64) & 1 == 1 || matches!(first | 0x20, b'p' | b'b')
}

/// Returns the meaning of the word in `text` from `start` to `end`, in any case, which has the hash `name`. `None`: the
/// word has no meaning in any PostgreSQL.
pub(in crate::session) fn meaning(
    name: Name,
    text: &[u8],
    start: usize,
    end: usize,
) -> Option<Meaning> {
    let mut place = name.place(BITS);
    while TABLE[place] != 0 {
        let (word, meaning) = WORDS[usize::from(TABLE[place]) - 1];
        if word.len() == end - start && is_same(&text[start..end], word.as_bytes()) {
            return Some(meaning);
        }
        place = (place + 1) % PLACES;
    }
    match text.get(start) {
        Some(b'p' | b'P' | b'b' | b'B') => by_beginning(&text[start..end]),
        _ => None,
    }
}

/// Returns the effects that PostgreSQL's own function or relation of this name has on a session that uses it; `None` if
/// none is known. System catalogs that DDL writes to are left out: see [`is_catalog`].
pub(in crate::session) fn builtin_effects(name: &[u8]) -> Option<NameEffects> {
    let (read, write) = match meaning(Name::of(name), name, 0, name.len())? {
        Meaning::Name(_, CHANGE) | Meaning::Key(_) => return None,
        Meaning::Name(read, write) => (read, write),
        Meaning::SetConfig => (Effects::SETTING, Effects::NONE),
    };
    Some(NameEffects { read, write })
}

/// Returns whether this is a system catalog. Writing to it is DDL.
pub(in crate::session) fn is_catalog(name: &[u8]) -> bool {
    let meaning = meaning(Name::of(name), name, 0, name.len());
    matches!(meaning, Some(Meaning::Name(_, CHANGE)))
}

/// Returns whether both words are the same in any case. `word` is in lower case, and both have the same length. Bytes
/// that differ only in the bit for case count as equal. This is safe, since an identifier without quotes has no such
/// bytes other than letters.
#[inline]
fn is_same(found: &[u8], word: &[u8]) -> bool {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    let eights = |bytes: &[u8]| {
        let first = u64::from_le_bytes(*bytes.first_chunk()?) | FOLD;
        Some((first, u64::from_le_bytes(*bytes.last_chunk()?) | FOLD))
    };
    let fours = |bytes: &[u8]| {
        let first = u32::from_le_bytes(*bytes.first_chunk()?) | FOLD as u32;
        Some((
            first,
            u32::from_le_bytes(*bytes.last_chunk()?) | FOLD as u32,
        ))
    };
    match word.len() {
        8..=16 => eights(found) == eights(word),
        4..8 => fours(found) == fours(word),
        _ => found.eq_ignore_ascii_case(word),
    }
}

/// Returns the meaning of names that are known by their beginning.
fn by_beginning(name: &[u8]) -> Option<Meaning> {
    if begins(name, "pg_temp") {
        return Some(Meaning::Name(CHANGE, Effects::NONE));
    }
    begins(name, "binary_upgrade_").then_some(Meaning::Name(Effects::OPAQUE, Effects::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all() {
        let of = |word: &str| meaning(Name::of(word.as_bytes()), word.as_bytes(), 0, word.len());
        for (word, expect) in WORDS {
            for text in [
                word.to_owned(),
                format!("{}; and more", word.to_uppercase()),
            ] {
                let name = Name::at(text.as_bytes(), 0, word.len());
                let found = meaning(name, text.as_bytes(), 0, word.len());
                assert_eq!(found, Some(expect), "{text}");
                assert!(may_mean(name, text.as_bytes()[0]), "{text}");
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
