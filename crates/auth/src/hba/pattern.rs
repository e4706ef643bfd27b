//! Regular expressions for names.

use regex::{Regex, RegexBuilder};

use super::Wrong;

/// The most memory that one compiled expression may take, in bytes.
const SIZE_MAX: usize = 1 << 20;

/// A regular expression that may match anywhere in a name, unless it is anchored.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Compiles the text after the `/`.
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        let compiled = RegexBuilder::new(text).size_limit(SIZE_MAX).build();
        compiled.map(Self).map_err(|error| {
            // The full message marks the place by a line of carets.
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            Wrong::Pattern(text.to_owned(), why.to_owned())
        })
    }

    pub(super) fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// Returns whether the expression has a group that `\1` can refer to.
    pub(super) fn has_group(&self) -> bool {
        self.0.captures_len() > 1
    }

    /// Returns the text that the first group has matched, empty without a group, or `None` if the name doesn't match.
    pub(super) fn first_group<'n>(&self, name: &'n str) -> Option<&'n str> {
        let groups = self.0.captures(name)?;
        Some(groups.get(1).map_or("", |group| group.as_str()))
    }
}
