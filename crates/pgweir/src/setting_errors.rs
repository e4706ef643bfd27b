//! Errors that appear after the ini file was parsed, each with the place of the setting that caused it: file, line
//! and key.

use std::{collections::BTreeMap, fmt::Display, io};

use nix::unistd::{Uid, User};
use pgweir_config::Place;

/// The place of each key of `[pgbouncer]` that was set.
pub(crate) type Places = BTreeMap<&'static str, Place>;

/// Returns an error's message after the place and the name of the setting that caused it.
pub(crate) fn placed(place: &Place, key: &str, error: &dyn Display) -> String {
    let words = error.to_string();
    if words.contains(key) {
        format!("{place}: {words}")
    } else {
        format!("{place}: {key}: {words}")
    }
}

/// The intended use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
}

/// Returns advice for the end of an error message about a file.
pub(crate) fn remedy(error: &io::Error, access: FileAccess) -> String {
    match (error.kind(), access) {
        (io::ErrorKind::NotFound, FileAccess::Read) => ": name a file that is there".to_owned(),
        (io::ErrorKind::NotFound, FileAccess::Write) => {
            ": name a file in a folder that is there".to_owned()
        }
        (io::ErrorKind::PermissionDenied, FileAccess::Read) => {
            format!(": make it readable for user {}", running_user())
        }
        (io::ErrorKind::PermissionDenied, FileAccess::Write) => {
            format!(": make it writable for user {}", running_user())
        }
        _ => String::new(),
    }
}

/// Returns the user that this process runs as.
pub(crate) fn running_user() -> String {
    let uid = Uid::effective();
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_named_once() {
        let place = Place {
            file: "a.ini".into(),
            line: 3,
        };
        assert_eq!(
            placed(&place, "logfile", &"cannot open /x.log"),
            "a.ini:3: logfile: cannot open /x.log"
        );
        assert_eq!(
            placed(&place, "pidfile", &"pidfile /x: locked"),
            "a.ini:3: pidfile /x: locked"
        );
    }
}
