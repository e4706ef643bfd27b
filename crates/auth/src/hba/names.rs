//! Parses the columns of databases and of users.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::{
    Wrong,
    line::{Word, fields, lines},
    pattern::Pattern,
};

/// The largest depth of files of names that name each other.
const DEPTH_MAX: usize = 10;

/// Returns the text of a file.
pub(super) type Read<'r> = &'r mut dyn FnMut(&Path) -> io::Result<String>;

/// The column that is parsed: databases or users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Databases,
    Users,
}

/// The names that match.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    all: bool,
    /// Whether a database with the user's name matches.
    same_user: bool,
    /// Whether a database matches if the user is a member of the role with its name.
    same_role: bool,
    /// Whether physical replication matches, which has no database.
    pub(super) replication: bool,
    names: BTreeSet<String>,
    patterns: Vec<Pattern>,
    /// Roles whose members match.
    roles: Vec<String>,
}

/// The result of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    No,
    /// The result depends on the roles of the user.
    Unknown,
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

impl Names {
    /// Parses a column of a rule in `file`.
    pub(super) fn parse(
        column: Column,
        field: &[Word],
        file: &Path,
        read: Read<'_>,
    ) -> Result<Self, Wrong> {
        let mut names = Self::default();
        for word in field {
            names.add(column, word, file, read, 0)?;
        }
        Ok(names)
    }

    /// Returns names that match everything, physical replication included.
    pub(super) fn everything() -> Self {
        Self {
            all: true,
            replication: true,
            ..Self::default()
        }
    }

    /// Returns whether the match depends on roles.
    pub(super) fn name_roles(&self) -> bool {
        self.same_role || !self.roles.is_empty()
    }

    /// Returns whether this database, or this user, matches. `roles` are the roles that the user is a member of.
    pub(super) fn fit(&self, name: &str, user: &str, roles: Option<&BTreeSet<String>>) -> Fit {
        let fits = self.all
            || self.same_user && name == user
            || self.names.contains(name)
            || self.patterns.iter().any(|pattern| pattern.is_match(name));
        if fits || !self.name_roles() {
            return fits.into();
        }
        let Some(roles) = roles else {
            return Fit::Unknown;
        };
        let is_member = self.same_role && roles.contains(name)
            || self.roles.iter().any(|role| roles.contains(role));
        is_member.into()
    }

    fn add(
        &mut self,
        column: Column,
        word: &Word,
        file: &Path,
        read: Read<'_>,
        depth: usize,
    ) -> Result<(), Wrong> {
        if let Some(path) = word.after('@') {
            return self.add_file(column, &beside(file, path), read, depth);
        }
        if let Some(pattern) = word.text.strip_prefix('/') {
            self.patterns.push(Pattern::parse(pattern)?);
            return Ok(());
        }
        let is_database = column == Column::Databases;
        match &*word.text {
            "" => return Err(Wrong::EmptyName),
            "all" if !word.quoted => self.all = true,
            "sameuser" if is_database && !word.quoted => self.same_user = true,
            "samerole" | "samegroup" if is_database && !word.quoted => self.same_role = true,
            "replication" if is_database && !word.quoted => self.replication = true,
            name => match word.after('+') {
                Some("") => return Err(Wrong::EmptyName),
                Some(role) if !is_database => self.roles.push(role.to_owned()),
                _ => drop(self.names.insert(name.to_owned())),
            },
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        column: Column,
        path: &Path,
        read: Read<'_>,
        depth: usize,
    ) -> Result<(), Wrong> {
        if depth >= DEPTH_MAX {
            return Err(Wrong::TooDeep(path.to_owned()));
        }
        let text =
            read(path).map_err(|error| Wrong::NamesFile(path.to_owned(), error.to_string()))?;
        for (_, line) in lines(&text) {
            for word in fields(&line)?.iter().flatten() {
                self.add(column, word, path, read, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Returns the path of a file that another file names, relative to that file's directory.
fn beside(file: &Path, name: &str) -> PathBuf {
    match file.parent() {
        Some(folder) => folder.join(name),
        None => PathBuf::from(name),
    }
}
