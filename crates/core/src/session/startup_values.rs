//! Startup values that a client's texts reset.
//!
//! Server connections do not have these values as their defaults, so RESET gives the parameter another value there than
//! in a direct session of the client. pgweir sets the startup values again at the end of the transaction.

use std::collections::BTreeSet;

use super::{
    Settings,
    plan::is_identity,
    sql::{Phrase, phrases},
};

/// Parameters with startup values that texts may have reset since [`ResetParameters::clear`].
#[derive(Debug, Default, PartialEq)]
pub struct ResetParameters {
    /// Names in lower case.
    names: BTreeSet<Vec<u8>>,
    /// Whether a text that was not buffered as a whole may have reset any of them.
    unread: bool,
}

impl ResetParameters {
    /// Notes a text that is sent to the server. `base` has the client's startup values. Returns whether the text resets
    /// any of them.
    #[cold]
    pub fn note(&mut self, text: &[u8], base: &Settings) -> bool {
        if base.is_empty() {
            return false;
        }
        let mut takes = false;
        let mut insert = |taken: &mut Self, name: &[u8]| {
            let name = name.to_ascii_lowercase();
            if base.get(&name).is_some() {
                taken.names.insert(name);
                takes = true;
            }
        };
        for phrase in phrases(text) {
            match phrase {
                Phrase::Reset(name)
                | Phrase::Set {
                    name,
                    to_default: true,
                    ..
                } => insert(self, &name),
                Phrase::Set { name, .. } | Phrase::SetConfig(Some(name)) => {
                    self.names.remove(&name.to_ascii_lowercase());
                }
                Phrase::ResetAll | Phrase::DiscardAll => {
                    for (name, _) in base.iter().filter(|(name, _)| !is_identity(name)) {
                        insert(self, name);
                    }
                }
                _ => {}
            }
        }
        takes
    }

    /// Returns whether this parameter, in lower case, may have been reset.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.unread || self.names.contains(name)
    }

    /// Notes that a text which is not buffered as a whole has a word by which it may reset startup values.
    pub fn note_unread(&mut self) {
        self.unread = true;
    }

    /// Returns whether nothing was reset.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.unread
    }

    /// Forgets the parameters, after the session was inspected.
    #[inline]
    pub fn clear(&mut self) {
        self.names.clear();
        self.unread = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::SettingsTable;
    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expect: &str) {
        let base = SettingsTable::default().intern([
            ("app.a", "x"),
            ("datestyle", "German, DMY"),
            ("role", "r"),
        ]);
        let mut taken = ResetParameters::default();
        for text in texts {
            taken.note(text.as_bytes(), &base);
        }
        let found = base.iter().filter(|(name, _)| taken.contains(name));
        let found: Vec<_> = found
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect();
        assert_eq!(found.join(" "), expect, "{texts:?}");
    }

    #[test]
    fn texts() {
        check(&["RESET App.A"], "app.a");
        check(&["RESET ROLE"], "role");
        check(&["SET SESSION app.a TO DEFAULT; SELECT 1"], "app.a");
        check(&["SET LOCAL app.a TO DEFAULT"], "app.a");
        check(&["RESET ALL"], "app.a datestyle");
        check(&["DISCARD ALL", "SET app.a = ''"], "datestyle");
        check(&["RESET app.a; SELECT set_config('app.a', '', false)"], "");
        check(&["RESET app.b", "SELECT 'RESET app.a'"], "");
        let mut taken = ResetParameters::default();
        taken.note_unread();
        assert!(taken.contains(b"app.a"), "it may have been");
        taken.clear();
        assert!(taken.is_empty());
    }
}
