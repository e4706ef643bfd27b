//! What can be wrong with an ini file, said so that it can be put right.

use std::{error, fmt, path::PathBuf};

use crate::Scope;

/// A place in an ini file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named on the command line or in `%include`.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub kind: ProblemKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind)
    }
}

/// What can be wrong. No variant holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file could not be read: the system's words.
    Unreadable(String),
    /// A file that it includes can't be read.
    UnreadableInclude {
        /// As it is written.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// Files include each other, or too deep.
    IncludeTooDeep,
    /// The line is none of the forms that there are: what it should be.
    Syntax(&'static str),
    /// A key before the first section.
    NoSection(String),
    /// No such section.
    UnknownSection {
        /// As written.
        name: String,
        /// A section with a name much like it.
        nearest: Option<&'static str>,
    },
    /// No such key in this section.
    UnknownKey {
        /// As written.
        key: String,
        /// Where it stands.
        scope: Scope,
        /// A key with a name much like it.
        nearest: Option<&'static str>,
    },
    /// The key is known, but in another section.
    WrongSection {
        /// As written.
        key: String,
        /// Where it stands.
        scope: Scope,
        /// Where it can stand.
        belongs: Vec<Scope>,
    },
    /// The value is wrong.
    BadValue {
        /// The key.
        key: String,
        /// The value as written; `None` if it is a secret.
        value: Option<String>,
        /// What would be right.
        expected: String,
    },
    /// The entry of a database, user or peer is not a list of `key=value`.
    BadEntry {
        /// The entry's name.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name belongs to the console.
    ReservedDatabase(String),
    /// The key can only be changed by a restart.
    NeedsRestart(String),
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

/// All that is wrong, in the order of the lines; never empty. Displayed one to a line.
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

/// Something accepted that the operator should know: a key without effect, mostly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where it is set.
    pub place: Place,
    /// The section that it is set in.
    pub scope: Scope,
    /// The key.
    pub key: &'static str,
    /// What is to be known.
    pub text: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.place, self.key, self.text)
    }
}
