//! Entries of `[databases]` and `[users]` that were added, changed or removed while the process runs, and the text of the
//! file that keeps them (`api_config_file`).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    Entries, Place, Problem, ProblemKind, Problems, Scope, Secret, connstr,
    ini::{self, Line},
};

/// The mark before the name of a section whose entries are removed.
const REMOVED: &str = "removed ";

const HEAD: &str = "; Changes of databases and users by the HTTP API, which pgweir reads after its own file.\n\
    ; The API writes this file anew at each change that is saved.\n";

/// The change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The entry's text, `key=value key='a value'`; `None` if the entry is removed.
    pub(crate) text: Option<Secret>,
    pub(crate) place: Place,
}

/// Changed entries of `[databases]` and `[users]`. A password in one of them appears in no `Debug` output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes(BTreeMap<(Scope, String), Change>);

impl Changes {
    /// The sections whose entries can be changed.
    pub const SCOPES: [Scope; 2] = [Scope::Database, Scope::User];

    /// Reads the text of a file of changes.
    ///
    /// # Errors
    /// All lines without a meaning. [`Config::with_changes`](crate::Config::with_changes) checks the entries.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Problems> {
        let mut changes = Self::default();
        let mut problems = Vec::new();
        let mut section = None;
        for (line, meaning) in ini::lines(text) {
            let place = Place {
                file: file.to_owned(),
                line,
            };
            let mut wrong = |kind| {
                let place = place.clone();
                problems.push(Problem { place, kind });
            };
            match meaning {
                Ok(Line::Section(name)) => {
                    section = section_of(&name);
                    if section.is_none() {
                        wrong(ProblemKind::Syntax(
                            "[databases], [users], [removed databases] or [removed users]",
                        ));
                    }
                }
                Ok(Line::Include(_)) => wrong(ProblemKind::Syntax("no %include in this file")),
                Ok(Line::Entry { key, value }) => match section {
                    Some((scope, is_removed)) => {
                        let text = (!is_removed).then(|| Secret::new(value));
                        changes.0.insert((scope, key), Change { text, place });
                    }
                    None => wrong(ProblemKind::NoSection(key)),
                },
                Err(expected) => wrong(ProblemKind::Syntax(expected)),
            }
        }
        match problems.is_empty() {
            true => Ok(changes),
            false => Err(Problems(problems)),
        }
    }

    /// Adds the change of an entry: the text as in the ini file, or `None` to remove the entry. An earlier change of the
    /// same entry is dropped.
    pub fn set(&mut self, scope: Scope, name: &str, text: Option<Secret>) {
        self.set_from("HTTP API", scope, name, text);
    }

    /// Does the same for a change of another `origin`, which problems of the entry name.
    pub fn set_from(&mut self, origin: &str, scope: Scope, name: &str, text: Option<Secret>) {
        let place = Place {
            file: PathBuf::from(origin),
            line: 0,
        };
        let key = (scope, name.to_owned());
        self.0.insert(key, Change { text, place });
    }

    /// Returns the changes that lead from a running configuration to these changes of a file. `running`: the entries of the
    /// configuration; `before`: the changes of the file's entries that it has already; `file`: the file's entries.
    #[must_use]
    pub fn since(&self, before: &Self, file: &Entries, running: &Entries) -> Self {
        let mut steps = Self::default();
        for key in before.0.keys().chain(self.0.keys()) {
            let (text, place) = match (self.0.get(key), before.0.get(key)) {
                (Some(change), _) => (change.text.as_ref(), &change.place),
                (None, Some(change)) => (file.get(key), &change.place),
                (None, None) => continue,
            };
            if text != running.get(key) {
                let (text, place) = (text.cloned(), place.clone());
                steps.0.insert(key.clone(), Change { text, place });
            }
        }
        steps
    }

    /// Returns whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of changed entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether an entry was changed.
    #[must_use]
    pub fn has(&self, scope: Scope, name: &str) -> bool {
        self.0.contains_key(&(scope, name.to_owned()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Scope, &str, &Change)> {
        let all = self.0.iter();
        all.map(|((scope, name), change)| (*scope, &**name, change))
    }

    /// Returns the text of a file with these changes. The text may have passwords.
    #[must_use]
    pub fn file_text(&self) -> Secret {
        let mut text = HEAD.to_owned();
        for scope in Self::SCOPES {
            for is_removed in [false, true] {
                let mut of_section = self
                    .iter()
                    .filter(|(of, _, change)| *of == scope && change.text.is_none() == is_removed)
                    .peekable();
                if of_section.peek().is_some() {
                    let prefix = if is_removed { REMOVED } else { "" };
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "\n[{prefix}{}]", scope.section());
                }
                for (_, name, change) in of_section {
                    let name = name.replace('"', "\"\"");
                    let entry = change.text.as_ref().map_or("", Secret::expose);
                    let _ = writeln!(text, "\"{name}\" = {entry}");
                }
            }
        }
        Secret::new(text)
    }
}

