//! The value of an entry of `[databases]`, `[users]` or `[peers]`: `key=value key='a value'`.

/// Returns the pairs in their order, or a description of the problem. The description quotes no text, which may be a
/// secret.
pub(crate) fn pairs(text: &str) -> Result<Vec<(&str, String)>, &'static str> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let after = after
            .trim_start()
            .strip_prefix('=')
            .ok_or("expected key=value, separated by spaces")?;
        if key.is_empty() {
            return Err("expected a key before \"=\"");
        }
        let (value, after) = value(after.trim_start())?;
        if value.is_empty() {
            return Err("expected a value after each \"=\"");
        }
        pairs.push((key, value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn value(text: &str) -> Result<(String, &str), &'static str> {
    let Some(mut rest) = text.strip_prefix('\'') else {
        let end = text
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(text.len());
        return Ok((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    loop {
        let (part, after) = rest
            .split_once('\'')
            .ok_or("expected a closing single quote")?;
        value.push_str(part);
        let Some(more) = after.strip_prefix('\'') else {
            return Ok((value, after));
        };
        value.push('\'');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&[(&str, &str)], &'static str>) {
        let expect = expect.map(|pairs| {
            pairs
                .iter()
                .map(|(k, v)| (*k, (*v).to_owned()))
                .collect::<Vec<_>>()
        });
        assert_eq!(pairs(text), expect, "{text:?}");
    }

    #[test]
    fn pairs_are_split() {
        check("", Ok(&[]));
        check("a=b", Ok(&[("a", "b")]));
        check(" a = b  c= 'd e' ", Ok(&[("a", "b"), ("c", "d e")]));
        check(
            "a='it''s' b='''' c=x'y",
            Ok(&[("a", "it's"), ("b", "'"), ("c", "x'y")]),
        );
        check("q='SELECT 1'r=2", Ok(&[("q", "SELECT 1"), ("r", "2")]));
        check("a=b=c", Ok(&[("a", "b=c")]));
    }

    #[test]
    fn wrong_text_is_refused() {
        check("a", Err("expected key=value, separated by spaces"));
        check("a b=c", Err("expected key=value, separated by spaces"));
        check("=b", Err("expected a key before \"=\""));
        check("a=", Err("expected a value after each \"=\""));
        check("a=''", Err("expected a value after each \"=\""));
        check("a='b", Err("expected a closing single quote"));
    }
}
