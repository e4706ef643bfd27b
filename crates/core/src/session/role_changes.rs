//! Texts that change the session defaults of a role or a database, or that drop a role.

use super::schema::words_of;

/// The largest number of names that are kept for one transaction.
pub const NAMES_MAX: usize = 1000;

/// A transaction that may have changed the session defaults of roles or databases, or dropped roles.
#[derive(Debug)]
pub(crate) struct DefaultsChange {
    /// The roles and databases.
    pub(crate) names: Vec<String>,
    /// The user of the transaction's server.
    pub(crate) user: Box<str>,
    /// Whether that user is a superuser.
    pub(crate) is_by_superuser: bool,
}

impl DefaultsChange {
    /// Returns whether the change concerns the servers with which this user is connected to this database. A text names
    /// roles that it may not change, too: so only a superuser's text concerns the servers of other users.
    pub(crate) fn concerns(&self, user: &str, database: Option<&str>) -> bool {
        let has = |name: &str| self.names.iter().any(|found| found == name);
        let is_own = *self.user == *user;
        let is_named = has("all")
            || has(user)
            || database.is_some_and(has)
            || is_own && ["current_user", "session_user"].into_iter().any(has);
        is_named && (self.is_by_superuser || is_own)
    }
}

/// Returns the names of roles and databases whose session defaults a text may change, and of roles that it may drop.
/// The words are not parsed by a grammar: a name too many only makes pgweir open new server connections without need.
#[must_use]
pub fn changed_roles(text: &[u8]) -> Vec<String> {
    let words = words_of(text, usize::MAX);
    let mut found = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let behind = &words[at + 2..];
        match (pair[0].as_str(), pair[1].as_str()) {
            ("drop", "role" | "user" | "group") => {
                // These words also contain all names in later statements.
                found.extend_from_slice(&behind[..behind.len().min(NAMES_MAX)]);
                break;
            }
            ("alter", "role" | "user" | "database") => {
                // ALTER ROLE name [IN DATABASE name] SET
                let verb = 1 + 3 * usize::from(behind.get(1).is_some_and(|word| word == "in"));
                let is_set = |word: &String| word == "set" || word == "reset";
                if behind.get(verb).is_some_and(is_set) {
                    found.extend(behind.first().cloned());
                }
            }
            _ => {}
        }
    }
    found.truncate(NAMES_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_concerned() {
        let change = |names: &[&str], is_by_superuser| DefaultsChange {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            user: "own".into(),
            is_by_superuser,
        };
        assert!(change(&["other"], true).concerns("other", None));
        assert!(!change(&["other"], false).concerns("other", Some("other")));
        assert!(!change(&["other"], true).concerns("third", Some("db")));
        for name in ["all", "own", "db", "current_user", "session_user"] {
            assert!(change(&[name], false).concerns("own", Some("db")), "{name}");
        }
        assert!(!change(&["current_user"], true).concerns("other", None));
        assert!(change(&["all"], true).concerns("other", None));
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(changed_roles(text.as_bytes()), expect, "{text}");
    }

    #[test]
    fn settings() {
        check("ALTER ROLE a SET b = 1", &["a"]);
        check("begin; alter\n user \"A b\" reset all", &["A b"]);
        check(
            "ALTER DATABASE a SET b TO 1; ALTER ROLE ALL IN DATABASE d RESET c",
            &["a", "all"],
        );
        for text in [
            "ALTER ROLE a PASSWORD 'set'",
            "ALTER TABLE role SET (a = 1)",
            "ALTER DATABASE a RENAME TO b",
            "walter role a set",
            "",
            "ALTER",
            "ALTER ROLE",
            "ALTER ROLE a IN DATABASE b",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn roles_that_are_dropped() {
        check("DROP ROLE IF EXISTS a, B", &["if", "exists", "a", "b"]);
        check("begin; drop\nuser \"A\"", &["A"]);
        check(
            "drop role a; drop user b; alter role c set d = 1",
            &["a", "drop", "user", "b", "alter", "role", "c", "set", "d"],
        );
        for text in ["DROP TABLE a", "REVOKE a FROM role", "drop"] {
            check(text, &[]);
        }
    }
}