fn section_of(name: &str) -> Option<(Scope, bool)> {
    let rest = name.strip_prefix(REMOVED);
    let section = rest.unwrap_or(name);
    let scope = Changes::SCOPES
        .into_iter()
        .find(|scope| scope.section() == section);
    scope.map(|scope| (scope, rest.is_some()))
}

/// Returns the text of an entry with these keys and values.
///
/// # Errors
/// The first key that is not a word, or whose value can't be written in a file.
pub fn entry_text(pairs: &[(String, String)]) -> Result<Secret, String> {
    let mut text = String::new();
    for (key, value) in pairs {
        let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.is_empty() || !key.chars().all(is_key) || value.contains(char::is_control) {
            return Err(key.clone());
        }
        let separator = if text.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{key}='{}'", value.replace('\'', "''"));
    }
    Ok(Secret::new(text))
}

/// Returns the keys and values of an entry's text, in their order.
///
/// # Errors
/// The problem of the text.
pub fn entry_pairs(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let pairs = connstr::pairs(text)?;
    let owned = pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    Ok(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Option<Secret> {
        Some(Secret::new(text))
    }

    #[test]
    fn a_file_of_changes_is_read_as_it_was_written() {
        let mut changes = Changes::default();
        changes.set(
            Scope::Database,
            "app",
            secret("host='a b' password='it''s; #x'"),
        );
        changes.set(
            Scope::Database,
            "an \"odd\" [name] = ;",
            secret("host='x\\'"),
        );
        changes.set(Scope::Database, "old", None);
        changes.set(Scope::User, "*", None);
        changes.set(Scope::User, "ann", secret("pool_size='3'"));
        let text = changes.file_text();
        let read = Changes::parse(text.expose(), Path::new("api.ini")).expect("no problem");
        let content = |changes: &Changes| {
            let all = changes.iter();
            let all =
                all.map(|(scope, name, change)| (scope, name.to_owned(), change.text.clone()));
            all.collect::<Vec<_>>()
        };
        assert_eq!(content(&read), content(&changes));
        assert_eq!(read.file_text(), text);
        assert!(read.has(Scope::Database, "old") && !read.has(Scope::User, "old"));
        assert!(!format!("{changes:?}").contains("it''s"));
    }

    #[test]
    fn steps_from_a_running_configuration() {
        let entry = |name: &str| (Scope::Database, name.to_owned());
        let entries = |list: &[(&str, &str)]| -> Entries {
            let all = list.iter();
            all.map(|(name, text)| (entry(name), Secret::new(*text)))
                .collect()
        };
        let file = entries(&[
            ("kept", "host=k"),
            ("hidden", "host=h"),
            ("shadowed", "host=s"),
        ]);
        let mut before = Changes::default();
        before.set(Scope::Database, "hidden", None);
        before.set(Scope::Database, "shadowed", secret("host=s2"));
        before.set(Scope::Database, "added", secret("host=a"));
        before.set(Scope::Database, "same", secret("host=x"));
        let running = entries(&[
            ("kept", "host=k"),
            ("shadowed", "host=s2"),
            ("added", "host=a"),
            ("same", "host=x"),
        ]);
        let mut now = Changes::default();
        now.set(Scope::Database, "same", secret("host=x"));
        now.set(Scope::Database, "kept", secret("host=k2"));
        let steps = now.since(&before, &file, &running);
        let text = |name: &str| steps.0.get(&entry(name)).map(|change| change.text.clone());
        assert_eq!(text("hidden"), Some(secret("host=h")), "the file has it");
        assert_eq!(text("shadowed"), Some(secret("host=s")));
        assert_eq!(text("added"), Some(None), "nothing has it any more");
        assert_eq!(
            (text("same"), text("kept")),
            (None, Some(secret("host=k2")))
        );
    }

    #[test]
    fn invalid_lines_are_refused() {
        for (text, line) in [
            ("[pgbouncer]\nlisten_port = 1", 1),
            ("app = host=x", 1),
            ("[databases]\n%include /etc/passwd", 2),
            ("[databases]\nnonsense", 2),
        ] {
            let problems = Changes::parse(text, Path::new("api.ini")).expect_err("a problem");
            assert_eq!(problems.0[0].place.line, line, "{text}");
        }
    }

    #[test]
    fn values_are_quoted() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let text = entry_text(&[pair("host", "a, b"), pair("password", "it's")]);
        assert_eq!(text, Ok(Secret::new("host='a, b' password='it''s'")));
        for (key, value) in [
            ("a=b", "x"),
            ("", "x"),
            ("host", "a\nb"),
            ("host", "\0"),
            ("a b", "x"),
        ] {
            assert_eq!(entry_text(&[pair(key, value)]), Err(key.to_owned()));
        }
    }
}
