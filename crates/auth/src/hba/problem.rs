//! The problems of lines in the HBA file and the ident file.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{LdapProblem, PamProblem};

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaProblem {
    /// The file.
    pub file: PathBuf,
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem.
    pub wrong: Wrong,
}

impl HbaProblem {
    pub(super) fn new(file: &Path, line: usize, wrong: Wrong) -> Self {
        Self {
            file: file.to_owned(),
            line,
            wrong,
        }
    }
}

impl fmt::Display for HbaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.wrong)
    }
}

impl std::error::Error for HbaProblem {}

/// The problem of a line, with the right form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A quote is not closed.
    QuoteOpen,
    /// The line does not begin with a type of connection.
    Type(String),
    /// A column is missing: its name.
    Missing(&'static str),
    /// A column has several words, but may only have one: the column's name.
    Several(&'static str),
    /// The address is invalid.
    Address(String),
    /// The address has no mask.
    NoMask(String),
    /// The mask does not fit the address.
    Mask(String),
    /// The method does not exist.
    Method(String),
    /// The method has no such option.
    Option(String),
    /// An option is not of the form `name=value`.
    NotAnOption(String),
    /// `map=` is set for a method without a map.
    MapUnused,
    /// The ident file has no such map.
    NoSuchMap(String),
    /// A file of names can't be read (its name, and the reason).
    NamesFile(PathBuf, String),
    /// Files of names name each other in a circle, or too deep.
    TooDeep(PathBuf),
    /// A name is empty.
    EmptyName,
    /// The regular expression is invalid (with the reason).
    Pattern(String, String),
    /// There is text after the last column of the ident file.
    Surplus(String),
    /// `\1` is used without a regular expression with a group.
    NoGroup,
    /// The options of LDAP are wrong.
    Ldap(LdapProblem),
    /// An option of the method pam is wrong.
    Pam(PamProblem),
    /// The ident file refers to a role's members.
    RoleInMap(String),
}

/// From a word with this text on, the words of a line may be a password of LDAP: `ldapbinddn`, `ldapbindpasswd`, or a
/// misspelling of them.
const SECRETS: &str = "ldapbind";

impl Wrong {
    /// Returns the problem without any word of `line` that may be a part of a password.
    pub(super) fn without_secret(mut self, line: &str) -> Self {
        let plain = |text: &str| text.replace('"', "").to_ascii_lowercase();
        let line = plain(line);
        let Some(secrets) = line.find(SECRETS).and_then(|at| line.get(at..)) else {
            return self;
        };
        if let Some(word) = self
            .word_mut()
            .filter(|word| secrets.contains(&plain(word)))
        {
            "****".clone_into(word);
        }
        self
    }

    /// Returns the word of the line that the problem quotes.
    fn word_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Type(word)
            | Self::Address(word)
            | Self::NoMask(word)
            | Self::Mask(word)
            | Self::Method(word)
            | Self::Option(word)
            | Self::NotAnOption(word)
            | Self::NoSuchMap(word)
            | Self::Surplus(word)
            | Self::RoleInMap(word) => Some(word),
            Self::Pam(
                PamProblem::Unknown(word)
                | PamProblem::NotAnOption(word)
                | PamProblem::Service(word)
                | PamProblem::HostName(word),
            ) => Some(word),
            // Names of users and databases stand before all options.
            Self::NamesFile(..) | Self::TooDeep(_) | Self::Pattern(..) => None,
            Self::QuoteOpen
            | Self::Missing(_)
            | Self::Several(_)
            | Self::MapUnused
            | Self::EmptyName
            | Self::NoGroup
            | Self::Ldap(_) => None,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuoteOpen => f.write_str(
                "a double quote is not closed on this line; one inside a name is written twice",
            ),
            Self::Type(word) => write!(
                f,
                "expected local, host, hostssl or hostnossl at the beginning, not \"{word}\""
            ),
            Self::Missing(column) => write!(
                f,
                "the {column} is missing; a rule is: local DATABASE USER METHOD [OPTIONS], or \
                 host|hostssl|hostnossl DATABASE USER ADDRESS METHOD [OPTIONS]; an ident map is: \
                 MAP SYSTEM-USER DATABASE-USER"
            ),
            Self::Several(column) => write!(f, "the {column} must be one word, without a comma"),
            Self::Address(word) => write!(
                f,
                "expected all, or an address with its mask such as 10.0.0.0/8 or ::1/128, not \"{word}\" \
                 (host names, samehost and samenet are not supported)"
            ),
            Self::NoMask(address) => write!(
                f,
                "the address \"{address}\" has no mask; write {address}/32 (/128 for IPv6), or the \
                 mask as a word of its own"
            ),
            Self::Mask(word) => write!(
                f,
                "\"{word}\" is no mask for this address; expected its number of bits (0 to 32, for IPv6 \
                 to 128), or a mask such as 255.255.0.0"
            ),
            Self::Method(word) => write!(
                f,
                "expected one of trust, reject, md5, scram-sha-256, password, cert, peer, ldap, pam as the method, \
                 not \"{word}\""
            ),
            Self::Option(word) => write!(f, "this method has no option \"{word}\""),
            Self::NotAnOption(word) => {
                write!(f, "expected an option as name=value, not \"{word}\"")
            }
            Self::MapUnused => f.write_str("map= is for the methods cert and peer only"),
            Self::NoSuchMap(name) => {
                write!(f, "auth_ident_file has no map \"{name}\"; add one, or leave map= out")
            }
            Self::NamesFile(path, error) => {
                write!(f, "the file of names {} can't be read: {error}", path.display())
            }
            Self::TooDeep(path) => write!(
                f,
                "the file of names {} is named within too many others; name it once",
                path.display()
            ),
            Self::EmptyName => f.write_str("a name is empty; write it, or all"),
            Self::Pattern(text, why) => {
                write!(f, "\"/{text}\" is no regular expression: {why}")
            }
            Self::Surplus(word) => {
                write!(f, "\"{word}\" is one word too many; a map has three on a line")
            }
            Self::NoGroup => f.write_str(
                "\\1 stands for the first group of a regular expression, and the system user is none \
                 with a group; write it as /^(.*)@example\\.com$",
            ),
            Self::Ldap(problem) => problem.fmt(f),
            Self::Pam(problem) => problem.fmt(f),
            Self::RoleInMap(word) => write!(
                f,
                "\"{word}\": roles are not supported in ident maps; name the users, or put +role in the \
                 rule's column of users"
            ),
        }
    }
}
