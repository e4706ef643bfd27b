//! Parses a line of the userlist.

use std::fmt;

use zeroize::Zeroizing;

use crate::MAX_SECRET_BYTES;

/// The fault of a line of the userlist. `Display` says how to correct the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The line starts with neither a quote nor the mark of a comment.
    NoQuote,
    /// The user name has no closing quote on this line.
    UserNotClosed,
    /// There is no second quoted string.
    SecretMissing,
    /// The secret has no closing quote on this line.
    SecretNotClosed,
    /// The secret is longer than [`MAX_SECRET_BYTES`].
    SecretTooLong,
    /// The line contains a NUL byte.
    Nul,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoQuote => {
                "expected \"user\" \"secret\"; put the user name in double quotes, \
                 or start the line with ; if it is a comment"
            }
            Self::UserNotClosed => {
                "the user name has no closing double quote on this line; \
                 a double quote inside a name is written twice"
            }
            Self::SecretMissing => {
                "the user has no secret; put one in double quotes after the name, \
                 \"\" for a user who never logs in by password"
            }
            Self::SecretNotClosed => {
                "the secret has no closing double quote on this line; \
                 a double quote inside a secret is written twice"
            }
            Self::SecretTooLong => {
                return write!(f, "the secret is longer than {MAX_SECRET_BYTES} bytes");
            }
            Self::Nul => "there is a NUL byte in the line; delete it",
        })
    }
}

/// Returns the user and the secret of a line, or `None` for an empty line or a comment.
pub(super) fn parse(line: &str) -> Result<Option<(String, Zeroizing<String>)>, Fault> {
    let line = line.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    if line.is_empty() || line.starts_with([';', '#']) {
        return Ok(None);
    }
    if line.contains('\0') {
        return Err(Fault::Nul);
    }
    let after_quote = line.strip_prefix('"').ok_or(Fault::NoQuote)?;
    let (user, rest) = quoted(after_quote).ok_or(Fault::UserNotClosed)?;
    // PgBouncer accepts any text between the strings, so `"user", "secret"` works there.
    let (_, after_quote) = rest.split_once('"').ok_or(Fault::SecretMissing)?;
    let (secret, _) = quoted(after_quote).ok_or(Fault::SecretNotClosed)?;
    if secret.len() > MAX_SECRET_BYTES {
        return Err(Fault::SecretTooLong);
    }
    Ok(Some((String::clone(&user), secret)))
}

/// Returns the string up to its closing quote, with doubled quotes made single, and the text after the quote.
fn quoted(text: &str) -> Option<(Zeroizing<String>, &str)> {
    // The capacity suffices, so that no reallocation leaves a copy of the secret in freed memory.
    let mut value = Zeroizing::new(String::with_capacity(text.len()));
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        value.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
}
