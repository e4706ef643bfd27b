//! Checks of single values that a type alone does not make.

use crate::{SslMode, is_console};

/// What a check found.
pub(crate) enum Verdict {
    /// Nothing.
    Fine,
    /// Accepted, but the operator should know this.
    Note(&'static str),
    /// Refused: what would be right, as the end of "expected ...".
    Wrong(String),
}

/// A number within bounds, both included.
pub(crate) fn between<const MIN: u32, const MAX: u32>(value: &u32) -> Verdict {
    if (MIN..=MAX).contains(value) {
        Verdict::Fine
    } else {
        Verdict::Wrong(format!("a whole number, {MIN} to {MAX}"))
    }
}

/// Names of extensions: what stands in a query between quotes.
#[allow(clippy::ptr_arg, reason = "the value of a setting, as it is")]
pub(crate) fn extension_names(value: &Vec<String>) -> Verdict {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match value.iter().find(|name| !name.bytes().all(is_of_name)) {
        None => Verdict::Fine,
        Some(name) => Verdict::Wrong(format!(
            "names of extensions, of letters, digits, _ and - (\"{name}\" is none)"
        )),
    }
}

/// A database that is not the console.
pub(crate) fn not_console(value: &Option<String>) -> Verdict {
    match value {
        Some(name) if is_console(name) => Verdict::Wrong(format!(
            "another database (cannot use the reserved \"{name}\" database as an auth_dbname)"
        )),
        _ => Verdict::Fine,
    }
}

/// A group of Diffie-Hellman, as PgBouncer names them.
#[allow(clippy::ptr_arg, reason = "the value of a setting, as it is")]
pub(crate) fn dhe_params(value: &String) -> Verdict {
    let known = ["none", "auto", "legacy"];
    if value.is_empty() || known.iter().any(|name| name.eq_ignore_ascii_case(value)) {
        Verdict::Fine
    } else {
        Verdict::Wrong("none, auto or legacy".to_owned())
    }
}

/// Tells what becomes of a mode that libpq has another meaning for.
pub(crate) fn allow_prefers(value: &SslMode) -> Verdict {
    match value {
        SslMode::Allow => Verdict::Note("allow is prefer, as in PgBouncer: TLS is asked for first"),
        _ => Verdict::Fine,
    }
}
