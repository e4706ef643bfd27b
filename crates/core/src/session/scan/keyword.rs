//! The key words that matter.

/// A key word that decides something. `None` of them: any other word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    As,
    Delete,
    Distinct,
    Do,
    Except,
    Execute,
    Extract,
    Fetch,
    For,
    From,
    Group,
    Having,
    Insert,
    Intersect,
    Into,
    Is,
    Join,
    Lateral,
    Limit,
    Merge,
    Not,
    Offset,
    Only,
    Order,
    Ordinality,
    Overlay,
    Recursive,
    Returning,
    Select,
    Set,
    Substring,
    Table,
    Trim,
    Union,
    Update,
    Using,
    Values,
    Where,
    Window,
    With,
}

/// The longest word that is looked at.
const LEN_MAX: usize = 24;

/// A word in lower case, if it is short enough to be a key word.
pub(super) fn lower<'b>(word: &[u8], buffer: &'b mut [u8; LEN_MAX]) -> &'b [u8] {
    let Some(out) = buffer.get_mut(..word.len()) else {
        return b"";
    };
    out.copy_from_slice(word);
    out.make_ascii_lowercase();
    out
}

pub(super) fn buffer() -> [u8; LEN_MAX] {
    [0; LEN_MAX]
}

/// The key words, and what they are.
const KEYWORDS: [(&str, Keyword); 40] = [
    ("as", Keyword::As),
    ("delete", Keyword::Delete),
    ("distinct", Keyword::Distinct),
    ("do", Keyword::Do),
    ("except", Keyword::Except),
    ("execute", Keyword::Execute),
    ("extract", Keyword::Extract),
    ("fetch", Keyword::Fetch),
    ("for", Keyword::For),
    ("from", Keyword::From),
    ("group", Keyword::Group),
    ("having", Keyword::Having),
    ("insert", Keyword::Insert),
    ("intersect", Keyword::Intersect),
    ("into", Keyword::Into),
    ("is", Keyword::Is),
    ("join", Keyword::Join),
    ("lateral", Keyword::Lateral),
    ("limit", Keyword::Limit),
    ("merge", Keyword::Merge),
    ("not", Keyword::Not),
    ("offset", Keyword::Offset),
    ("only", Keyword::Only),
    ("order", Keyword::Order),
    ("ordinality", Keyword::Ordinality),
    ("overlay", Keyword::Overlay),
    ("recursive", Keyword::Recursive),
    ("returning", Keyword::Returning),
    ("select", Keyword::Select),
    ("set", Keyword::Set),
    ("substring", Keyword::Substring),
    ("table", Keyword::Table),
    ("trim", Keyword::Trim),
    ("union", Keyword::Union),
    ("update", Keyword::Update),
    ("using", Keyword::Using),
    ("values", Keyword::Values),
    ("where", Keyword::Where),
    ("window", Keyword::Window),
    ("with", Keyword::With),
];

const SLOTS_LEN: usize = 128;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Places in `KEYWORDS` by a hash of the first eight letters and the length, counted from one; zero
/// is a free slot. A taken one leads to the next.
static SLOTS: [u8; SLOTS_LEN] = {
    let mut slots = [0; SLOTS_LEN];
    let mut number = 0;
    while number < KEYWORDS.len() {
        let mut slot = slot(
            eight(KEYWORDS[number].0.as_bytes()),
            KEYWORDS[number].0.len(),
        );
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOTS_LEN;
        }
        slots[slot] = number as u8 + 1;
        number += 1;
    }
    slots
};

/// The first eight letters, in lower case.
const fn eight(word: &[u8]) -> u64 {
    let mut eight = 0;
    let mut at = 0;
    while at < word.len() && at < 8 {
        eight |= ((word[at] | 0x20) as u64) << (8 * at);
        at += 1;
    }
    eight
}

const fn slot(eight: u64, len: usize) -> usize {
    ((eight ^ len as u64).wrapping_mul(MULTIPLIER) >> 57) as usize
}

impl Keyword {
    /// The key word that stands in `text` from `start` to `end`, in any case.
    pub(super) fn of(text: &[u8], start: usize, end: usize) -> Option<Self> {
        let len = end - start;
        if !(2..=10).contains(&len) {
            return None;
        }
        let letters = match text.get(start..)?.first_chunk::<8>() {
            Some(next) => {
                let lower = u64::from_le_bytes(*next) | 0x2020_2020_2020_2020;
                lower & u64::MAX >> (64 - 8 * len.min(8))
            }
            None => eight(text.get(start..end)?),
        };
        let mut slot = slot(letters, len);
        while SLOTS[slot] != 0 {
            let (word, keyword) = KEYWORDS[usize::from(SLOTS[slot]) - 1];
            if word.len() == len && text[start..end].eq_ignore_ascii_case(word.as_bytes()) {
                return Some(keyword);
            }
            slot = (slot + 1) % SLOTS_LEN;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all() {
        for (word, keyword) in KEYWORDS {
            for text in [
                word.to_owned(),
                format!("{}; and more", word.to_uppercase()),
            ] {
                let found = Keyword::of(text.as_bytes(), 0, word.len());
                assert_eq!(found, Some(keyword), "{text}");
                assert_eq!(
                    Keyword::of(text.as_bytes(), 0, word.len() - 1),
                    None,
                    "{text}"
                );
            }
        }
        for word in [
            "",
            "a",
            "fro",
            "fromm",
            "selects",
            "returninG_",
            "intersects",
        ] {
            assert_eq!(Keyword::of(word.as_bytes(), 0, word.len()), None, "{word}");
        }
    }
}
