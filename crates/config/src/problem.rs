//! The problems of an ini file, described so that the operator can fix them.

use std::{error, fmt, path::PathBuf};

use crate::Scope;

/// A place in an ini file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named on the command line or in `%include`.
    pub file: PathBuf,
    /// The line, from 1, or 0 for the file as a whole.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

/// A problem of an ini file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place of the problem.
    pub place: Place,
    /// The kind of the problem.
    pub kind: ProblemKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind)
    }
}

/// The kinds of problems. No variant holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file could not be read, with the system's error message.
    Unreadable(String),
    /// An included file can't be read.
    UnreadableInclude {
        /// The file, as written.
        file: PathBuf,
        /// The reason.
        error: String,
    },
    /// Files include each other, or their depth is too large.
    IncludeTooDeep,
    /// The line has none of the possible forms; describes the right one.
    Syntax(&'static str),
    /// A key stands before the first section.
    NoSection(String),
    /// The section does not exist.
    UnknownSection {
        /// The name, as written.
        name: String,
        /// A section with a similar name.
        nearest: Option<&'static str>,
    },
    /// The section has no such key.
    UnknownKey {
        /// The key, as written.
        key: String,
        /// The section in which the key stands.
        scope: Scope,
        /// A key with a similar name.
        nearest: Option<&'static str>,
    },
    /// The key belongs to another section.
    WrongSection {
        /// The key, as written.
        key: String,
        /// The section in which the key stands.
        scope: Scope,
        /// The sections in which the key may stand.
        belongs: Vec<Scope>,
    },
    /// The value is wrong.
    BadValue {
        /// The key.
        key: String,
        /// The value as written; `None` if it is a secret.
        value: Option<String>,
        /// The right form of a value.
        expected: String,
    },
    /// The entry of a database, user or peer is not a list of `key=value`.
    BadEntry {
        /// The entry's name.
        entry: String,
        /// The problem of the entry.
        why: &'static str,
    },
    /// The name belongs to the console.
    ReservedDatabase(String),
    /// The key can only be changed by a restart.
    NeedsRestart(String),
}

impl ProblemKind {
    /// Returns the key, or the name of the entry or section, that the problem is about.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::NoSection(key)
            | Self::UnknownKey { key, .. }
            | Self::WrongSection { key, .. }
            | Self::BadValue { key, .. }
            | Self::NeedsRestart(key) => Some(key),
            Self::UnknownSection { name, .. } | Self::ReservedDatabase(name) => Some(name),
            Self::BadEntry { entry, .. } => Some(entry),
            Self::Unreadable(_)
            | Self::UnreadableInclude { .. }
            | Self::IncludeTooDeep
            | Self::Syntax(_) => None,
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Self::UnreadableInclude { file, error } => {
                write!(f, "cannot read {}: {error}", file.display())
            }
            Self::IncludeTooDeep => {
                f.write_str("%include goes too deep: does a file include itself?")
            }
            Self::Syntax(expected) => write!(f, "syntax error: expected {expected}"),
            Self::NoSection(key) => {
                write!(
                    f,
                    "{key:?} stands before any section: expected a line like [pgbouncer] above it"
                )
            }
            Self::UnknownSection { name, nearest } => {
                write!(f, "unknown section [{}]: ", name.escape_debug())?;
                match nearest {
                    Some(nearest) => write!(f, "did you mean [{nearest}]?"),
                    None => f.write_str("there are [pgbouncer], [databases], [users] and [peers]"),
                }
            }
            Self::UnknownKey {
                key,
                scope,
                nearest,
            } => {
                write!(f, "unknown key {key:?} in [{}]", scope.section())?;
                nearest.map_or(Ok(()), |nearest| write!(f, ": did you mean {nearest:?}?"))
            }
            Self::WrongSection {
                key,
                scope,
                belongs,
            } => {
                let belongs: Vec<_> = belongs
                    .iter()
                    .map(|scope| format!("[{}]", scope.section()))
                    .collect();
                write!(
                    f,
                    "{key:?} does not belong in [{}], but in {}",
                    scope.section(),
                    belongs.join(" or ")
                )
            }
            Self::BadValue {
                key,
                value: Some(value),
                expected,
            } => {
                write!(f, "wrong value {value:?} for {key:?}: expected {expected}")
            }
            Self::BadValue {
                key,
                value: None,
                expected,
            } => write!(f, "wrong value for {key:?}: expected {expected}"),
            Self::BadEntry { entry, why } => write!(f, "wrong entry {entry:?}: {why}"),
            Self::NeedsRestart(key) => {
                write!(f, "{key:?} can only be changed in the file, by a restart")
            }
            Self::ReservedDatabase(name) => {
                write!(
                    f,
                    "database name {name:?} is reserved for the console: choose another, with dbname={name}"
                )
            }
        }
    }
}

/// All problems, in the order of the lines; never empty. Displays one problem per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl error::Error for Problems {}

/// A message about an accepted setting, mostly about a key without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The place of the setting.
    pub place: Place,
    /// The section of the setting.
    pub scope: Scope,
    /// The key.
    pub key: &'static str,
    /// The message.
    pub text: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.place, self.key, self.text)
    }
}
