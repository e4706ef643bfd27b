//! A tokenizer for the SQL of this world.

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A key word or an identifier without quotes, in lower case.
    Word(String),
    /// An identifier in double quotes.
    Quoted(String),
    /// A string literal.
    Text(String),
    Number(String),
    /// `$1`: its number.
    Parameter(usize),
    Symbol(char),
}

/// Splits a text at its top-level semicolons. A text with invalid tokens is one part.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        if text.as_bytes()[at] == b';' {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        match skip(&text[at..]) {
            Some(len) => at += len,
            None => break,
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the length in bytes of the string, comment or character at the start.
fn skip(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    Some(match first {
        '\'' | '"' => quoted(text, first, false)?.1,
        'E' | 'e' if text[1..].starts_with('\'') => 1 + quoted(&text[1..], '\'', true)?.1,
        '/' if text.starts_with("/*") => text.find("*/")? + 2,
        '-' if text.starts_with("--") => text.find('\n').map_or(text.len(), |end| end + 1),
        'a'..='z' | 'A'..='Z' | '_' => word_len(text),
        other => other.len_utf8(),
    })
}

fn word_len(text: &str) -> usize {
    let is_in = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    text.find(|c| !is_in(c)).unwrap_or(text.len())
}

/// Returns the content of the literal at the start, and the literal's length.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<(String, usize)> {
    let mut contents = String::new();
    let mut rest = text[1..].char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        if c == quote {
            match rest.peek() {
                Some(&(_, next)) if next == quote => rest.next(),
                _ => return Some((contents, at + 2)),
            };
        } else if c == '\\' && escapes {
            contents.push(rest.next()?.1);
            continue;
        }
        contents.push(c);
    }
    None
}

/// Returns the tokens of a text, or `None` if one is invalid.
pub(super) fn lex(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = skip(rest)?;
        let piece = &rest[..len];
        match first {
            '\'' => tokens.push(Token::Text(quoted(rest, '\'', false)?.0)),
            '"' => tokens.push(Token::Quoted(quoted(rest, '"', false)?.0)),
            'E' | 'e' if piece.ends_with('\'') => {
                tokens.push(Token::Text(quoted(&rest[1..], '\'', true)?.0));
            }
            '/' | '-' if len > 1 => {}
            c if c.is_whitespace() => {}
            'a'..='z' | 'A'..='Z' | '_' => tokens.push(Token::Word(piece.to_ascii_lowercase())),
            '0'..='9' => {
                let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
                let digits = digits.unwrap_or(rest.len());
                tokens.push(Token::Number(rest[..digits].to_owned()));
                rest = &rest[digits..];
                continue;
            }
            '$' => {
                let digits = rest[1..].find(|c: char| !c.is_ascii_digit());
                let digits = digits.unwrap_or(rest.len() - 1);
                tokens.push(Token::Parameter(rest[1..=digits].parse().ok()?));
                rest = &rest[1 + digits..];
                continue;
            }
            other => tokens.push(Token::Symbol(other)),
        }
        rest = &rest[len..];
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        assert_eq!(split("a;b"), ["a", "b"]);
        assert_eq!(split("a ';' b;"), ["a ';' b", ""]);
        assert_eq!(split("/* ; */ a; -- ;\n b"), ["/* ; */ a", " -- ;\n b"]);
        assert_eq!(split(r#"E'\';' ";";x"#), [r#"E'\';' ";""#, "x"]);
    }

    #[test]
    fn tokens() {
        let word = |text: &str| Token::Word(text.into());
        assert_eq!(
            lex("Select 'it''s', E'a\\\\b' /* c */ \"Q\" $1 2.5"),
            Some(vec![
                word("select"),
                Token::Text("it's".into()),
                Token::Symbol(','),
                Token::Text("a\\b".into()),
                Token::Quoted("Q".into()),
                Token::Parameter(1),
                Token::Number("2.5".into()),
            ])
        );
        assert_eq!(lex("'open"), None);
    }
}
