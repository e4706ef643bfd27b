//! Checks of single values that a type alone does not make.

use crate::{Micros, SslMode, SyslogFacility, is_console, value::Value};

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

/// A time that ends.
pub(crate) fn above_zero(value: &Micros) -> Verdict {
    match value.is_zero() {
        true => Verdict::Wrong("a time above 0".to_owned()),
        false => Verdict::Fine,
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

/// The bounds of `max_packet_size` that are sensible: less has no room for an error, more the length of
/// a message does not reach.
pub(crate) const PACKET_MIN: u32 = 1_024;
pub(crate) const PACKET_MAX: u32 = 2_147_483_647;

/// A port that somebody listens on.
pub(crate) fn port(value: &u16) -> Verdict {
    match value {
        0 => Verdict::Wrong("a port number, 1 to 65535".to_owned()),
        _ => Verdict::Fine,
    }
}

/// Tells what becomes of a port that the system is to choose.
pub(crate) fn port_to_listen_on(value: &u16) -> Verdict {
    match value {
        0 => Verdict::Note(
            "0 lets the system choose a port for each address, which the log names at each start",
        ),
        _ => Verdict::Fine,
    }
}

/// Tells what becomes of a name that stands for no facility.
#[allow(clippy::ptr_arg, reason = "the value of a setting, as it is")]
pub(crate) fn facility(value: &String) -> Verdict {
    match SyslogFacility::parse(value) {
        Ok(_) => Verdict::Fine,
        Err(_) => Verdict::Note("there is no such facility: daemon is used, as in PgBouncer"),
    }
}

/// Tells what becomes of a limit that PgBouncer would start with.
pub(crate) fn packet_size(value: &u32) -> Verdict {
    match *value {
        0..PACKET_MIN => Verdict::Note("less than 1024 counts as 1024"),
        PACKET_MIN..=PACKET_MAX => Verdict::Fine,
        _ => Verdict::Note("more than 2147483647 counts as 2147483647: no message is longer"),
    }
}

/// Tells what becomes of a mode that libpq has another meaning for.
pub(crate) fn allow_prefers(value: &SslMode) -> Verdict {
    match value {
        SslMode::Allow => Verdict::Note("allow is prefer, as in PgBouncer: TLS is asked for first"),
        _ => Verdict::Fine,
    }
}
