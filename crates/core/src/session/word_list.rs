//! Lists of words, written as one string, which is split at compile time.

/// Returns the words of a list, which are separated by single blanks. The compiler checks their number.
pub(super) const fn words<const COUNT: usize>(list: &'static str) -> [&'static str; COUNT] {
    let mut words = [""; COUNT];
    let mut at = 0;
    let mut rest = list;
    while let Some((word, others)) = first_word(rest) {
        words[at] = word;
        (at, rest) = (at + 1, others);
    }
    assert!(at == COUNT, "the list has another number of words");
    words
}

/// Returns the first word of a list, and the others.
pub(super) const fn first_word(list: &'static str) -> Option<(&'static str, &'static str)> {
    let mut end = 0;
    while end < list.len() && list.as_bytes()[end] != b' ' {
        end += 1;
    }
    let (word, others) = list.split_at(end);
    match others.split_at_checked(1) {
        Some((_, others)) => Some((word, others)),
        None if word.is_empty() => None,
        None => Some((word, others)),
    }
}

/// Returns whether the word is one of these, in upper or lower case.
pub(super) fn is_any(word: &[u8], words: &[&str]) -> bool {
    let mut words = words.iter();
    words.any(|known| known.as_bytes().eq_ignore_ascii_case(word))
}

/// Returns whether the text begins with `with`, in upper or lower case.
pub(super) fn begins(text: &[u8], with: &str) -> bool {
    let begin = text.get(..with.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(words::<0>(""), [""; 0]);
        assert_eq!(words("drop"), ["drop"]);
        assert_eq!(words("create alter drop"), ["create", "alter", "drop"]);
        assert!(is_any(b"Alter", &words::<2>("create alter")));
        assert!(!is_any(b"alte", &["alter"]));
        assert!(begins(b"DROP table", "drop ") && !begins(b"dro", "drop"));
    }
}
