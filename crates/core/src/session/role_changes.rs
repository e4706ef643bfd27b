//! Texts that change the session defaults of a role or a database, or that drop a role.

use super::schema::words_of;

/// The largest number of names that are kept for one transaction.
pub const NAMES_MAX: usize = 1000;

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
