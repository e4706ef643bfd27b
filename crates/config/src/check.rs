//! Checks of the value of one setting that its type does not make, such as bounds.

use crate::{Micros, SslMode, SyslogFacility, is_console, value::Value};

/// The result of a check.
pub(crate) enum Verdict {
    /// The value has no problem.
    Fine,
    /// The value is accepted, with this message for the operator.
    Note(&'static str),
    /// The value is refused. The text is the right form, as the end of "expected ...".
    Wrong(String),
}

/// Checks that a number is within bounds, both included.
pub(crate) fn between<const MIN: u32, const MAX: u32>(value: &u32) -> Verdict {
    if (MIN..=MAX).contains(value) {
        Verdict::Fine
    } else {
        Verdict::Wrong(format!("a whole number, {MIN} to {MAX}"))
    }
}

/// Checks that a time is above zero.
pub(crate) fn above_zero(value: &Micros) -> Verdict {
    match value.is_zero() {
        true => Verdict::Wrong("a time above 0".to_owned()),
        false => Verdict::Fine,
    }
}

/// Checks names of extensions, which are quoted in a query.
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

/// Checks that a database is not the console.
pub(crate) fn not_console(value: &Option<String>) -> Verdict {
    match value {
        Some(name) if is_console(name) => Verdict::Wrong(format!(
            "another database (cannot use the reserved \"{name}\" database as an auth_dbname)"
        )),
        _ => Verdict::Fine,
    }
}

/// The sensible bounds of `max_packet_size`: a smaller packet has no room for an error, and the length field of a
/// message can't hold a larger size.
pub(crate) const PACKET_MIN: u32 = 1_024;
pub(crate) const PACKET_MAX: u32 = 2_147_483_647;

/// Checks a port on which another program listens.
pub(crate) fn port(value: &u16) -> Verdict {
    match value {
        0 => Verdict::Wrong("a port number, 1 to 65535".to_owned()),
        _ => Verdict::Fine,
    }
}

/// Adds a message about a port that the system will choose.
pub(crate) fn port_to_listen_on(value: &u16) -> Verdict {
    match value {
        0 => Verdict::Note(
            "0 lets the system choose a port for each address, which the log names at each start",
        ),
        _ => Verdict::Fine,
    }
}

/// Checks that a name can be a part of a key in etcd.
#[allow(clippy::ptr_arg, reason = "the value of a setting, as it is")]
pub(crate) fn fleet_name(value: &String) -> Verdict {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=63).contains(&value.len()) && value.bytes().all(is_plain) {
        true => Verdict::Fine,
        false => Verdict::Wrong("1 to 63 letters, digits, and any of - _ .".to_owned()),
    }
}

/// Adds a message about an unknown facility.
#[allow(clippy::ptr_arg, reason = "the value of a setting, as it is")]
pub(crate) fn facility(value: &String) -> Verdict {
    match SyslogFacility::parse(value) {
        Ok(_) => Verdict::Fine,
        Err(_) => Verdict::Note("there is no such facility: daemon is used, as in PgBouncer"),
    }
}

/// Adds a message about a limit with which PgBouncer would start.
pub(crate) fn packet_size(value: &u32) -> Verdict {
    match *value {
        0..PACKET_MIN => Verdict::Note("less than 1024 counts as 1024"),
        PACKET_MIN..=PACKET_MAX => Verdict::Fine,
        _ => Verdict::Note("more than 2147483647 counts as 2147483647: no message is longer"),
    }
}

/// Adds a message about a mode that has another meaning in libpq.
pub(crate) fn allow_prefers(value: &SslMode) -> Verdict {
    match value {
        SslMode::Allow => Verdict::Note("allow is prefer, as in PgBouncer: TLS is asked for first"),
        _ => Verdict::Fine,
    }
}
