//! The users of `auth_file`.
//!
//! The format is PgBouncer's: one user per line, `"name" "secret"`. A quote inside a string is doubled, text after the
//! second string is ignored, and `;` starts a comment line. pgweir takes `#` for the start of a comment line, too.
//! PgBouncer stops at an invalid line, and so loses all users below it. This parser reports all invalid lines
//! instead, and returns no list.

mod line;
mod secret;

use std::{collections::BTreeMap, fmt, sync::Arc};

pub use line::Fault;
pub use secret::Secret;

/// The users of `auth_file`, by name.
#[derive(Debug, Clone, Default)]
pub struct Userlist {
    users: BTreeMap<String, Arc<Secret>>,
    warnings: Vec<UserlistWarning>,
    /// The number of users with a SCRAM secret.
    scram: usize,
}

impl Userlist {
    /// Parses the text of an `auth_file`. If a user has several lines, the last one counts.
    ///
    /// # Errors
    /// All invalid lines.
    pub fn parse(text: &str) -> Result<Self, Vec<UserlistError>> {
        let mut list = Self::default();
        let mut first_lines = BTreeMap::new();
        let mut errors = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, content) in (1..).zip(text.split('\n')) {
            match line::parse(content) {
                Ok(None) => {}
                Ok(Some((user, secret))) => {
                    let secret = Secret::parse(&secret);
                    list.warn_of(number, &user, &secret, &mut first_lines);
                    list.insert(user, secret);
                }
                Err(fault) => errors.push(UserlistError {
                    line: number,
                    fault,
                }),
            }
        }
        if errors.is_empty() {
            Ok(list)
        } else {
            Err(errors)
        }
    }

    /// Returns the secret of `user`.
    #[must_use]
    pub fn get(&self, user: &str) -> Option<&Arc<Secret>> {
        self.users.get(user)
    }

    /// Adds a user, or replaces its secret.
    pub fn insert(&mut self, user: impl Into<String>, secret: Secret) {
        let is_scram = |secret: &Secret| usize::from(matches!(secret, Secret::Scram(_)));
        self.scram += is_scram(&secret);
        if let Some(before) = self.users.insert(user.into(), Arc::new(secret)) {
            self.scram -= is_scram(&before);
        }
    }

    /// Returns whether at least half of the users have a SCRAM secret.
    #[must_use]
    pub fn have_mostly_scram(&self) -> bool {
        self.scram * 2 >= self.users.len()
    }

    /// Returns the number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether the list has no user.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the users, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Secret>)> {
        self.users
            .iter()
            .map(|(user, secret)| (user.as_str(), secret))
    }

    /// Returns warnings about lines that are allowed but hardly intended, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[UserlistWarning] {
        &self.warnings
    }

    fn warn_of(
        &mut self,
        line: usize,
        user: &str,
        secret: &Secret,
        first_lines: &mut BTreeMap<String, usize>,
    ) {
        if user.is_empty() {
            self.warnings.push(UserlistWarning::Nameless { line });
        }
        if let Some(&earlier_line) = first_lines.get(user) {
            self.warnings.push(UserlistWarning::Repeated {
                line,
                earlier_line,
                user: user.to_owned(),
            });
        }
        first_lines.insert(user.to_owned(), line);
        if secret.looks_damaged() {
            self.warnings.push(UserlistWarning::Damaged {
                line,
                user: user.to_owned(),
            });
        }
    }
}

/// An invalid line of the userlist. The error quotes no text of the line, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserlistError {
    /// The line, from 1.
    pub line: usize,
    /// The fault of the line.
    pub fault: Fault,
}

impl fmt::Display for UserlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl std::error::Error for UserlistError {}

/// A warning about a line that is allowed but hardly intended. The warning quotes no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserlistWarning {
    /// A user has two lines; the later one counts, as in PgBouncer.
    Repeated {
        /// The line that counts, from 1.
        line: usize,
        /// The line that it replaces.
        earlier_line: usize,
        /// The user.
        user: String,
    },
    /// A line has an empty user name, so that it has no effect: clients can't connect without a name.
    Nameless {
        /// The line, from 1.
        line: usize,
    },
    /// A secret looks like an incomplete md5 or SCRAM secret, and is taken for a plain password.
    Damaged {
        /// The line, from 1.
        line: usize,
        /// The user.
        user: String,
    },
}

impl fmt::Display for UserlistWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated {
                line,
                earlier_line,
                user,
            } => write!(
                f,
                "line {line}: user {user:?} was on line {earlier_line} already; this line counts"
            ),
            Self::Nameless { line } => write!(
                f,
                "line {line}: the user name is empty, and nobody can connect with that; \
                 name the user or delete the line"
            ),
            Self::Damaged { line, user } => write!(
                f,
                "line {line}: the secret of user {user:?} looks like an md5 or SCRAM secret that \
                 lost a part, and is taken for a plain password; copy rolpassword from \
                 pg_authid again, and beware of a shell that expands the $ in it"
            ),
        }
    }
}
