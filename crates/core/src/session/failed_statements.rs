//! Why a client's statements could not be made on a server.

use std::fmt;

/// What is kept of one client. The errors beyond that are not.
const BYTES_MAX: usize = 64 * 1024;

/// Names of statements, and the body of the ErrorResponse that came of trying to make each.
#[derive(Default)]
pub struct FailedStatements {
    entries: Vec<Entry>,
}

struct Entry {
    name: Box<[u8]>,
    error: Box<[u8]>,
}

impl FailedStatements {
    /// This is what came of the last try.
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

    /// What came of trying to make it.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.entries.iter().find(|known| *known.name == *name);
        found.map(|known| &*known.error)
    }

    /// Only these are of interest any more.
    pub fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        self.entries.retain(|known| wanted(&known.name));
    }
}

impl fmt::Debug for FailedStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error may hold secrets.
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
