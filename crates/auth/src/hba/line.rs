//! Splits a file into lines, fields and words.

use std::iter;

use super::Wrong;

/// A word of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The word without its quotes.
    pub(super) text: String,
    /// Whether the word began with a quote: then it is a name, even if it reads like a keyword.
    pub(super) quoted: bool,
}

impl Word {
    /// Returns whether the word is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }

    /// Returns the text after this mark, if an unquoted word begins with it.
    pub(super) fn after(&self, mark: char) -> Option<&str> {
        self.text.strip_prefix(mark).filter(|_| !self.quoted)
    }
}

/// Returns the lines of a text with their numbers, from 1. A backslash at the end joins the next line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut rest = (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines());
    iter::from_fn(move || {
        let (number, first) = rest.next()?;
        let mut line = first.to_owned();
        while line.ends_with('\\') {
            line.pop();
            match rest.next() {
                Some((_, next)) => line.push_str(next),
                None => break,
            }
        }
        Some((number, line))
    })
}

/// Returns the fields of a line. A field has one word, or several with commas between them.
pub(super) fn fields(line: &str) -> Result<Vec<Vec<Word>>, Wrong> {
    let mut fields: Vec<Vec<Word>> = Vec::new();
    let mut continues = false;
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        match rest.chars().next() {
            None | Some('#') => return Ok(fields),
            Some(',') => {
                continues = true;
                rest = &rest[1..];
            }
            Some(_) => {
                let (word, after) = word(rest)?;
                rest = after;
                match fields.last_mut() {
                    Some(field) if continues => field.push(word),
                    _ => fields.push(vec![word]),
                }
                continues = false;
            }
        }
    }
}

/// Returns the first word of a text, and the rest.
fn word(text: &str) -> Result<(Word, &str), Wrong> {
    let mut word = Word {
        text: String::new(),
        quoted: text.starts_with('"'),
    };
    let (mut in_quotes, mut was_quote) = (false, false);
    for (at, c) in text.char_indices() {
        if c == '"' {
            // Within quotes, two quotes stand for one.
            if was_quote {
                word.text.push('"');
            }
            was_quote = in_quotes;
            in_quotes = !in_quotes;
            continue;
        }
        was_quote = false;
        let ends = c == ',' || c == '#' || c.is_ascii_whitespace() || c == '\x0b';
        if ends && !in_quotes {
            return Ok((word, &text[at..]));
        }
        word.text.push(c);
    }
    match in_quotes {
        true => Err(Wrong::QuoteOpen),
        false => Ok((word, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: &[&[&str]]) {
        let fields = fields(line).expect("a line");
        let found: Vec<Vec<String>> = fields
            .iter()
            .map(|field| {
                let marked =
                    |word: &Word| format!("{}{}", if word.quoted { "'" } else { "" }, word.text);
                field.iter().map(marked).collect()
            })
            .collect();
        assert_eq!(found, expect, "{line}");
    }

    #[test]
    fn words_commas_and_quotes() {
        check("", &[]);
        check("   # nothing", &[]);
        check(
            "local all\tall md5 # why",
            &[&["local"], &["all"], &["all"], &["md5"]],
        );
        check("a,b , c d", &[&["a", "b", "c"], &["d"]]);
        check(
            r#""all" "q1""q2" "a , b#""#,
            &[&["'all"], &["'q1\"q2"], &["'a , b#"]],
        );
        check(r#"ldapprefix="uid=" x"#, &[&["ldapprefix=uid="], &["x"]]);
        check(
            r#""ldapport"=1 ,filter="(a b)""#,
            &[&["'ldapport=1", "filter=(a b)"]],
        );
        check(r#""" a#b"#, &[&["'"], &["a"]]);
        assert_eq!(fields(r#"local "all md5"#), Err(Wrong::QuoteOpen));
    }

    #[test]
    fn a_backslash_joins_lines() {
        let joined: Vec<_> = lines("a \\\nb\nc\\").collect();
        assert_eq!(joined, [(1, "a b".to_owned()), (3, "c".to_owned())]);
    }
}
