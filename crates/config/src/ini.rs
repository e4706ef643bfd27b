//! Splits the text of an ini file into sections, keys and includes.

use std::borrow::Cow;

/// A line that is not empty, and not a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// `[name]`
    Section(String),
    /// `%include path`
    Include(String),
    /// `key = value`. Neither has space at its ends.
    Entry { key: String, value: String },
}

/// Returns the lines of `text` that are not empty and not comments, with their numbers; for an invalid line, the right
/// form. An invalid line does not end the iteration.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, Result<Line, &'static str>)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    logical_lines(text)
        .flat_map(|(number, line)| meanings(&line).into_iter().map(move |line| (number, line)))
}

/// Returns the lines of a text. A backslash at the end of a line joins the next one, except in a comment.
fn logical_lines(text: &str) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
    let mut physical = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, first) = physical.next()?;
        if is_comment(first) || !first.ends_with('\\') {
            return Some((index + 1, Cow::Borrowed(first)));
        }
        let mut joined = first[..first.len() - 1].to_owned();
        for (_, next) in physical.by_ref() {
            let Some(part) = next.strip_suffix('\\') else {
                joined.push_str(next);
                break;
            };
            joined.push_str(part);
        }
        Some((index + 1, Cow::Owned(joined)))
    })
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with([';', '#'])
}

/// Parses a line: nothing, one item, or a section and an entry after it.
fn meanings(line: &str) -> Vec<Result<Line, &'static str>> {
    let line = line.trim();
    if line.is_empty() || is_comment(line) {
        return Vec::new();
    }
    if line.contains('\0') {
        return vec![Err("text without zero bytes")];
    }
    let Some(section) = line.strip_prefix('[') else {
        return vec![meaning(line)];
    };
    let Some((name, rest)) = section.split_once(']') else {
        return vec![Err("\"]\" at the end of the section's name")];
    };
    let mut lines = vec![Ok(Line::Section(name.to_owned()))];
    let rest = rest.trim_start();
    if !rest.is_empty() && !is_comment(rest) {
        lines.push(meaning(rest));
    }
    lines
}

fn meaning(line: &str) -> Result<Line, &'static str> {
    if let Some(directive) = line.strip_prefix('%') {
        let path = directive
            .strip_prefix("include")
            .filter(|rest| rest.starts_with([' ', '\t']));
        let path = path.map(str::trim).filter(|path| !path.is_empty());
        return path
            .map(|path| Line::Include(path.to_owned()))
            .ok_or("\"%include file\"");
    }
    let (key, rest) = if line.starts_with('"') {
        quoted_key(line)?
    } else {
        plain_key(line)?
    };
    let value = rest
        .trim_start()
        .strip_prefix('=')
        .ok_or("\"=\" after the key")?;
    Ok(Line::Entry {
        key,
        value: value.trim().to_owned(),
    })
}

fn plain_key(line: &str) -> Result<(String, &str), &'static str> {
    let end = line
        .find(|c: char| c == '=' || c.is_whitespace())
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    if key.is_empty() {
        return Err("\"key = value\"");
    }
    // The message leaves the exact rule out. PgBouncer's is narrower: letters, digits, and _ . - *
    if key.contains('"') {
        Err("a name between double quotes, or without any")
    } else {
        Ok((key.to_owned(), rest))
    }
}

/// Parses a name that is quoted as in SQL: `"my ""db"""`.
fn quoted_key(line: &str) -> Result<(String, &str), &'static str> {
    let mut key = String::new();
    let mut rest = &line[1..];
    loop {
        let (part, after) = rest
            .split_once('"')
            .ok_or("a closing double quote after the name")?;
        key.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                key.push('"');
                rest = more;
            }
            None if key.is_empty() => return Err("a name between the double quotes"),
            None => return Ok((key, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(usize, &str)]) {
        let lines: Vec<_> = lines(text)
            .map(|(number, line)| match line {
                Ok(Line::Section(name)) => (number, format!("[{name}]")),
                Ok(Line::Include(path)) => (number, format!("%{path}")),
                Ok(Line::Entry { key, value }) => (number, format!("{key}|{value}")),
                Err(expected) => (number, format!("! {expected}")),
            })
            .collect();
        let lines: Vec<_> = lines
            .iter()
            .map(|(number, line)| (*number, line.as_str()))
            .collect();
        assert_eq!(lines, expect, "{text:?}");
    }

    #[test]
    fn lines_have_meanings() {
        check("", &[]);
        check("\n \n; a\n  # b\n", &[]);
        check("[a]\nb=c", &[(1, "[a]"), (2, "b|c")]);
        check(
            "\u{feff}[a]\r\n  b =  c d \t\r\n",
            &[(1, "[a]"), (2, "b|c d")],
        );
        check(
            "[a] ; why\n[b] x = 1",
            &[(1, "[a]"), (2, "[b]"), (2, "x|1")],
        );
        check("a = b ; c # d", &[(1, "a|b ; c # d")]);
        check("a =", &[(1, "a|")]);
        check("a = b=c d='e'", &[(1, "a|b=c d='e'")]);
        check("* = host=x", &[(1, "*|host=x")]);
        check("\"my \"\"db\" = x", &[(1, "my \"db|x")]);
        check("a = b \\\n  c\nd=e", &[(1, "a|b   c"), (3, "d|e")]);
        check("a = b\\\r\nc", &[(1, "a|bc")]);
        check("; a \\\nb = c", &[(2, "b|c")]);
        check("a = b \\", &[(1, "a|b")]);
        check("%include  /x y.ini ", &[(1, "%/x y.ini")]);
    }

    #[test]
    fn wrong_lines_do_not_end_the_file() {
        check(
            "[a\nb = c",
            &[(1, "! \"]\" at the end of the section's name"), (2, "b|c")],
        );
        check("a\nb = c", &[(1, "! \"=\" after the key"), (2, "b|c")]);
        check("a b = c", &[(1, "! \"=\" after the key")]);
        check("= c", &[(1, "! \"key = value\"")]);
        check("\"a = c", &[(1, "! a closing double quote after the name")]);
        check("\"\" = c", &[(1, "! a name between the double quotes")]);
        check(
            "a\"b = c",
            &[(1, "! a name between double quotes, or without any")],
        );
        check(
            "%includex\n%other y\n%include",
            &[
                (1, "! \"%include file\""),
                (2, "! \"%include file\""),
                (3, "! \"%include file\""),
            ],
        );
        check("a = b\0c", &[(1, "! text without zero bytes")]);
    }
}
