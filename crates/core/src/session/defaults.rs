//! Whose sessions begin with other values from now on: `ALTER ROLE ... SET`, `ALTER DATABASE ... SET`.

use super::schema::words;

/// The sessions whose defaults a text changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Of this login user; of all without one.
    role: Option<String>,
    /// In this database; in all without one.
    database: Option<String>,
}

impl Defaults {
    /// What a text changes, if it does: statements anywhere in it count, and what only looks like one as
    /// well. Of several with different aims it is everybody.
    #[must_use]
    pub fn changed_by(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let folded = text.to_ascii_lowercase();
        let statements = folded.match_indices("alter");
        let changes = statements.filter_map(|(at, _)| Self::of_statement(&text[at..]));
        changes.reduce(Self::and)
    }

    /// Are sessions of this user in this database among them?
    #[must_use]
    pub fn concern(&self, role: &str, database: &str) -> bool {
        let is = |aim: &Option<String>, name| aim.as_ref().is_none_or(|aim| aim == name);
        is(&self.role, role) && is(&self.database, database)
    }

    /// All that either concerns.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let common = |one: Option<String>, other: Option<String>| {
            one.filter(|one| other.as_ref() == Some(one))
        };
        Self {
            role: common(self.role, other.role),
            database: common(self.database, other.database),
        }
    }

    fn of_statement(text: &str) -> Option<Self> {
        const WORDS: usize = 7;
        let words: Vec<_> = words(text).take(WORDS).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["alter", "database", name, "set" | "reset", what, ..] if what != "tablespace" => {
                Some(Self {
                    role: None,
                    database: Some(name.to_owned()),
                })
            }
            [
                "alter",
                "role" | "user",
                name,
                "in",
                "database",
                database,
                "set" | "reset",
                ..,
            ] => Some(Self {
                role: of_role(name),
                database: Some(database.to_owned()),
            }),
            ["alter", "role" | "user", name, "set" | "reset", ..] => Some(Self {
                role: of_role(name),
                database: None,
            }),
            _ => None,
        }
    }
}

/// Words that stand for other names are anybody.
fn of_role(name: &str) -> Option<String> {
    let stands_for_one = matches!(
        name,
        "all" | "current_user" | "current_role" | "session_user" | "user"
    );
    (!stands_for_one).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> Option<(Option<String>, Option<String>)> {
        Defaults::changed_by(text.as_bytes()).map(|of| (of.role, of.database))
    }

    #[test]
    fn whose() {
        let some = |name: &str| Some(name.to_owned());
        for (text, role, database) in [
            ("ALTER ROLE app SET search_path TO a, b", some("app"), None),
            ("alter user \"An App\" reset all;", some("An App"), None),
            (
                "alter role APP in database Db set x.y = 1",
                some("app"),
                some("db"),
            ),
            ("ALTER DATABASE db SET datestyle = 'SQL'", None, some("db")),
            ("ALTER ROLE ALL SET jit TO off", None, None),
            ("alter role current_user\n  set jit to off", None, None),
            ("BEGIN; ALTER ROLE a SET b = 1; COMMIT", some("a"), None),
            ("ALTER ROLE a SET b = 1; ALTER ROLE c SET b = 1", None, None),
            (
                "ALTER ROLE a SET b = 1; alter database d set b = 1",
                None,
                None,
            ),
        ] {
            assert_eq!(changed(text), Some((role, database)), "{text}");
        }
        for text in [
            "ALTER ROLE a WITH PASSWORD 'set'",
            "ALTER ROLE a RENAME TO b",
            "ALTER DATABASE a SET TABLESPACE b",
            "ALTER TABLE a SET (fillfactor = 70)",
            "",
        ] {
            assert_eq!(changed(text), None, "{text}");
        }
    }

    #[test]
    fn whom_they_concern() {
        let of = |text: &str| Defaults::changed_by(text.as_bytes()).expect(text);
        let of_role = of("alter role a set b = 1");
        assert!(of_role.concern("a", "any") && !of_role.concern("b", "any"));
        let of_both = of("alter role a in database d set b = 1");
        assert!(of_both.concern("a", "d") && !of_both.concern("a", "e"));
        assert!(of("alter role all set b = 1").concern("a", "d"));
    }
}
