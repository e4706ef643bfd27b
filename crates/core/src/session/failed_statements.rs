//! The errors with which servers refused to prepare a client's statements.

use std::fmt;

/// The most bytes that are kept for one client. Errors beyond that are dropped.
const BYTES_MAX: usize = 64 * 1024;

/// Names of statements, each with the body of the ErrorResponse to its Parse or PREPARE.
#[derive(Default)]
pub struct FailedStatements {
    entries: Vec<Entry>,
}

struct Entry {
    name: Box<[u8]>,
    error: Box<[u8]>,
}

impl FailedStatements {
    /// Notes the error of the last attempt to prepare this statement.
    pub fn note(&mut self, name: &[u8], error: &[u8]) {
        self.entries.retain(|known| *known.name != *name);
        let kept: usize = self.entries.iter().map(|known| known.error.len()).sum();
        if kept + error.len() <= BYTES_MAX {
            self.entries.push(Entry {
                name: name.into(),
                error: error.into(),
            });
        }
    }

    /// Returns the error of the last attempt to prepare this statement.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.entries.iter().find(|known| *known.name == *name);
        found.map(|known| &*known.error)
    }

    /// Drops the errors of all names for which `wanted` is false.
    pub fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        self.entries.retain(|known| wanted(&known.name));
    }
}

impl fmt::Debug for FailedStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error may contain secrets.
        let names = self.entries.iter();
        let names = names.map(|known| String::from_utf8_lossy(&known.name));
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries() {
        let mut unmade = FailedStatements::default();
        unmade.note(b"a", b"one");
        unmade.note(b"b", b"two");
        assert_eq!(unmade.get(b"a"), Some(&b"one"[..]));
        assert_eq!(unmade.get(b"c"), None);
        unmade.note(b"b", &[b'x'; BYTES_MAX - 2]);
        assert_eq!(unmade.get(b"b"), None, "too much");
        unmade.note(b"a", &[b'x'; BYTES_MAX]);
        assert_eq!(unmade.get(b"a").map(<[u8]>::len), Some(BYTES_MAX));
        assert_eq!(format!("{unmade:?}"), r#"["a"]"#);
        unmade.retain(|name| name == b"b");
        assert_eq!(unmade.get(b"a"), None);
    }
}
